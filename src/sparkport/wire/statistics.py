"""Statistics of columns (airport §4.9): the client's request, and the server's answer."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog.statistics import ColumnStatistics
from sparkport.engine.statistics import shortened_maximum, shortened_minimum
from sparkport.engine.type_table import Bounds, form, row_of, storage_type
from sparkport.engine.types import type_name
from sparkport.errors import CatalogFault
from sparkport.wire.flight import decode_descriptor
from sparkport.wire.packing import read_fields

__all__ = ["ColumnStatisticsRequest", "decode_column_statistics", "encode_column_statistics"]


@dataclass(frozen=True, slots=True)
class ColumnStatisticsRequest:
    """Ask for the statistics of a column; `type` is its type as DuckDB spells it."""

    descriptor: flight.FlightDescriptor
    column: str
    type: str


def decode_column_statistics(body: bytes) -> ColumnStatisticsRequest:
    fields = read_fields(body, "column_statistics")
    return ColumnStatisticsRequest(
        decode_descriptor(fields.blob("flight_descriptor", "descriptor")),
        fields.text("column_name"),
        fields.text("type"),
    )


_LARGEST_COUNT = 2**63 - 1
"""For a text column, the client fails on a larger count."""
_LARGEST_LENGTH = 2**32 - 1
"""The client keeps 32 bits of a length and drops the others."""

_WIDEST_TEXT = ("", "\U0010ffff" * 16)
"""For text, the client would read NULL as the word "NULL"; of a bound it compares eight bytes."""


def encode_column_statistics(statistics: ColumnStatistics, data_type: pa.DataType) -> bytes:
    """Encode the statistics of a column of that type.

    A bound that is unknown or cannot be sent becomes the widest possible.

    Raises: CatalogFault when the statistics are not of that type, or contradict themselves.
    """
    _check(statistics, data_type)
    columns = dict(zip(("min", "max"), _bounds(statistics, data_type), strict=True))
    columns["has_not_null"] = pa.array([statistics.has_not_null], pa.bool_())
    columns["has_null"] = pa.array([statistics.has_null], pa.bool_())
    columns["distinct_count"] = pa.array(
        [min(statistics.distinct_count, _LARGEST_COUNT)], pa.uint64()
    )
    if _travel(data_type) is Bounds.SHORTENED:
        columns["contains_unicode"] = pa.array([statistics.contains_unicode], pa.bool_())
        length = statistics.max_string_length
        if length is not None and length <= _LARGEST_LENGTH:
            columns["max_string_length"] = pa.array([length], pa.uint64())
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _check(statistics: ColumnStatistics, data_type: pa.DataType) -> None:
    flags = (statistics.has_null, statistics.has_not_null, statistics.contains_unicode)
    if not all(isinstance(flag, bool) for flag in flags):
        raise _fault(data_type, "flags that are not bool")
    length = statistics.max_string_length
    numbers: tuple[Any, ...] = (statistics.distinct_count, 0 if length is None else length)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise _fault(
            data_type, "a distinct_count or max_string_length that is no number of values or bytes"
        )


def _bounds(statistics: ColumnStatistics, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    storage, travel = storage_type(data_type), _travel(data_type)
    if travel is Bounds.IGNORED:
        return pa.nulls(1), pa.nulls(1)
    low, high = _bound(statistics.minimum, data_type), _bound(statistics.maximum, data_type)
    if low is not None and high is not None and _key(low, data_type) > _key(high, data_type):
        raise _fault(data_type, "a minimum that is greater than the maximum")
    if low is not None and pa.types.is_floating(storage) and math.isnan(low[0].as_py()):
        # A single NaN among the values is more likely than NaN everywhere.
        raise _fault(data_type, "NaN as the minimum")
    if travel is Bounds.UNKNOWN:
        low = high = None
    elif travel is Bounds.SHORTENED:
        lowest, highest = _WIDEST_TEXT
        low = pa.array([lowest if low is None else shortened_minimum(low[0].as_py())], storage)
        high = pa.array([highest if high is None else shortened_maximum(high[0].as_py())], storage)
    else:
        low, high = (None if bound is None or not _fits(bound) else bound for bound in (low, high))
    return _wrapped(low, data_type), _wrapped(high, data_type)


def _travel(data_type: pa.DataType) -> Bounds:
    row = row_of(data_type)
    return Bounds.REFUSED if row is None else row.bounds


def _bound(value: Any, data_type: pa.DataType) -> pa.Array | None:
    """Convert a value to the column's storage type; None for NULL. Raises: CatalogFault."""
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    storage = storage_type(data_type)
    try:
        if isinstance(value, pa.Scalar):
            array = pa.repeat(value, 1)
            if array.type != storage and not pa.types.is_null(array.type):
                if not _converts(array.type, storage):
                    raise TypeError(array.type)
                array = array.cast(storage)
        else:
            array = pa.array([_stored(value, data_type)], storage)
        if array.null_count:
            return None
        if form(storage) == "text":
            array.validate(full=True)  # what is not UTF-8 would fail the client's query
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise _fault(data_type, "bounds of another type") from error
    return array


