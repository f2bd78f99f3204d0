"""Files that are read again when they change, while a server runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from sparkport.errors import SparkportError

__all__ = ["LOOK_SECONDS", "SETTLE_SECONDS", "WatchedFiles"]

LOOK_SECONDS = 1.0
SETTLE_SECONDS = 0.25
"""Seconds. A file changed more recently may be half written, or change again within its timestamp.
"""

Value = TypeVar("Value")
_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles(Generic[Value]):
    """The last valid value that was read from files. Thread-safe.

    No thread watches the files: callers call `look` before they use the value, which checks the
    files at most once in `look_seconds`.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], Value],
        log: logging.Logger,
        unchanged: str,
        *,
        look_seconds: float | None = None,
        settle_seconds: float | None = None,
    ) -> None:
        """`unchanged` says in the log that the earlier value stays in force.

        Raises: all that `read` raises.
        """
        self._paths = paths
        self._read = read
        self._log = log
        self._unchanged = unchanged
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._settle_seconds = SETTLE_SECONDS if settle_seconds is None else settle_seconds
        self._lock = threading.Lock()
        self._next = time.monotonic() + self._look_seconds
        self._stamp: _Stamp | None = self._now()
        if not self._settled(self._stamp):
            self._stamp = None  # read it again once it has settled
        self.value: Value = read()
        self.outdated = False
        """Whether the files have changed to something that cannot be used."""

    def look(self) -> bool:
        """Read the files again if they have changed, and return whether there is a new value.

        Does not raise.
        """
        now = time.monotonic()
        if now < self._next or not self._lock.acquire(blocking=False):
            return False
        stamp = None
        try:
            stamp = self._now()
            settled = self._settled(stamp)
            self._next = now + (self._look_seconds if settled else self._settle_seconds)
            if not settled or stamp == self._stamp:
                return False
            value = self._read()
            if self._now() != stamp:  # they changed while they were read
                self._next = now + self._settle_seconds
                return False
            self._stamp, self.value, self.outdated = stamp, value, False
            return True
        except Exception as error:  # noqa: BLE001 - callers are not to blame for the files
            self._stamp, self.outdated = stamp, True  # so that it is logged once
            said = error.message if isinstance(error, SparkportError) else type(error).__name__
            self._log.error("%s: %s", self._unchanged, said)
            return False
        finally:
            self._lock.release()

    def _settled(self, stamp: _Stamp) -> bool:
        now = time.time()
        return all(
            each is None or abs(now - each[0] / 1e9) >= self._settle_seconds for each in stamp
        )

    def _now(self) -> _Stamp:
        return tuple(_stamp(each) for each in self._paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
