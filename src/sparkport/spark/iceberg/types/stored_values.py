"""Values of types that Iceberg on Spark does not have, in types that it has, and back (decision
0008).

Whole arrays at a time: a scan decodes every batch. What cannot be converted is a ValueError or an
Arrow error; which column, and what to do about it, is said by the caller. NULLs stay NULLs, and
slices are fine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sparkport.engine.leaf_encodings import LEAF_CONVERSIONS

__all__ = [
    "INTERVAL_PARTS",
    "Storage",
    "bignum_storage",
    "bit_storage",
    "hugeint_storage",
    "integer_storage",
    "interval_from_parts",
    "json_storage",
    "null_storage",
    "parts_of_interval",
    "span_storage",
    "time_storage",
    "time_tz_storage",
    "timestamp_storage",
    "uuid_storage",
]

Conversion: TypeAlias = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class Storage:
    """How the values of one declared type are kept. Extension types are taken off and put on by the
    caller.
    """

    type: IcebergType
    encode: Conversion
    decode: Conversion
    keeps_order: bool = True
    """Whether stored values are ordered as DuckDB orders the declared ones."""


def _every(truths: pa.Array) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())


def _refuse_outside(numbers: pa.Array, low: int, high: int, problem: str) -> pa.Array:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not low <= found["min"] <= found["max"] <= high:
        raise ValueError(problem)
    return numbers


# ----------------------------------------------------------------------------------------- numbers


def integer_storage(declared: pa.DataType) -> Storage:
    """The next wider type that has a sign; UBIGINT as a decimal, since nothing wider than BIGINT is
    left.
    """
    kept: IcebergType
    if declared.bit_width < 32:
        kept, arrow = IntegerType(), pa.int32()
    elif declared.bit_width == 32:
        kept, arrow = LongType(), pa.int64()
    else:
        kept, arrow = DecimalType(20, 0), pa.decimal128(20, 0)
    return Storage(kept, lambda array: array.cast(arrow), lambda array: array.cast(declared))


_LABELLED = pa.decimal128(38, 0)
_WIDE = pa.decimal256(76, 0)
_HUGE, _WIDE_BYTES = pa.binary(16), pa.binary(32)
_UPPER_HALF = pa.scalar(b"\0" * 16, pa.binary())


def hugeint_storage(*, signed: bool) -> Storage:
    """Decimal digits: they go up to 39, one more than any number of Spark has."""
    low, high = (-(2**127), 2**127 - 1) if signed else (0, 2**128 - 1)
    lowest, highest = (pa.scalar(Decimal(bound), _WIDE) for bound in (low, high))

    def decode(array: pa.Array) -> pa.Array:
        numbers = array.cast(_WIDE)
        if pc.any(pc.or_(pc.less(numbers, lowest), pc.greater(numbers, highest))).as_py():
            raise ValueError("more than 128 bits")
        return pc.binary_slice(
            numbers.view(_WIDE_BYTES), 0, 16
        )  # little endian: the lower half is the whole number

    return Storage(
        StringType(), _signed_digits if signed else _unsigned_digits, decode, keeps_order=False
    )


def _signed_digits(array: pa.Array) -> pa.Array:
    # A decimal of Arrow is the same 16 bytes. It is written out in full, whatever its label says.
    return array.view(_LABELLED).cast(pa.string())


def _unsigned_digits(array: pa.Array) -> pa.Array:
    wide = pc.binary_join_element_wise(
        array.cast(pa.binary()), _UPPER_HALF, pa.scalar(b"", pa.binary())
    )
    return wide.cast(_WIDE_BYTES).view(_WIDE).cast(pa.string())


# ---------------------------------------------------------------------------------- text and bytes


def json_storage() -> Storage:
    """The text as it was written."""
    return Storage(StringType(), lambda array: array.cast(pa.string()), lambda array: array)


def uuid_storage() -> Storage:
    """Text, as Spark shows a UUID anyhow: its filters on Iceberg's own type miss rows (decision
    0008).

    Others may write capital letters, which are ordered otherwise than the values.
    """
    return Storage(StringType(), _text_of_uuids, _uuids_of_text, keeps_order=False)


_UUID_GROUPS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def _text_of_uuids(array: pa.Array) -> pa.Array:
    if len(array) == array.null_count:
        return pa.nulls(len(array), pa.string())
    whole = array.fill_null(b"\0" * 16)
    octets = whole.buffers()[1].slice(whole.offset * 16, len(whole) * 16).to_pybytes()
    digits = pa.Array.from_buffers(
        pa.binary(32), len(whole), [None, pa.py_buffer(octets.hex().encode())]
    )
    groups = [
        pc.binary_slice(digits, start, stop).cast(pa.binary()) for start, stop in _UUID_GROUPS
    ]
    text = pc.binary_join_element_wise(*groups, pa.scalar(b"-", pa.binary())).cast(pa.string())
    return (
        pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
        if array.null_count
        else text
    )


def _uuids_of_text(array: pa.Array) -> pa.Array:
    return LEAF_CONVERSIONS["text", "uuid"](array, pa.binary(16))


def bit_storage() -> Storage:
    """DuckDB's own bytes, as a client without lossless conversion sends them."""
    return Storage(
        BinaryType(), lambda array: array.cast(pa.binary()), _checked_bits, keeps_order=False
    )


