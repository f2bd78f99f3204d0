"""Which servers are taken for dead, so that their files may be removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkport.spark.lake import liveness
from sparkport.spark.lake.liveness import Life, Machine, taken_over

_SERVER = """
import sys
from pathlib import Path
from sparkport.spark.lake.liveness import Life
life = Life(Path(sys.argv[1]), None)
print("ready", flush=True)
sys.stdin.readline()
"""
_JVM = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
"""


@contextmanager
def _process(program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def _is_dead(folder: Path) -> bool:
    with taken_over(folder) as is_dead:
        return is_dead


def _left_by(folder: Path, machine: Machine, *, silent: float = 0.0) -> None:
    """A lock that no server holds, or none that can be seen from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "this", lambda: machine)
        Life(folder, None).end()
    moment = time.time() - silent
    os.utime(folder / "lock", (moment, moment))


def _this(**changes: str) -> Machine:
    own = Machine.this()
    return Machine(changes.get("id", own.id), changes.get("boot", own.boot))


def test_a_server_is_alive_until_its_process_ends(tmp_path: Path) -> None:
    with _process(_SERVER, tmp_path) as process:
        assert not _is_dead(tmp_path)
        process.kill()
        process.wait(10)
        assert _is_dead(tmp_path)


def test_a_server_that_is_stopped_is_alive_however_long(tmp_path: Path) -> None:
    with _process(_SERVER, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        os.utime(tmp_path / "lock", (0, 0))
        assert not _is_dead(tmp_path)


def test_a_server_that_has_let_go_is_dead(tmp_path: Path) -> None:
    _left_by(tmp_path, _this())
    assert _is_dead(tmp_path)


def test_a_container_with_the_same_name_and_process_id_elsewhere_is_another_server(
    tmp_path: Path,
) -> None:
    """Its lock cannot be seen across machines, and its clock may differ."""
    _left_by(tmp_path, Machine("another", "other"), silent=1e9)
    assert not _is_dead(tmp_path)


@pytest.mark.parametrize(
    ("silent", "expected"), [(0.0, False), (599.0, False), (601.0, True), (-1e6, False)]
)
def test_a_server_from_before_a_reboot_is_dead_when_its_heart_has_not_beaten_for_long(
    tmp_path: Path, silent: float, expected: bool
) -> None:
    """Not at once: images of containers and machines are copied, with their ids."""
    _left_by(tmp_path, _this(boot="another"), silent=silent + (5 if expected else -5))
    assert _is_dead(tmp_path) is expected


def test_a_container_without_a_machine_id_is_known_by_its_kernel(tmp_path: Path) -> None:
    _left_by(tmp_path, _this(id="of its own"))
    assert _is_dead(tmp_path)


@pytest.mark.parametrize("text", ["", '{"id": "x', "[[1, 2]]", '{"id": "x"}', "null"])
def test_a_folder_that_does_not_say_whose_it_is_is_left_alone(tmp_path: Path, text: str) -> None:
    """An older version has made it, or it is just being made."""
    (tmp_path / "lock").write_text(text)
    os.utime(tmp_path / "lock", (0, 0))
    assert not _is_dead(tmp_path)


def test_as_long_as_its_jvm_lives_a_server_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _left_by(tmp_path, _this())
    with _process(_JVM, tmp_path / "jvm.lock") as jvm:
        monkeypatch.setattr(liveness, "_SECONDS_TO_END", 0.1)
        assert not _is_dead(tmp_path)
        monkeypatch.setattr(liveness, "_SECONDS_TO_END", 60.0)
        jvm.kill()
        assert _is_dead(tmp_path)


def test_the_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_SECONDS_BETWEEN_BEATS", 0.01)
    life = Life(tmp_path, None)
    try:
        os.utime(tmp_path / "lock", (0, 0))
        deadline = time.monotonic() + 60
        while (tmp_path / "lock").stat().st_mtime < 1:
            assert time.monotonic() < deadline
    finally:
        life.end()
