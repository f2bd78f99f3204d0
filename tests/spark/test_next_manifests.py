"""Manifests of the next snapshot, written and read back without the JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkport.spark.iceberg import manifests
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.manifest_output import manifest_list_content
from sparkport.spark.iceberg.manifests import Manifest
from sparkport.spark.iceberg.next_manifests import Added, NextManifests, Place

_IO = StorageIO(dict)
_SCHEMA = {"type": "struct", "schema-id": 0, "fields": []}


def _file(name: str, rows: int) -> dict[str, Any]:
    return {
        "spec-id": 0,
        "content": "data",
        "file-path": name,
        "file-format": "parquet",
        "partition": [],
        "file-size-in-bytes": 100,
        "record-count": rows,
        "sort-order-id": 0,
        "column-sizes": {"keys": [1], "values": [40]},
        "value-counts": {"keys": [1], "values": [rows]},
        "null-value-counts": {"keys": [1], "values": [0]},
        "lower-bounds": {"keys": [1], "values": ["00000000"]},
        "upper-bounds": {"keys": [1], "values": ["ff000000"]},
        "split-offsets": [4],
    }


def _vector(name: str, of: str, offset: int, rows: int) -> dict[str, Any]:
    return {
        "spec-id": 0,
        "content": "position-deletes",
        "file-path": name,
        "file-format": "PUFFIN",
        "partition": [],
        "file-size-in-bytes": 200,
        "record-count": rows,
        "referenced-data-file": of,
        "content-offset": offset,
        "content-size-in-bytes": 40,
    }


class _Table:
    """Snapshots in a folder, each made from what is read of the one before."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self._folder = folder
        self._properties = {key.replace("_", "."): value for key, value in properties.items()}
        self._list: str | None = None
        self.number = 0
        self.rows = 0

    def manifests(self) -> tuple[Manifest, ...]:
        return () if self._list is None else tuple(manifests._manifests(_IO, self._list))

    def add(self, added: Added) -> NextManifests:
        self.number += 1
        place = Place(
            snapshot_id=1000 + self.number,
            sequence_number=self.number,
            first_row_id=self.rows,
            schema=_SCHEMA,
            spec_id=0,
            prefix=str(self._folder / f"{self.number}"),
        )
        made = NextManifests(_IO, place, self._properties)
        made.put(self.manifests(), added)
        for location, content in made.contents.items():
            Path(location).write_bytes(content)
        snapshot = {
            "snapshot-id": place.snapshot_id,
            "sequence-number": place.sequence_number,
            "first-row-id": place.first_row_id,
        }
        self._list = str(self._folder / f"snap-{self.number}.avro")
        Path(self._list).write_bytes(manifest_list_content(made.manifests, snapshot))
        self.rows += sum(each["record-count"] for each in added.files)
        return made

    def files(self) -> dict[tuple[str, int | None], tuple[int | None, int, int]]:
        """By the places of live files: first row id, and numbers of the commits."""
        found = [each for one in self.manifests() for each in manifests._live_entries(_IO, one)]
        told = {
            (each.path, each.content_offset): (
                each.first_row_id,
                each.sequence_number,
                each.file_sequence_number,
            )
            for each in found
        }
        assert len(told) == len(found)
        return told


@pytest.fixture
def table(tmp_path: Path) -> _Table:
    return _Table(tmp_path, **{"commit_manifest_min-count-to-merge": "4"})


def test_what_is_remembered_is_what_is_read(table: _Table) -> None:
    table.add(Added([_file("a", 3), _file("b", 2)]))
    table.add(Added([_file("c", 1)], [_vector("v", "a", 4, 1), _vector("v", "b", 44, 1)]))
    made = table.add(Added((), [_vector("w", "a", 4, 2)], [_vector("v", "a", 4, 1)]))
    assert made.live == table.manifests()
    for manifest, entries in made.entries.items():
        assert entries == tuple(manifests._live_entries(_IO, manifest))
    assert made.replaced == 1


def test_a_replaced_vector_is_gone_and_its_neighbours_keep_their_numbers(table: _Table) -> None:
    table.add(Added([_file("a", 3), _file("b", 2)]))
    table.add(Added((), [_vector("v", "a", 4, 1), _vector("v", "b", 44, 1)]))
    table.add(Added((), [_vector("w", "a", 4, 2)], [_vector("v", "a", 4, 1)]))
    assert table.files() == {
        ("a", None): (0, 1, 1),
        ("b", None): (3, 1, 1),
        ("v", 44): (None, 2, 2),
        ("w", 4): (None, 3, 3),
    }


def test_a_vector_that_is_not_there_cannot_be_replaced(table: _Table) -> None:
    table.add(Added([_file("a", 3)]))
    with pytest.raises(ValueError, match="does not have the vectors"):
        table.add(Added((), [_vector("w", "a", 4, 2)], [_vector("v", "a", 4, 1)]))


def test_joined_manifests_keep_row_ids_and_numbers(table: _Table) -> None:
    counts = []
    for number in range(1, 12):
        table.add(Added([_file(f"f{number}", 2)]))
        counts.append(len(table.manifests()))
    assert max(counts) == 3
    assert min(counts[3:]) == 1
    assert table.files() == {
        (f"f{number}", None): (2 * (number - 1), number, number) for number in range(1, 12)
    }


def test_a_manifest_does_not_grow_for_ever(table: _Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkport.spark.iceberg.next_manifests._MOST_FILES", 6)
    for number in range(1, 30):
        table.add(Added([_file(f"f{number}", 1)]))
    assert all(sum(each.file_counts) <= 7 for each in table.manifests())
    assert len(table.files()) == 29
    assert len(table.manifests()) < 10
