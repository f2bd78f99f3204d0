"""Statistics of a version's columns.

A segment never changes, so each is summarised once; the summaries are combined for a version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import ColumnStatistics, Context
from sparkport.engine.statistics import shortened_maximum, shortened_minimum
from sparkport.engine.type_table import opaque_name
from sparkport.memory.segments import Segment
from sparkport.memory.versions import Version

__all__ = ["Summary", "statistics_of"]

_SAMPLE_ROWS = 8_192
_SAMPLE_DISTINCT = 6_144
"""Distinct values of a sample from which on counting all of them costs more than it is worth."""
_KEPT_VALUES = 16_384
_KEPT_BYTES = 256 * 1024
"""Most bytes of distinct values that are kept for a column of a segment."""
_COUNTED_VALUES = 200_000
"""Most kept values, of all segments, that are counted for a version."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What statistics need of a column of a segment. Takes little memory, whatever the values."""

    rows: int
    nulls: int
    bounds: pa.Array | None
    """Least and greatest value; empty when all values are NULL, None when they are not known."""
    ascii: bool
    longest: int
    """Most bytes of a text."""
    distinct: pa.Array | None
    """All distinct values but NULL; None when there are too many of them."""


def statistics_of(ctx: Context, version: Version, position: int) -> ColumnStatistics:
    """The statistics of a column, computed once for a version.

    Two threads that ask at the same time may both compute them.
    """
    known = version.statistics.get(position)
    if known is None:
        data_type = version.definition.columns.field(position).type
        summaries = []
        for segment in version.segments:
            ctx.check()
            summaries.append(_summary_of(segment, position, data_type))
        known = version.statistics[position] = _combined(summaries, data_type)
    return known


def _summary_of(segment: Segment, position: int, data_type: pa.DataType) -> Summary:
    known = segment.summaries.get(position)
    if known is None:
        known = segment.summaries[position] = summarised(segment.columns[position], data_type)
    return known


def summarised(column: pa.Array, data_type: pa.DataType) -> Summary:
    """Summarise a column by looking at all its values."""
    values = _plain(column)
    if pa.types.is_nested(values.type):
        return Summary(len(values), values.null_count, None, ascii=False, longest=0, distinct=None)
    is_ascii, longest = True, 0
    if _is_text(values.type) and values.null_count < len(values):
        is_ascii = bool(pc.all(pc.string_is_ascii(values)).as_py())
        longest = int(pc.max(pc.binary_length(values)).as_py())
    bounds = _bounds(values, data_type)
    return Summary(len(values), values.null_count, bounds, is_ascii, longest, _distinct(values))


def _combined(summaries: Sequence[Summary], data_type: pa.DataType) -> ColumnStatistics:
    rows, nulls = sum(each.rows for each in summaries), sum(each.nulls for each in summaries)
    all_bounds = [each.bounds for each in summaries]
    known = [bounds for bounds in all_bounds if bounds is not None]
    # The least and greatest of all segments' bounds are the bounds of all values.
    bounds = (
        _bounds(pa.concat_arrays(known), data_type)
        if known and len(known) == len(all_bounds)
        else None
    )
    low, high = (None, None) if bounds is None or len(bounds) == 0 else (bounds[0], bounds[1])
    if low is not None and pa.types.is_floating(low.type) and low.as_py() != low.as_py():
        low = None  # all values are NaN
    return ColumnStatistics(
        minimum=low,
        maximum=high,
        has_null=nulls > 0,
        has_not_null=rows > nulls,
        distinct_count=_count_distinct(summaries),
        contains_unicode=not all(each.ascii for each in summaries),
        max_string_length=max((each.longest for each in summaries), default=0),
    )


def _plain(column: pa.Array) -> pa.Array:
    """The values in a type that Arrow can compute with."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return _plain(pc.run_end_decode(column))
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _bounds(values: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """Least and greatest value as DuckDB orders them; empty when all values are NULL."""
    if values.null_count == len(values):
        return pa.nulls(0, values.type)
    name = opaque_name(data_type)
    if isinstance(data_type, pa.BaseExtensionType) and data_type.extension_name == "arrow.bool8":
        truths = pc.not_equal(values, pa.scalar(0, pa.int8()))
        return _least_and_greatest(truths).cast(pa.int8())
    if name in ("hugeint", "uhugeint"):
        return _huge_bounds(values, signed=name == "hugeint")
    if name is not None:
        return None
    if pa.types.is_decimal32(values.type) or pa.types.is_decimal64(values.type):
        unscaled = pa.int32() if values.type.bit_width == 32 else pa.int64()
        return _least_and_greatest(values.view(unscaled)).view(values.type)
    if pa.types.is_floating(values.type):
        return _float_bounds(values)
    if _is_text(values.type):
        return _text_bounds(values)
    try:
        return _least_and_greatest(values)
    except pa.ArrowNotImplementedError:
        return None


def _least_and_greatest(values: pa.Array) -> pa.Array:
    found = pc.min_max(values)
    return pa.concat_arrays([pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)])


def _huge_bounds(values: pa.Array, *, signed: bool) -> pa.Array:
    """Bounds of 128-bit little-endian integers, which Arrow has as decimals without fraction."""
    numbers = values.view(pa.decimal128(38, 0))
    if not signed:
        # Unsigned numbers with the highest bit set seem negative, but are above the others.
        seem_negative = pc.less(numbers, pa.scalar(Decimal(0), numbers.type))
        high, low = numbers.filter(seem_negative), numbers.filter(pc.invert(seem_negative))
        parts = [_least_and_greatest(part) for part in (low, high) if len(part)]
        return pa.concat_arrays([parts[0].slice(0, 1), parts[-1].slice(1)]).view(values.type)
    return _least_and_greatest(numbers).view(values.type)


def _float_bounds(values: pa.Array) -> pa.Array:
    """Bounds of floats: Arrow leaves NaN out, for DuckDB it is the greatest value."""
    bounds = _least_and_greatest(values)
    if not pc.any(pc.is_nan(values)).as_py():
        return bounds
    return pa.concat_arrays([bounds.slice(0, 1), pa.array([float("nan")], values.type)])


def _text_bounds(values: pa.Array) -> pa.Array | None:
    try:
        low, high = _least_and_greatest(values).to_pylist()
    except UnicodeDecodeError:  # inserted text is not checked to be UTF-8
        return None
    return pa.array([shortened_minimum(low), shortened_maximum(high)], values.type)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _distinct(values: pa.Array) -> pa.Array | None:
    if pa.types.is_decimal32(values.type) or pa.types.is_decimal64(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if pa.types.is_floating(values.type):
        # Arrow tells -0.0 from 0.0, DuckDB does not.
        values = pc.add(values, pa.scalar(0.0, values.type))
    try:
        if (
            len(values) > _SAMPLE_ROWS
            and len(pc.unique(values.slice(0, _SAMPLE_ROWS))) > _SAMPLE_DISTINCT
        ):
            return None
        distinct = pc.unique(values).drop_null()
    except pa.ArrowNotImplementedError:
        return None
    return None if len(distinct) > _KEPT_VALUES or distinct.nbytes > _KEPT_BYTES else distinct


def _count_distinct(summaries: Sequence[Summary]) -> int:
    parts = [each.distinct for each in summaries if each.distinct is not None]
    if len(parts) < len(summaries) or sum(len(part) for part in parts) > _COUNTED_VALUES:
        return 0
    if len(parts) < 2:
        return len(parts[0]) if parts else 0
    return int(pc.count_distinct(pa.chunked_array(parts)).as_py())
