"""Staging in an object store: what a server writes there, and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.spark.tables import NUMBERED, Table, numbered
from tests.storage.memory_storage import MemoryStorage

from sparkport.errors import Conflict, PreconditionFailed
from sparkport.spark.iceberg import locations
from sparkport.spark.iceberg.locations import register
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake import lease as leases
from sparkport.spark.lake.staging import Staging, StagingArea
from sparkport.spark.lake.store_folder import Store
from sparkport.spark.write.data_files import DataFileWriter
from sparkport.spark.write.source import SourceWriter

_ROOT = "memory:/w/.sparkport"


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    monkeypatch.setattr(locations, "_STORAGES", dict(locations._STORAGES))
    register("memory", MemoryStorage)
    yield MemoryStorage.files
    MemoryStorage.files.clear()


@pytest.fixture
def area(tmp_path: Path) -> Iterator[StagingArea]:
    area = StagingArea(tmp_path / "staging", store=Store(_ROOT, dict))
    yield area
    area.close()
    assert not list((tmp_path / "staging").rglob("*"))


@pytest.fixture
def state() -> TableState:
    return _state("memory:/w/t")


def _state(folder: str) -> TableState:
    return Table(cast(Path, folder), NUMBERED).state()  # it only puts names behind it


def _begun(area: StagingArea, state: TableState) -> Staging:
    return area.begin(state.identifier, state)


def _written(state: TableState, staging: Staging) -> str:
    writer = DataFileWriter(state, staging)
    writer.write(numbered(10))
    (file,) = writer.finish()
    return file.path


def _server(files: dict[str, bytes]) -> dict[str, list[str]]:
    """What is in the folder of the only server, by the kind of it."""
    found: dict[str, list[str]] = {}
    servers = set()
    for name in files:
        if name.startswith(f"{_ROOT}/"):
            server, *kind, last = name.removeprefix(f"{_ROOT}/").split("/")
            servers.add(server)
            found.setdefault(kind[0] if kind else last.partition("-")[0], []).append(last)
    assert len(servers) <= 1
    return found


def test_nothing_is_written_before_a_statement_writes(
    area: StagingArea, state: TableState, files: dict[str, bytes]
) -> None:
    before = set(files)
    _begun(area, state).done()
    _begun(area, state).discard()
    area.prefix()
    assert set(files) == before


def test_a_table_is_noted_once_and_statements_cost_nothing(
    area: StagingArea, state: TableState, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = _begun(area, state)
    staging.will_write("memory:/w/t/data/x")
    uuid = str(state.metadata.table_uuid)
    assert _server(files) == {"lease": ["lease-00000001"], "tables": [uuid]}
    (note,) = (json.loads(files[name]) for name in files if "/tables/" in name)
    assert note == {
        "table": [state.identifier.catalog, list(state.identifier.namespace), "t"],
        "uuid": uuid,
        "metadata": state.metadata_location,
        "places": [state.metadata.location],
    }
    staging.done()
    monkeypatch.setattr(Storage, "write", lambda *_: pytest.fail("a request to the store"))
    monkeypatch.setattr(MemoryStorage, "delete", lambda *_: pytest.fail("a request to the store"))
    for _ in range(3):
        again = _begun(area, state)
        again.will_write("memory:/w/t/data/y")
        again.will_branch(f"sparkport_{area.prefix()}1")
        again.expect_journal()
        again.done()
    monkeypatch.undo()


def test_names_of_files_tell_the_server_and_the_table(area: StagingArea, state: TableState) -> None:
    staging = _begun(area, state)
    name = _written(state, staging).rpartition("/")[2]
    (server,) = {each.split("/")[3] for each in MemoryStorage.files if "/.sparkport/" in each}
    table = str(state.metadata.table_uuid).replace("-", "")[:16]
    assert name.startswith(f"{server}{table}")
    assert name.startswith(staging.id)
    assert area.prefix() == server
    staging.discard()


def test_what_is_discarded_is_gone_and_a_server_that_closes_leaves_nothing(
    area: StagingArea, state: TableState, files: dict[str, bytes]
) -> None:
    before = set(files)
    staging = _begun(area, state)
    path = _written(state, staging)
    (staging.folder / "waiting").touch()
    assert path in files
    staging.discard()
    assert path not in files
    area.close()
    assert set(files) == before


def test_what_cannot_be_removed_now_is_removed_in_the_end(
    area: StagingArea,
    state: TableState,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staging = _begun(area, state)
    path = _written(state, staging)

    def refuse(*_: Any) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as away:
        away.setattr(MemoryStorage, "delete", refuse)
        staging.discard()
    assert path in files
    area.close()
    assert path not in files
    assert not _server(files)


@pytest.mark.parametrize("trouble", ["unknown outcome", "away to the end"])
def test_what_is_left_stays_known_to_the_next_server(
    area: StagingArea,
    state: TableState,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
) -> None:
    staging = _begun(area, state)
    path = _written(state, staging)
    if trouble == "unknown outcome":
        staging.leave()
        area.close()
    else:
        delete = MemoryStorage.delete

        def refuse(storage: MemoryStorage, location: str) -> None:
            if location == path:
                raise OSError("the store does not let go of it")
            delete(storage, location)

        monkeypatch.setattr(MemoryStorage, "delete", refuse)
        staging.discard()
        area.close()
    assert path in files
    assert set(_server(files)) == {"lease", "tables"}


def test_a_store_that_takes_nothing_is_told_without_its_place(
    area: StagingArea, state: TableState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(MemoryStorage, "create", refuse)
    with pytest.raises(PreconditionFailed, match="does not take new files") as caught:
        _begun(area, state).will_write("memory:/w/t/data/x")
    assert "memory:" not in caught.value.message


def test_a_server_that_may_have_been_taken_for_dead_does_not_commit(
    area: StagingArea,
    state: TableState,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(leases, "_now", lambda: now[0])
    staging, waiting = _begun(area, state), _begun(area, state)
    old, branch = area.prefix(), f"sparkport_{area.prefix()}1"
    path = _written(state, staging)
    staging.expect_journal()
    now[0] += 301
    for each in (staging, waiting):
        with pytest.raises(Conflict, match="removed by another server meanwhile"):
            each.expect_journal()
    staging.discard()
    assert path not in files
    later = _begun(area, state)
    later.will_write("memory:/w/t/data/z")
    later.expect_journal()
    assert area.prefix() != old
    with pytest.raises(Conflict, match="begin the transaction again"):
        later.will_branch(branch)
    later.done()


def test_rows_for_executors_elsewhere_are_staged_in_the_store(
    tmp_path: Path, state: TableState, files: dict[str, bytes]
) -> None:
    area = StagingArea(tmp_path / "staging", store=Store(_ROOT, dict, for_rows=True))
    staging = _begun(area, state)
    writer = SourceWriter(state, staging, ["id"], with_row_ids=False)
    writer.write(numbered(10).to_batches()[0])
    (file,) = writer.finish()
    assert file.path.startswith(f"{_ROOT}/{area.prefix()}/rows/{staging.id}/")
    assert set(_server(files)) == {"lease", "rows"}
    staging.done()
    assert set(_server(files)) == {"lease"}
    area.close()
    assert not _server(files)


def test_rows_for_executors_on_this_machine_stay_here(
    area: StagingArea, state: TableState, files: dict[str, bytes]
) -> None:
    staging = _begun(area, state)
    storage, location = staging.for_spark("x")
    assert storage.is_local
    assert location == str(staging.folder / "x")
    staging.done()
    assert not _server(files)


def test_properties_are_never_shown() -> None:
    assert "secret" not in repr(Store(_ROOT, lambda: {"s3.secret-access-key": "secret"}))
