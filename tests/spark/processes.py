"""Processes of this machine, by what Linux says of them in /proc: `ps` is not everywhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

__all__ = ["java_of", "wait_until_ended"]


def java_of(pid: int) -> list[int]:
    """Children of a process that are Java, or about to become it."""
    return [
        child
        for child, name, parent, _ in _processes()
        if parent == pid and name in ("java", "bash")
    ]


def wait_until_ended(pid: int, seconds: float = 60) -> None:
    """Wait for a process that is not ours to end. One that only waits for whoever has inherited it
    has ended.
    """
    deadline = time.monotonic() + seconds
    while any(each == pid and state != "Z" for each, _, _, state in _processes()):
        if time.monotonic() > deadline:
            pytest.fail(f"process {pid} still runs")
        time.sleep(0.1)


def _processes() -> list[tuple[int, str, int, str]]:
    """Number, name, parent and state of each."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = file.read_text().partition(" (")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        name, _, more = rest.rpartition(") ")
        state, parent = more.split()[:2]
        found.append((int(number), name, int(parent), state))
    return found
