"""The versions of a table, and how one is found by number or time."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

import pyarrow as pa

from sparkport.catalog import ColumnStatistics, TimePoint
from sparkport.engine.timestamps import parse_timestamp
from sparkport.errors import BadRequest, NotFound
from sparkport.memory.definition import Definition, TableName
from sparkport.memory.holdings import Holdings
from sparkport.memory.pins import Pins
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
    nbytes: int = 0
    """Bytes of its columns."""
    retired: int = 0
    """Bytes of all earlier versions that their next version did not show any more.

    What this version holds beside a later one is at most the difference of the two numbers.
    """

    rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", count_rows(self.segments))

    def held_beside(self, current: Version) -> int:
        """Bytes that this version holds and `current` does not need; at most, not exactly."""
        return min(self.nbytes, current.retired - self.retired)


class History:
    """All versions of a table that can still be read.

    Those that a request may ask for by number or time are *promised*: the latest ones, as many as
    the settings allow by count and by bytes. Older ones stay only while an open transaction sees
    them. Written under the ledger's lock, read without it.
    """

    def __init__(self, first: Version, settings: MemorySettings) -> None:
        self.holdings = Holdings()
        self._settings = settings
        self._versions = [first]
        """Ascending. There are no gaps among those that are promised."""
        self._oldest = first.number
        """The oldest version that is promised."""
        self._needed = 0
        """How many older versions were still needed when somebody last looked."""
        self._looked = 0
        """The retired bytes of the oldest promised version at that time."""
        self._since = 0
        """How many versions were made since then."""
        self._pins = Pins()

    @property
    def current(self) -> Version:
        return self._versions[-1]

    def add(self, version: Version) -> None:
        """Make `version` the current one."""
        if version.log is not self.current.log:
            self.current.log.next = version.log
        self._versions.append(version)
        self._promise(version)
        self._pins.follow(version, self._settings)
        self._since += 1

    def forget(self, open_pins: Callable[[], Iterable[int]]) -> None:
        """Forget versions that no request may ask for any more.

        `open_pins` returns the sequences that open transactions read. Called when the current
        version's sequence is that of the ledger, so that none can begin to read an older one.
        """
        promised = self.current.number - self._oldest + 1
        old = len(self._versions) - promised
        # Many versions are forgotten at once, and seldom. The cost of a commit then does not depend
        # on the length of the history, even when most of it is still being read and must stay.
        spare = max((self._settings.max_versions or promised) // 2 + 16, self._needed // 4)
        if old and (self._since > spare or self._are_large(self._versions[old])):
            self._forget(old, sorted(set(open_pins())))

    def _promise(self, newest: Version) -> None:
        """Promise as many of the latest versions as the settings allow, and the newest always."""
        limit, most = self._settings.max_versions, self._settings.max_history_bytes
        oldest = self._oldest
        if limit is not None:
            oldest = max(oldest, newest.number - limit + 1)
        if most is not None:
            while newest.retired - self._versions[oldest - newest.number - 1].retired > most:
                oldest += 1
        self._oldest = oldest

    def _are_large(self, oldest: Version) -> bool:
        """Whether versions that are no longer promised may hold a quarter more than allowed."""
        most = self._settings.max_history_bytes
        return most is not None and oldest.retired - self._looked > most // 4

    def _forget(self, old: int, pins: list[int]) -> None:
        """Of the `old` oldest versions, keep those that are seen at one of the sequences `pins`."""
        versions = self._versions
        needed = [
            version
            for version, following in itertools.pairwise(versions[: old + 1])
            if (index := bisect_left(pins, version.sequence)) < len(pins)
            and pins[index] < following.sequence
        ]
        self._needed, self._looked, self._since = len(needed), versions[old].retired, 0
        self._versions = needed + versions[old:]

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
        self._pins.add(version, self.current, self._settings)

    def pinned(self, serial: int) -> Version | None:
        return self._pins.find(serial) or next(
            (version for version in reversed(self._versions) if version.serial == serial), None
        )

    def move_to(self, settings: MemorySettings, sequence: int) -> None:
        """Make it part of another ledger, for which everything so far happened at `sequence`."""
        self._settings = settings
        self._versions = [replace(version, sequence=sequence) for version in self._versions]

    def _promised(self) -> tuple[list[Version], int]:
        """All versions, and the number of the oldest one that is promised, which is among them."""
        versions = self._versions
        return versions, min(self._oldest, versions[-1].number)

    def _numbered(self, point: TimePoint, table: TableName) -> Version:
        text = point.value.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise BadRequest(
                f"{point.unit} {point.value!r} of table {table} is not a number, such as 0 for the "
                "first"
            )
        versions, oldest = self._promised()
        number, newest = int(text), versions[-1].number
        if not 0 <= number <= newest:
            raise NotFound(f"table {table} has no {point.unit} {number}: its latest is {newest}")
        if number < oldest:
            raise NotFound(
                f"{point.unit} {number} of table {table} is no longer kept: the oldest is {oldest}"
            )
        return versions[bisect_left(versions, number, key=attrgetter("number"))]

    def _at_timestamp(self, text: str, table: TableName) -> Version:
        moment = parse_timestamp(text)
        versions, oldest = self._promised()
        index = bisect_right(versions, moment, key=attrgetter("timestamp"))
        if index == 0 and versions[0].number == 0:
            raise NotFound(
                f"table {table} did not exist at {text}: it was created at "
                f"{versions[0].timestamp.isoformat(' ')}"
            )
        if index == 0 or versions[index - 1].number < oldest:
            first = versions[bisect_left(versions, oldest, key=attrgetter("number"))]
            raise NotFound(
                f"table {table} is no longer kept as it was at {text}: its oldest version is of "
                f"{first.timestamp.isoformat(' ')}"
            )
        return versions[index - 1]
