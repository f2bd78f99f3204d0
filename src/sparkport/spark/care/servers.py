"""The servers of one lake know of each other, without locks: who takes care, and what each reads.

Strategy: each server has a small file in the lake's home, and writes it anew under a growing number
every few seconds. A file that has grown old belongs to a server that has ended. The oldest server
of those that live takes care of the tables. Two that take themselves for the oldest do no harm:
every change of a table is a compare-and-swap, and what is removed is looked at first.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkport.errors import SparkportError
from sparkport.spark.iceberg.locations import reachable, storage_at
from sparkport.spark.iceberg.storage import MissingFile, Storage
from sparkport.spark.lake.lake import Lake

__all__ = ["Reads", "Servers"]

_log = logging.getLogger(__name__)

Reads: TypeAlias = Mapping[str, Iterable[int]]
"""The snapshots that a server's transactions read, by the uuid of the table."""

_FOLDER = ".sparkport/care"
IDLE_SECONDS = 10.0
"""DuckDB does not say that a transaction has ended. One that was not used for so long keeps what it
reads only as long as others would.
"""
_SECONDS_BETWEEN_BEATS = 20.0
_SECONDS_BETWEEN_CHANGES = 2.0
"""How long a server that does not lead waits at least before it tells what else it reads."""
_SILENT_SECONDS = 60.0
"""A server whose file is older has ended."""
_LONG_DEAD_SECONDS = 3_600.0
_LATEST_SECONDS = 2.0
"""For how long what the others have said is believed."""
_SECONDS_TO_END = 10.0
_NAME = re.compile(r"([0-9a-f]{13}-[0-9a-f]{32})-[0-9]{8,}")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen of the servers at one moment of `_CLOCK`."""

    moment: float
    leads: bool
    elsewhere: Mapping[str, frozenset[int]] = field(default_factory=dict)


class Servers:
    """This server among those of the same lake. Thread-safe; no method raises."""

    def __init__(
        self,
        storage: Callable[[], Storage],
        folder: str | None,
        reads: Callable[[], Reads] = dict,
    ) -> None:
        """`folder` is where the servers have their files; without one, this server is alone.

        `reads` tells what this server reads. Nothing is written before `start` or `beat`.
        """
        self._storage = storage
        self._folder = folder
        self._reads = reads
        self._own = f"{time.time_ns() // 1_000_000:013x}-{uuid.uuid4().hex}"
        self._guard = threading.Lock()
        self._number = 0
        self._written: list[str] = []
        self._told: Mapping[str, Sequence[int]] = {}
        self._renewed = -1e9
        self._look: _Look | None = None
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    @classmethod
    def of(cls, lake: Lake) -> Servers:
        """The servers of a lake. `start` makes this one known."""
        home = lake.catalog.warehouse
        # Hadoop's catalog would take the folder for a schema. A catalog that gives out keys for
        # each table may leave the server without any for the warehouse (write/sweep.py).
        is_closed = lake.gateway.option("type") == "hadoop" or (
            lake.catalog.chooses_folders and lake.staging.store is None
        )
        if home is None or is_closed or not reachable(home, lake.file_properties):
            return cls(lambda: storage_at("", {}), None)
        return cls(
            lambda: storage_at(home, lake.file_properties),
            f"{home}/{_FOLDER}",
            lambda: _read_in(lake),
        )

    def start(self) -> None:
        """Show that this server lives, until `close`."""
        if self._folder is not None and self._heart is None:
            self._heart = threading.Thread(target=self._run, name="sparkport-servers", daemon=True)
            self._heart.start()

    def leads(self) -> bool:
        """Whether it is this server that takes care. False when the storage does not answer."""
        if self._folder is None:
            return True
        look = self._latest()
        return look is not None and look.leads

    def in_use_elsewhere(self, table: str) -> set[int] | None:
        """The snapshots of a table, by its uuid, that other servers read; None if nobody knows."""
        if self._folder is None:
            return set()
        look = self._latest()
        return None if look is None else set(look.elsewhere.get(table, ()))

    def close(self) -> None:
        """Make this server known no more."""
        self._ended.set()
        if self._heart is not None:
            self._heart.join(_SECONDS_TO_END)  # the storage may not answer
        if not self._guard.acquire(timeout=_SECONDS_TO_END):
            return
        try:
            self._look = None
            with suppress(Exception):
                if self._written:
                    self._storage().delete_all(self._written)
        finally:
            self._guard.release()

    def beat(self) -> None:
        """Write this server's file anew if that is due, or if what it reads has changed."""
        try:
            reads = {table: sorted(each) for table, each in sorted(self._reads().items()) if each}
            with self._guard:
                since = _now() - self._renewed
                if since >= _SECONDS_BETWEEN_BEATS or (
                    since >= _SECONDS_BETWEEN_CHANGES and reads != self._told
                ):
                    self._write(reads)
        except Exception:  # noqa: BLE001 - the storage does not answer, in whatever way
            self._look = None
            _log.warning("this server cannot be made known to the lake's others", exc_info=True)

    def _run(self) -> None:
        while True:
            self.beat()
            # The one that leads asks its own transactions directly.
            leads = self._look is not None and self._look.leads
            pause = _SECONDS_BETWEEN_BEATS if leads else _SECONDS_BETWEEN_CHANGES
            if self._ended.wait(pause):
                return

    def _write(self, reads: Mapping[str, Sequence[int]]) -> None:
        if self._ended.is_set():
            return
        began = _now()
        self._number += 1
        location = f"{self._folder}/{self._own}-{self._number:08}"
        # Noted before: a write whose answer is lost may have been made.
        self._written.append(location)
        storage = self._storage()
        storage.write(location, json.dumps({"in_use": reads}).encode())
        self._renewed, self._told = began, reads
        for old in self._written[:-1]:
            storage.delete(old)
            self._written.remove(old)

    def _latest(self) -> _Look | None:
        """What is seen of the servers now; None when that cannot be found out."""
        with self._guard:
            known = self._look
            if known is not None and _now() - known.moment < _LATEST_SECONDS:
                return known
            try:
                if _now() - self._renewed >= _SECONDS_BETWEEN_BEATS:
                    # After a pause of the whole machine, others may have taken over.
                    self._write(self._told)
                self._look = self._seen()
            except Exception:  # noqa: BLE001 - see `beat`
                self._look = None
                _log.warning("the lake's other servers cannot be seen", exc_info=True)
            return self._look

    def _seen(self) -> _Look | None:
        moment, storage = _now(), self._storage()
        latest: dict[str, list[str]] = {}
        for file in storage.files_below(str(self._folder)):
            if (name := _NAME.fullmatch(file.rpartition("/")[2])) is not None:
                latest.setdefault(name[1], []).append(file)
        if self._own not in latest or self._ended.is_set():
            return None
        # The store's time is that of the own file, and what has passed since it was written.
        now = storage.modified(latest[self._own][-1]) + (moment - self._renewed)
        alive, elsewhere = [], dict[str, set[int]]()
        for server, files in sorted(latest.items()):
            if server == self._own:
                alive.append(server)
                continue
            try:
                age = now - storage.modified(files[-1])
                if age <= _SILENT_SECONDS:
                    alive.append(server)
                    _gather(storage, files[-1], elsewhere)
                elif age > _LONG_DEAD_SECONDS and alive[:1] == [self._own]:
                    storage.delete_all(files)
            except MissingFile:
                # It was written anew, or its server ends: which one, the next look tells.
                return None
        return _Look(
            moment,
            alive[0] == self._own,
            {table: frozenset(each) for table, each in elsewhere.items()},
        )


def _gather(storage: Storage, file: str, elsewhere: dict[str, set[int]]) -> None:
    """Add what a server says to read. Raises: OSError; ValueError for a file of another kind."""
    with storage.open_once(file) as source:
        said = json.loads(source.read())
    for table, ids in said["in_use"].items():
        elsewhere.setdefault(str(table), set()).update(map(int, ids))


def _read_in(lake: Lake) -> Reads:
    """The snapshots that this server's transactions read, by the uuid of the table."""
    found: dict[str, set[int]] = {}
    for identifier, ids in lake.transactions.all_snapshots_read(IDLE_SECONDS).items():
        with suppress(SparkportError):  # it was dropped
            table = str(lake.current(identifier).metadata.table_uuid)
            found.setdefault(table, set()).update(ids)
    return found


def _now() -> float:
    return time.clock_gettime(_CLOCK)
