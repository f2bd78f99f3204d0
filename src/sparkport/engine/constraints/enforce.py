"""Enforce constraints on rows that are about to be stored; for any backend.

DuckDB evaluates CHECKs and compares keys, so they mean the same here as in a table of DuckDB: a
CHECK that is NULL passes, NaN equals NaN, 0.0 equals -0.0, and rows with a NULL in a UNIQUE key are
not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import duckdb
import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.catalog.names import folded
from sparkport.engine.constraints.expressions import expect_per_row, used_columns
from sparkport.engine.constraints.parsing import first_line
from sparkport.engine.constraints.sandbox import comparison, in_small_chunks, quoted, sandbox
from sparkport.engine.databases import Check
from sparkport.errors import BadRequest, ConstraintViolation

__all__ = [
    "ReadColumns",
    "columns_of",
    "concerning",
    "duplicate_key",
    "enforce",
    "enforce_keys",
    "enforce_not_null",
    "enforce_rows",
    "keys_of",
]

ReadColumns: TypeAlias = "Callable[[Sequence[str]], pa.Table]"
"""Reads the named columns of all rows that the table has before the change."""

_SHOWN = 80
_ROWS_AT_ONCE = 1_000_000
"""Rows that are checked at once: the time limit of an expression is for so many."""


def enforce(
    table: str,
    constraints: Constraints,
    changed: pa.Table | pa.RecordBatch,
    existing: ReadColumns,
    *,
    row_id: str | None = None,
    check: Check | None = None,
) -> None:
    """Check all constraints.

    `changed` holds the new or changed rows as they will be, with at least the columns of
    `columns_of(constraints)`; pass `concerning(constraints, …)` to check an UPDATE of some columns
    only. `existing` is called only if there are keys. For an UPDATE, `row_id` names the row id
    column of both: existing rows that are changed are not compared. `check` raises, as
    `Context.check` does, when the request was cancelled; it is called from another thread.

    Raises: ConstraintViolation, which names the constraint and a value, `without_values` only the
    constraint; LimitExceeded; what `check` raises.
    """
    enforce_rows(table, constraints, changed, check)
    enforce_keys(table, constraints, changed, existing, row_id=row_id, check=check)


def enforce_rows(
    table: str,
    constraints: Constraints,
    changed: pa.Table | pa.RecordBatch,
    check: Check | None = None,
) -> None:
    """Check what each row must fulfil by itself: NOT NULL and CHECK.

    Raises: ConstraintViolation; LimitExceeded; what `check` raises.
    """
    enforce_not_null(table, constraints, changed)
    for condition in constraints.checks if changed.num_rows else ():
        _enforce_check(table, condition, changed, check)


def enforce_not_null(
    table: str, constraints: Constraints, changed: pa.Table | pa.RecordBatch
) -> None:
    """Check NOT NULL. Raises: ConstraintViolation."""
    for name in constraints.not_null:
        if changed.column(name).null_count:
            message = f"NOT NULL constraint failed: {table}.{name}"
            raise ConstraintViolation(message, without_values=message)


def enforce_keys(
    table: str,
    constraints: Constraints,
    changed: pa.Table | pa.RecordBatch,
    existing: ReadColumns,
    *,
    row_id: str | None = None,
    check: Check | None = None,
) -> None:
    """Check UNIQUE and PRIMARY KEY, among the changed rows and against the others.

    Raises: ConstraintViolation; LimitExceeded; what `check` raises.
    """
    if not changed.num_rows:
        return
    for kind, key in _keys(constraints):
        columns = [*key, row_id] if row_id is not None else list(key)
        with comparison(check, changed=changed.select(columns)) as connection:
            duplicate = _repeated(connection, key)
            if duplicate is None:
                connection.register("existing", existing(columns))
                duplicate = _present(connection, key, row_id)
        if duplicate is not None:
            raise duplicate_key(table, kind, key, duplicate)


def duplicate_key(
    table: str, kind: str, key: Sequence[str], values: Sequence[str | None]
) -> ConstraintViolation:
    """The error for a key that occurs twice; `kind` is "unique" or "primary key"."""
    shown = ", ".join(
        f"{name}: {_shortened(value)}" for name, value in zip(key, values, strict=True)
    )
    return ConstraintViolation(
        f'Duplicate key "{shown}" violates {kind} constraint of table {table}',
        without_values=(
            f"Duplicate key violates {kind} constraint ({', '.join(key)}) of table {table}"
        ),
    )


def concerning(constraints: Constraints, columns: Iterable[str]) -> Constraints:
    """The constraints that a change of the given columns can violate."""
    changed = {folded(name) for name in columns}

    def any_changed(names: Iterable[str]) -> bool:
        return any(folded(name) in changed for name in names)

    return Constraints(
        not_null=tuple(name for name in constraints.not_null if folded(name) in changed),
        checks=tuple(text for text in constraints.checks if used_columns(text, list(columns))),
        unique=tuple(key for key in constraints.unique if any_changed(key)),
        primary_key=constraints.primary_key if any_changed(constraints.primary_key) else (),
    )


def keys_of(constraints: Constraints) -> Constraints:
    """The constraints that compare a row with others: UNIQUE and PRIMARY KEY."""
    return Constraints(unique=constraints.unique, primary_key=constraints.primary_key)


def columns_of(constraints: Constraints, columns: Sequence[str]) -> tuple[str, ...]:
    """The table's columns that are needed to check the constraints."""
    needed = {folded(name) for name in constraints.not_null}
    needed.update(folded(name) for _, key in _keys(constraints) for name in key)
    needed.update(
        folded(name) for text in constraints.checks for name in used_columns(text, columns)
    )
    return tuple(name for name in columns if folded(name) in needed)


