"""Dividing rows by partition: Iceberg's transforms, value by value, and the division by them."""

from __future__ import annotations

import datetime
import math
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.spark.tables import Table

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.civil_days import civil_day, iso_day
from sparkport.spark.iceberg.transforms import transform_of
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.write.partitioning import Partitioning, partitioning_of

_INT, _LONG = 2**31, 2**63
_RANDOM = random.Random(7)
_DAYS = [
    0,
    -1,
    1,
    -719_162,
    2_932_896,
    *(_RANDOM.randrange(-700_000, 2_000_000) for _ in range(300)),
]
_MICROS = [0, -1, 1, -86_400_000_000, *(_RANDOM.randrange(-(10**16), 10**16) for _ in range(300))]
_LONGS = [
    0,
    -1,
    1,
    _LONG - 1,
    100 - _LONG,
    *(_RANDOM.randrange(-_LONG // 2, _LONG) for _ in range(300)),
]
_INTS = [0, -1, 1, _INT - 1, 100 - _INT, *(_RANDOM.randrange(-_INT // 2, _INT) for _ in range(300))]
_TEXTS = ["", "a", "iceberg", "äöü€", "😀😀😀😀", *(str(_RANDOM.random()) for _ in range(100))]
_BYTES = [b"", b"\x00", b"\xff\x00\x01\x02", *(_RANDOM.randbytes(size) for size in range(40))]
_DECIMALS = [Decimal(_RANDOM.randrange(-(10**18), 10**18)).scaleb(-3) for _ in range(300)]
_DECIMALS += [
    Decimal("0.000"),
    Decimal("-0.001"),
    Decimal("-0.128"),
    Decimal("0.128"),
    Decimal("12345678901234567.890"),
]


def _apply(
    name: str, kind: IcebergType, values: list[Any], arrow: pa.DataType | None = None
) -> list[Any]:
    """The results of a transform for a NULL and the values, one by one."""
    apply = transform_of(parse_transform(name), kind)
    assert apply is not None
    array = pa.array([None, *values], arrow or natural_type(kind))
    labels = apply(array.view(natural_type(kind)) if arrow else array)
    assert len(set(map(repr, labels.values))) == len(labels.values), "each value once"
    assert set(labels.numbers.to_pylist()) == set(range(len(labels.values))), (
        "each value is that of some row"
    )
    found = [labels.values[number] for number in labels.numbers.to_pylist()]
    assert found[0] is None
    return found[1:]


@pytest.mark.parametrize(
    ("kind", "values", "arrow"),
    [
        (BooleanType(), [True, False], None),
        (IntegerType(), _INTS, None),
        (LongType(), _LONGS, None),
        (DoubleType(), [0.0, -0.0, 1.5, math.inf, -math.inf], None),
        (DecimalType(20, 3), _DECIMALS, None),
        (StringType(), _TEXTS, None),
        (BinaryType(), _BYTES, None),
        (FixedType(2), [b"ab", b"\x00\xff"], None),
        (DateType(), _DAYS, pa.int32()),
        (TimeType(), [0, 86_399_999_999], pa.int64()),
        (TimestampType(), _MICROS, pa.int64()),
        (TimestamptzType(), _MICROS, pa.int64()),
        (TimestampNanoType(), _MICROS, pa.int64()),
    ],
    ids=str,
)
def test_identity_keeps_every_value(
    kind: IcebergType, values: list[Any], arrow: pa.DataType | None
) -> None:
    assert list(map(repr, _apply("identity", kind, values, arrow))) == list(map(repr, values))


def test_a_uuid_is_one() -> None:
    values = [uuid.uuid4(), uuid.UUID(int=0)]
    assert _apply("identity", UUIDType(), [value.bytes for value in values]) == values


@pytest.mark.parametrize(
    ("kind", "per_day"), [(DateType(), 1), (TimestampType(), 86_400_000_000)], ids=str
)
def test_years_months_and_days_are_those_of_the_calendar(kind: IcebergType, per_day: int) -> None:
    values = _DAYS if per_day == 1 else _MICROS
    arrow = pa.int32() if per_day == 1 else pa.int64()
    dates = [
        datetime.date(1970, 1, 1) + datetime.timedelta(days=value // per_day) for value in values
    ]
    assert _apply("day", kind, values, arrow) == [value // per_day for value in values]
    assert _apply("year", kind, values, arrow) == [date.year - 1970 for date in dates]
    assert _apply("month", kind, values, arrow) == [
        12 * (date.year - 1970) + date.month - 1 for date in dates
    ]


def test_hours_are_rounded_down() -> None:
    assert _apply("hour", TimestampType(), _MICROS, pa.int64()) == [
        value // 3_600_000_000 for value in _MICROS
    ]
    nanos = [0, -1, 1, -3_600_000_000_000, 10**18]
    assert _apply("hour", TimestampNanoType(), nanos, pa.int64()) == [
        value // 3_600_000_000_000 for value in nanos
    ]


@pytest.mark.parametrize(
    "kind",
    [LongType(), TimeType(), TimestampType(), TimestamptzType(), TimestampNanoType()],
    ids=str,
)
def test_numbers_of_64_bits_become_what_java_makes_of_them(
    lake: LakeCatalog, kind: IcebergType
) -> None:
    jvm = lake._lake.gateway.jvm
    gateway: Any = lake.spark.sparkContext._gateway
    iceberg = jvm.org.apache.iceberg
    values = [*_LONGS, -_LONG, *_MICROS, 253_402_300_800_000_000]
    numbers = gateway.new_array(jvm.long, len(values))
    for place, value in enumerate(values):
        numbers[place] = value
    compared = 0
    for name in ("year", "month", "day", "hour", "bucket[1000]", "truncate[7]"):
        if parse_transform(name).can_transform(kind):
            java = iceberg.transforms.Transforms.fromString(name).bind(
                iceberg.types.Types.fromPrimitiveString(str(kind))
            )
            expected = jvm.java.util.Arrays.stream(numbers).boxed().map(java).toArray()
            assert _apply(name, kind, values, pa.int64()) == list(expected), name
            compared += 1
    assert compared


@pytest.mark.parametrize("width", [1, 3, 10, 1_000_000])
def test_numbers_are_truncated_downwards(width: int) -> None:
    assert _apply(f"truncate[{width}]", IntegerType(), _INTS) == [
        _wrapped(v - v % width, _INT) for v in _INTS
    ]
    assert _apply(f"truncate[{width}]", LongType(), _LONGS) == [
        _wrapped(v - v % width, _LONG) for v in _LONGS
    ]
    unscaled = [int(value.scaleb(3)) for value in _DECIMALS]
    expected = [Decimal(value - value % width).scaleb(-3) for value in unscaled]
    assert list(map(str, _apply(f"truncate[{width}]", DecimalType(20, 3), _DECIMALS))) == list(
        map(str, expected)
    )


def _wrapped(value: int, limit: int) -> int:
    return (value + limit) % (2 * limit) - limit


def test_text_is_cut_by_code_points_and_bytes_by_bytes() -> None:
    assert _apply("truncate[2]", StringType(), _TEXTS) == [text[:2] for text in _TEXTS]
    assert _apply("truncate[2]", BinaryType(), _BYTES) == [content[:2] for content in _BYTES]


@pytest.mark.parametrize("count", [1, 16, 1000])
def test_buckets_are_those_of_murmur(count: int) -> None:
    """PyIceberg's buckets, value by value, are the reference."""
    cases: list[tuple[IcebergType, list[Any], pa.DataType | None]] = [
        (IntegerType(), _INTS, None),
        (LongType(), [*_LONGS, -_LONG], None),
        (DateType(), _DAYS, pa.int32()),
        (TimestampType(), _MICROS, pa.int64()),
        (StringType(), _TEXTS, None),
        (BinaryType(), _BYTES, None),
        (DecimalType(20, 3), _DECIMALS, None),
        (DecimalType(38, 3), [*_DECIMALS, Decimal(f"-{'9' * 35}.999")], None),
    ]
    for kind, values, arrow in cases:
        transform: Transform[Any, Any] = parse_transform(f"bucket[{count}]")
        expected = [transform.transform(kind)(value) for value in values]
        assert _apply(f"bucket[{count}]", kind, values, arrow) == expected, kind
    fewer = [value // 100 for value in _MICROS]
    nanos = [value * 1000 + 999 for value in fewer]
    micros = _apply(f"bucket[{count}]", TimestampType(), fewer, pa.int64())
    assert _apply(f"bucket[{count}]", TimestampNanoType(), nanos, pa.int64()) == micros


def test_the_examples_of_the_specification() -> None:
    """The examples are in appendix B of Iceberg's specification, by their remainders."""
    most = 2**31 - 1

    def remainder(hashed: int) -> int:
        return (hashed & most) % 1_000_003

    assert _apply("bucket[1000003]", IntegerType(), [34]) == [remainder(2017239379)]
    assert _apply("bucket[1000003]", LongType(), [34]) == [remainder(2017239379)]
    assert _apply("bucket[1000003]", DecimalType(9, 2), [Decimal("14.20")]) == [
        remainder(-500754589)
    ]
    assert _apply("bucket[1000003]", DateType(), [datetime.date(2017, 11, 16)]) == [
        remainder(-653330422)
    ]
    assert _apply("bucket[1000003]", TimeType(), [datetime.time(22, 31, 8)]) == [
        remainder(-662762989)
    ]
    assert _apply(
        "bucket[1000003]", TimestampType(), [datetime.datetime(2017, 11, 16, 22, 31, 8)]
    ) == [remainder(-2047944441)]
    assert _apply("bucket[1000003]", StringType(), ["iceberg"]) == [remainder(1210000089)]
    known = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    assert _apply("bucket[1000003]", UUIDType(), [known.bytes]) == [remainder(1488055340)]
    assert _apply("bucket[1000003]", FixedType(4), [bytes([0, 1, 2, 3])]) == [remainder(-188683207)]
    assert _apply("bucket[1000003]", BinaryType(), [bytes([0, 1, 2, 3])]) == [remainder(-188683207)]


def test_days_of_all_years_have_a_date() -> None:
    epoch = datetime.date(1970, 1, 1).toordinal()
    for ordinal in range(1, datetime.date.max.toordinal() + 1, 97):
        date = datetime.date.fromordinal(ordinal)
        assert civil_day(ordinal - epoch) == (date.year, date.month, date.day)
        assert iso_day(ordinal - epoch) == date.isoformat()
    assert iso_day(2_932_897) == "+10000-01-01"
    assert iso_day(-719_529) == "-0001-12-31"
    assert iso_day(-(2**31)) == "-5877641-06-23"


# ---------------------------------------------------------------------------------------- division


def _partitioning(folder: Path, schema: Schema, **transforms: str) -> Partitioning | None:
    by_name = {each.name: each.field_id for each in schema.fields}
    by_name |= {"inner": 9}
    fields = [
        PartitionField(by_name[name.partition("_")[0]], 1000 + number, parse_transform(text), name)
        for number, (name, text) in enumerate(transforms.items())
    ]
    return partitioning_of(Table(folder, schema, specs=[PartitionSpec(*fields)]).state())


_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "day", DateType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "outer", StructType(NestedField(9, "inner", DoubleType()))),
    NestedField(5, "many", ListType(10, LongType())),
)


def _rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(
                [None if number % 7 == 0 else number for number in range(count)], pa.int64()
            ),
            "day": pa.array([number % 3 for number in range(count)], pa.int32()).cast(pa.date32()),
            "name": [f"n{number % 5}" for number in range(count)],
            "outer": pa.array([None if number % 2 else {"inner": -0.0} for number in range(count)]),
            "many": [[number] for number in range(count)],
        }
    )


def test_rows_are_divided_by_all_fields_and_keep_their_order(tmp_path: Path) -> None:
    partitioning = _partitioning(
        tmp_path, _SCHEMA, id_t="truncate[10]", day="identity", name="identity"
    )
    assert partitioning is not None
    rows = pa.concat_tables([_rows(40), _rows(60)])
    found = list(partitioning.split(rows))
    assert len({repr(values) for values, _ in found}) == len(found)
    assert sum(part.num_rows for _, part in found) == 100
    expected: dict[str, list[Any]] = {}
    for row in rows.to_pylist():
        truncated = None if row["id"] is None else row["id"] - row["id"] % 10
        days = (row["day"] - datetime.date(1970, 1, 1)).days
        expected.setdefault(repr((truncated, days, row["name"])), []).append(row)
    assert {repr(values): part.to_pylist() for values, part in found} == expected


def test_rows_of_one_partition_are_not_copied(tmp_path: Path) -> None:
    partitioning = _partitioning(tmp_path, _SCHEMA, id="void", day_y="year")
    assert partitioning is not None
    rows = _rows(10)
    ((values, part),) = partitioning.split(rows)
    assert values == (None, 0)
    assert part is rows


def test_a_field_of_a_struct_can_divide(tmp_path: Path) -> None:
    partitioning = _partitioning(tmp_path, _SCHEMA, inner="identity")
    assert partitioning is not None
    found = {repr(values): part.num_rows for values, part in partitioning.split(_rows(10))}
    assert found == {"(-0.0,)": 5, "(None,)": 5}


def test_what_only_spark_knows_is_left_to_it(tmp_path: Path) -> None:
    assert _partitioning(tmp_path, _SCHEMA, id="zorder") is None
    assert transform_of(parse_transform(f"truncate[{2**30 + 1}]"), IntegerType()) is None


def test_folders_are_named_as_spark_names_them(tmp_path: Path) -> None:
    partitioning = _partitioning(
        tmp_path, _SCHEMA, name="identity", day="identity", id_b="bucket[4]"
    )
    assert partitioning is not None
    assert partitioning.folder(("a/b c=", 0, 3)) == "name=a%2Fb+c%3D/day=1970-01-01/id_b=3"
    assert partitioning.folder((None, None, None)) == "name=null/day=null/id_b=null"
    assert partitioning.folder(("x" * 300, 0, 3)) == "", "a name that no file system takes"
    assert partitioning.folder(("x", 2**31 - 1, 3)) == "", "a year that Python does not have"
