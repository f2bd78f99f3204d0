"""INSERT, UPDATE and DELETE: the columns that are sent, and their values (airport §7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sparkport.testing.exchange import VECTOR, Changed, Statement
from sparkport.testing.failures import ClientSideError
from sparkport.testing.objects import AttachedColumn, AttachedTable
from sparkport.testing.scan import Predicate, columns_by_name, matching, resolved, scan_columns
from sparkport.testing.session import Session
from sparkport.testing.types import quoted, updates_in_place

__all__ = [
    "Changed",
    "Rows",
    "delete",
    "delete_rows",
    "insert",
    "insert_select",
    "update",
    "update_rows",
]

Rows: TypeAlias = (
    pa.Table | pa.RecordBatch | Mapping[str, Any] | Iterable[pa.RecordBatch | pa.Table]
)
"""Rows to insert: a table, a batch, columns by name, or batches one after the other."""


def insert(session: Session, table: AttachedTable, rows: Rows, returning: bool) -> Changed:
    if isinstance(rows, Mapping):
        rows = pa.table(rows)
    parts: Iterable[Any] = rows
    if isinstance(rows, pa.Table | pa.RecordBatch):
        _provided(table, rows.schema.names)
        parts = [rows]

    def source() -> Iterator[pa.RecordBatch]:
        for part in parts:
            given = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
            provided = _provided(table, given.schema.names)
            select = {name: quoted(given_name) for name, given_name in provided.items()}
            yield from _inserted(session, table, given, select)

    return _insert_statement(session, table, source, returning)


def insert_select(
    session: Session,
    table: AttachedTable,
    scanned: AttachedTable,
    select: Mapping[str, str] | None,
    where: str | None,
    returning: bool,
) -> Changed:
    if select is None:
        names = [column.name for column in table.columns if scanned.column(column.name)]
        select = {name: quoted(name) for name in names}
    expressions = {resolved(table, name).name: expression for name, expression in select.items()}
    needed = _mentioned(session, scanned, expressions.values())

    def source() -> Iterator[pa.RecordBatch]:
        rows = scan_columns(session, scanned, needed, where, hang="T24")
        yield from _inserted(session, table, matching(session, rows, where), expressions)

    return _insert_statement(session, table, source, returning)


def update(
    session: Session,
    table: AttachedTable,
    assignments: Mapping[str, Any],
    where: Predicate | None,
    returning: bool,
) -> Changed:
    assigned = {resolved(table, name): value for name, value in assignments.items()}
    texts = [value for value in assigned.values() if isinstance(value, str)]
    needed = _mentioned(session, table, texts)
    if any(callable(value) for value in assigned.values()):
        needed = [column.name for column in table.columns]
    added = _added(session, table, list(assigned), returning)
    rowid = _rowid(table)

    def source() -> Iterator[pa.RecordBatch]:
        tail = [*(column.name for column in added), "rowid"]
        rows = scan_columns(session, table, needed, where, tail=tail, hang="T24")
        rows = matching(session, rows, where)
        select = {}
        for number, (column, value) in enumerate(assigned.items()):
            expression = value
            if not isinstance(value, str):
                expression = f"assigned {number}"
                values = value(rows) if callable(value) else [value] * rows.num_rows
                rows = rows.append_column(expression, _array(values))
                expression = quoted(expression)
            select[column.name] = _cast(expression, column)
        select |= {column.name: _cast(quoted(column.name), column) for column in (*added, rowid)}
        yield from _vectors(session.local.evaluate(rows, select))

    sent = _sent(session, [*assigned, *added, rowid])
    return Statement(session, table, "update", sent, source, returning).run()


def update_rows(session: Session, table: AttachedTable, rows: pa.Table, returning: bool) -> Changed:
    rowid = _rowid(table)
    columns = [resolved(table, name) for name in rows.column_names if name.casefold() != "rowid"]
    columns.append(rowid)

    def source() -> Iterator[pa.RecordBatch]:
        select = {column.name: _cast(quoted(column.name), column) for column in columns}
        yield from _vectors(session.local.evaluate(rows, select))

    return Statement(session, table, "update", _sent(session, columns), source, returning).run()


def delete(
    session: Session, table: AttachedTable, where: Predicate | None, returning: bool
) -> Changed:
    rowid = _rowid(table)

    def source() -> Iterator[pa.RecordBatch]:
        rows = scan_columns(session, table, [], where, tail=["rowid"], hang="T24")
        rows = matching(session, rows, where)
        yield from _vectors(session.local.evaluate(rows, {"rowid": _cast('"rowid"', rowid)}))

    return Statement(session, table, "delete", _sent(session, [rowid]), source, returning).run()


def delete_rows(
    session: Session, table: AttachedTable, row_ids: Sequence[Any] | pa.Array, returning: bool
) -> Changed:
    rowid = _rowid(table)

    def source() -> Iterator[pa.RecordBatch]:
        rows = pa.table({"rowid": _array(row_ids)})
        yield from _vectors(session.local.evaluate(rows, {"rowid": _cast('"rowid"', rowid)}))

    return Statement(session, table, "delete", _sent(session, [rowid]), source, returning).run()


# ------------------------------------------------------------------------------------------ INSERT


def _insert_statement(
    session: Session, table: AttachedTable, source: Any, returning: bool
) -> Changed:
    return Statement(
        session, table, "insert", _sent(session, table.columns), source, returning
    ).run()


def _provided(table: AttachedTable, names: Sequence[str]) -> dict[str, str]:
    """Return the table's columns that the rows have, with the rows' spelling."""
    provided = {}
    for name in names:
        column = table.column(name)
        if column is None or column is table.rowid:
            raise ClientSideError(
                f'Binder Error: Table "{table.name}" does not have a column named "{name}"'
            )
        provided[column.name] = name
    return provided


def _inserted(
    session: Session, table: AttachedTable, rows: pa.Table, select: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield all columns in table order, with defaults, encoded and checked as by DuckDB."""
    complete = {
        column.name: _cast(select.get(column.name, column.default or "NULL"), column)
        for column in table.columns
    }
    for batch in _vectors(session.local.evaluate(rows, complete)):
        _check_constraints(session, table, batch)
        yield batch


