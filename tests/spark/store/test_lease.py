"""Leases in an object store: which servers are taken for dead, and when a server doubts itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.storage.memory_storage import MemoryStorage

from sparkport.spark.lake import lease as leases
from sparkport.spark.lake.lease import Holder, Lease, StoreClock, held_by_the_dead
from sparkport.spark.lake.liveness import Life, Machine

_FOLDER = "memory:/w/.sparkport/0123456789abcdef"
_NAME = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def files() -> Iterator[dict[str, bytes]]:
    yield MemoryStorage.files
    MemoryStorage.files.clear()


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of this machine, which the test sets."""
    now = [1000.0]
    monkeypatch.setattr(leases, "_now", lambda: now[0])
    return now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "locks" / _NAME).mkdir(parents=True)
    return tmp_path / "locks"


def _lease(root: Path) -> Lease:
    return Lease(lambda: MemoryStorage({}), _FOLDER, Holder.of(root / _NAME))


def _wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _is_dead(root: Path) -> bool:
    storage = MemoryStorage({})
    clock = StoreClock(storage, "memory:/w/.sparkport")
    with held_by_the_dead(storage, storage.files_below(_FOLDER), root, clock) as is_dead:
        assert len(storage.files_below("memory:/w")) == 1, "no probe is left"
        return is_dead


def _left(root: Path, *, old: float = 0.0, **changes: Any) -> None:
    """A lease that is not renewed any more."""
    _lease(root).end(is_kept=True)
    (location,) = MemoryStorage.files
    said = json.loads(MemoryStorage.files[location]) | changes
    MemoryStorage.files[location] = json.dumps(said).encode()
    MemoryStorage.times[location] -= old


# ------------------------------------------------------------------------------- the server itself


def test_a_lease_is_renewed_and_there_is_always_one(
    root: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_SECONDS_BETWEEN_RENEWALS", 0.001)
    lease = _lease(root)
    try:
        seen: set[str] = set()

        def is_renewed() -> bool:
            now = set(files)
            assert now, "another server would not know whose folder it is"
            seen.update(now)
            return len(seen) > 3

        _wait_for(is_renewed)
        assert lease.is_certain
    finally:
        lease.end(is_kept=False)
    assert not files


def test_a_store_that_is_away_for_some_time_does_no_harm(
    root: Path, moment: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_SECONDS_BETWEEN_RENEWALS", 0.001)
    lease = _lease(root)
    tried: list[str] = []

    def refuse(location: str, content: bytes) -> None:
        tried.append(location)
        raise OSError("the store is away")

    with monkeypatch.context() as away:
        away.setattr(lease._storage(), "write", refuse)
        away.setattr(MemoryStorage, "write", lambda _, *args: refuse(*args))
        moment[0] += 290
        _wait_for(lambda: len(tried) > 1)
        assert lease.is_certain
    _wait_for(lambda: lease._renewed == moment[0])
    moment[0] += 290
    assert lease.is_certain
    lease.end(is_kept=False)


def test_a_server_that_was_silent_for_too_long_is_never_certain_again(
    root: Path, moment: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine was stopped. Its files may be gone, even if it can write a lease again."""
    monkeypatch.setattr(leases, "_SECONDS_BETWEEN_RENEWALS", 0.001)
    lease = _lease(root)
    moment[0] += 301
    lease._heart.join(60)
    assert not lease._heart.is_alive()
    assert not lease.is_certain
    moment[0] -= 301
    assert not lease.is_certain
    lease.end(is_kept=True)


def test_a_lease_does_not_tell_where_the_server_has_its_files(
    root: Path, files: dict[str, bytes]
) -> None:
    _lease(root).end(is_kept=True)
    assert str(root) not in str(files)


# ---------------------------------------------------------------------------------- other servers


def test_on_its_machine_the_locks_of_a_server_decide(root: Path) -> None:
    life = Life(root / _NAME, None)
    _left(root, old=1e6)
    assert not _is_dead(root), "it is stopped, perhaps"
    life.end()
    assert _is_dead(root)


def test_a_server_whose_folder_was_removed_on_its_machine_is_dead(root: Path) -> None:
    _left(root)
    (root / _NAME).rmdir()
    assert _is_dead(root)


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another"},
        {"boot": "another"},
        {"boot": ""},
        {"number": 1},
        {"device": -1},
        {"folder": "../.."},
        {"folder": None},
        {"more": "of a newer version"},
    ],
)
@pytest.mark.parametrize(
    ("old", "expected"), [(0.0, False), (590.0, False), (610.0, True), (-1e6, False)]
)
def test_elsewhere_it_is_dead_when_its_lease_is_old_by_the_clock_of_the_store(
    root: Path, changes: dict[str, Any], old: float, expected: bool
) -> None:
    """A container may have the machine's id, and another folder under the same name."""
    (root / _NAME).rmdir()
    (root / _NAME).mkdir()
    _left(root, old=old, **changes)
    assert _is_dead(root) is expected


def test_a_copied_machine_is_another_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _left(root)
    (root / _NAME).rmdir()
    own = Machine.this()
    monkeypatch.setattr(Machine, "this", lambda: Machine(own.id, "another"))
    assert not _is_dead(root)
