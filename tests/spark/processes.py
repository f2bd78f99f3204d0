"""Processes of this machine, read from Linux's /proc: `ps` is not installed everywhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

__all__ = ["java_of", "wait_until_ended"]


def java_of(pid: int) -> list[int]:
    """Child processes that are Java, or about to become it."""
    return [
        child
        for child, name, parent, _ in _processes()
        if parent == pid and name in ("java", "bash")
    ]


def wait_until_ended(pid: int, seconds: float = 60) -> None:
    """Wait until a process that this test did not start has ended. A zombie has ended."""
    deadline = time.monotonic() + seconds
    while any(each == pid and state != "Z" for each, _, _, state in _processes()):
        if time.monotonic() > deadline:
            pytest.fail(f"process {pid} still runs")
        time.sleep(0.1)


def _processes() -> list[tuple[int, str, int, str]]:
    """Number, name, parent and state of each process."""
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
