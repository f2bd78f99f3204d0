"""A lock on a folder, which one process at a time may hold."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["locked_folder"]


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Wait for the lock on a folder and hold it. It ends with its process, however that ends.

    It leaves no file. A network file system may not support locks of folders: then all processes go
    on without.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
