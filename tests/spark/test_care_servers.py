"""The servers of a lake know of each other: who leads, and what the others read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.parts.s3 import s3_server

from sparkport.spark.care import servers as module
from sparkport.spark.care.servers import Reads, Servers
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.s3_storage import S3Storage
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.write.store_sweep import _by_server

_TABLE = "11111111-2222-3333-4444-555555555555"

_Make = Callable[..., Servers]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits, and nothing is believed for longer than it takes to ask again."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_CHANGES", 0.0)
    monkeypatch.setattr(module, "_LATEST_SECONDS", 0.0)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.timeout(200))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
    if request.param == "folder":
        yield LocalStorage(), f"{tmp_path}/.sparkport/care"
        return
    with s3_server() as server:
        yield S3Storage(server.options()), f"s3://{server.bucket}/lake/.sparkport/care"


@pytest.fixture
def make(place: tuple[Storage, str]) -> Iterator[_Make]:
    made: list[Servers] = []

    def make(reads: Callable[[], Reads] = dict) -> Servers:
        time.sleep(0.002)  # those that start in the same millisecond are in any order
        server = Servers(lambda: place[0], place[1], reads)
        made.append(server)
        server.beat()
        return server

    yield make
    for server in made:
        server.close()


def _folder(tmp_path: Path) -> Path:
    return tmp_path / ".sparkport" / "care"


def test_a_server_without_a_home_is_alone_and_leads():
    server = Servers(LocalStorage, None)
    server.start()
    assert server.leads()
    assert server.in_use_elsewhere(_TABLE) == set()
    server.close()


def test_the_oldest_leads_and_the_next_one_after_it_has_ended(make):
    first, second, third = make(), make(), make()
    assert [each.leads() for each in (first, second, third)] == [True, False, False]
    first.close()
    assert not first.leads()
    assert [each.leads() for each in (second, third)] == [True, False]


def test_a_server_tells_what_it_reads_when_that_changes(make):
    reads: dict[str, list[int]] = {}
    first, second = make(), make(lambda: reads)
    assert first.in_use_elsewhere(_TABLE) == set()
    reads[_TABLE] = [2**62, 7]
    second.beat()
    assert first.in_use_elsewhere(_TABLE) == {7, 2**62}
    assert first.in_use_elsewhere("another") == set()
    assert second.in_use_elsewhere(_TABLE) == set(), "its own are not those of others"
    reads.clear()
    second.beat()
    assert first.in_use_elsewhere(_TABLE) == set()


def test_each_server_has_one_file_and_none_at_the_end(make, place):
    storage, folder = place
    reads = {_TABLE: [1]}
    server = make(lambda: reads)
    for number in range(3):
        reads[_TABLE] = [number]
        server.beat()
        assert len(storage.files_below(folder)) == 1
    server.close()
    assert storage.files_below(folder) == []
    server.beat()
    assert storage.files_below(folder) == [], "one that has ended comes not back"


def test_nothing_is_written_while_nothing_changes(make, place):
    server = make()
    before = place[0].files_below(place[1])
    server.beat()
    assert place[0].files_below(place[1]) == before


@pytest.mark.parametrize("place", ["folder"], indirect=True)
class TestAges:
    def test_a_silent_server_leads_no_more_and_reads_nothing(self, make, tmp_path):
        silent = make(lambda: {_TABLE: [5]})
        server = make()
        assert server.in_use_elsewhere(_TABLE) == {5}
        (file,) = _folder(tmp_path).glob(f"{silent._own}-*")
        os.utime(file, (0, time.time() - 61))
        assert server.leads()
        assert server.in_use_elsewhere(_TABLE) == set()
        assert file.exists(), "it may come back"

    def test_times_are_those_of_the_storage(self, make, tmp_path):
        """A storage whose clock is years behind tells the same ages."""
        first, second = make(), make()
        for file in _folder(tmp_path).iterdir():
            os.utime(file, (0, 1_000_000_000))
        assert (first.leads(), second.leads()) == (True, False)

    def test_the_leader_removes_the_files_of_the_long_dead(self, make, tmp_path):
        server, follower = make(), make()
        dead = _folder(tmp_path) / f"{'f' * 13}-{'0' * 32}-00000009"
        dead.write_bytes(b"")
        os.utime(dead, (0, time.time() - 3_700))
        assert not follower.leads()
        assert dead.exists()
        assert server.leads()
        assert not dead.exists()

    def test_files_of_others_are_left_alone(self, make, tmp_path):
        server = make()
        other = _folder(tmp_path) / "notes.txt"
        other.write_text("mine")
        os.utime(other, (0, 0))
        assert server.leads()
        assert other.exists()

    def test_a_file_that_cannot_be_read_means_that_nobody_knows(self, make, tmp_path):
        server = make()
        odd = _folder(tmp_path) / f"{'0' * 13}-{'0' * 32}-00000001"
        odd.write_text(json.dumps({"something": "else"}))
        assert not server.leads()
        assert server.in_use_elsewhere(_TABLE) is None

    def test_a_server_is_known_while_its_thread_runs(self, place, tmp_path):
        server = Servers(lambda: place[0], place[1])
        server.start()
        deadline = time.monotonic() + 20
        while not server.leads() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.leads()
        server.close()
        assert list(_folder(tmp_path).iterdir()) == []


class _Away(LocalStorage):
    """A storage that does not answer."""

    def create(self, location: str) -> object:
        raise OSError("away")

    def files_below(self, folder: str) -> list[str]:
        raise OSError("away")


def test_a_storage_that_does_not_answer_means_not_to_lead(tmp_path):
    storage: list[Storage] = [_Away()]
    server = Servers(lambda: storage[0], str(tmp_path))
    server.beat()
    assert not server.leads()
    assert server.in_use_elsewhere(_TABLE) is None
    storage[0] = LocalStorage()
    server.beat()
    assert server.leads()
    storage[0] = _Away()
    assert not server.leads()
    server.close()


def test_the_sweep_of_a_store_takes_the_folder_for_no_server():
    assert _by_server(["s3://b/w/.sparkport/care/0-1-2"], "s3://b/w/.sparkport") == {}
