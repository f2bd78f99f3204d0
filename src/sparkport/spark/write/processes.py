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
    fields = _status(number)
    return Process(number, fields[19] if len(fields) > 19 else "")


def _status(number: int) -> list[str]:
    """What Linux tells of a process, from its state on; nothing elsewhere."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # a name may have spaces and brackets in it


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
    if _status(process.number)[:1] == ["Z"]:
        return False  # it has ended, but whoever has inherited it, as the first process of a container, does not ask
    return process_of(process.number).started == process.started
