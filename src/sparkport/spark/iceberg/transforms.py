"""Iceberg's partition transforms, applied to columns.

Strategy: Arrow computes where every row may differ; elsewhere each distinct value is computed once.
Results equal Iceberg's to the last bit, because other engines look for rows by them: everything is
rounded down, also below zero; text is cut by code points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    UUIDType,
)

from sparkport.spark.iceberg.bounds import decimal_bytes
from sparkport.spark.iceberg.civil_days import month_of, year_of

__all__ = ["Labels", "transform_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The result of a transform: a few distinct values, and for each row the index of its own."""

    numbers: pa.Array
    """int64, without NULLs."""
    values: list[Any]
    """Distinct values as Iceberg's files have them: dates, for instance, as days."""

    def mapped(self, function: Callable[[Any], Any]) -> Labels:
        """Apply a function to the values, which may make some of them equal. NULL stays NULL."""
        numbers: dict[Any, int] = {}
        new = [
            numbers.setdefault(None if old is None else function(old), len(numbers))
            for old in self.values
        ]
        return Labels(pa.array(new, pa.int64()).take(self.numbers), list(numbers))


_Apply: TypeAlias = Callable[[pa.Array], Labels]


def transform_of(transform: Transform[Any, Any], kind: IcebergType) -> _Apply | None:
    """A function that applies a transform to stored arrays of a type; None where only Spark can."""
    match transform:
        case VoidTransform():
            return lambda array: Labels(pa.repeat(pa.scalar(0, pa.int64()), len(array)), [None])
        case IdentityTransform():
            return _identity(kind)
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform():
            return _time(transform, kind)
        case TruncateTransform():
            return _truncate(transform.width, kind)
        case BucketTransform():
            return _bucket(transform.num_buckets, kind)
        case _:
            return None


def _labels(array: pa.Array) -> Labels:
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return Labels(encoded.indices.cast(pa.int64()), encoded.dictionary.to_pylist())


# ---------------------------------------------------------------------------------------- identity


def _identity(kind: IcebergType) -> _Apply | None:
    match kind:
        case UUIDType():
            return lambda array: _labels(array.storage).mapped(lambda value: UUID(bytes=value))
        case _ if isinstance(kind, _TEMPORAL):
            return lambda array: _labels(_integers(array))
        case _ if isinstance(kind, _PLAIN):
            return _labels
        case _:
            return None


_PLAIN = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    BinaryType,
    FixedType,
)
_MICROSECONDS = (TimestampType, TimestamptzType)
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)
_TEMPORAL = (DateType, TimeType, *_MICROSECONDS, *_NANOSECONDS)


def _integers(array: pa.Array) -> pa.Array:
    """Days, microseconds or nanoseconds as plain numbers."""
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).cast(pa.int64())


# -------------------------------------------------------------------------------------------- time


def _time(transform: Transform[Any, Any], kind: IcebergType) -> _Apply | None:
    per_second = 1_000_000 if isinstance(kind, _MICROSECONDS) else 1_000_000_000
    if isinstance(transform, HourTransform):
        if not isinstance(kind, _MICROSECONDS + _NANOSECONDS):
            return None
        return lambda array: _labels(_hours(_integers(array), 3_600 * per_second))
    if isinstance(kind, DateType):
        days: _Apply = lambda array: _labels(_integers(array))  # noqa: E731 - three of a kind
    elif isinstance(kind, _MICROSECONDS + _NANOSECONDS):
        days = lambda array: _labels(_floor_divided(_integers(array), 86_400 * per_second))  # noqa: E731
    else:
        return None
    match transform:
        case YearTransform():
            return lambda array: days(array).mapped(year_of)
        case MonthTransform():
            return lambda array: days(array).mapped(month_of)
        case _:
            return days


def _hours(array: pa.Array, per_hour: int) -> pa.Array:
    """Hours in 32 bits, which wrap around in the years ±245,000, as in Java."""
    return _floor_divided(array, per_hour).cast(pa.int32(), safe=False)