def _keys(constraints: Constraints) -> list[tuple[str, tuple[str, ...]]]:
    keys = [("unique", key) for key in constraints.unique]
    return [("primary key", constraints.primary_key), *keys] if constraints.primary_key else keys


def _enforce_check(
    table: str, condition: str, changed: pa.Table | pa.RecordBatch, check: Check | None
) -> None:
    what = f"CHECK constraint failed on table {table} with expression CHECK({condition})"
    try:
        effort = expect_per_row(condition, "it", changed.schema.names)
    except BadRequest as error:
        # The CHECK is older than the list of allowed functions, or another engine wrote it.
        raise ConstraintViolation(f"{what}: {error.message}") from error
    used = used_columns(condition, changed.schema.names)
    shown = ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in used) or "''"
    rows = pa.Table.from_batches([changed]) if isinstance(changed, pa.RecordBatch) else changed
    rows = rows.select(list(used) or rows.schema.names[:1])
    query = f"SELECT {shown} FROM rows AS {quoted(table)} WHERE NOT (\n{condition}\n) LIMIT 1"
    for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
        with sandbox(
            check, rows=in_small_chunks(rows.slice(start, _ROWS_AT_ONCE), effort)
        ) as connection:
            try:
                row = connection.execute(query).fetchone()
            except duckdb.Error as error:
                message = f"{what}: it cannot be evaluated: {first_line(error)}"
                raise ConstraintViolation(message, without_values=what) from error
        if row is not None:
            values = ", ".join(
                f"{name} = {_shortened(value)}" for name, value in zip(used, row, strict=False)
            )
            raise ConstraintViolation(f"{what}: {values}" if values else what, without_values=what)


def _repeated(
    connection: duckdb.DuckDBPyConnection, key: Sequence[str]
) -> Sequence[str | None] | None:
    columns = ", ".join(map(quoted, key))
    present = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in key)
    row: tuple[str | None, ...] | None = connection.execute(
        f"SELECT {_as_text(key)} FROM (SELECT {columns} FROM changed WHERE {present}"
        f" GROUP BY {columns} HAVING count(*) > 1 LIMIT 1)"
    ).fetchone()
    return row


def _present(
    connection: duckdb.DuckDBPyConnection, key: Sequence[str], row_id: str | None
) -> Sequence[str | None] | None:
    # IN, not a join: for it DuckDB builds its hash table from the changed rows. For a join it
    # builds the table from the side that it takes for smaller. It does not know the size of a
    # stream, such as a table's keys may be, and takes it for tiny.
    columns = ", ".join(map(quoted, key))
    condition = f"({columns}) IN (SELECT {columns} FROM changed)"
    if row_id is not None:
        condition += f" AND {quoted(row_id)} NOT IN (SELECT {quoted(row_id)} FROM changed)"
    row: tuple[str | None, ...] | None = connection.execute(
        f"SELECT {_as_text(key)} FROM (SELECT * FROM existing WHERE {condition} LIMIT 1)"
    ).fetchone()
    return row


def _as_text(key: Sequence[str]) -> str:
    return ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in key)


def _shortened(value: str | None) -> str:
    text = "NULL" if value is None else value
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
