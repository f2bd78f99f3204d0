"""Values of types that Iceberg on Spark lacks, in types that it has, and back (decision 0008).

Conversions take whole arrays: a scan decodes every batch. A value that cannot be converted raises
ValueError or an Arrow error; the caller adds the column and a remedy. NULLs stay NULLs, and slices
are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, IntegerType, LongType

from sparkport.engine.leaf_encodings import LEAF_CONVERSIONS
from sparkport.engine.type_table import form, row_of, storage_type
from sparkport.spark.iceberg.types.natural_types import named_type, natural_type

__all__ = ["INTERVAL_PARTS", "Storage", "interval_from_parts", "parts_of_interval", "storage_for"]

Conversion: TypeAlias = Callable[[pa.Array], pa.Array]
_Conversions: TypeAlias = tuple[Conversion, Conversion]
"""To the stored values, and back."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How values of a declared type are stored.

    The caller takes extension types off and puts them on.
    """

    type: IcebergType
    encode: Conversion
    decode: Conversion
    keeps_order: bool
    """Whether stored values are ordered as DuckDB orders the declared ones."""


def storage_for(declared: pa.DataType) -> Storage | None:
    """How a type without parts is stored; None where Iceberg's type shows as the declared one."""
    row = row_of(declared)
    if row is None or not row.iceberg:
        return None
    kept = named_type(row.iceberg)
    natural = natural_type(kept)
    if natural.equals(declared):
        return None
    special = _SPECIAL.get(row.form)
    if special is not None:
        return Storage(kept, *special(declared), row.ordered)
    there = LEAF_CONVERSIONS[row.form, form(natural)]
    back = LEAF_CONVERSIONS[form(natural), row.form]
    plain = storage_type(declared)
    return Storage(
        kept, lambda array: there(array, natural), lambda array: back(array, plain), row.ordered
    )


def _refuse_outside(numbers: pa.Array, low: int, high: int, problem: str) -> pa.Array:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not low <= found["min"] <= found["max"] <= high:
        raise ValueError(problem)
    return numbers


# ----------------------------------------------------------------------------------------- numbers


_LABELLED = pa.decimal128(38, 0)
_WIDE = pa.decimal256(76, 0)
_WIDE_BYTES = pa.binary(32)
_UPPER_HALF = pa.scalar(b"\0" * 16, pa.binary())


def _hugeint(declared: pa.DataType) -> _Conversions:
    """Stored as text: up to 39 digits, one more than any number of Spark has."""
    signed = form(declared) == "hugeint"
    low, high = (-(2**127), 2**127 - 1) if signed else (0, 2**128 - 1)
    lowest, highest = (pa.scalar(Decimal(bound), _WIDE) for bound in (low, high))

    def decode(array: pa.Array) -> pa.Array:
        numbers = array.cast(_WIDE)
        if pc.any(pc.or_(pc.less(numbers, lowest), pc.greater(numbers, highest))).as_py():
            raise ValueError("more than 128 bits")
        return pc.binary_slice(
            numbers.view(_WIDE_BYTES), 0, 16
        )  # little-endian: the lower half is the whole number

    return _signed_digits if signed else _unsigned_digits, decode


def _signed_digits(array: pa.Array) -> pa.Array:
    # Arrow's decimals have the same 16 bytes, so text shows all digits whatever the declared
    # precision.
    return array.view(_LABELLED).cast(pa.string())


def _unsigned_digits(array: pa.Array) -> pa.Array:
    wide = pc.binary_join_element_wise(
        array.cast(pa.binary()), _UPPER_HALF, pa.scalar(b"", pa.binary())
    )
    return wide.cast(_WIDE_BYTES).view(_WIDE).cast(pa.string())


def _null(declared: pa.DataType) -> _Conversions:
    """Stored as another type: `unknown` works neither inside types nor before format version 3."""

    def decode(array: pa.Array) -> pa.Array:
        if array.null_count < len(array):
            raise ValueError("not NULL")
        return pa.nulls(len(array))

    return lambda array: pa.nulls(len(array), pa.bool_()), decode


# ------------------------------------------------------------------------------------- time of day

_DAY_SECONDS = 24 * 60 * 60
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _time(declared: pa.DataType) -> _Conversions:
    """Stored as the units since midnight."""
    day = _DAY_SECONDS * _PER_SECOND[declared.unit]
    plain = pa.int32() if declared.bit_width == 32 else pa.int64()

    def encode(array: pa.Array) -> pa.Array:
        return _refuse_outside(array.view(plain), 0, day, "not a time of day").cast(pa.int64())

    def decode(array: pa.Array) -> pa.Array:
        return (
            _refuse_outside(array, 0, day, "not a time of day").cast(plain).view(declared)
        )  # 24:00 is a time, too

    return encode, decode


