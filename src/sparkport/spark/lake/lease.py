"""A lease: objects in a store that show that a server lives, where its locks cannot be seen.

Strategy: a server writes a new lease every minute, and removes the one before. On the machine of
the server, its locks decide (liveness.py). Elsewhere it counts as dead when its lease is older than
ten minutes, by the clock of the store: the time of the lease is compared with that of an object
that is written now. A server that has not renewed its lease for five minutes does not commit any
more, so it cannot publish what another server has removed meanwhile.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.lake.liveness import Machine, number_of, taken_over

__all__ = ["LEASE", "PROBE", "Holder", "Lease", "StoreClock", "held_by_the_dead"]

_log = logging.getLogger(__name__)

LEASE = "lease-"
"""The beginning of the names of leases; a number follows."""
PROBE = "probe-"
"""The beginning of the names of objects that are written only to learn the time."""

_SECONDS_BETWEEN_RENEWALS = 60.0
_SECONDS_BETWEEN_ATTEMPTS = 5.0
_CERTAIN_SECONDS = 300.0
_SILENT_SECONDS = 600.0
_SECONDS_TO_END = 30.0
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: where its locks are."""

    machine: str
    boot: str
    device: int
    number: int
    """Of the folder around the server's own, as the kernel knows it.

    Containers have different folders of the same name, and may have the same machine id.
    """
    folder: str
    """The name of the server's own folder in there."""

    @classmethod
    def of(cls, folder: Path) -> Holder:
        """For the server whose locks are in that folder. Raises: OSError."""
        machine, (device, number) = Machine.this(), number_of(folder.parent)
        return cls(machine.id, machine.boot, device, number, folder.name)

    @classmethod
    def named_in(cls, text: bytes) -> Holder | None:
        """Read a lease; None if it says nothing that is known."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def found_in(self, root: Path) -> Path | None:
        """Its folder, if it is in this one; None for a server whose locks are not seen here."""
        own = Machine.this()
        if not self.boot or (self.machine, self.boot) != (own.id, own.boot):
            return None
        try:
            is_here = (self.device, self.number) == number_of(root)
        except OSError:
            return None
        name = re.fullmatch("[0-9a-f]{32}", str(self.folder))
        return root / name[0] if is_here and name is not None else None


class Lease:
    """Shows in a folder of a store that this server is alive, until `end`. Thread-safe."""

    def __init__(self, storage: Callable[[], Storage], folder: str, holder: Holder) -> None:
        """Write the first lease. Raises: OSError."""
        self._storage = storage
        self._folder = folder
        self._content = json.dumps(asdict(holder)).encode()
        self._number = 0
        self._written: list[str] = []
        self._renewed = _now()
        self._lapsed = threading.Event()
        self._ended = threading.Event()
        self._renew()
        self._heart = threading.Thread(target=self._beat, name="sparkport-lease", daemon=True)
        self._heart.start()

    @property
    def is_certain(self) -> bool:
        """Whether no other server can have taken this one for dead. Once False, always False."""
        if _now() - self._renewed > _CERTAIN_SECONDS:
            self._lapsed.set()
        return not self._lapsed.is_set()

    def _beat(self) -> None:
        pause = _SECONDS_BETWEEN_RENEWALS
        while not self._ended.wait(pause) and self.is_certain:
            try:
                self._renew()
                pause = _SECONDS_BETWEEN_RENEWALS
            except Exception:  # noqa: BLE001 - the store does not answer, in whatever way
                _log.warning("the lease of this server cannot be renewed now", exc_info=True)
                pause = min(pause, _SECONDS_BETWEEN_ATTEMPTS)

    def _renew(self) -> None:
        began = _now()
        self._number += 1
        location = f"{self._folder}/{LEASE}{self._number:08}"
        # Noted before: a write whose answer is lost may have been made.
        self._written.append(location)
        storage = self._storage()
        storage.write(location, self._content)
        self._renewed = began
        for old in self._written[:-1]:
            storage.delete(old)
            self._written.remove(old)

    def end(self, *, is_kept: bool) -> None:
        """Renew it no more, and remove it unless it is kept. Never raises.

        A lease that is kept has another server look at what was left.
        """
        self._ended.set()
        self._heart.join(_SECONDS_TO_END)  # the store may not answer
        if not is_kept:
            with suppress(Exception):
                for location in self._written:
                    self._storage().delete(location)


class StoreClock:
    """The time of a store, asked for once, by an object that is written and removed."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._now: float | None = None

    def age(self, location: str) -> float:
        """Seconds since a file was written, as of the first call. Raises: OSError."""
        if self._now is None:
            probe = f"{self._folder}/{PROBE}{uuid.uuid4().hex}"
            self._storage.write(probe, b"")
            try:
                self._now = self._storage.modified(probe)
            finally:
                self._storage.delete(probe)
        return self._now - self._storage.modified(location)

    def is_old(self, location: str) -> bool:
        """Whether a lease is too old for a server that lives. Raises: OSError."""
        return self.age(location) > _SILENT_SECONDS


@contextmanager
def held_by_the_dead(
    storage: Storage, leases: Sequence[str], root: Path, clock: StoreClock
) -> Iterator[bool]:
    """Yield whether the server that holds the last of these leases is dead.

    `root` is the folder in which servers of this machine and user have their locks. Meanwhile no
    other process of this machine finds the server dead. Raises: OSError.
    """
    with storage.open_once(leases[-1]) as source:
        holder = Holder.named_in(source.read())
    folder = None if holder is None else holder.found_in(root)
    if folder is None:
        yield clock.is_old(leases[-1])
    elif not folder.exists():
        yield True  # another server has found it dead
    else:
        with taken_over(folder) as is_dead:
            yield is_dead


def _now() -> float:
    return time.clock_gettime(_CLOCK)
