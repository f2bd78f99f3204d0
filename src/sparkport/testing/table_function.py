"""Table functions: binding, with or without a subquery, and the scan (airport §4.7, §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparkport.testing.arguments import (
    TABLE,
    FunctionParameter,
    as_arrow,
    chosen,
    encoded,
    parameters_of,
    sql_type,
)
from sparkport.testing.contents import flight_info
from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.headers import new_trace
from sparkport.testing.objects import AttachedFunction, AttachedTable, bound_table
from sparkport.testing.reading import Reading, read
from sparkport.testing.requests import endpoints, no_filter, table_function_flight_info
from sparkport.testing.scan import (
    NOW,
    Predicate,
    column_id,
    matching,
    pushed,
    resolved,
    same_descriptor,
)
from sparkport.testing.session import Session

__all__ = ["BoundFunction", "bind", "result_of", "scan"]


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A call whose columns are known."""

    function: AttachedFunction
    result: AttachedTable
    parameters: bytes
    """The arguments as an IPC stream with one row, sent again when the call is executed."""
    trace: str


def bind(
    session: Session,
    functions: Sequence[AttachedFunction],
    name: str,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    table_input: pa.Schema | None = None,
) -> BoundFunction:
    """Ask for the columns of a call; `table_input` is the schema of a subquery's rows as sent."""
    values = [as_arrow(argument) for argument in arguments]
    given = [sql_type(value.type, session) for value in values]
    if table_input is not None:
        given.append(TABLE)
    function = chosen(session, functions, "table_function", name, given, named)
    parameters = _parameters(
        session, function, values, {key: as_arrow(value) for key, value in named.items()}
    )
    trace = new_trace()
    answer = session.answer(
        "table_function_flight_info",
        table_function_flight_info(
            function.descriptor.serialize(),
            parameters,
            b"" if table_input is None else table_input.serialize().to_pybytes(),
        ),
        session.headers.of_table(trace, function.descriptor, None, "table_function_flight_info"),
    )
    return BoundFunction(function, result_of(session, function, answer), parameters, trace)


def result_of(session: Session, function: AttachedFunction, answer: bytes) -> AttachedTable:
    """Return the columns in the answer of `table_function_flight_info`."""
    info = flight_info(answer, "table_function_flight_info")
    same_descriptor(info, function.descriptor, "table_function_flight_info")
    result = bound_table(
        info, function.schema, function.name, None, session.headers.line, session.local
    )
    _check_result(result)
    return result


def _check_result(result: AttachedTable) -> None:
    where = f"result of {result.schema}.{result.name}"
    if not result.columns:
        raise ProtocolViolation(
            "§9.2", f"{where}: no columns: the DuckDB instance becomes unusable"
        )
    if result.rowid is not None:
        raise ProtocolViolation("§9.2", f"{where}: the field marked is_rowid is invisible")
    if result.produces_statistics:
        raise ProtocolViolation(
            "§9.2",
            f"{where}: can_produce_statistics has the client ask without parameters, and believe "
            "the answer",
        )
    for column in result.columns:
        if pa.types.is_dictionary(column.field.type):
            raise ProtocolViolation(
                "T33", f"{where}: column {column.name!r} is a dictionary: its indices are shown"
            )


def _parameters(
    session: Session,
    function: AttachedFunction,
    positional: Sequence[pa.Array],
    named: Mapping[str, pa.Array],
) -> bytes:
    """Return a row of all parameters but the subquery, in the order of `input_schema`.

    The columns have its names.
    """
    by_name = {name.casefold(): value for name, value in named.items()}
    remaining = iter(positional)
    parameters = [
        each for each in parameters_of(function, session.headers.line) if each.kind != "table"
    ]
    columns: list[pa.Array] = []
    types: list[str | None] = []
    for parameter in parameters:
        if parameter.kind == "positional":
            columns.append(next(remaining))
            types.append(parameter.sql_type)
        else:
            # A named argument that is left out is NULL.
            columns.append(by_name.get(parameter.name.casefold(), pa.nulls(1)))
            types.append(_named_type(session, function, parameter, positional, parameters))
    if not parameters:
        return _stream(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))
    row = encoded(session, columns, types).rename_columns(
        [parameter.name for parameter in parameters]
    )
    return _stream(row.combine_chunks().to_batches()[0])


def _named_type(
    session: Session,
    function: AttachedFunction,
    parameter: FunctionParameter,
    positional: Sequence[pa.Array],
    parameters: Sequence[FunctionParameter],
) -> str:
    if parameter.sql_type is not None:
        return parameter.sql_type
    # For a named parameter without a type, the client takes the type of the positional argument
    # before it.
    before = [
        each for each in parameters[: parameters.index(parameter)] if each.kind == "positional"
    ]
    if not before:
        raise ProtocolViolation(
            "§9.2",
            f"{function.schema}.{function.name}: for the type of the named parameter "
            f"{parameter.name!r}, which is any, the client looks at an argument before the first: "
            "the DuckDB instance becomes unusable",
        )
    return sql_type(positional[len(before) - 1].type, session)


def _stream(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def scan(
    session: Session,
    bound: BoundFunction,
    columns: Sequence[str] | None,
    where: Predicate | None,
    filter_json: str | None,
    threads: int,
    limit: int | None,
) -> pa.Table:
    """`SELECT columns FROM function(…) WHERE where`, without a transaction (airport §9.2)."""
    result = bound.result
    selected = (
        [resolved(result, name) for name in columns]
        if columns is not None
        else list(result.columns)
    )
    names, filters = pushed(session, result, where, filter_json)
    chosen_columns = [
        resolved(result, name)
        for name in dict.fromkeys((*names, *(each.name for each in selected)))
    ]
    descriptor = bound.function.descriptor
    rows = read(
        Reading(
            session=session,
            descriptor=descriptor,
            bound=result.arrow_schema,
            wanted=tuple(column.position for column in chosen_columns),
            body=endpoints(
                descriptor.serialize(),
                filters
                if filters is not None
                else no_filter([column.name for column in chosen_columns]),
                [column_id(result, column) for column in chosen_columns],
                NOW,
                bound.parameters,
            ),
            headers=lambda action: session.headers.of_table(bound.trace, descriptor, None, action),
        ),
        threads,
        # Rows that the condition drops do not count towards the limit.
        limit if where is None else None,
    ).rename_columns([column.name for column in chosen_columns])
    rows = matching(session, rows, where)
    table = pa.table(
        [rows.column(column.name) for column in selected],
        names=[column.name for column in selected],
    )
    return table if limit is None else table.slice(0, limit)
