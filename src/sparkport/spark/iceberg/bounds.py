"""Bounds of a column's values in a file, a partition or a row group, known without reading them.

Strategy: every value that has an order becomes a Python number or bytes, so that one comparison
serves all types. Integers, days, microseconds and unscaled decimals are `int`. Text is its UTF-8,
which DuckDB and Iceberg both order by. In doubt the bounds are unknown.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from sparkport.spark.iceberg.manifests import ROW_ID_FIELD, ManifestEntry, Summary
from sparkport.spark.iceberg.page_index import PageBounds

__all__ = [
    "UNKNOWN",
    "Bounds",
    "Value",
    "bounds_in_file",
    "bounds_in_pages",
    "bounds_in_row_group",
    "bounds_of_partitions",
    "bounds_of_row_ids",
    "bounds_of_value",
    "decimal_bytes",
    "stored_value",
]

Value: TypeAlias = "int | float | bytes"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a column's values: none is below `lower` or above `upper`; None is unknown.

    NaN is above everything.
    """

    lower: Any
    upper: Any
    has_null: bool = True
    """False: there is certainly no NULL."""
    has_value: bool = True
    """False: there is certainly nothing but NULLs."""


UNKNOWN = Bounds(None, None)
_LONG = LongType()
"""Made once: PyIceberg takes longer to find it than all else of a file's bounds."""


def bounds_in_file(entry: ManifestEntry, field_id: int, kind: IcebergType) -> Bounds:
    """The bounds of a column of the table's schema in a data file.

    A file that lacks the column has no metrics for it, so its bounds are unknown.
    """
    values, nulls = entry.value_counts.get(field_id), entry.null_counts.get(field_id)
    has_value = values is None or nulls is None or values != nulls
    lower = entry.lower_bounds.get(field_id)
    upper = entry.upper_bounds.get(field_id)
    if isinstance(kind, FloatType | DoubleType) and entry.nan_counts.get(field_id) != 0:
        upper = None
    return Bounds(
        None if lower is None else stored_value(kind, lower),
        None if upper is None else stored_value(kind, upper),
        nulls != 0,
        has_value,
    )


def bounds_of_row_ids(entry: ManifestEntry, may_hold_row_ids: bool) -> Bounds:
    """The bounds of the row ids in a data file.

    Row ids follow from positions, unless the file has a column of them: its values win where they
    are not NULL.
    """
    first = entry.first_row_id
    last = None if first is None else first + entry.rows - 1
    if not may_hold_row_ids:
        return Bounds(first, last)
    if ROW_ID_FIELD not in entry.value_counts:
        return UNKNOWN
    kept = bounds_in_file(entry, ROW_ID_FIELD, _LONG)
    if not kept.has_value:
        return Bounds(first, last)
    if not kept.has_null:
        return Bounds(kept.lower, kept.upper)
    if first is None or last is None or kept.lower is None or kept.upper is None:
        return UNKNOWN
    return Bounds(min(first, kept.lower), max(last, kept.upper))


def bounds_of_value(value: object) -> Bounds:
    """The bounds of a column that has one value in the whole partition."""
    match value:
        case None:
            return Bounds(None, None, True, False)
        case bool() | int() | bytes():
            known: Value = value
        case float() if not math.isnan(value):
            known = value
        case str():
            known = value.encode()
        case Decimal():
            known = _unscaled(value)
        case uuid.UUID() | _:
            # Java compared UUIDs as signed numbers for a long time.
            return UNKNOWN
    return Bounds(known, known, False, True)


def bounds_of_partitions(summary: Summary, kind: IcebergType) -> Bounds:
    """The bounds of a partition field over all files of a manifest."""
    lower = None if summary.lower is None else stored_value(kind, summary.lower)
    upper = None if summary.upper is None else stored_value(kind, summary.upper)
    floating = isinstance(kind, FloatType | DoubleType)
    if floating and summary.contains_nan is not False:
        upper = None
    # Without bounds all values are NULL, or NaN, or the writer did not measure them.
    return Bounds(lower, upper, summary.contains_null, True)


def bounds_in_row_group(statistics: Any, kind: IcebergType) -> Bounds:
    """The bounds of a column in a row group, from the statistics in the Parquet footer.

    `statistics` are pyarrow's, or None. pyarrow already withholds statistics of writers whose order
    cannot be trusted. Bounds that were shortened are still bounds.
    """
    if statistics is None:
        return UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    has_value = not (statistics.num_values == 0 and nulls is not None and nulls > 0)
    if not statistics.has_min_max:
        return Bounds(None, None, nulls != 0, has_value)
    convert = _statistics_converter(statistics, kind)
    if convert is None:
        return Bounds(None, None, nulls != 0, has_value)
    lower, upper = convert(statistics.min_raw), convert(statistics.max_raw)
    if isinstance(kind, FloatType | DoubleType):
        # The statistics leave NaN out, and do not count it.
        upper = None
        lower = None if math.isnan(lower) else lower
    return Bounds(lower, upper, nulls != 0, has_value)


