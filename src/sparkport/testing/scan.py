"""SELECT: from names to column ids, and from batches back to rows (airport §5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.testing.catalogs import CatalogCache
from sparkport.testing.contents import flight_info
from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.headers import new_trace
from sparkport.testing.objects import AttachedColumn, AttachedTable, bound_table
from sparkport.testing.reading import Reading, check_statistics_hold, read
from sparkport.testing.requests import ROWID, endpoints, no_filter, pack
from sparkport.testing.session import Session
from sparkport.testing.statistics import column_statistics

__all__ = [
    "Predicate",
    "bind_at",
    "count",
    "matching",
    "pushed",
    "scan",
    "scan_columns",
    "take_flight",
]

Predicate = str | Callable[[pa.Table], pa.Array | pa.ChunkedArray | Sequence[bool]]
"""A condition: DuckDB SQL, or a function from the scanned rows to a mask."""

NOW = ("", "")


def scan(
    session: Session,
    table: AttachedTable,
    columns: Sequence[str] | None,
    where: Predicate | None,
    filter_json: str | None,
    at: tuple[str, str],
    threads: int,
    limit: int | None,
) -> pa.Table:
    """`SELECT columns FROM table [AT …] WHERE where`, in a statement that has bound it."""
    selected = (
        [resolved(table, name) for name in columns] if columns is not None else list(table.columns)
    )
    rows = scan_columns(
        session, table, [column.name for column in selected], where, filter_json, at, threads, limit
    )
    rows = matching(session, rows, where)
    arrays = [rows.column(column.name) for column in selected]
    result = pa.table(arrays, names=[column.name for column in selected])
    return result if limit is None else result.slice(0, limit)


def scan_columns(
    session: Session,
    table: AttachedTable,
    columns: Sequence[str],
    where: Predicate | None = None,
    filter_json: str | None = None,
    at: tuple[str, str] = NOW,
    threads: int = 1,
    limit: int | None = None,
    tail: Sequence[str] = (),
    hang: str = "§1.2",
) -> pa.Table:
    """Return the rows as the server sends them, not filtered, with the condition's columns first.

    The columns of `tail` are asked for again even when they are there already, as in DuckDB's plans
    of UPDATE.
    """
    names, filters = pushed(session, table, where, filter_json)
    chosen = [resolved(table, name) for name in (*dict.fromkeys((*names, *columns)), *tail)]
    distinct = list({column.position: column for column in chosen}.values())
    trace = new_trace()
    transaction = session.transaction()
    bounds = {}
    if table.produces_statistics and at == NOW:
        asked = [column for column in distinct if column is not table.rowid]
        bounds = {column.name: column_statistics(session, table, column, trace) for column in asked}
    rows = read(
        Reading(
            session=session,
            descriptor=table.descriptor,
            bound=table.arrow_schema,
            wanted=tuple(column.position for column in distinct),
            body=endpoints(
                table.descriptor.serialize(),
                filters if filters is not None else no_filter([column.name for column in chosen]),
                [column_id(table, column) for column in chosen],
                at,
            ),
            headers=lambda action: session.headers.of_table(
                trace, table.descriptor, transaction, action
            ),
            rowid=None if table.rowid is None else table.rowid.position,
            hang=hang,
        ),
        threads,
        # Rows that the condition drops do not count towards the limit.
        limit if where is None else None,
    ).rename_columns([column.name for column in distinct])
    for name, reported in bounds.items():
        if reported is not None:
            problem = check_statistics_hold(
                rows.column(name), reported.minimum, reported.maximum, reported.has_null
            )
            if problem is not None:
                raise ProtocolViolation("T28", f"{table.schema}.{table.name}.{name}: {problem}")
    return rows


def count(session: Session, table: AttachedTable, threads: int) -> int:
    """`SELECT count(*)`: ask for the row id or column 0, without binding names (airport §5.2)."""
    counted = table.rowid or table.columns[0]
    trace = new_trace()
    transaction = session.transaction()
    rows = read(
        Reading(
            session=session,
            descriptor=table.descriptor,
            bound=table.arrow_schema,
            wanted=(counted.position,),
            body=endpoints(
                table.descriptor.serialize(), no_filter([]), [column_id(table, counted)], NOW
            ),
            headers=lambda action: session.headers.of_table(
                trace, table.descriptor, transaction, action
            ),
            rowid=None if table.rowid is None else table.rowid.position,
        ),
        threads,
    )
    return int(rows.num_rows)


def matching(session: Session, rows: pa.Table, where: Predicate | None) -> pa.Table:
    """Return the rows that fulfil the condition, as DuckDB filters again (airport §6.1)."""
    if where is None:
        return rows
    mask = session.local.mask(rows, where) if isinstance(where, str) else where(rows)
    return rows.filter(mask if isinstance(mask, pa.ChunkedArray) else pa.array(mask, pa.bool_()))


def pushed(
    session: Session, table: AttachedTable, where: Predicate | None, filter_json: str | None
) -> tuple[list[str], str | None]:
    """Return the columns that the condition needs, and the filter JSON to send, if any."""
    named = columns_by_name(table)
    if filter_json is not None:
        return _binding_names(filter_json, named), filter_json
    if where is None:
        return [], None
    if not isinstance(where, str):
        return list(named), None
    names = session.local.columns_in(where, list(named))
    made = session.local.filter_json(
        where, {name: column.sql_type for name, column in named.items()}
    )
    parsed = json.loads(made)
    if not parsed["filters"]:
        return names, None
    ordered = parsed["column_binding_names_by_index"]
    return [*ordered, *(name for name in names if name not in ordered)], made


def _binding_names(filter_json: str, named: Mapping[str, AttachedColumn]) -> list[str]:
    """Return the table's columns that the caller's filter is bound to; none if it is no filter."""
    try:
        names = json.loads(filter_json)["column_binding_names_by_index"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return (
        [name for name in dict.fromkeys(names) if name in named] if isinstance(names, list) else []
    )


def bind_at(
    session: Session, cache: CatalogCache, table: AttachedTable, at: tuple[str, str]
) -> AttachedTable:
    """Bind the table as of a point in time: `flight_info` twice (airport §4.6, §5.9)."""
    body = pack({"descriptor": table.descriptor.serialize(), "at_unit": at[0], "at_value": at[1]})
    session.transaction()
    first = session.answer(
        "flight_info", body, session.headers.of_catalog("flight_info"), crashes=False
    )
    looked_up = cache.read_table(flight_info(first, "flight_info"), table.schema, "flight_info")
    session.check_version()
    headers = session.headers.of_table(
        new_trace(), looked_up.descriptor, session.transaction(), "flight_info"
    )
    second = session.answer("flight_info", body, headers, crashes=True)
    info = flight_info(second, "flight_info")
    same_descriptor(info, table.descriptor, "flight_info")
    return bound_table(
        info, table.schema, looked_up.name, looked_up.comment, session.headers.line, session.local
    )


def take_flight(
    session: Session,
    descriptor: flight.FlightDescriptor,
    headers: Mapping[str, str],
    at: tuple[str, str],
    threads: int,
) -> pa.Table:
    """`airport_take_flight`: GetFlightInfo, `endpoints`, DoGet (airport §11).

    There is no catalog and no transaction.
    """
    trace = new_trace()

    def made(action: str | None) -> list[tuple[bytes, bytes]]:
        return session.headers.of_call(action, trace, descriptor, **headers)

    info = session.connection.flight_info(descriptor, made(None))
    same_descriptor(info, descriptor, "GetFlightInfo")
    table = bound_table(info, "", "airport_take_flight", None, session.headers.line, session.local)
    for column in table.columns:
        if pa.types.is_dictionary(column.field.type):
            raise ProtocolViolation(
                "T33", f"column {column.name!r} is a dictionary: its indices are shown"
            )
    names = [column.name for column in table.columns]
    reading = Reading(
        session=session,
        descriptor=descriptor,
        bound=table.arrow_schema,
        wanted=tuple(column.position for column in table.columns),
        body=endpoints(descriptor.serialize(), no_filter(names), range(len(names)), at),
        headers=made,
    )
    return read(reading, threads).rename_columns(names)


def same_descriptor(info: flight.FlightInfo, asked: flight.FlightDescriptor, call: str) -> None:
    if info.descriptor != asked:
        raise ProtocolViolation(
            "T42", f"{call}: the descriptor is not the one asked for: the query fails"
        )


def columns_by_name(table: AttachedTable) -> dict[str, AttachedColumn]:
    """Return all columns by name, the row id last."""
    named = {column.name: column for column in table.columns}
    if table.rowid is not None:
        named.setdefault("rowid", table.rowid)
    return named


def resolved(table: AttachedTable, name: str) -> AttachedColumn:
    column = table.column(name)
    if column is None:
        raise ClientSideError(f'Binder Error: Referenced column "{name}" not found in FROM clause!')
    return column


def column_id(table: AttachedTable, column: AttachedColumn) -> int:
    """Return the id of a column; ids do not count the row id field (airport §5.2)."""
    return ROWID if column is table.rowid else table.columns.index(column)