def _checked_bits(array: pa.Array) -> pa.Array:
    """DuckDB reads these bytes without looking at them, so what cannot be a BIT must not get that
    far.
    """
    padding = pc.binary_slice(array, 0, 1)
    if not _every(
        pc.and_(pc.greater_equal(pc.binary_length(array), 2), pc.less_equal(padding, b"\x07"))
    ):
        raise ValueError("not the bytes of a BIT")
    return array


def bignum_storage() -> Storage:
    """DuckDB's own bytes, which are ordered as the numbers are."""
    return Storage(BinaryType(), lambda array: array.cast(pa.binary()), _checked_bignums)


def _checked_bignums(array: pa.Array) -> pa.Array:
    if not _every(pc.greater_equal(pc.binary_length(array), 4)):
        raise ValueError("not the bytes of a BIGNUM")
    header = pc.binary_reverse(pc.binary_slice(array, 0, 3))
    padded = pc.binary_join_element_wise(
        header, pa.scalar(b"\0", pa.binary()), pa.scalar(b"", pa.binary())
    )
    sizes = padded.cast(pa.binary(4)).view(pa.int32())
    negative = pc.equal(pc.bit_wise_and(sizes, 0x800000), 0)  # complemented, the size too
    sizes = pc.bit_wise_and(pc.if_else(negative, pc.bit_wise_not(sizes), sizes), 0x7FFFFF)
    if not _every(pc.equal(sizes, pc.subtract(pc.binary_length(array), 3))):
        raise ValueError("not the bytes of a BIGNUM")
    return array


def null_storage() -> Storage:
    """Iceberg's own `unknown` cannot be written inside other types, and not at all before format
    version 3.
    """

    def decode(array: pa.Array) -> pa.Array:
        if array.null_count < len(array):
            raise ValueError("not NULL")
        return pa.nulls(len(array))

    return Storage(
        BooleanType(), lambda array: pa.nulls(len(array), pa.bool_()), decode, keeps_order=False
    )


# ------------------------------------------------------------------------------------- time of day

_DAY_SECONDS = 24 * 60 * 60
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def time_storage(declared: pa.DataType) -> Storage:
    """The time since midnight, as a number of its units."""
    day = _DAY_SECONDS * _PER_SECOND[declared.unit]
    plain = pa.int32() if declared.bit_width == 32 else pa.int64()

    def encode(array: pa.Array) -> pa.Array:
        return _refuse_outside(array.view(plain), 0, day, "not a time of day").cast(pa.int64())

    def decode(array: pa.Array) -> pa.Array:
        return (
            _refuse_outside(array, 0, day, "not a time of day").cast(plain).view(declared)
        )  # 24:00 is one too

    return Storage(LongType(), encode, decode)


