"""What the present metadata of a table tell of its older versions, without any other file.

The list of snapshots that were current tells of changes of rows. Sparkport writes the number of the
version into the summary of each snapshot. What snapshots do not tell is in the property `HISTORY`:
versions that made no snapshot, and the properties that shape columns and constraints.

Numbers are never guessed: a snapshot without one has a number only if those before and after it
leave no other.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from sparkport.spark.iceberg.metadata_heads import Commit
from sparkport.spark.iceberg.table_state import SHAPING, TableState

__all__ = [
    "CARE",
    "HISTORY",
    "VERSION",
    "Entry",
    "NumberedChange",
    "Recorded",
    "Shape",
    "Timeline",
    "is_care",
    "noted_number",
    "noted_versions",
    "present_shape",
]

VERSION = "sparkport.version"
"""Key in the summary of a snapshot: the number of the version that it is."""
CARE = "sparkport.care"
"""Key in the summary of a snapshot that the care of the table has made.

It shows the same rows as the one before, and is the same version.
"""
HISTORY = "sparkport.history"
"""Table property: the versions that snapshots do not tell of, as a JSON list.

Each has its number, its time, the ids of its snapshot and schema, and the properties that shape
columns and constraints, as far as they differ from those of the version before.
"""


Shape: TypeAlias = tuple[str | None, ...]
"""The values of the properties `SHAPING`, in their order."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a version showed, as the present metadata tell."""

    snapshot_id: int | None
    schema_id: int
    shape: Shape
    """The properties `SHAPING` of that time."""


@dataclass(frozen=True, slots=True)
class NumberedChange:
    """A committed change of what a table shows."""

    number: int
    milliseconds: int
    location: str | None
    """Location of the metadata that the change wrote; None where they are not in the log."""
    before: str | None = None
    """Location of the metadata it was made to; None where they are not in the log."""
    recorded: Recorded | None = None
    """What it showed, where there are no metadata of it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit that the present metadata tell of."""

    milliseconds: int
    snapshot_id: int | None
    schema_id: int | None
    number: int | None = None
    is_care: bool = False
    shape: Shape | None = None
    """The properties that were set from then on, where that was noted."""


class Timeline:
    """What the present metadata tell of the commits before them, the oldest first."""

    def __init__(self, state: TableState) -> None:
        self._metadata = state.metadata
        self._snapshots = {each.snapshot_id: each for each in state.metadata.snapshots}
        self.entries = _numbered(_merged(self._shown(), noted_versions(state.metadata)))
        times = Counter(each.milliseconds for each in self.entries)
        self._at = {
            each.milliseconds: each for each in self.entries if times[each.milliseconds] == 1
        }

    def _shown(self) -> list[Entry]:
        """The snapshots that were current."""
        found, seen = [], set()
        for shown in self._metadata.snapshot_log:
            entry = Entry(shown.timestamp_ms, shown.snapshot_id, None)
            snapshot = self._snapshots.get(shown.snapshot_id)
            if snapshot is not None:
                entry = replace(entry, schema_id=snapshot.schema_id)
                # One that was made current again later has the number of its first time.
                if snapshot.snapshot_id not in seen and snapshot.timestamp_ms == shown.timestamp_ms:
                    entry = replace(entry, number=noted_number(snapshot), is_care=is_care(snapshot))
                seen.add(snapshot.snapshot_id)
            found.append(entry)
        return found

    @property
    def is_shaped(self) -> bool:
        """Whether properties of former times were noted."""
        return any(each.shape is not None for each in self.entries)

    def at(self, commit: Commit) -> Entry | None:
        """What is known of a commit by its time; None where several have that time."""
        return self._at.get(commit.milliseconds)

    def made_between(self, before: Commit, commit: Commit, snapshot_id: int | None) -> Entry | None:
        """The snapshot that a commit made current, if it was made after the commit before."""
        for entry in reversed(self.entries):
            if entry.milliseconds <= before.milliseconds:
                break
            if entry.snapshot_id == snapshot_id and entry.milliseconds <= commit.milliseconds:
                return entry
        return None

    def last_before(self, commit: Commit) -> Entry | None:
        """The last entry of which the number is known, before a commit."""
        known = [
            each
            for each in self.entries
            if each.milliseconds < commit.milliseconds and each.number is not None
        ]
        return known[-1] if known else None

    def before(
        self,
        commit: Commit,
        number: int,
        own: int | None,
        shape_of: Callable[[], Shape],
    ) -> list[NumberedChange]:
        """The changes before a commit of this number, as far back as they follow each other.

        The last of them has the same number if that commit was no change. `own` is the snapshot
        that was current after that commit; `shape_of` tells the properties.
        """
        found: list[NumberedChange] = []
        wanted = {number, number - 1}
        shapes = self.shapes(() if self.is_shaped else shape_of())
        for entry, shape in zip(reversed(self.entries), reversed(shapes), strict=True):
            if entry.milliseconds >= commit.milliseconds or entry.is_care:
                continue
            if not found and entry.number is None and entry.snapshot_id == own:
                own = None  # Java may take the time of a snapshot shortly before that of its commit
                continue
            expired = entry.snapshot_id is not None and entry.snapshot_id not in self._snapshots
            if entry.number not in wanted or entry.schema_id is None or expired:
                break
            wanted = {entry.number - 1}
            recorded = Recorded(entry.snapshot_id, entry.schema_id, shape)
            found.append(NumberedChange(entry.number, entry.milliseconds, None, None, recorded))
        return found[::-1]

    def shapes(self, others: Shape) -> list[Shape]:
        """The properties `SHAPING` at each entry: `others`, where nothing was noted at all."""
        noted = [each.shape for each in self.entries]
        shape = next((each for each in noted if each is not None), others)
        found = []
        for each in noted:
            shape = shape if each is None else each
            found.append(shape)
        return found


