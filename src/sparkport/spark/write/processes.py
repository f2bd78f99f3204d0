"""Processes of this machine, told apart also when the system has given their number to others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "have_ended", "process_of"]

_SECONDS_BETWEEN_LOOKS = 0.05


class Process(NamedTuple):
    """One that runs, or did."""

    number: int
    started: str
    """When, in the system's own measure; "" where it does not tell."""


def process_of(number: int) -> Process:
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
        return Process(number, status.rpartition(")")[2].split()[19])  # a name may have spaces and brackets in it
    except (OSError, IndexError):
        return Process(number, "")


def have_ended(processes: list[Process], seconds: float) -> bool:
    """Whether none of them runs any more, or after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while any(map(_runs, processes)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return True


def _runs(process: Process) -> bool:
    try:
        os.kill(process.number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return process_of(process.number).started == process.started