_OFFSET_BITS = 24
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_GREATEST_OFFSET = 2 * 57599
_OFFSET_STEP = 10**6 << _OFFSET_BITS


def time_tz_storage() -> Storage:
    """A number by which DuckDB itself orders them: the time in UTC above the offset, not the local
    time above it.
    """

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

    return Storage(LongType(), encode, decode)


def _checked_times(packed: pa.Array) -> pa.Array:
    _refuse_outside(pc.bit_wise_and(packed, _OFFSET_MASK), 0, _GREATEST_OFFSET, "not an offset")
    _refuse_outside(
        pc.shift_right(packed, _OFFSET_BITS), 0, _DAY_SECONDS * 10**6, "not a time of day"
    )
    return packed


# --------------------------------------------------------------------- moments and their distances


def timestamp_storage(declared: pa.DataType) -> Storage:
    """Spark's timestamps are of microseconds: seconds and milliseconds fit in, nanoseconds are kept
    as a number.
    """
    if declared.unit == "ns":
        return Storage(
            LongType(), lambda array: array.view(pa.int64()), lambda array: array.view(declared)
        )
    kept = TimestampType() if declared.tz is None else TimestamptzType()
    arrow = pa.timestamp("us", None if declared.tz is None else "UTC")
    if declared.unit == "us":
        # Only another name of the zone: all values are in UTC.
        return Storage(kept, lambda array: array.cast(arrow), lambda array: array.cast(declared))
    return Storage(
        kept, lambda array: _rescaled(array, arrow), lambda array: _rescaled(array, declared)
    )


_INFINITY = 2**63 - 1


def _rescaled(array: pa.Array, target: pa.DataType) -> pa.Array:
    """In another unit; DuckDB's `infinity` and `-infinity` are the same numbers in every unit."""
    numbers = array.view(pa.int64())
    infinite = pc.or_(pc.equal(numbers, _INFINITY), pc.equal(numbers, -_INFINITY))
    if not pc.any(infinite).as_py():
        return array.cast(target)
    finite = pc.if_else(infinite, pa.scalar(0, pa.int64()), numbers).view(array.type).cast(target)
    return pc.if_else(infinite, numbers, finite.view(pa.int64())).view(target)


def span_storage(declared: pa.DataType) -> Storage:
    """A duration, as a number of its units."""
    return Storage(
        LongType(), lambda array: array.view(pa.int64()), lambda array: array.view(declared)
    )


INTERVAL_PARTS: tuple[tuple[str, IcebergType, pa.DataType, tuple[int, int]], ...] = (
    ("months", IntegerType(), pa.int32(), (0, 4)),
    ("days", IntegerType(), pa.int32(), (4, 8)),
    ("nanoseconds", LongType(), pa.int64(), (8, 16)),
)
"""Each with its types, and where it stands in Arrow's 16 bytes. The parts do not add up: a month
has no fixed length.
"""


def parts_of_interval(array: pa.Array) -> list[pa.Array]:
    octets = array.view(pa.binary(16))
    return [pc.binary_slice(octets, *place).view(arrow) for _, _, arrow, place in INTERVAL_PARTS]


def interval_from_parts(parts: list[pa.Array]) -> pa.Array:
    """NULL where any part is."""
    octets = [
        part.view(pa.binary(stop - start)).cast(pa.binary())
        for part, (_, _, _, (start, stop)) in zip(parts, INTERVAL_PARTS, strict=True)
    ]
    joined = pc.binary_join_element_wise(*octets, pa.scalar(b"", pa.binary()))
    return joined.cast(pa.binary(16)).view(pa.month_day_nano_interval())
