"""Filters as conditions on columns, checked against bounds: what may match is never left out."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
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
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sparkport.catalog.filters import (
    BOOLEAN,
    Between,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    ConjunctionKind,
    Constant,
    DuckType,
    Filter,
    Function,
    Operator,
    OperatorKind,
    Unknown,
)
from sparkport.spark.iceberg.bounds import (
    UNKNOWN,
    Bounds,
    bounds_in_row_group,
    bounds_of_value,
    stored_value,
)
from sparkport.spark.iceberg.civil_days import month_of, year_of
from sparkport.spark.iceberg.conditions import OneOf, Range
from sparkport.spark.iceberg.partitions import projected
from sparkport.spark.iceberg.pruning import PrunableColumn, condition_of

INTEGER, BIGINT, VARCHAR, DOUBLE = (
    DuckType(name) for name in ("INTEGER", "BIGINT", "VARCHAR", "DOUBLE")
)
COLUMNS = {
    "i": PrunableColumn(1, IntegerType(), pa.int32()),
    "s": PrunableColumn(2, StringType(), pa.string()),
    "f": PrunableColumn(3, DoubleType(), pa.float64()),
    "b": PrunableColumn(4, BooleanType(), pa.bool_()),
    "u": PrunableColumn(5, DecimalType(20, 0), pa.uint64()),
    "d": PrunableColumn(6, DecimalType(10, 2), pa.decimal128(10, 2)),
    "dt": PrunableColumn(7, DateType(), pa.date32()),
    "ts": PrunableColumn(8, TimestampType(), pa.timestamp("us")),
    "tz": PrunableColumn(9, TimestamptzType(), pa.timestamp("us", "UTC")),
    "sec": PrunableColumn(10, TimestampType(), pa.timestamp("s")),
    "bin": PrunableColumn(11, BinaryType(), pa.binary()),
    "label": PrunableColumn(12, StringType(), pa.dictionary(pa.int8(), pa.string())),
}


def compare(name, kind, value, type_=INTEGER):
    return Comparison(ComparisonKind(kind), ColumnRef(name, type_), Constant(type_, value))


def may_match(expression, **bounds):
    condition = condition_of(Filter((expression,)), COLUMNS)
    by_id = {COLUMNS[name].field_id: each for name, each in bounds.items()}
    return condition is None or condition.may_match(lambda field_id: by_id.get(field_id, UNKNOWN))


@pytest.mark.parametrize(
    ("kind", "value", "matches"),
    [
        ("=", 9, False), ("=", 10, True), ("=", 20, True), ("=", 21, False),
        ("<", 10, False), ("<", 11, True), ("<=", 9, False), ("<=", 10, True),
        (">", 20, False), (">", 19, True), (">=", 21, False), (">=", 20, True),
        ("<>", 10, True), ("IS DISTINCT FROM", 10, True), ("IS NOT DISTINCT FROM", 9, False),
    ],
)  # fmt: skip
def test_comparisons_with_bounds(kind, value, matches):
    assert may_match(compare("i", kind, value), i=Bounds(10, 20)) is matches
    mirrored = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(kind, kind)
    swapped = Comparison(
        ComparisonKind(mirrored), Constant(INTEGER, value), ColumnRef("i", INTEGER)
    )
    assert may_match(swapped, i=Bounds(10, 20)) is matches


def test_without_bounds_everything_may_match():
    assert may_match(compare("i", "=", 1))
    assert may_match(compare("i", "<", 1), i=Bounds(None, 5))
    assert may_match(compare("i", ">", 9), i=Bounds(5, None))


def test_nothing_but_nulls_matches_only_is_null():
    nulls = Bounds(None, None, True, False)
    assert not may_match(compare("i", "<>", 1), i=nulls)
    assert not may_match(compare("i", ">", 1), i=nulls)
    column = ColumnRef("i", INTEGER)
    assert may_match(Operator(OperatorKind.IS_NULL, (column,), BOOLEAN), i=nulls)
    assert not may_match(Operator(OperatorKind.IS_NOT_NULL, (column,), BOOLEAN), i=nulls)
    assert not may_match(Operator(OperatorKind.IS_NULL, (column,), BOOLEAN), i=Bounds(1, 2, False))


def test_a_comparison_with_null_is_never_true():
    assert not may_match(compare("i", "=", None))
    assert may_match(compare("i", "IS NOT DISTINCT FROM", None))
    assert not may_match(compare("i", "IS NOT DISTINCT FROM", None), i=Bounds(1, 2, False))


def test_in_and_between():
    column = ColumnRef("i", INTEGER)

    def among(*values):
        return Operator(
            OperatorKind.IN, (column, *(Constant(INTEGER, value) for value in values)), BOOLEAN
        )

    assert not may_match(among(1, 30, None), i=Bounds(10, 20))
    assert may_match(among(1, 15, 30), i=Bounds(10, 20))
    assert not may_match(
        Between(column, Constant(INTEGER, 1), Constant(INTEGER, 10), True, False), i=Bounds(10, 20)
    )
    assert may_match(
        Between(column, Constant(INTEGER, 1), Constant(INTEGER, 10), True, True), i=Bounds(10, 20)
    )


def test_weakening_follows_the_rules():
    no, unknown = compare("i", "=", 99), Unknown("?")
    bounds = Bounds(10, 20)
    both = Conjunction(ConjunctionKind.AND, (unknown, no))
    either = Conjunction(ConjunctionKind.OR, (unknown, no))
    assert not may_match(both, i=bounds)
    assert may_match(either, i=bounds)
    assert not may_match(Conjunction(ConjunctionKind.OR, (no, no)), i=bounds)
    assert may_match(Operator(OperatorKind.NOT, (both,), BOOLEAN), i=bounds)
    assert may_match(Operator(OperatorKind.NOT, (compare("i", "<", 99),), BOOLEAN), i=bounds)
    assert may_match(
        Operator(OperatorKind.NOT_IN, (ColumnRef("i", INTEGER), Constant(INTEGER, 10)), BOOLEAN),
        i=bounds,
    )


def test_boolean_columns_stand_for_themselves():
    column = ColumnRef("b", BOOLEAN)
    assert not may_match(column, b=Bounds(0, 0))
    assert may_match(column, b=Bounds(0, 1))
    assert not may_match(Operator(OperatorKind.NOT, (column,), BOOLEAN), b=Bounds(1, 1))


def test_nan_is_greater_than_everything():
    assert may_match(compare("f", ">", 1e300, DOUBLE), f=Bounds(0.0, None))
    assert may_match(compare("f", "=", math.nan, DOUBLE), f=Bounds(0.0, 1.0))
    assert may_match(compare("f", "<", math.nan, DOUBLE), f=Bounds(0.0, 1.0))
    assert not may_match(compare("f", "<", -1.0, DOUBLE), f=Bounds(0.0, None))
    assert may_match(compare("f", "=", 0.0, DOUBLE), f=Bounds(-0.0, -0.0))


def test_text_is_ordered_by_its_bytes():
    assert may_match(compare("s", ">", "\uffff", VARCHAR), s=Bounds(b"a", "\U0001f600".encode()))
    assert not may_match(compare("s", ">", "é", VARCHAR), s=Bounds(b"a", b"zzz"))


@pytest.mark.parametrize("name", ["prefix", "starts_with", "^@", "~~"])
def test_prefixes_are_ranges(name):
    pattern = "ab%c_" if name == "~~" else "ab"
    expression = Function(name, (ColumnRef("s", VARCHAR), Constant(VARCHAR, pattern)), BOOLEAN)
    assert may_match(expression, s=Bounds(b"aa", b"abz"))
    assert may_match(expression, s=Bounds(b"ab", b"ab"))
    assert not may_match(expression, s=Bounds(b"ac", b"zz"))
    assert not may_match(expression, s=Bounds(b"a", b"aazz"))


def test_patterns_without_a_prefix_say_nothing():
    expression = Function("~~", (ColumnRef("s", VARCHAR), Constant(VARCHAR, "%b")), BOOLEAN)
    assert may_match(expression, s=Bounds(b"x", b"x"))
    foreign = Function(
        "prefix", (ColumnRef("s", VARCHAR), Constant(VARCHAR, "b")), BOOLEAN, catalog="mine"
    )
    assert may_match(foreign, s=Bounds(b"x", b"x"))


@pytest.mark.parametrize(
    ("name", "type_", "value", "stored", "below"),
    [
        ("u", DuckType("UBIGINT"), 2**64 - 1, 2**64 - 1, 2**63),
        ("d", DuckType("DECIMAL", 10, 2), 1234, 1234, 1233),
        ("dt", DuckType("DATE"), 100, 100, 99),
        ("ts", DuckType("TIMESTAMP"), 10, 10, 9),
        ("tz", DuckType("TIMESTAMP WITH TIME ZONE"), 10, 10, 9),
        ("sec", DuckType("TIMESTAMP_S"), 10, 10_000_000, 9_999_999),
        ("bin", DuckType("BLOB"), b"\xff", b"\xff", b"\xfe\xff"),
    ],
)
def test_constants_are_in_the_order_of_what_is_stored(name, type_, value, stored, below):
    assert may_match(compare(name, "=", value, type_), **{name: Bounds(stored, stored)})
    assert not may_match(compare(name, "=", value, type_), **{name: Bounds(None, below)})


@pytest.mark.parametrize(
    ("name", "type_", "value"),
    [
        ("label", VARCHAR, "x"),
        ("s", DuckType("UUID"), "x"),
        ("ts", DuckType("TIMESTAMP"), 2**63 - 1),
        ("ts", DuckType("TIMESTAMP WITH TIME ZONE"), 5),
        ("d", DuckType("DECIMAL", 10, 3), 5),
        ("i", VARCHAR, "5"),
        ("missing", INTEGER, 5),
    ],
)
def test_what_need_not_have_the_same_order_is_left_alone(name, type_, value):
    assert condition_of(Filter((compare(name, "=", value, type_),)), COLUMNS) is None


def test_types_that_differ_say_nothing():
    mixed = Comparison(ComparisonKind.EQUAL, ColumnRef("i", INTEGER), Constant(BIGINT, 5))
    assert condition_of(Filter((mixed,)), COLUMNS) is None


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (LongType(), b"\x05\x00\x00\x00", 5),  # from before a promotion
        (LongType(), b"\xff" * 8, -1),
        (DoubleType(), b"\x00\x00\x80\x3f", 1.0),
        (DoubleType(), b"\x00\x00\x00\x00\x00\x00\xf8\x7f", None),
        (TimestampType(), b"\x05\x00\x00\x00", None),  # was a date
        (DecimalType(10, 2), b"\xff\x7e", -130),
        (StringType(), "é".encode(), "é".encode()),
        (BooleanType(), b"\x01", 1),
    ],
)
def test_serialised_bounds(kind, data, value):
    assert stored_value(kind, data) == value


def spec(transform):
    return PartitionSpec(PartitionField(1, 1000, transform, "p"), spec_id=0)


DAY = 86_400_000_000


def exactly(bounds):
    return lambda _: bounds


def random_text():
    return "".join(random.choices("aé\U0001f600", k=4))


def hour_of(micros):
    """The hour as Java has it, in 32 bits."""
    return (micros // (DAY // 24) + 2**31) % 2**32 - 2**31


TRANSFORMS: list[Any] = [
    (LongType(), IdentityTransform(), lambda: random.randint(-50, 50), lambda v: v),
    (LongType(), TruncateTransform(7), lambda: random.randint(-50, 50), lambda v: v - v % 7),
    (StringType(), TruncateTransform(2), lambda: random_text().encode(), lambda v: v.decode()[:2]),
    (DateType(), YearTransform(), lambda: random.randint(-900, 900), None),
    (DateType(), MonthTransform(), lambda: random.randint(-900, 900), None),
    (TimestampType(), DayTransform(), lambda: random.randint(-9 * DAY, 9 * DAY), None),
    (TimestampType(), HourTransform(), lambda: random.randint(-DAY, DAY), None),
    (DateType(), YearTransform(), lambda: random.randint(-(2**31), 2**31 - 1), year_of),
    (DateType(), MonthTransform(), lambda: random.randint(-(2**31), 2**31 - 1), month_of),
    (TimestampType(), HourTransform(), lambda: random.randint(-(2**63), 2**63 - 1), hour_of),
    (LongType(), BucketTransform(5), lambda: random.randint(-50, 50), None),
    (StringType(), BucketTransform(5), lambda: random.choice("abcdefgh").encode(), None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "transform", "draw", "apply"), TRANSFORMS, ids=lambda each: str(each)[:20]
)
def test_projection_keeps_every_partition_that_holds_a_match(kind, transform, draw, apply):
    """If a value fulfils the condition, its partition fulfils the projected condition."""
    random.seed(7)
    apply = apply or transform.transform(kind)
    left_out = 0
    for _ in range(300):
        low, high = sorted((draw(), draw()))
        conditions: list[Range | OneOf] = [
            Range(1, low, high), Range(1, low, None, True), Range(1, None, high, False, True),
            Range(1, low, low), OneOf(1, tuple(sorted({low, high}))),
        ]  # fmt: skip
        condition, value = random.choice(conditions), random.choice([low, high, draw()])
        on_partition = projected(condition, spec(transform), {1: kind})
        if on_partition is None:
            continue
        partition = bounds_of_value(apply(value))
        if condition.may_match(exactly(Bounds(value, value, False))):
            assert on_partition.may_match(exactly(partition)), (condition, value)
        elif not on_partition.may_match(exactly(partition)):
            left_out += 1
    assert left_out > 10


def test_transforms_that_lose_everything_are_not_projected():
    condition = condition_of(Filter((compare("i", "=", 5),)), COLUMNS)
    assert condition is not None
    assert projected(condition, spec(VoidTransform()), {1: IntegerType()}) is None


def test_decimals_are_bucketed_by_their_shortest_bytes():
    # From appendix B of Iceberg's specification: 14.20 hashes to -500754589.
    condition = condition_of(
        Filter((compare("d", "=", 1420, DuckType("DECIMAL", 10, 2)),)), COLUMNS
    )
    assert condition is not None
    by_bucket = PartitionSpec(PartitionField(6, 1000, BucketTransform(1000), "p"), spec_id=0)
    on_partition = projected(condition, by_bucket, {6: DecimalType(10, 2)})
    assert on_partition is not None
    bucket = (-500754589 & 0x7FFFFFFF) % 1000
    assert on_partition.may_match(lambda _: bounds_of_value(bucket))
    assert not on_partition.may_match(lambda _: bounds_of_value(bucket + 1))


def test_row_groups_are_bounded_by_their_footer(tmp_path):
    table = pa.table(
        {
            "i": pa.array([3, None, 5], pa.int32()),
            "d": pa.array([Decimal("1.25"), Decimal("-2.00"), None], pa.decimal128(9, 2)),
            "ts": pa.array([1, 2, 3], pa.timestamp("us")),
            "ms": pa.array([1, 2, 3], pa.timestamp("ms")),
            "s": ["b", "a", "c"],
            "f": [1.0, math.nan, 0.5],
            "n": pa.nulls(3, pa.int32()),
            "dt": [datetime.date(1970, 1, 2)] * 3,
        }
    )
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, store_decimal_as_integer=True)
    group = pq.read_metadata(path).row_group(0)
    kinds = [
        IntegerType(),
        DecimalType(9, 2),
        TimestampType(),
        TimestampType(),
        StringType(),
        DoubleType(),
        IntegerType(),
        DateType(),
    ]
    found = [
        bounds_in_row_group(group.column(index).statistics, kind)
        for index, kind in enumerate(kinds)
    ]
    assert found == [
        Bounds(3, 5, True),
        Bounds(-200, 125, True),
        Bounds(1, 3, False),
        Bounds(None, None, False),  # another unit than the table's
        Bounds(b"a", b"c", False),
        Bounds(0.5, None, False),  # there may be NaN
        Bounds(None, None, True, False),
        Bounds(1, 1, False),
    ]
    assert bounds_in_row_group(None, IntegerType()) == UNKNOWN


def test_random_filters_never_lose_a_row():
    """Random comparisons with bounds of random values: a row that Arrow finds is never left out."""
    random.seed(3)
    kinds = {
        "=": pc.equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
        "<>": pc.not_equal,
    }
    for _ in range(500):
        values = pa.array(
            [random.choice([None, *range(20)]) for _ in range(random.randint(1, 4))], pa.int32()
        )
        low_high = pc.min_max(values)
        bounds = Bounds(
            low_high["min"].as_py(),
            low_high["max"].as_py(),
            values.null_count > 0,
            values.null_count < len(values),
        )
        kind, constant = random.choice(list(kinds)), random.randrange(20)
        if pc.any(kinds[kind](values, constant)).as_py():
            assert may_match(compare("i", kind, constant), i=bounds)


@pytest.mark.parametrize(
    ("value", "source", "target", "stored", "matches"),
    [
        (5, "INTEGER", DuckType("BIGINT"), LongType(), True),
        (50, "INTEGER", DuckType("BIGINT"), LongType(), False),
        (5, "INTEGER", DuckType("DECIMAL", width=12, scale=3), DecimalType(12, 3), True),
        (50, "INTEGER", DuckType("DECIMAL", width=12, scale=3), DecimalType(12, 3), False),
    ],
)
def test_constants_that_the_client_has_widened_are_understood(
    value, source, target, stored, matches
):
    """DuckDB 1.5 sends `id = 5` on a BIGINT with the constant as CAST(5::INTEGER AS BIGINT)."""
    arrow = pa.int64() if isinstance(stored, LongType) else pa.decimal128(12, 3)
    constant = Cast(Constant(DuckType(source), value), target)
    for operands in ((ColumnRef("c", target), constant), (constant, ColumnRef("c", target))):
        row_filter = Filter((Comparison(ComparisonKind.EQUAL, *operands),))
        condition = condition_of(row_filter, {"c": PrunableColumn(1, stored, arrow)})
        assert condition is not None
        scale = 1 if isinstance(stored, LongType) else 1000
        assert condition.may_match(lambda _: Bounds(0, 10 * scale)) is matches  # noqa: B023


def test_a_constant_that_does_not_fit_its_new_type_says_nothing():
    target = DuckType("TINYINT")
    comparison = Comparison(
        ComparisonKind.EQUAL, ColumnRef("c", target), Cast(Constant(INTEGER, 300), target)
    )
    assert (
        condition_of(Filter((comparison,)), {"c": PrunableColumn(1, IntegerType(), pa.int8())})
        is None
    )
