"""Conditions on columns as conditions on partition fields (inclusive projection).

Strategy: a transform that keeps the order maps the ends of a range; bucket maps single values.
Every partition that may hold a matching row satisfies the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from typing_extensions import assert_never

from sparkport.spark.iceberg.bounds import decimal_bytes
from sparkport.spark.iceberg.civil_days import month_of, year_of
from sparkport.spark.iceberg.conditions import (
    All,
    AnyOf,
    Condition,
    Nullness,
    OneOf,
    Range,
    all_of,
    any_of,
)

__all__ = ["identity_sources", "projected", "result_type"]


def projected(
    condition: Condition, spec: PartitionSpec, kinds: Mapping[int, IcebergType]
) -> Condition | None:
    """The condition on partition fields, by their ids, that follows; None if nothing follows.

    `kinds` are the types of the source columns.
    """
    match condition:
        case All():
            return all_of([projected(part, spec, kinds) for part in condition.parts])
        case AnyOf():
            return any_of([projected(part, spec, kinds) for part in condition.parts])
        case Range() | OneOf() | Nullness():
            kind = kinds.get(condition.field_id)
            if kind is None:
                return None
            fields = [field for field in spec.fields if field.source_id == condition.field_id]
            return all_of([_projected_on(condition, field, kind) for field in fields])
        case _:
            assert_never(condition)


def result_type(field: PartitionField, kind: IcebergType | None) -> IcebergType | None:
    """The type of a partition field's bounds in a manifest list; None where it is unknown."""
    match field.transform:
        case IdentityTransform() | TruncateTransform():
            return kind
        case (
            BucketTransform()
            | YearTransform()
            | MonthTransform()
            | DayTransform()
            | HourTransform()
        ):
            return IntegerType()
        case _:
            return None


def identity_sources(spec: PartitionSpec) -> dict[int, int]:
    """The source columns of identity partition fields, by partition field id."""
    return {
        field.field_id: field.source_id
        for field in spec.fields
        if isinstance(field.transform, IdentityTransform)
    }


def _projected_on(
    condition: Range | OneOf | Nullness, field: PartitionField, kind: IcebergType
) -> Condition | None:
    if isinstance(condition, Nullness):
        # Every transform maps NULL, and nothing else, to NULL. `void` and transforms not known here
        # are the exceptions.
        return (
            Nullness(field.field_id, condition.is_null)
            if result_type(field, kind) is not None
            else None
        )
    if isinstance(field.transform, BucketTransform):
        return _in_buckets(condition, field, kind)
    apply = _ordered_transform(field, kind)
    if apply is None:
        return None
    is_time = isinstance(
        field.transform, YearTransform | MonthTransform | DayTransform | HourTransform
    )
    if isinstance(condition, OneOf):
        values = {apply(value) for value in condition.values}
        if is_time:
            values |= {value + 1 for value in values if value < 0}
            values = {(value + 2**31) % 2**32 - 2**31 for value in values}
        return OneOf(field.field_id, tuple(sorted(values)))
    lower = None if condition.lower is None else apply(condition.lower)
    upper = None if condition.upper is None else apply(condition.upper)
    if upper is not None and is_time and upper < 0:
        # Old writers rounded times before 1970 towards zero.
        upper += 1
    if isinstance(field.transform, HourTransform):
        return _in_hours(field.field_id, lower, upper)
    is_identity = isinstance(field.transform, IdentityTransform)
    return Range(
        field.field_id,
        lower,
        upper,
        is_identity and condition.lower_open,
        is_identity and condition.upper_open,
    )


def _in_hours(field_id: int, lower: int | None, upper: int | None) -> Condition | None:
    """A range of hours as partitions hold them, in 32 bits.

    Hours of the years ±245,000 have wrapped around. Infinite timestamps are among them.
    """
    first = -(2**63) // _MICROS_PER_HOUR if lower is None else lower
    last = 2**63 // _MICROS_PER_HOUR if upper is None else upper
    turns: list[Condition | None] = []
    for start in (-(2**32), 0, 2**32):
        least, most = max(first - start, -(2**31)), min(last - start, 2**31 - 1)
        if least <= most:
            turns.append(Range(field_id, least, most))
    return any_of(turns)


def _in_buckets(
    condition: Range | OneOf, field: PartitionField, kind: IcebergType
) -> Condition | None:
    assert isinstance(field.transform, BucketTransform)
    if isinstance(condition, OneOf):
        values = condition.values
    elif condition.lower is not None and condition.lower == condition.upper:
        values = (condition.lower,)
    else:
        return None
    hashed = _hashed_bytes(kind)
    if hashed is None:
        return None
    # This hashes bytes as they are.
    bucket = field.transform.transform(BinaryType())
    return OneOf(
        field.field_id, tuple(sorted({int(bucket(hashed(value)) or 0) for value in values}))
    )


def _hashed_bytes(kind: IcebergType) -> Callable[[Any], bytes] | None:
    """What gives the bytes of a value that are hashed (appendix B of Iceberg's specification)."""
    match kind:
        case IntegerType() | LongType() | DateType() | TimestampType() | TimestamptzType():
            return lambda value: int(value).to_bytes(8, "little", signed=True)
        case DecimalType():
            return decimal_bytes
        case StringType() | BinaryType():
            return bytes
        case _:
            return None


def _ordered_transform(field: PartitionField, kind: IcebergType) -> Callable[[Any], Any] | None:
    match field.transform, kind:
        case IdentityTransform(), _:
            return lambda value: value
        case TruncateTransform(), IntegerType() | LongType() | DecimalType():
            width = field.transform.width
            return lambda value: value - value % width
        case TruncateTransform(), StringType():
            width = field.transform.width
            return lambda value: value.decode()[:width].encode()
        case TruncateTransform(), BinaryType():
            width = field.transform.width
            return lambda value: value[:width]
        case ((YearTransform() | MonthTransform() | DayTransform()), DateType()):
            return _of_days(field)
        case (
            (YearTransform() | MonthTransform() | DayTransform()),
            TimestampType() | TimestamptzType(),
        ):
            of_days = _of_days(field)
            return lambda value: of_days(value // _MICROS_PER_DAY)
        case HourTransform(), TimestampType() | TimestamptzType():
            return lambda value: value // _MICROS_PER_HOUR
        case _:
            return None


def _of_days(field: PartitionField) -> Callable[[int], int]:
    match field.transform:
        case YearTransform():
            return year_of
        case MonthTransform():
            return month_of
        case _:
            return lambda days: days


_MICROS_PER_HOUR = 3_600_000_000
_MICROS_PER_DAY = 24 * _MICROS_PER_HOUR
