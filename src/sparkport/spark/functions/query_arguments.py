"""Values that clients pass to Spark SQL, for the markers `:name` and `?` of a query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from sparkport.engine.argument_types import python_value
from sparkport.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["expect_used", "literal", "marker_places", "markers"]


def markers(arguments: pa.Scalar | None) -> dict[str, Column] | list[Column]:
    """The values of a query's markers: by name from a STRUCT or MAP, in order from a LIST.

    Raises: BadRequest.
    """
    if arguments is None or not arguments.is_valid:
        return {}
    kind = arguments.type
    if pa.types.is_struct(kind):
        return {name: literal(value) for name, value in arguments.items()}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {entry["key"].as_py(): literal(entry["value"]) for entry in arguments.values}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [literal(each) for each in arguments]
    raise BadRequest(
        "spark_sql takes its arguments as {'name': value} or MAP {'name': value} for :name, or as "
        "[value] for ?"
    )


def literal(scalar: pa.Scalar) -> Column:
    """A value as a literal of Spark SQL, which is all that parameters take.

    Raises: BadRequest for types that Spark lacks.
    """
    from pyspark.sql import functions as sql

    kind = scalar.type
    if not scalar.is_valid or pa.types.is_null(kind):
        return sql.lit(None)
    if pa.types.is_timestamp(kind):
        return sql.expr(_timestamp(scalar))
    if pa.types.is_time(kind):
        return sql.expr(f"TIME '{scalar.cast(pa.time64('us')).as_py().isoformat()}'")
    if pa.types.is_struct(kind):
        return sql.struct(*(literal(value).alias(name) for name, value in scalar.items()))
    if pa.types.is_map(kind):
        pairs = [
            literal(part) for entry in scalar.values for part in (entry["key"], entry["value"])
        ]
        return sql.create_map(*pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return sql.array(*(literal(each) for each in scalar))
    return _plain(kind, python_value(scalar))


def _timestamp(scalar: pa.Scalar) -> str:
    """A timestamp from its text in UTC: PySpark would read a Python time in this process's zone."""
    zone = scalar.type.tz
    try:
        moment = scalar.cast(pa.timestamp("us", None if zone is None else "UTC")).as_py()
    except (ValueError, OverflowError) as error:  # years that Python's calendar does not have
        raise _as_text(scalar.type) from error
    text = moment.replace(tzinfo=None).isoformat(" ", "microseconds")
    return f"TIMESTAMP_NTZ '{text}'" if zone is None else f"TIMESTAMP '{text}Z'"


def _plain(kind: pa.DataType, value: Any) -> Column:
    from pyspark.sql import functions as sql

    match value:
        case bool() | float() | str() | bytes() | Decimal():
            return sql.lit(value)
        case date():  # PySpark writes the year 987 with three digits, which Spark refuses
            return sql.expr(f"DATE '{value.isoformat()}'")
        case int() if -(2**63) <= value < 2**63:
            return sql.lit(value)
        case int():
            return sql.lit(Decimal(value))
        case UUID():
            return sql.lit(str(value))
        case _:
            raise _as_text(kind)


def _as_text(kind: pa.DataType) -> BadRequest:
    return BadRequest(f"Spark SQL takes no such value of Arrow type {kind}: pass it as text")


_TOKENS = re.compile(
    r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")  # texts without escapes
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | (\?) | :(\w+)""",
    re.DOTALL | re.VERBOSE,
)


def marker_places(text: str) -> list[int]:
    """Where the markers `?` of a statement are, outside of texts, quoted names and comments."""
    return [match.start() for match in _TOKENS.finditer(text) if match[1] is not None]


def expect_used(
    arguments: Mapping[str, Column] | list[Column], texts: Sequence[str], title: str
) -> None:
    """Check that there is a marker for each value, which Spark does not.

    Raises: BadRequest.
    """
    if isinstance(arguments, list):
        count = max(len(marker_places(text)) for text in texts)
        if len(arguments) > count:
            raise BadRequest(
                f"{title} has {count} markers ?, and {len(arguments)} values were given"
            )
        return
    names = {match[2] for text in texts for match in _TOKENS.finditer(text)}
    for name in arguments:
        if name not in names:
            raise BadRequest(f"{title} has no marker :{name}, for which a value was given")
