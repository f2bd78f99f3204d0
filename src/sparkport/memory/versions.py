"""The versions of a table, and how one is found by number or time."""

from __future__ import annotations

import itertools
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

import pyarrow as pa

from sparkport.catalog import ColumnStatistics, TimePoint
from sparkport.engine.timestamps import parse_timestamp
from sparkport.errors import BadRequest, NotFound
from sparkport.memory.definition import Definition, TableName
from sparkport.memory.segments import Segment, count_rows
from sparkport.memory.settings import MemorySettings

__all__ = ["History", "LogEntry", "Version"]

_serials = itertools.count(1)


class LogEntry:
    """Which rows a change updated or removed; leads to the entry of the next change.

    A version holds its own entry, so a writer that began with it can see what happened since.
    Entries that cannot be reached any more are freed with the versions that led to them.
    """

    __slots__ = ("next", "owner", "row_ids")

    def __init__(self, row_ids: pa.Array | None = None, owner: str | None = None) -> None:
        """`owner` is the DuckDB transaction whose statement made the change."""
        self.row_ids = row_ids
        self.owner = owner
        self.next: LogEntry | None = None

    def later(self, owner: str | None) -> Iterator[LogEntry]:
        """The entries of all later changes, but for those of `owner`."""
        entry = self.next
        while entry is not None:
            if owner is None or entry.owner != owner:
                yield entry
            entry = entry.next


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A table at one moment. Immutable, so it is read without locks."""

    number: int
    timestamp: datetime
    sequence: int
    """The ledger's number of the commit that made it. A commit may change several tables."""
    definition: Definition
    segments: tuple[Segment, ...]
    log: LogEntry = field(default_factory=LogEntry)
    serial: int = field(default_factory=lambda: next(_serials))
    """Unique in this process; partitions name a version by it."""
    statistics: dict[int, ColumnStatistics] = field(default_factory=dict, repr=False)
    """Statistics by position of the column, computed when first asked for by `statistics.py`."""

    rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", count_rows(self.segments))


class History:
    """All versions of a table that can still be read.

    Written under the ledger's lock, read without it.
    """

    def __init__(self, first: Version, settings: MemorySettings) -> None:
        self._settings = settings
        self._versions = [first]
        self._forget_at = 0
        self._pinned: OrderedDict[int, tuple[Version, float]] = OrderedDict()
        self._pin_lock = threading.Lock()

    @property
    def current(self) -> Version:
        return self._versions[-1]

    def add(self, version: Version, oldest_pin: Callable[[], int]) -> None:
        """Make `version` the current one, and forget versions that no request may ask for any more.

        `oldest_pin` returns the lowest sequence that an open transaction reads.
        """
        self.current.log.next = version.log
        self._versions.append(version)
        limit = self._settings.max_versions
        if limit is None:
            return
        # Many versions are forgotten at once, and seldom. The cost of a commit then does not depend
        # on the length of the history, even when most of it is still being read and must stay.
        spare = limit // 2 + 16
        if len(self._versions) > max(limit + spare, self._forget_at):
            needed = bisect_right(self._versions, oldest_pin(), key=attrgetter("sequence")) - 1
            self._versions = self._versions[max(0, min(len(self._versions) - limit, needed)) :]
            self._forget_at = len(self._versions) + spare

    def at(self, point: TimePoint, table: TableName) -> Version:
        """The version that AT names.

        Raises: NotFound when there is no such version; BadRequest when the text cannot be read.
        """
        if point.unit == "timestamp":
            return self._at_timestamp(point.value, table)
        return self._numbered(point, table)

    def at_sequence(self, sequence: int) -> Version | None:
        """The version in a snapshot of the catalog; None when the table is younger."""
        versions = self._versions
        index = bisect_right(versions, sequence, key=attrgetter("sequence"))
        return versions[index - 1] if index else None

    def pin(self, version: Version) -> None:
        """Keep a version readable by its serial for a while."""
        now = self._settings.monotonic()
        with self._pin_lock:
            self._pinned[version.serial] = (version, now + self._settings.pin_seconds)
            self._pinned.move_to_end(version.serial)
            while (
                len(self._pinned) > self._settings.max_pins
                or next(iter(self._pinned.values()))[1] <= now
            ):
                self._pinned.popitem(last=False)

    def pinned(self, serial: int) -> Version | None:
        entry = self._pinned.get(serial)
        if entry is not None:
            return entry[0]
        return next(
            (version for version in reversed(self._versions) if version.serial == serial), None
        )

    def move_to(self, settings: MemorySettings, sequence: int) -> None:
        """Make it part of another ledger, for which everything so far happened at `sequence`."""
        self._settings = settings
        self._versions = [
            Version(v.number, v.timestamp, sequence, v.definition, v.segments, v.log)
            for v in self._versions
        ]

    @property
    def _oldest_number(self) -> int:
        limit = self._settings.max_versions
        return 0 if limit is None else max(0, self.current.number - limit + 1)

    def _numbered(self, point: TimePoint, table: TableName) -> Version:
        text = point.value.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise BadRequest(
                f"{point.unit} {point.value!r} of table {table} is not a number, such as 0 for the "
                "first"
            )
        versions, number, newest = self._versions, int(text), self.current.number
        if not 0 <= number <= newest:
            raise NotFound(f"table {table} has no {point.unit} {number}: its latest is {newest}")
        if number < self._oldest_number:
            raise NotFound(
                f"{point.unit} {number} of table {table} is no longer kept: the oldest is "
                f"{self._oldest_number}"
            )
        return versions[number - versions[0].number]

    def _at_timestamp(self, text: str, table: TableName) -> Version:
        moment = parse_timestamp(text)
        versions = self._versions
        index = bisect_right(versions, moment, key=attrgetter("timestamp"))
        if index == 0 and versions[0].number == 0:
            raise NotFound(
                f"table {table} did not exist at {text}: it was created at "
                f"{versions[0].timestamp.isoformat(' ')}"
            )
        if index == 0 or versions[index - 1].number < self._oldest_number:
            oldest = versions[self._oldest_number - versions[0].number]
            raise NotFound(
                f"table {table} is no longer kept as it was at {text}: its oldest version is of "
                f"{oldest.timestamp.isoformat(' ')}"
            )
        return versions[index - 1]
