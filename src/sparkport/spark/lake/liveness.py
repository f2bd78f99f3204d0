"""Whether the server that a folder belongs to is alive.

Strategy: a server holds a lock on a file of its folder, and the JVM that commits for it holds
another. The system gives them up when their process ends, however it ends, but not while it is
stopped. On the kernel that they run on that is all. Across machines on network storage a lock may
not be seen, so there nobody is taken for dead, but for a server of this machine, by its id, from
before the machine was started anew, whose heart has not beaten for ten minutes by the clock of the
storage. Names of hosts and numbers of processes tell nothing: containers share them.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TypeAlias

__all__ = ["FILES", "Hold", "Life", "Machine", "taken_over"]

_LOCK = "lock"
_JVM_LOCK = "jvm.lock"
FILES = frozenset({_LOCK, _JVM_LOCK})
"""What a folder has for its server's life."""

_SECONDS_BETWEEN_BEATS = 30.0
_SILENT_SECONDS = 600.0
_SECONDS_TO_END = 30.0
"""A JVM outlives a server that is killed for a moment, in which it may finish a commit."""
_SECONDS_BETWEEN_LOOKS = 0.05

Hold: TypeAlias = Callable[[Path], Callable[[], None]]
"""Has the JVM hold a lock on a file until it ends, or the result is called."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a server runs."""

    id: str
    boot: str
    """Which start of its kernel; "" where the system does not tell."""

    @staticmethod
    @functools.cache
    def this() -> Machine:
        own = _text("/etc/machine-id") or _text("/var/lib/dbus/machine-id") or f"{uuid.getnode():x}"
        # The id is not to be shown to anybody, says its manual, but may be told apart.
        digest = hashlib.sha256(f"sparkport {own}".encode()).hexdigest()[:32]
        return Machine(digest, _text("/proc/sys/kernel/random/boot_id"))

    @staticmethod
    def named_in(text: str) -> Machine | None:
        """None for one of which nothing is known, as of older versions."""
        try:
            return Machine(**json.loads(text))
        except (ValueError, TypeError):
            return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


class Life:
    """Of this server, as its folder shows it. Ends with its process, or by `end`. Thread-safe."""

    def __init__(self, folder: Path, hold: Hold | None) -> None:
        """Raises: OSError."""
        self._lock = open(folder / _LOCK, "w", encoding="utf-8")  # noqa: SIM115 - held as long as the server lives
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._release = None if hold is None else hold(folder / _JVM_LOCK)
        # Last: a folder that does not say whose it is, is left alone.
        json.dump(asdict(Machine.this()), self._lock)
        self._lock.flush()
        os.fsync(self._lock.fileno())
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="sparkport-heartbeat", daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_BEATS):
            with suppress(OSError):  # storage that does not answer
                os.utime(self._lock.fileno())

    def end(self) -> None:
        """Never raises."""
        self._ended.set()
        self._heart.join(_SECONDS_TO_END)  # storage may not answer
        with suppress(Exception):  # the JVM may have gone, and its lock with it
            if self._release is not None:
                self._release()
        self._lock.close()


@contextmanager
def taken_over(folder: Path) -> Iterator[bool]:
    """Whether the server of a folder is dead; as long as this lasts nobody else finds so. Raises:
    OSError.
    """
    try:
        lock = open(folder / _LOCK, "r+", encoding="utf-8")  # noqa: SIM115 - closed below
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    with lock:
        yield (
            _is_free(lock, fcntl.flock)
            and _is_of_this_machine(folder, lock)
            and _jvm_has_ended(folder)
        )


def _is_free(lock: IO[str], locking: Callable[[IO[str], int], object]) -> bool:
    """Of a lock that is taken thereby."""
    try:
        locking(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or this storage has no locks
        return False
    return True


def _is_of_this_machine(folder: Path, lock: IO[str]) -> bool:
    """Whether it would be seen if the lock of a file were held."""
    its, own = Machine.named_in(lock.read()), Machine.this()
    if its is None:
        return False
    if its.boot and its.boot == own.boot:
        return True
    return its.id == own.id and _silence(folder, lock) > _SILENT_SECONDS


def _silence(folder: Path, lock: IO[str]) -> float:
    """Seconds since the last beat, by the clock of the storage."""
    with tempfile.TemporaryFile(dir=folder) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(lock.fileno()).st_mtime


def _jvm_has_ended(folder: Path) -> bool:
    deadline = time.monotonic() + _SECONDS_TO_END
    try:
        with open(folder / _JVM_LOCK, "r+", encoding="utf-8") as lock:
            while not _is_free(lock, fcntl.lockf):  # Java's kind of lock
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    except FileNotFoundError:
        pass
    return True
