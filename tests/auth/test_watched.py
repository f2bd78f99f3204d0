"""Files that are read again when they change: when they are checked, and broken files."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from sparkport.auth import watched
from sparkport.auth.watched import WatchedFiles
from sparkport.errors import BadRequest

_log = logging.getLogger("of.the.test")


class Clock:
    """Seconds that pass when the test says so, for files (wall) and for looking (monotonic)."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watched, "time", made)
    return made


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> Path:
    path = tmp_path / "file"
    write(path, "first", clock.now - 60)
    return path


def write(path: Path, text: str, when: float) -> None:
    path.write_text(text)
    os.utime(path, (when, when))


def watching(path: Path) -> WatchedFiles[str]:
    def read() -> str:
        text = path.read_text()
        if text == "broken":
            raise BadRequest("it is broken")
        if text == "strange":
            raise RecursionError
        return text

    return WatchedFiles([path], read, _log, "it stays as it was")


def test_a_change_is_noticed_within_a_second(file, clock):
    seen = watching(file)
    clock.now += 0.9
    write(file, "second", clock.now - 0.5)
    assert not seen.look()
    assert seen.value == "first"

    clock.now += 0.1

    assert seen.look()
    assert seen.value == "second"
    assert not seen.look()


@pytest.mark.parametrize("when", [0.01, 0.5, 0.85, 0.99])
def test_whoever_asks_a_second_after_the_change_has_the_new_one(file, clock, when):
    """Whenever it was looked at before, also while the file was too new to be whole."""
    seen = watching(file)
    clock.now += 1.0
    changed = clock.now
    write(file, "second", changed)

    clock.now = changed + when
    seen.look()
    clock.now = changed + 1.0
    seen.look()

    assert seen.value == "second"


def test_a_file_that_has_just_been_touched_may_be_half_written(file, clock):
    seen = watching(file)
    clock.now += 5
    write(file, "sec", clock.now)
    assert not seen.look()
    clock.now += 0.1
    write(file, "second", clock.now)
    assert not seen.look()

    clock.now += 0.3

    assert seen.look()
    assert seen.value == "second"


def test_a_file_of_the_future_is_read_nevertheless(file, clock):
    seen = watching(file)
    write(file, "second", clock.now + 3600)
    clock.now += 1

    assert seen.look()
    assert seen.value == "second"


def test_what_was_new_when_it_was_first_read_is_read_again(file, clock):
    """It may have changed within a tick of the file system's clock, without changing its length."""
    write(file, "first", clock.now)
    seen = watching(file)
    write(file, "other", clock.now)

    clock.now += 1

    assert seen.look()
    assert seen.value == "other"


@pytest.mark.parametrize("broken", ["broken", "strange", None])
def test_what_is_broken_leaves_the_old_and_is_said_once(file, clock, caplog, broken):
    seen = watching(file)
    if broken is None:
        file.unlink()
    else:
        write(file, broken, clock.now)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 1
            assert not seen.look()
    (complaint,) = caplog.records
    assert complaint.name == "of.the.test"
    assert complaint.getMessage().startswith("it stays as it was: ")
    assert seen.value == "first"
    assert seen.outdated

    write(file, "second", clock.now - 10)
    clock.now += 1

    assert seen.look()
    assert seen.value == "second"
    assert not seen.outdated
