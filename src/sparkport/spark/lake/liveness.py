"""Find out whether the server that a folder belongs to is alive.

Strategy: a server holds a lock on a file of its folder, and the JVM that commits for it holds
another. The system releases them when their process ends, however it ends, but not while it is
stopped. Under one kernel these locks decide. Across machines, on network storage, a lock may not be
seen. There a server is taken for dead only if it ran on this machine (by the machine's id) before
it was last booted, and its heartbeat is more than ten minutes old by the clock of the storage. Host
names and process numbers tell nothing: containers share them.
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

__all__ = ["FILES", "Hold", "Life", "Machine", "number_of", "taken_over"]

_LOCK = "lock"
_JVM_LOCK = "jvm.lock"
FILES = frozenset({_LOCK, _JVM_LOCK})
"""The files in a folder that show whether its server lives."""

_SECONDS_BETWEEN_BEATS = 30.0
_SILENT_SECONDS = 600.0
_SECONDS_TO_END = 30.0
"""How long a JVM may outlive its killed server. In that time it may finish a commit."""
_SECONDS_BETWEEN_LOOKS = 0.05

Hold: TypeAlias = Callable[[Path], Callable[[], None]]
"""Has the JVM hold a lock on a file until the JVM ends or the returned function is called."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a server runs on."""

    id: str
    boot: str
    """Id of the current boot; "" where the system does not tell."""

    @staticmethod
    @functools.cache
    def this() -> Machine:
        own = _text("/etc/machine-id") or _text("/var/lib/dbus/machine-id") or f"{uuid.getnode():x}"
        # The manual forbids to publish the id itself; a digest identifies the machine as well.
        digest = hashlib.sha256(f"sparkport {own}".encode()).hexdigest()[:32]
        return Machine(digest, _text("/proc/sys/kernel/random/boot_id"))

    @staticmethod
    def named_in(text: str) -> Machine | None:
        """Read the machine from a lock file; None when it names none, as in older versions."""
        try:
            return Machine(**json.loads(text))
        except (ValueError, TypeError):
            return None


def number_of(folder: Path) -> tuple[int, int]:
    """What the kernel knows a folder by: its device, and its number there. Raises: OSError."""
    found = os.stat(folder)
    return found.st_dev, found.st_ino


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


class Life:
    """Shows in a folder that this server is alive, until its process ends or `end`. Thread-safe."""

    def __init__(self, folder: Path, hold: Hold | None) -> None:
        """Begin to hold the lock. Raises: OSError."""
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
            with suppress(OSError):  # the storage does not answer
                os.utime(self._lock.fileno())

    def end(self) -> None:
        """Release the lock. Never raises."""
        self._ended.set()
        self._heart.join(_SECONDS_TO_END)  # the storage may not answer
        with suppress(Exception):  # the JVM may be gone, and its lock with it
            if self._release is not None:
                self._release()
        self._lock.close()


@contextmanager
def taken_over(folder: Path) -> Iterator[bool]:
    """Yield whether the server of a folder is dead.

    Meanwhile no other process finds it dead. Raises: OSError.
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
    """Take a lock if it is free; whether it was."""
    try:
        locking(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or this storage has no locks
        return False
    return True


def _is_of_this_machine(folder: Path, lock: IO[str]) -> bool:
    """Whether a held lock of that server would be seen from here."""
    its, own = Machine.named_in(lock.read()), Machine.this()
    if its is None:
        return False
    if its.boot and its.boot == own.boot:
        return True
    return its.id == own.id and _silence(folder, lock) > _SILENT_SECONDS


def _silence(folder: Path, lock: IO[str]) -> float:
    """Seconds since the last heartbeat, by the clock of the storage."""
    with tempfile.TemporaryFile(dir=folder) as now:
        return os.fstat(now.fileno()).st_mtime - os.fstat(lock.fileno()).st_mtime


def _jvm_has_ended(folder: Path) -> bool:
    deadline = time.monotonic() + _SECONDS_TO_END
    try:
        with open(folder / _JVM_LOCK, "r+", encoding="utf-8") as lock:
            while not _is_free(lock, fcntl.lockf):  # the kind of lock that Java takes
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    except FileNotFoundError:
        pass
    return True
