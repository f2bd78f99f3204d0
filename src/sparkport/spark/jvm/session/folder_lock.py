"""One process at a time, of those that work with a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["only_one"]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here for the folder. The lock ends with its process,
    however that ends.

    It leaves no file. A network file system may not have locks of folders: there, everybody goes
    on.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
