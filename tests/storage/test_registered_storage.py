"""A storage that is registered for a scheme is all that tables there need: the readers and writers
of the lake are the usual ones.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from tests.spark.tables import IO, NUMBERED, Table, data_entry, numbered, read, rows_of, where
from tests.storage.memory_storage import MemoryStorage

from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg import locations
from sparkport.spark.iceberg.locations import open_parquet, reachable, register, storage_at
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import metadata_text
from sparkport.spark.lake.changes import WrittenFile
from sparkport.spark.lake.staging import Staging, StagingArea
from sparkport.spark.write.data_files import DataFileWriter
from sparkport.spark.write.locate import locate
from sparkport.spark.write.vectors import write_vectors


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The files of the storage that is registered."""
    storages = {key: each for key, each in locations._STORAGES.items() if key != "*"}
    monkeypatch.setattr(locations, "_STORAGES", storages)
    register("memory", MemoryStorage)
    yield MemoryStorage.files
    MemoryStorage.files.clear()


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Staging]:
    area = StagingArea(tmp_path / "staging")
    yield area.begin(_table().state().identifier)
    area.close()


def _table() -> Table:
    return Table(cast(Path, "memory:/t"), NUMBERED)  # it only puts names behind it


def _written(staging: Staging) -> WrittenFile:
    writer = DataFileWriter(_table().state(), staging, with_row_ids=False)
    writer.write(numbered(100))
    (file,) = writer.finish()
    return file


def test_a_data_file_is_written_and_read(memory: dict[str, bytes], staging: Staging) -> None:
    file = _written(staging)
    assert file.path.startswith("memory:/t/data/")
    assert len(memory[file.path]) == file.size
    table = _table()
    table.append(data_entry(file.path, file.rows, size=file.size), first_row_id=0)
    state = table.state()
    assert state.snapshot is not None
    assert str(state.snapshot.manifest_list).startswith("memory:/t/")
    assert rows_of(read(state, ["id", "name"])) == numbered(100).to_pylist()
    assert rows_of(read(state, ["name", "rowid"], where("id", "=", 42))) == [
        {"name": "n42", "rowid": 42}
    ]


def test_workers_read_it_by_the_same_request(staging: Staging) -> None:
    file = _written(staging)
    table = _table()
    table.append(data_entry(file.path, file.rows, size=file.size), first_row_id=0)
    state = table.state()
    sent = pickle.dumps((read_request(state, ["id"]), plan_scan(state, ["id"], None).parts))
    request, parts = pickle.loads(sent)
    assert sum(batch.num_rows for batch in read_parts(request, parts, lambda: None)) == 100


def test_rows_are_deleted_by_vectors_there(memory: dict[str, bytes], staging: Staging) -> None:
    file = _written(staging)
    table = _table()
    table.append(data_entry(file.path, file.rows, size=file.size), first_row_id=0)
    state = table.state()
    found = locate(state, pa.array([3, 5], pa.int64()), {}).found
    (vector,) = write_vectors(state, found, staging, {})
    assert memory[vector.path].startswith(b"PFA1")
    said = vector.described
    table.append(
        data_entry(
            vector.path,
            2,
            content=1,
            file_format="PUFFIN",
            referenced_data_file=file.path,
            content_offset=said["content-offset"],
            content_size_in_bytes=said["content-size-in-bytes"],
        ),
        content=1,
    )
    ids = [row["id"] for row in rows_of(read(table.state(), ["id"]))]
    assert ids == [number for number in range(100) if number not in (3, 5)]


def test_a_statement_that_fails_leaves_nothing_there(
    memory: dict[str, bytes], staging: Staging
) -> None:
    before = set(memory)
    file = _written(staging)
    assert file.path in memory
    staging.discard()
    assert {name for name in set(memory) - before if "/data/" in name} == set()


def test_metadata_are_read_there(memory: dict[str, bytes]) -> None:
    memory["memory:/t/metadata/1.metadata.json"] = json.dumps({"a": 1}).encode()
    assert metadata_text(IO, "memory:/t/metadata/1.metadata.json") == '{"a": 1}'


def test_a_file_that_is_missing_there_is_reported(
    memory: dict[str, bytes], staging: Staging
) -> None:
    file = _written(staging)
    table = _table()
    table.append(data_entry(file.path, file.rows, size=file.size), first_row_id=0)
    state = table.state()
    del memory[file.path]
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t is missing"):
        read(state, ["id"])


def test_a_scheme_that_nobody_has_registered_is_left_to_spark() -> None:
    assert reachable("memory:/x", {})
    assert reachable("MEMORY:/x", {})
    assert not reachable("hdfs://host/x", {})
    with pytest.raises(OSError, match="there is no storage for hdfs"):
        storage_at("hdfs://host/x", {})
    with pytest.raises(OSError, match="there is no storage for hdfs"), open_parquet("hdfs:/x", {}):
        pass