def _converts(given: pa.DataType, wanted: pa.DataType) -> bool:
    return form(given) == form(wanted) and form(given) in ("text", "integer")


def _stored(value: Any, data_type: pa.DataType) -> Any:
    """What Python has a type for, but Arrow's constructor does not take."""
    row = row_of(data_type)
    if row is not None and row.python is not None and isinstance(value, row.python.type):
        return row.python.write(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    is_boolean = row is not None and row.name == "BOOLEAN"
    if isinstance(value, bool) != is_boolean and value is not None:
        raise TypeError(f"{value!r} is not of type {data_type}")
    return int(value) if form(data_type) == "bool8" and value is not None else value


def _key(bound: pa.Array, data_type: pa.DataType) -> tuple[bool, Any]:
    """What is compared; the first part puts NaN above all other numbers."""
    row = row_of(data_type)
    if row is None or row.bounds is Bounds.UNKNOWN:
        return False, 0
    if pa.types.is_temporal(bound.type):
        return False, _number(bound)
    value = bound[0].as_py()
    if row.python is not None:
        return False, row.python.read(value)
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    if isinstance(value, str):
        return False, value.encode()
    assert isinstance(value, bool | int | bytes | Decimal)
    return False, value


def _number(bound: pa.Array) -> int:
    """Return the count of units, for which Python's own types are sometimes too small."""
    number: int = bound.view(pa.int32() if bound.type.bit_width == 32 else pa.int64())[0].as_py()
    return number


_PER_DAY: Mapping[str, int] = {
    "s": 86_400,
    "ms": 86_400_000,
    "us": 86_400_000_000,
    "ns": 86_400_000_000_000,
}
_MICROSECONDS: Mapping[str, int] = {"s": 1_000_000, "ms": 1_000}


def _fits(bound: pa.Array) -> bool:
    """Whether the client can convert the bound: it fails on instants outside its range.

    Arrow has no times of day beyond 24 hours.
    """
    kind = bound.type
    if pa.types.is_time(kind):
        return 0 <= _number(bound) < _PER_DAY[kind.unit]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return abs(_number(bound)) * _MICROSECONDS.get(kind.unit, 1) < 2**63
    if pa.types.is_date64(kind):
        days, rest = divmod(_number(bound), _PER_DAY["ms"])
        return rest == 0 and abs(days) < 2**31
    return True


def _wrapped(bound: pa.Array | None, data_type: pa.DataType) -> pa.Array:
    array = pa.nulls(1, storage_type(data_type)) if bound is None else bound
    return (
        pa.ExtensionArray.from_storage(data_type, array)
        if isinstance(data_type, pa.BaseExtensionType)
        else array
    )


def _fault(data_type: pa.DataType, what: str) -> CatalogFault:
    return CatalogFault(f"the statistics of a column of type {type_name(data_type)} have {what}")
