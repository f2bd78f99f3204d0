"""Manifests of all format versions, and what their entries inherit."""

from __future__ import annotations

import threading

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from tests.spark.tables import IO, Table, data_entry

from sparkport.spark.iceberg.manifests import Summary, read_manifest, read_manifest_list

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "k", StringType(), required=False),
)
BY_KEY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"), spec_id=1)


def entries_of(table):
    state = table.state()
    assert state.snapshot is not None
    return [
        e
        for m in read_manifest_list(IO, state.snapshot.manifest_list)
        for e in read_manifest(IO, m)
    ]


def test_first_row_ids_are_assigned_in_order_to_files_without_one(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(
        data_entry("a", 10),
        data_entry("b", 5, first_row_id=7, status=0),
        data_entry("gone", 1000, status=2),
        data_entry("c", 3),
        first_row_id=100,
    )
    assert [(e.path, e.first_row_id) for e in entries_of(table)] == [
        ("a", 100),
        ("b", 7),
        ("c", 110),
    ]


def test_files_of_a_manifest_without_a_first_row_id_have_none(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 10), data_entry("b", 5, first_row_id=7))
    assert [e.first_row_id for e in entries_of(table)] == [None, None]


def test_delete_vectors_keep_their_place(tmp_path):
    table = Table(tmp_path, SCHEMA)
    vector = {
        "content": 1,
        "file_format": "puffin",
        "referenced_data_file": "a",
        "content_offset": 4,
    }
    table.append(
        data_entry("v", 2, **vector, content_size_in_bytes=40), content=1, sequence_number=3
    )
    (entry,) = entries_of(table)
    assert (entry.format, entry.referenced_data_file) == ("PUFFIN", "a")
    assert (entry.content_offset, entry.content_length, entry.first_row_id) == (4, 40, None)


@pytest.mark.parametrize("version", [2, 3])
def test_sequence_numbers_are_inherited_where_an_entry_has_none(tmp_path, version):
    table = Table(tmp_path, SCHEMA, version=version)
    table.append(
        data_entry("a", 1), data_entry("b", 1, sequence_number=2, status=0), sequence_number=5
    )
    assert [e.sequence_number for e in entries_of(table)] == [5, 2]


def test_version_1_is_data_of_sequence_0(tmp_path):
    table = Table(tmp_path, SCHEMA, version=1)
    table.append(data_entry("a", 1))
    (entry,) = entries_of(table)
    assert (entry.content, entry.sequence_number, entry.first_row_id, entry.rows) == (0, 0, None, 1)


def test_partition_values_and_summaries_are_read_by_field_id(tmp_path):
    table = Table(tmp_path, SCHEMA, specs=[BY_KEY])
    summary = Record(False, None, b"x", b"y")
    table.append(
        data_entry("a", 1, partition=("x",)),
        data_entry("b", 1, partition=(None,)),
        spec=BY_KEY,
        summaries=[summary],
    )
    assert [e.partition for e in entries_of(table)] == [{1000: "x"}, {1000: None}]
    snapshot = table.state().snapshot
    assert snapshot is not None
    (manifest,) = read_manifest_list(IO, snapshot.manifest_list)
    assert manifest.summaries == (Summary(False, None, b"x", b"y"),)
    assert manifest.spec_id == 1


def test_metrics_are_maps_by_field_id_and_empty_when_missing(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(
        data_entry("a", 1, value_counts={1: 4}, lower_bounds={1: b"\x01"}), data_entry("b", 1)
    )
    first, second = entries_of(table)
    assert (first.value_counts, first.lower_bounds, first.upper_bounds) == (
        {1: 4},
        {1: b"\x01"},
        {},
    )
    assert (second.value_counts, second.split_offsets) == ({}, ())


def test_a_manifest_is_read_once_however_many_ask(tmp_path):
    table = Table(tmp_path, SCHEMA)
    table.append(data_entry("a", 1))
    snapshot = table.state().snapshot
    assert snapshot is not None
    (manifest,) = read_manifest_list(IO, snapshot.manifest_list)
    first = read_manifest(IO, manifest)
    for path in tmp_path.iterdir():
        path.unlink()
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append(read_manifest(IO, manifest))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 4
    assert all(entries is first for entries in seen)


def test_a_missing_manifest_is_an_error_of_the_file_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_manifest_list(IO, str(tmp_path / "none.avro"))
