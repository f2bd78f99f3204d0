"""Time travel: which state of a table a point in time means.

Every commit writes a metadata file, and every metadata file names those before it. So the table after n committed changes
is what its metadata file number n describes, with the columns and the snapshot of that time. Snapshots, tags and branches
are found by their names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeAlias

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import TimePoint
from sparkport.catalog.moments import parse_timestamp
from sparkport.errors import NotFound
from sparkport.spark.state import States, TableState

__all__ = ["Change", "changes_of", "state_at"]

Load: TypeAlias = Callable[[str], TableState]
"""Reads the state that a metadata file describes. Raises: NotFound when the file is gone."""

_NUMBERED = re.compile(r"(?:^|/)v?([0-9]+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of a table."""

    number: int
    milliseconds: int
    location: str


def changes_of(state: TableState) -> list[Change]:
    """The changes whose outcome can still be looked up, oldest first; the creation is number 0."""
    metadata = state.metadata
    entries = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    entries.append((metadata.last_updated_ms, state.metadata_location))
    numbers = [_NUMBERED.search(location) for _, location in entries]
    if all(numbers):
        # Catalogs count in the file's name, also when the oldest entries of the log have been dropped.
        found = [int(match[1]) for match in numbers if match is not None]
        first = found[-1] - len(found) + 1
        if found != list(range(first, found[-1] + 1)):
            first = 0
    else:
        first = 0
    # Hadoop's catalog begins to count with 1.
    if first == 1 and len(entries) <= _shortest_log(metadata.properties):
        first = 0
    return [Change(first + index, moment, location) for index, (moment, location) in enumerate(entries)]


def _shortest_log(properties: dict[str, str]) -> int:
    try:
        return int(properties.get("write.metadata.previous-versions-max", "100"))
    except ValueError:
        return 100


def state_at(states: States, state: TableState, point: TimePoint, load: Load) -> TableState:
    """The table as it was, with the columns of that time.

    Raises: NotFound when there is no such point; BadRequest when its text cannot be read.
    """
    if point.unit == "timestamp":
        return _at_timestamp(states, state, point.value, load)
    text = point.value.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return _numbered(states, state, int(text), point.unit, load)
    return _named(states, state, text)


def _numbered(states: States, state: TableState, number: int, unit: str, load: Load) -> TableState:
    changes = changes_of(state)
    if changes[0].number <= number <= changes[-1].number:
        return _after(states, state, changes[number - changes[0].number], load)
    snapshot = state.metadata.snapshot_by_id(number)
    if snapshot is not None:
        return _of_snapshot(states, state, snapshot)
    if 0 <= number < changes[0].number:
        raise NotFound(
            f"{unit} {number} of table {state.identifier} is no longer kept: the oldest is {changes[0].number}"
        )
    raise NotFound(
        f"table {state.identifier} has no {unit} {number}: its latest is {changes[-1].number}, "
        "and it has no snapshot of that id"
    )


def _named(states: States, state: TableState, name: str) -> TableState:
    refs = state.metadata.refs
    if name == _MAIN and name not in refs:
        return states.at(state, None, state.schema)
    found = refs.get(name)
    if found is None:
        known = ", ".join(sorted(each for each in refs if each != _MAIN)) or "none"
        raise NotFound(f"table {state.identifier} has no tag or branch {name!r}: its tags and branches are {known}")
    snapshot = state.metadata.snapshot_by_id(found.snapshot_id)
    if snapshot is None:
        raise NotFound(f"the snapshot of {name!r} of table {state.identifier} is no longer kept")
    if found.snapshot_ref_type is SnapshotRefType.BRANCH:
        # A branch is read with the table's present columns, as Spark does.
        return states.at(state, snapshot, state.schema)
    return _of_snapshot(states, state, snapshot)


def _at_timestamp(states: States, state: TableState, text: str, load: Load) -> TableState:
    moment = parse_timestamp(text)
    milliseconds = (moment - _EPOCH).total_seconds() * 1000
    changes = changes_of(state)
    index = bisect_right(changes, milliseconds, key=lambda change: change.milliseconds)
    if index:
        return _after(states, state, changes[index - 1], load)
    if changes[0].number > 0:
        older = [entry for entry in state.metadata.snapshot_log if entry.timestamp_ms <= milliseconds]
        snapshot = state.metadata.snapshot_by_id(older[-1].snapshot_id) if older else None
        if snapshot is not None:
            return _of_snapshot(states, state, snapshot)
        raise NotFound(
            f"table {state.identifier} is no longer kept as it was at {text}: its oldest version is of {_shown(changes[0])}"
        )
    raise NotFound(f"table {state.identifier} did not exist at {text}: it was created at {_shown(changes[0])}")


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _shown(change: Change) -> str:
    return datetime.fromtimestamp(change.milliseconds / 1000, timezone.utc).isoformat(" ", "milliseconds")


def _after(states: States, state: TableState, change: Change, load: Load) -> TableState:
    if change.location == state.metadata_location:
        return states.at(state, state.metadata.current_snapshot(), state.metadata.schema())
    then = load(change.location)
    snapshot = then.snapshot
    if snapshot is not None and state.metadata.snapshot_by_id(snapshot.snapshot_id) is None:
        raise NotFound(
            f"version {change.number} of table {state.identifier} is no longer kept: its snapshot has expired"
        )
    # Its files are those that the present metadata knows; what users see is what they saw then.
    return then


def _of_snapshot(states: States, state: TableState, snapshot: Snapshot) -> TableState:
    schema = state.metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
    return states.at(state, snapshot, state.schema if schema is None else schema)