def noted_versions(metadata: TableMetadata) -> tuple[Entry, ...]:
    """The versions that the property `HISTORY` tells of, the oldest first."""
    return _read(metadata.properties.get(HISTORY, "[]"))


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[Entry, ...]:
    entries, shape = [], dict[str, str | None].fromkeys(SHAPING)
    try:
        for number, milliseconds, snapshot_id, schema_id, changed in json.loads(text):
            shape = {name: changed.get(name, shape[name]) for name in SHAPING}
            entry = Entry(int(milliseconds), snapshot_id, int(schema_id), int(number))
            entries.append(replace(entry, shape=tuple(shape.values())))
    except (ValueError, KeyError, TypeError, AttributeError):  # another engine wrote it
        return ()
    return tuple(entries)


def _merged(shown: Sequence[Entry], noted: Sequence[Entry]) -> list[Entry]:
    """Snapshots that were current and noted versions, by time. Both may tell of one commit."""
    by_commit = {(each.milliseconds, each.snapshot_id): each for each in noted}
    found = []
    for entry in shown:
        same = by_commit.pop((entry.milliseconds, entry.snapshot_id), None)
        found.append(entry if same is None else replace(same, is_care=entry.is_care))
    # Those that are left made no snapshot current. The clocks of servers may differ, so numbers
    # decide where both have one.
    merged, left = [], list(by_commit.values())
    for entry in found:
        while left and _comes_first(left[0], entry):
            merged.append(left.pop(0))
        merged.append(entry)
    return [*merged, *left]


def _comes_first(noted: Entry, shown: Entry) -> bool:
    if noted.number is not None and shown.number is not None:
        return noted.number < shown.number
    return noted.milliseconds <= shown.milliseconds


def _numbered(entries: list[Entry]) -> list[Entry]:
    """Give the entries between two known numbers theirs, where they can have no others."""
    known = [index for index, each in enumerate(entries) if each.number is not None]
    for first, last in itertools.pairwise(known):
        start, end = entries[first].number, entries[last].number
        assert start is not None
        assert end is not None
        steps = [not each.is_care for each in entries[first + 1 : last + 1]]
        if end - start == sum(steps):
            for index in range(first + 1, last):
                start += steps[index - first - 1]
                entries[index] = replace(entries[index], number=start)
    return entries


def present_shape(metadata: TableMetadata) -> Shape:
    """The properties `SHAPING` as they are now."""
    return tuple(metadata.properties.get(name) for name in SHAPING)


def noted_number(snapshot: Snapshot) -> int | None:
    """The number in the summary of a snapshot; None if there is none."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    text = summary.get(VERSION, "")
    return int(text) if text.isdecimal() and len(text) < 19 else None


def is_care(snapshot: Snapshot) -> bool:
    """Whether the care of the table has made a snapshot."""
    return snapshot.summary is not None and CARE in snapshot.summary.additional_properties
