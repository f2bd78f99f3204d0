"""The overload that a call means, and its arguments as Arrow values (airport §3.6, §9)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import pyarrow as pa

from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.objects import AttachedFunction
from sparkport.testing.session import Session
from sparkport.testing.types import Line, duckdb_type, quoted

__all__ = [
    "TABLE",
    "FunctionParameter",
    "as_arrow",
    "chosen",
    "encoded",
    "parameters_of",
    "sql_type",
]

TABLE = "TABLE"
"""The type of a subquery, as argument and as parameter."""
_ANY = "ANY"

_OWN_OPTIONS = frozenset({"auth_token", "secret", "ticket", "at_unit", "at_value", "headers"})
"""Named arguments that the client takes as options of `airport_take_flight`, for any function."""

# DuckDB's costs of an implicit cast to a type; the overload with the smallest sum is called.
_COSTS = {
    "BIGINT": 101,
    "INTEGER": 102,
    "HUGEINT": 103,
    "DOUBLE": 104,
    "DECIMAL": 105,
    "TIMESTAMP_NS": 119,
    "TIMESTAMP": 120,
    "TIMESTAMP_MS": 121,
    "TIMESTAMP_S": 122,
    "VARCHAR": 149,
    _ANY: 5,
}
_NESTED_COST, _OTHER_COST = 160, 110


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A field of a function's `input_schema`. `sql_type` is None where any type is accepted."""

    name: str
    sql_type: str | None
    kind: Literal["positional", "named", "table"]

    @property
    def shown(self) -> str:
        return TABLE if self.kind == "table" else self.sql_type or _ANY


def parameters_of(function: AttachedFunction, line: Line) -> list[FunctionParameter]:
    found = []
    for index, field in enumerate(function.input_schema):
        metadata = field.metadata or {}
        where = f"{function.kind} {function.schema}.{function.name}, parameter {field.name!r}"
        free = bool(metadata.get(b"is_any_type") or metadata.get(b"is_table_type"))
        kind: Literal["positional", "named", "table"] = "positional"
        if metadata.get(b"is_table_type"):
            kind = "table"
        elif function.kind == "table_function" and metadata.get(b"is_named_parameter"):
            kind = "named"
        declared = None if free else duckdb_type(field, line, where, quoted)
        found.append(FunctionParameter(field.name or f"v{index}", declared, kind))
    return found


def sql_type(kind: pa.DataType, session: Session) -> str:
    """Return DuckDB's type for Arrow values that are passed to a function."""
    return duckdb_type(pa.field("", kind), session.headers.line, "an argument", quoted)


def as_arrow(value: Any) -> pa.Array:
    """Return a value as an array; a Python value gets the type of a statement parameter.

    An int is INTEGER, BIGINT or HUGEINT by its size, a float DOUBLE, a `decimal.Decimal` DECIMAL of
    just its digits. An array of one value is returned as it is: pyarrow cannot make an array from
    every scalar.
    """
    if isinstance(value, pa.Array):
        return value
    if isinstance(value, pa.Scalar):
        return pa.array([value], value.type)
    if value is None:  # DuckDB 1 makes an INTEGER of it
        return pa.nulls(1)
    try:
        rows = _literals().cursor().sql("SELECT $1 AS value", params=[value]).to_arrow_table()
    except duckdb.Error as error:
        raise ClientSideError(str(error)) from error
    return rows.column("value").combine_chunks()


@functools.lru_cache(maxsize=1)
def _literals() -> duckdb.DuckDBPyConnection:
    """Return a lossless connection, so that no type gets lost before the arguments are encoded."""
    return duckdb.connect(
        ":memory:", config={"arrow_lossless_conversion": True, "autoload_known_extensions": False}
    )


# --------------------------------------------------------------------------------------- overloads