def _check_constraints(session: Session, table: AttachedTable, batch: pa.RecordBatch) -> None:
    """Check NOT NULL and CHECK, which the client enforces for INSERT only (airport §7.5)."""
    for column, array in zip(table.columns, batch.columns, strict=True):
        if not column.nullable and array.null_count:
            raise ClientSideError(
                f"Constraint Error: NOT NULL constraint failed: {table.name}.{column.name}"
            )
    for check in table.checks:
        failed = session.local.mask(pa.Table.from_batches([batch]), f"NOT ({check})")
        if failed.combine_chunks().true_count:
            raise ClientSideError(
                f"Constraint Error: CHECK constraint failed on table {table.name} with expression "
                f"CHECK({check})"
            )


# ------------------------------------------------------------------------------------------ UPDATE


def _added(
    session: Session, table: AttachedTable, assigned: list[AttachedColumn], returning: bool
) -> list[AttachedColumn]:
    """Return the columns that UPDATE sends besides those it sets, in reverse order.

    DuckDB's order is arbitrary; no server may rely on it.
    """
    others = [column for column in reversed(table.columns) if column not in assigned]
    if returning or not all(updates_in_place(column.field) for column in assigned):
        return others
    names = [column.name for column in table.columns]
    related: set[str] = set()
    for check in table.checks:
        mentioned = set(session.local.columns_in(check, names))
        if mentioned & {column.name for column in assigned}:
            related |= mentioned
    return [column for column in others if column.name in related]


def _rowid(table: AttachedTable) -> AttachedColumn:
    if table.rowid is None:
        raise ClientSideError(
            "INTERNAL Error: BindRowIdColumns could not find the row id column in the virtual "
            "columns list of the table (trap T39: publish a row id)"
        )
    return table.rowid


def _mentioned(session: Session, table: AttachedTable, expressions: Iterable[str]) -> list[str]:
    names = list(columns_by_name(table))
    found = (session.local.columns_in(expression, names) for expression in expressions)
    return list(dict.fromkeys(name for names_of_one in found for name in names_of_one))


# ---------------------------------------------------------------------------------------- encoding


def _sent(session: Session, columns: Iterable[AttachedColumn]) -> pa.Schema:
    return session.local.arrow_schema({column.name: column.sql_type for column in columns})


def _cast(expression: str, column: AttachedColumn) -> str:
    return f"CAST(({expression}) AS {column.sql_type})"


def _vectors(rows: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = rows.combine_chunks().to_batches(max_chunksize=VECTOR)
    return [batch for batch in batches if batch.num_rows]


def _array(values: Any) -> pa.Array | pa.ChunkedArray:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
