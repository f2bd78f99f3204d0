"""Which files a scan reads, which it leaves to Spark, and how a plan is divided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType
from tests.spark.tables import Table, data_entry

from sparkport.catalog.filters import (
    ColumnRef,
    Comparison,
    ComparisonKind,
    Constant,
    DuckType,
    Filter,
)
from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg.division import divide
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import ScanPlan, plan_scan
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.scan.routes import runs_in_place

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "f", DoubleType(), required=False),
    NestedField(4, "ts", TimestampType(), required=False),
)
BIGINT, VARCHAR, DOUBLE, TIMESTAMP = (
    DuckType(name) for name in ("BIGINT", "VARCHAR", "DOUBLE", "TIMESTAMP")
)
DAY = 86_400_000_000


def where(name, kind, value, type_=BIGINT):
    return Filter(
        (Comparison(ComparisonKind(kind), ColumnRef(name, type_), Constant(type_, value)),)
    )


def measured(path, low, high, rows=10, **more):
    """An entry with bounds of `id`."""
    return data_entry(
        path, rows,
        value_counts={1: rows}, null_value_counts={1: 0},
        lower_bounds={1: to_bytes(LongType(), low)}, upper_bounds={1: to_bytes(LongType(), high)},
        **more,
    )  # fmt: skip


def paths(plan):
    return [part.path for part in plan.parts]


def test_files_are_left_out_by_their_bounds(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(measured("a", 0, 9), measured("b", 10, 19), data_entry("c", 5), first_row_id=0)
    state = table.state()
    assert paths(plan_scan(state, None, None)) == ["a", "b", "c"]
    assert paths(plan_scan(state, None, where("id", "=", 12))) == ["b", "c"]
    assert paths(plan_scan(state, None, where("id", ">", 19))) == ["c"]
    assert plan_scan(state, None, where("id", ">", 19)).rows == 5


def test_bounds_from_before_a_promotion_are_shorter(tmp_path):
    table = Table(tmp_path, SCHEMA)
    entry = measured("a", 0, 9)
    entry["lower_bounds"] = {1: b"\x05\x00\x00\x00"}
    entry["upper_bounds"] = {1: b"\x09\x00\x00\x00"}
    table.append(entry)
    assert paths(plan_scan(table.state(), None, where("id", "=", 9))) == ["a"]
    assert paths(plan_scan(table.state(), None, where("id", "=", 4))) == []


def test_files_with_nan_are_kept_for_greater(tmp_path):
    table = Table(tmp_path, SCHEMA)
    bounds = {
        "lower_bounds": {3: to_bytes(DoubleType(), 0.0)},
        "upper_bounds": {3: to_bytes(DoubleType(), 1.0)},
    }
    table.append(
        data_entry("nan", 2, **bounds, nan_value_counts={3: 1}),
        data_entry("none", 2, **bounds, nan_value_counts={3: 0}),
        data_entry("unknown", 2, **bounds),
        first_row_id=0,
    )
    assert paths(plan_scan(table.state(), None, where("f", ">", 5.0, DOUBLE))) == ["nan", "unknown"]
    assert paths(plan_scan(table.state(), None, where("f", "<", 0.0, DOUBLE))) == []


def test_truncated_text_bounds_stay_bounds(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 2, lower_bounds={2: b"abc"}, upper_bounds={2: b"abd"}))
    for value, kept in (("abcdef", True), ("abczz", True), ("abb", False), ("abe", False)):
        assert (
            bool(paths(plan_scan(table.state(), None, where("name", "=", value, VARCHAR)))) is kept
        )


def test_partitions_of_several_specs(tmp_path):
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    by_day = PartitionSpec(PartitionField(4, 1001, DayTransform(), "day"), spec_id=2)
    table = Table(tmp_path, SCHEMA, specs=[PartitionSpec(spec_id=0), by_name, by_day])
    table.append(data_entry("plain", 1), first_row_id=0)
    table.append(
        data_entry("x", 1, partition=("x",)),
        data_entry("null", 1, partition=(None,)),
        spec=by_name,
        first_row_id=1,
    )
    table.append(
        data_entry("day 3", 1, partition=(3,)),
        data_entry("day -2", 1, partition=(-2,)),
        spec=by_day,
        first_row_id=3,
    )
    state = table.state()
    assert paths(plan_scan(state, None, where("name", "=", "x", VARCHAR))) == [
        "plain",
        "x",
        "day 3",
        "day -2",
    ]
    assert paths(plan_scan(state, None, where("name", "=", "y", VARCHAR))) == [
        "plain",
        "day 3",
        "day -2",
    ]
    assert paths(plan_scan(state, None, where("ts", ">=", 3 * DAY + 5, TIMESTAMP))) == [
        "plain",
        "x",
        "null",
        "day 3",
    ]
    assert paths(plan_scan(state, None, where("ts", "<", -2 * DAY, TIMESTAMP))) == [
        "plain",
        "x",
        "null",
        "day -2",
    ]


def test_manifests_are_left_out_by_their_summaries_unread(tmp_path):
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    table = Table(tmp_path, SCHEMA, specs=[by_name])
    table.append(
        data_entry("m", 1, partition=("m",)),
        spec=by_name,
        summaries=[Record(False, False, b"m", b"m")],
    )
    state = table.state()
    for manifest in tmp_path.glob("manifest-*"):
        manifest.unlink()
    assert paths(plan_scan(state, None, where("name", "=", "z", VARCHAR))) == []
    with pytest.raises(PreconditionFailed, match=r"a metadata file of table a\.t is missing"):
        plan_scan(state, None, where("name", "=", "m", VARCHAR))


def test_row_ids_leave_out_files_by_their_range(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(measured("a", 0, 9), measured("b", 10, 19), first_row_id=100)
    state = table.state()
    assert paths(plan_scan(state, None, where("rowid", "=", 105))) == ["a"]
    assert paths(plan_scan(state, None, where("rowid", ">", 109))) == ["b"]


def test_rewritten_files_are_judged_by_the_row_ids_they_hold(tmp_path):
    table = Table(tmp_path, SCHEMA, operation="overwrite")
    moved = measured("moved", 0, 9)
    for name, value in {
        "value_counts": 10, "null_value_counts": 0,
        "lower_bounds": to_bytes(LongType(), 3), "upper_bounds": to_bytes(LongType(), 50),
    }.items():  # fmt: skip
        moved[name] = {**moved[name], ROW_ID_FIELD: value}
    mixed = {**moved, "file_path": "mixed", "null_value_counts": {1: 0, ROW_ID_FIELD: 4}}
    table.append(moved, mixed, data_entry("unmeasured", 10), first_row_id=100)
    state = table.state()
    assert paths(plan_scan(state, None, where("rowid", "=", 50))) == [
        "moved",
        "mixed",
        "unmeasured",
    ]
    assert paths(plan_scan(state, None, where("rowid", "=", 112))) == ["mixed", "unmeasured"]
    assert paths(plan_scan(state, None, where("rowid", "=", 500))) == ["unmeasured"]
    assert [part.may_hold_row_ids for part in plan_scan(state, None, None).parts] == [
        True,
        True,
        True,
    ]


def test_appended_files_hold_no_row_ids(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 10), first_row_id=0)
    assert [part.may_hold_row_ids for part in plan_scan(table.state(), None, None).parts] == [False]


def vector_entry(data, path="v", **more):
    place = {"referenced_data_file": data, "content_offset": 4, "content_size_in_bytes": 40}
    return data_entry(path, 3, content=1, file_format="PUFFIN", **place, **more)


def test_delete_vectors_find_their_file(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 10), data_entry("b", 10), first_row_id=0, sequence_number=2)
    table.append(vector_entry("a"), vector_entry("gone"), content=1, sequence_number=3)
    plan = plan_scan(table.state(), None, None)
    assert plan.readable
    assert plan.rows == 17
    first, second = plan.parts
    assert first.vector is not None
    assert (first.vector.path, first.vector.offset, first.vector.length, first.vector.rows) == (
        "v",
        4,
        40,
        3,
    )
    assert second.vector is None


def test_a_vector_older_than_the_file_does_not_apply(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 10), sequence_number=5)
    table.append(vector_entry("a"), content=1, sequence_number=4)
    assert plan_scan(table.state(), None, None).parts[0].vector is None


def test_position_delete_files_apply_to_their_partition_and_older_files(tmp_path):
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    table = Table(tmp_path, SCHEMA, version=2, specs=[by_name])
    table.append(
        data_entry("x old", 9, partition=("x",), sequence_number=1),
        data_entry("x new", 9, partition=("x",), sequence_number=7),
        data_entry("y", 9, partition=("y",), sequence_number=1),
        spec=by_name,
    )
    table.append(
        data_entry("d", 1, content=1, partition=("x",)), spec=by_name, content=1, sequence_number=3
    )
    plan = plan_scan(table.state(), None, None)
    assert plan.readable
    assert {part.path: part.position_deletes for part in plan.parts} == {
        "x old": ("d",),
        "x new": (),
        "y": (),
    }


@pytest.mark.parametrize(
    "delete",
    [
        {"content": 2},
        {"content": 1, "file_format": "AVRO"},
        {"content": 1, "key_metadata": b"key"},
    ],
    ids=["equality deletes", "Avro", "encrypted"],
)
def test_deletes_that_only_spark_applies(tmp_path, delete):
    table = Table(tmp_path, SCHEMA, version=2)
    table.append(data_entry("a", 9), sequence_number=1)
    table.append(data_entry("d", 1, **delete), content=1, sequence_number=3)
    assert not plan_scan(table.state(), None, None).readable


def test_equality_deletes_do_not_matter_to_newer_files(tmp_path):
    table = Table(tmp_path, SCHEMA, version=2)
    table.append(data_entry("a", 9), sequence_number=3)
    table.append(data_entry("d", 1, content=2), content=1, sequence_number=3)
    assert plan_scan(table.state(), None, None).readable


@pytest.mark.parametrize(
    "file",
    [
        {"file_format": "ORC"},
        {"file_format": "AVRO"},
        {"key_metadata": b"key"},
        {"file_path": "nowhere://nn/a"},
    ],
)
def test_files_that_only_spark_reads(tmp_path, file):
    table = Table(tmp_path, SCHEMA)
    table.append({**data_entry("a", 9), **file})
    plan = plan_scan(table.state(), None, None)
    assert not plan.readable
    assert plan.rows == 9


def test_a_table_without_a_snapshot_or_without_rows_is_empty(tmp_path):
    state = replace(Table(tmp_path, SCHEMA).state(), snapshot=None)
    assert plan_scan(state, None, None) == ScanPlan((), 0, 0, True)
    assert plan_scan(Table(tmp_path, SCHEMA).state(), None, None) == ScanPlan((), 0, 0, True)


def test_metadata_that_only_spark_reaches(tmp_path):
    assert not plan_scan(replace(Table(tmp_path, SCHEMA).state(), io=None), None, None).readable


def test_damaged_metadata_is_named(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 9))
    state = table.state()
    for manifest in tmp_path.glob("manifest-*"):
        manifest.write_bytes(manifest.read_bytes()[:50])
    with pytest.raises(PreconditionFailed, match=r"a metadata file of table a\.t cannot be read"):
        plan_scan(state, None, None)


def test_bytes_are_those_of_the_columns_that_are_read(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(
        data_entry("a", 9, size=1000, column_sizes={1: 10, 2: 200}), data_entry("b", 9, size=500)
    )
    state = table.state()
    assert plan_scan(state, None, None).bytes == 1500
    assert plan_scan(state, ["id"], None).bytes == 510
    assert plan_scan(state, ["id"], where("name", "=", "x", VARCHAR)).bytes == 701
    assert plan_scan(state, ["rowid"], None).bytes == 0


def test_identity_partition_values_travel_with_the_part(tmp_path):
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    table = Table(tmp_path, SCHEMA, specs=[by_name])
    table.append(data_entry("a", 1, partition=("x",)), spec=by_name)
    assert plan_scan(table.state(), None, None).parts[0].partition == ((2, "x"),)


def part(path, size, *offsets):
    return FilePart(path, 100, size, bytes=size, split_offsets=offsets)


def plan_of(*parts):
    return ScanPlan(parts, 100 * len(parts), sum(each.bytes for each in parts), True)


def test_pieces_are_balanced_and_in_order():
    parts = [part(f"{number}", 10_000_000) for number in range(8)]
    assert [len(group) for group in divide(plan_of(*parts), 4)] == [2, 2, 2, 2]
    assert [each.path for group in divide(plan_of(*parts), 3) for each in group] == [
        str(n) for n in range(8)
    ]
    assert len(divide(plan_of(*parts), 20)) == 8
    assert divide(plan_of(), 4) == []


def test_a_large_file_is_cut_between_row_groups():
    whole = part("a", 8_000_000, 0, 2_000_000, 4_000_000, 6_000_000)
    groups = divide(plan_of(whole), 2)
    assert [[each.row_groups for each in group] for group in groups] == [[(0, 2)], [(2, None)]]
    assert divide(plan_of(whole), 1) == [(whole,)]
    again = divide(ScanPlan(groups[0], 100, groups[0][0].bytes, True), 2)
    assert [[each.row_groups for each in group] for group in again] == [[(0, 1)], [(1, 2)]]


def test_the_same_plan_is_divided_the_same_way():
    parts = [part(f"{number}", 3_000_000 + number, 0, 1_000_000, 2_000_000) for number in range(7)]
    assert divide(plan_of(*parts), 5) == divide(plan_of(*parts), 5)


def test_ten_thousand_files_are_planned_from_memory(tmp_path):
    table = Table(tmp_path, SCHEMA)
    for start in range(0, 10_000, 2_500):
        entries = [
            measured(f"{number:05}", number * 10, number * 10 + 9)
            for number in range(start, start + 2_500)
        ]
        table.append(*entries, first_row_id=start * 10)
    state = table.state()
    assert len(plan_scan(state, None, None).parts) == 10_000
    for file in tmp_path.rglob("*.avro"):
        file.unlink()
    assert paths(plan_scan(state, ["id"], where("id", "=", 77_777))) == ["07777"]


def test_many_bytes_files_or_filtered_rows_are_not_read_in_place() -> None:
    small = FilePart("/t/a", rows=100, size=1000, bytes=1000)
    large, long = replace(small, bytes=2**20), replace(small, rows=2**20)
    away = replace(small, path="s3://b/a")
    kept = where("id", "=", 1)

    def in_place(parts: list[FilePart], row_filter: Filter | None) -> bool:
        return runs_in_place(parts, row_filter, 2**20)

    assert in_place([small], None)
    assert in_place([small] * 200, kept)
    assert not in_place([small] * 200, None)
    assert in_place([replace(small, bytes=0)] * 200, None)  # only row ids: no file is opened
    assert in_place([away], kept)
    assert not in_place([away] * 200, kept)
    assert in_place([large], kept)
    assert not in_place([large], None)
    assert in_place([long], kept)
    assert not in_place([long, small], kept)
    assert in_place([long, small], None)


def test_by_default_a_middling_scan_is_read_in_place_by_two_streams() -> None:
    settings = LakeSettings()
    plan = plan_of(*(part(f"/t/{number}", 30 * 2**20) for number in range(2)))
    streams = divide(plan, min(settings.endpoints, plan.bytes // settings.endpoint_bytes))
    assert len(streams) == 2
    assert all(runs_in_place(parts, None, settings.in_place_bytes) for parts in streams)