def chosen(
    session: Session,
    functions: Iterable[AttachedFunction],
    kind: Literal["scalar_function", "table_function"],
    name: str,
    given: Sequence[str],
    named: Iterable[str] = (),
) -> AttachedFunction:
    """Return the overload that DuckDB calls for positional arguments of these types.

    Raises: ClientSideError when none fits, or none fits best.
    """
    overloads = [
        each for each in functions if each.kind == kind and each.name.casefold() == name.casefold()
    ]
    if not overloads:
        spoken = "Scalar Function" if kind == "scalar_function" else "Table Function"
        raise ClientSideError(f"Catalog Error: {spoken} with name {name} does not exist!")
    costs = {index: _cost(session, function, given) for index, function in enumerate(overloads)}
    fitting = {index: cost for index, cost in costs.items() if cost is not None}
    best = [overloads[index] for index, cost in fitting.items() if cost == min(fitting.values())]
    call = f"{session.catalog}.{overloads[0].schema}.{overloads[0].name}"
    if not best:
        candidates = "".join(f"\n\t{call}({_shown(session, function)})" for function in overloads)
        raise ClientSideError(
            "Binder Error: No function matches the given name and argument types "
            f"'{call}({', '.join(given)})'. You might need to add explicit type "
            f"casts.\n\tCandidate functions:{candidates}"
        )
    if len(best) > 1:
        raise ClientSideError(
            "Binder Error: Could not choose a best candidate function for the function call "
            f'"{call}({", ".join(given)})". '
            "In order to select one, please add explicit type casts."
        )
    _check_named(session, best[0], named)
    return best[0]


def _cost(session: Session, function: AttachedFunction, given: Sequence[str]) -> int | None:
    due = [
        each.shown for each in parameters_of(function, session.headers.line) if each.kind != "named"
    ]
    if len(due) != len(given):
        return None
    total = 0
    for actual, wanted in zip(given, due, strict=True):
        cost = _cast_cost(session, actual, wanted)
        if cost is None:
            return None
        total += cost
    return total


def _cast_cost(session: Session, actual: str, wanted: str) -> int | None:
    if actual == wanted:
        return 0
    if TABLE in (actual, wanted):
        return None
    base = wanted.partition("(")[0]
    if wanted != _ANY:
        values = f"CAST(NULL AS {actual}), CAST(NULL AS {wanted})"
        probe = {"castable": f"can_cast_implicitly({values})::TINYINT"}
        answer = session.local.evaluate(pa.table({"": pa.nulls(1)}), probe)
        if not answer.column("castable")[0].as_py():
            return None
        if base == actual.partition("(")[0] == "DECIMAL":
            return 0
    nested = wanted.endswith("]") or base in ("STRUCT", "MAP", "UNION")
    return _NESTED_COST if nested else _COSTS.get(base, _OTHER_COST)


def _check_named(session: Session, function: AttachedFunction, named: Iterable[str]) -> None:
    known = {
        each.name.casefold()
        for each in parameters_of(function, session.headers.line)
        if each.kind == "named"
    }
    for name in named:
        if name.casefold() not in known:
            raise ClientSideError(
                f'Binder Error: Invalid named parameter "{name}" for function {function.name}'
            )
        if name.casefold() in _OWN_OPTIONS:
            raise ProtocolViolation(
                "§9.2",
                f"{function.schema}.{function.name}: the client takes the argument {name!r} for an "
                "option of its own",
            )


def _shown(session: Session, function: AttachedFunction) -> str:
    return ", ".join(
        each.shown for each in parameters_of(function, session.headers.line) if each.kind != "named"
    )


# ---------------------------------------------------------------------------------------- encoding


def encoded(
    session: Session, columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[str | None]
) -> pa.Table:
    """Encode columns as DuckDB sends them under the session's settings.

    They are cast to `types` where that is not None.
    """
    if not columns:
        raise ValueError("a batch without columns has no encoding")
    rows = pa.table(list(columns), names=[f"a{index}" for index in range(len(columns))])
    select: Mapping[str, str] = {
        f"a{index}": f"a{index}" if kind is None else f"CAST(a{index} AS {kind})"
        for index, kind in enumerate(types)
    }
    return session.local.evaluate(rows, select)