def _floor_divided(array: pa.Array, divisor: int) -> pa.Array:
    """Divide and round down. Arrow's own division rounds towards zero."""
    quotients = pc.divide(array, divisor)
    is_less = pc.less(array, pc.multiply(quotients, divisor))
    return pc.subtract(quotients, is_less.cast(pa.int64()))


# ---------------------------------------------------------------------------------------- truncate


def _truncate(width: int, kind: IcebergType) -> _Apply | None:
    match kind:
        case IntegerType() if width > _WIDEST:
            return None
        case IntegerType() | LongType():
            return lambda array: _labels(_truncated(array, width))
        case DecimalType():
            return lambda array: (
                _labels(array.view(_UNSCALED))
                .mapped(lambda raw: (number := _unscaled(raw)) - number % width)
                .mapped(lambda number: _EXACT.scaleb(Decimal(number), -kind.scale))
            )
        case StringType():
            return lambda array: _labels(pc.utf8_slice_codeunits(array, 0, width))
        case BinaryType():
            return lambda array: _labels(pc.binary_slice(array, 0, width))
        case _:
            return None


_WIDEST = 2**30
"""Above this, Java's sums overflow."""


def _truncated(array: pa.Array, width: int) -> pa.Array:
    """Round down to a multiple of `width`. It wraps around below the least number, as in Java."""
    step = pa.scalar(width, array.type)
    rests = pc.subtract(array, pc.multiply(pc.divide(array, step), step))
    rests = pc.if_else(pc.less(rests, 0), pc.add(rests, step), rests)
    return pc.subtract(array, rests)


_EXACT = Context(prec=80)
_UNSCALED = pa.binary(16)
"""Arrow's form of a decimal: the unscaled number, least significant byte first."""


def _unscaled(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


# ------------------------------------------------------------------------------------------ bucket


def _bucket(count: int, kind: IcebergType) -> _Apply | None:
    match kind:
        case IntegerType() | LongType():
            return lambda array: _labels(_buckets(array.cast(pa.int64()), count))
        case _ if isinstance(kind, _NANOSECONDS):
            return lambda array: _labels(_buckets(_floor_divided(_integers(array), 1000), count))
        case _ if isinstance(kind, _TEMPORAL):
            return lambda array: _labels(_buckets(_integers(array), count))

    def bucket(value: bytes) -> int:
        return int(mmh3.hash(value) & 0x7FFFFFFF) % count

    match kind:
        case UUIDType():
            return lambda array: _labels(array.storage).mapped(bucket)
        case StringType() | BinaryType() | FixedType():
            return lambda array: _labels(array.cast(pa.binary())).mapped(bucket)
        case DecimalType():
            return lambda array: _labels(array.view(_UNSCALED)).mapped(
                lambda raw: bucket(decimal_bytes(_unscaled(raw)))
            )
        case _:
            return None


def _buckets(numbers: pa.Array, count: int) -> pa.Array:
    """The buckets of numbers: MurmurHash3 of their eight bytes, least significant first.

    See appendix B of Iceberg's specification.
    """
    bits = numbers.view(pa.uint64())
    hashes = pa.repeat(_word(0), len(numbers))
    for block in (
        pc.bit_wise_and(bits, pa.scalar(0xFFFFFFFF, pa.uint64())),
        pc.shift_right(bits, _LONG_32),
    ):
        word = _rotated(pc.multiply(block.cast(pa.uint32()), _word(0xCC9E2D51)), 15)
        hashes = _rotated(pc.bit_wise_xor(hashes, pc.multiply(word, _word(0x1B873593))), 13)
        hashes = pc.add(pc.multiply(hashes, _word(5)), _word(0xE6546B64))
    hashes = pc.bit_wise_xor(hashes, _word(8))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashes = pc.multiply(
            pc.bit_wise_xor(hashes, pc.shift_right(hashes, _word(shift))), _word(factor)
        )
    positive = pc.bit_wise_and(hashes, _word(0x7FFFFFFF)).cast(pa.int64())
    return pc.subtract(positive, pc.multiply(pc.divide(positive, count), count))


_LONG_32 = pa.scalar(32, pa.uint64())


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _rotated(words: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_or(
        pc.shift_left(words, _word(bits)), pc.shift_right(words, _word(32 - bits))
    )