_OFFSET_BITS = 24
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_GREATEST_OFFSET = 2 * 57599
_OFFSET_STEP = 10**6 << _OFFSET_BITS


def _time_tz(declared: pa.DataType) -> _Conversions:
    """Stored as a number in DuckDB's order: the time in UTC, then the offset."""

    def encode(array: pa.Array) -> pa.Array:
        packed = _checked_times(array.view(pa.int64()))
        return pc.add(packed, pc.multiply(pc.bit_wise_and(packed, _OFFSET_MASK), _OFFSET_STEP))

    def decode(array: pa.Array) -> pa.Array:
        offsets = _refuse_outside(
            pc.bit_wise_and(array, _OFFSET_MASK), 0, _GREATEST_OFFSET, "not an offset"
        )
        return _checked_times(pc.subtract(array, pc.multiply(offsets, _OFFSET_STEP))).view(
            pa.binary(8)
        )

    return encode, decode


def _checked_times(packed: pa.Array) -> pa.Array:
    _refuse_outside(pc.bit_wise_and(packed, _OFFSET_MASK), 0, _GREATEST_OFFSET, "not an offset")
    _refuse_outside(
        pc.shift_right(packed, _OFFSET_BITS), 0, _DAY_SECONDS * 10**6, "not a time of day"
    )
    return packed


# --------------------------------------------------------------------- moments and their distances


def _timestamp(declared: pa.DataType) -> _Conversions:
    """Stored in Spark's microseconds; nanoseconds do not fit, and become a number."""
    if declared.unit == "ns":
        return _number(declared)
    kept = pa.timestamp("us", None if declared.tz is None else "UTC")
    if declared.unit == "us":
        # Only the name of the zone differs: all values are in UTC.
        return lambda array: array.cast(kept), lambda array: array.cast(declared)
    return lambda array: _rescaled(array, kept), lambda array: _rescaled(array, declared)


_INFINITY = 2**63 - 1


def _rescaled(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Change the unit. DuckDB's `infinity` and `-infinity` are the same numbers in every unit."""
    numbers = array.view(pa.int64())
    infinite = pc.or_(pc.equal(numbers, _INFINITY), pc.equal(numbers, -_INFINITY))
    if not pc.any(infinite).as_py():
        return array.cast(target)
    finite = pc.if_else(infinite, pa.scalar(0, pa.int64()), numbers).view(array.type).cast(target)
    return pc.if_else(infinite, numbers, finite.view(pa.int64())).view(target)


def _number(declared: pa.DataType) -> _Conversions:
    """Stored as a count of the type's units."""
    return lambda array: array.view(pa.int64()), lambda array: array.view(declared)


_SPECIAL: Mapping[str, Callable[[pa.DataType], _Conversions]] = {
    "null": _null,
    "hugeint": _hugeint,
    "uhugeint": _hugeint,
    "time": _time,
    "time_tz": _time_tz,
    "timestamp": _timestamp,
    "zoned timestamp": _timestamp,
    "duration": _number,
}
"""By form: types that are stored in another way than clients send them."""


# --------------------------------------------------------------------------------------- intervals


INTERVAL_PARTS: tuple[tuple[str, IcebergType, pa.DataType, tuple[int, int]], ...] = (
    ("months", IntegerType(), pa.int32(), (0, 4)),
    ("days", IntegerType(), pa.int32(), (4, 8)),
    ("nanoseconds", LongType(), pa.int64(), (8, 16)),
)
"""Each part with its types and its place in Arrow's 16 bytes.

The parts do not add up: a month has no fixed length.
"""


def parts_of_interval(array: pa.Array) -> list[pa.Array]:
    octets = array.view(pa.binary(16))
    return [pc.binary_slice(octets, *place).view(arrow) for _, _, arrow, place in INTERVAL_PARTS]


def interval_from_parts(parts: list[pa.Array]) -> pa.Array:
    """Intervals from their parts; NULL where any part is."""
    octets = [
        part.view(pa.binary(stop - start)).cast(pa.binary())
        for part, (_, _, _, (start, stop)) in zip(parts, INTERVAL_PARTS, strict=True)
    ]
    joined = pc.binary_join_element_wise(*octets, pa.scalar(b"", pa.binary()))
    return joined.cast(pa.binary(16)).view(pa.month_day_nano_interval())
