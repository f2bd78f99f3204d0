"""Columns by field id: renamed, dropped, added again, moved, promoted, nested, without ids."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from tests.spark.tables import (
    NUMBERED,
    Table,
    data_entry,
    numbered,
    read,
    rows_of,
    where,
    with_field_ids,
)

from sparkport.catalog.filters import DuckType


def evolved(folder, rows, before, after, **table):
    made = Table(folder, after, file_schema=before, **table)
    made.append(made.write(rows), first_row_id=0)
    return made.state()


def test_columns_are_found_by_id_after_renames_drops_and_reorders(tmp_path):
    before = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "b", StringType()),
        NestedField(3, "c", LongType()),
    )
    after = Schema(
        NestedField(3, "a", LongType()),
        NestedField(4, "b", StringType()),
        NestedField(1, "old_a", LongType()),
    )
    rows = pa.table({"a": pa.array([1], pa.int64()), "b": ["x"], "c": pa.array([3], pa.int64())})
    assert rows_of(read(evolved(tmp_path, rows, before, after), ["a", "b", "old_a"])) == [
        {"a": 3, "b": None, "old_a": 1}
    ]


def test_promoted_types(tmp_path):
    before = Schema(
        NestedField(1, "i", IntegerType()),
        NestedField(2, "f", FloatType()),
        NestedField(3, "d", DecimalType(9, 2)),
    )
    after = Schema(
        NestedField(1, "i", LongType()),
        NestedField(2, "f", DoubleType()),
        NestedField(3, "d", DecimalType(20, 2)),
    )
    rows = pa.table(
        {
            "i": pa.array([7], pa.int32()),
            "f": pa.array([0.5], pa.float32()),
            "d": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        }
    )
    state = evolved(tmp_path, rows, before, after)
    (batch,) = read(state, ["i", "f", "d"], where("i", "=", 7))
    assert batch.schema.types == [pa.int64(), pa.float64(), pa.decimal128(20, 2)]
    assert batch.to_pylist() == [{"i": 7, "f": 0.5, "d": Decimal("1.25")}]
    assert read(state, ["i"], where("i", "=", 8)) == []


def test_missing_columns_have_their_initial_default(tmp_path):
    after = Schema(
        *NUMBERED.fields,
        NestedField(3, "n", IntegerType(), initial_default=5),
        NestedField(4, "s", StringType(), initial_default="x"),
        NestedField(5, "day", DateType(), initial_default="2020-01-02"),
        NestedField(6, "at", TimestampType(), initial_default="2020-01-02T03:04:05.000006"),
        NestedField(7, "least", DoubleType(), initial_default="-Infinity"),
        NestedField(8, "none", LongType()),
    )
    rows = rows_of(
        read(
            evolved(tmp_path, numbered(1), NUMBERED, after),
            ["n", "s", "day", "at", "least", "none"],
        )
    )
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    least = float("-inf")
    assert rows == [
        {"n": 5, "s": "x", "day": datetime.date(2020, 1, 2), "at": at, "least": least, "none": None}
    ]


def test_missing_columns_have_the_value_of_their_partition(tmp_path):
    after = Schema(*NUMBERED.fields, NestedField(3, "day", DateType()))
    by_day = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"), spec_id=1)
    table = Table(tmp_path, after, file_schema=NUMBERED, specs=[by_day])
    table.append({**table.write(numbered(2)), "partition": (1,)}, spec=by_day, first_row_id=0)
    day = {"day": datetime.date(1970, 1, 2)}
    assert rows_of(read(table.state(), ["day"])) == [day, day]
    assert rows_of(read(table.state(), ["day"], where("day", "=", 1, DuckType("DATE")))) == [
        day,
        day,
    ]
    assert read(table.state(), ["day"], where("day", "=", 2, DuckType("DATE"))) == []


NESTED_IDS = {"s": 1, "x": 2, "y": 3, "l": 4, "element": 5, "q": 6, "m": 7, "key": 8, "value": 9}


def nested_rows():
    def named(name, kind):
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(NESTED_IDS[name]).encode()})

    struct = pa.struct([named("x", pa.int32()), named("y", pa.string())])
    schema = pa.schema(
        [
            named("s", struct),
            named("l", pa.list_(named("element", pa.struct([named("q", pa.int32())])))),
            named(
                "m",
                pa.map_(named("key", pa.string()).with_nullable(False), named("value", pa.int32())),
            ),
        ]
    )
    return pa.table(
        {
            "s": [{"x": 1, "y": "a"}, None, {"x": None, "y": "c"}, {"x": 4, "y": None}],
            "l": [[{"q": 1}, None], None, [], [{"q": None}]],
            "m": [[("k", 1)], None, [], [("k", None), ("j", 2)]],
        },
        schema=schema,
    )


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_nested_fields_are_reordered_added_dropped_and_promoted(tmp_path, batch_rows):
    after = Schema(
        NestedField(7, "m", MapType(8, StringType(), 9, LongType())),
        NestedField(
            1, "s",
            StructType(NestedField(10, "new", StringType()), NestedField(2, "x", LongType())),
        ),
        NestedField(
            4, "l",
            ListType(
                5,
                StructType(NestedField(11, "w", LongType()), NestedField(6, "q", LongType())),
                False,
            ),
        ),
    )  # fmt: skip
    path = str(tmp_path / "n.parquet")
    pq.write_table(nested_rows(), path)
    table = Table(tmp_path, after)
    table.append(data_entry(path, 4), first_row_id=0)
    batches = read(table.state(), ["s", "l", "m"], batch_rows=batch_rows)
    for batch in batches:
        batch.validate(full=True)
    rows = rows_of(batches)
    assert [row["s"] for row in rows] == [
        {"new": None, "x": 1},
        None,
        {"new": None, "x": None},
        {"new": None, "x": 4},
    ]
    assert [row["l"] for row in rows] == [
        [{"w": None, "q": 1}, None],
        None,
        [],
        [{"w": None, "q": None}],
    ]
    assert [row["m"] for row in rows] == [[("k", 1)], None, [], [("k", None), ("j", 2)]]


def without_ids(folder, rows, schema, **properties):
    path = str(folder / "plain.parquet")
    pq.write_table(rows, path)
    table = Table(folder, schema, properties=properties)
    table.append(data_entry(path, rows.num_rows), first_row_id=0)
    return table.state()


def test_files_without_ids_are_read_by_the_name_mapping(tmp_path):
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "x", LongType()))),
    )
    mapping = (
        '[{"field-id": 1, "names": ["old", "id"]},'
        ' {"field-id": 2, "names": ["st"], "fields": [{"field-id": 3, "names": ["ex"]}]}]'
    )
    rows = pa.table({"st": [{"ex": 5}], "old": pa.array([1], pa.int64()), "other": ["z"]})
    state = without_ids(tmp_path, rows, schema, **{"schema.name-mapping.default": mapping})
    assert rows_of(read(state, ["id", "s"])) == [{"id": 1, "s": {"x": 5}}]


def test_files_without_ids_or_mapping_are_read_by_position(tmp_path):
    rows = pa.table({"whatever": pa.array([1], pa.int64()), "this": ["x"]})
    assert rows_of(read(without_ids(tmp_path, rows, NUMBERED), ["id", "name"])) == [
        {"id": 1, "name": "x"}
    ]


def test_a_name_with_a_dot_is_one_column(tmp_path):
    schema = Schema(
        NestedField(1, "a", StructType(NestedField(2, "b", LongType()))),
        NestedField(3, "a.c", LongType()),
    )
    path = str(tmp_path / "dots.parquet")
    inner = pa.struct([pa.field("b", pa.int64(), metadata={b"PARQUET:field_id": b"2"})])
    rows = pa.table({"a": pa.array([{"b": 1}], inner), "a.c": pa.array([9], pa.int64())})
    pq.write_table(with_field_ids(rows, {"a": 1, "a.c": 3}), path)
    table = Table(tmp_path, schema)
    table.append(data_entry(path, 1), first_row_id=0)
    assert rows_of(read(table.state(), ["a.c"])) == [{"a.c": 9}]
    assert rows_of(read(table.state(), ["a"])) == [{"a": {"b": 1}}]