def bounds_in_pages(
    statistics: Any, kind: IcebergType, pages: Sequence[PageBounds]
) -> list[Bounds] | None:
    """The bounds of a column in the pages of a row group; None where they cannot be told.

    `statistics` are pyarrow's of the row group: where it withholds them, those of the pages cannot
    be trusted either.
    """
    if statistics is None or not statistics.has_min_max:
        return None
    convert = _statistics_converter(statistics, kind)
    if convert is None or statistics.logical_type.to_json().find('"isSigned": false') >= 0:
        return None
    read = _READ_PLAIN[statistics.physical_type]
    bounds = []
    for page in pages:
        lower = upper = None
        if not page.only_nulls:
            try:
                lower, upper = convert(read(page.lower)), convert(read(page.upper))
            except struct.error:  # another number of bytes than the type has
                return None
        if isinstance(kind, FloatType | DoubleType):
            upper = None  # NaN is left out, and not counted
            lower = None if lower is None or math.isnan(lower) else lower
        bounds.append(Bounds(lower, upper, page.nulls != 0, not page.only_nulls))
    return bounds


_READ_PLAIN: Mapping[str, Callable[[bytes], Any]] = {
    "BOOLEAN": lambda data: struct.unpack("<?", data)[0],
    "INT32": lambda data: struct.unpack("<i", data)[0],
    "INT64": lambda data: struct.unpack("<q", data)[0],
    "FLOAT": lambda data: struct.unpack("<f", data)[0],
    "DOUBLE": lambda data: struct.unpack("<d", data)[0],
    "BYTE_ARRAY": bytes,
}
"""How Parquet writes values in plain, by the physical types that are converted."""


def _statistics_converter(statistics: Any, kind: IcebergType) -> Callable[[Any], Any] | None:
    """A function from a raw statistic to a bound; None unless file and table agree on the type."""
    logical = json.loads(statistics.logical_type.to_json())
    match statistics.physical_type, logical.get("Type"), kind:
        case "BOOLEAN", _, BooleanType():
            return int
        case "INT32" | "INT64", "None" | "Int", IntegerType() | LongType():
            return int
        case "INT32", "Date", DateType():
            return int
        case "INT64", "Timestamp", TimestampType() | TimestamptzType() if (
            logical.get("timeUnit") == "microseconds"
        ):
            return int
        case "INT32" | "INT64", "Decimal", DecimalType() if logical.get("scale") == kind.scale:
            return int
        case "FLOAT" | "DOUBLE", "None", FloatType() | DoubleType():
            return float
        case "BYTE_ARRAY", "String" | "None", StringType():
            return bytes
        case "BYTE_ARRAY", "None", BinaryType():
            return bytes
        case _:
            return None


def stored_value(kind: IcebergType, data: bytes) -> Any:
    """Read a bound as Iceberg serialises it (appendix D of its specification).

    None for types that engines do not order alike. The length of the bytes counts, not that of the
    type: a bound from before a promotion is shorter.
    """
    match kind:
        case BooleanType():
            return int(data != b"\x00")
        case IntegerType() | LongType():
            return int.from_bytes(data, "little", signed=True)
        case DateType() if len(data) == 4:
            return int.from_bytes(data, "little", signed=True)
        case (
            TimeType()
            | TimestampType()
            | TimestamptzType()
            | TimestampNanoType()
            | TimestamptzNanoType()
        ) if len(data) == 8:
            return int.from_bytes(data, "little", signed=True)
        case DecimalType():
            return int.from_bytes(data, "big", signed=True)
        case FloatType() | DoubleType() if len(data) in {4, 8}:
            (value,) = struct.unpack("<f" if len(data) == 4 else "<d", data)
            return None if math.isnan(value) else value
        case StringType() | BinaryType():
            return bytes(data)
        case _:
            return None


def decimal_bytes(unscaled: int) -> bytes:
    """A decimal as Iceberg stores and hashes it: the shortest big-endian two's complement."""
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1
    return unscaled.to_bytes((bits + 7) // 8, "big", signed=True)


def _unscaled(value: Decimal) -> int:
    """The number without its decimal point, exact whatever the decimal context's precision."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number
