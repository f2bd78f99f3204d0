"""Time travel: find the state of a table that a point in time means.

Every commit writes a metadata file, and every metadata file names those before it. A commit is a
change when the table shows something else after it: other rows, other columns, other constraints.
Tags, branches and settings of Iceberg do not count as changes. So the table after n changes is what
the metadata file of the n-th change describes, with the columns and the snapshot of that time.
Snapshots, tags and branches are found by their names.

All changes count that can still be looked up. That includes metadata files which the table's own
log has dropped, because each file names those before it. Where files are gone, a commit counts
unless something proves that it changed nothing. So version numbers may rise when old metadata files
are removed (`write.metadata.delete-after-commit.enabled`): namely when the file of a commit that
was no change is among them. Otherwise numbers never change.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import TimePoint
from sparkport.engine.timestamps import parse_timestamp
from sparkport.errors import NotFound
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.metadata_heads import Commit, Log
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.lake import Lake

__all__ = [
    "WORKING_BRANCH",
    "NumberedChange",
    "ancestors_of",
    "changes_of",
    "log_of",
    "names_snapshot",
    "state_at",
    "versions_of",
]

_NUMBERED = re.compile(r"(?:^|/)(v?)([0-9]+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_MAIN = "main"
WORKING_BRANCH = "sparkport_"
"""The prefix of branches that statements and transactions work on.

Users do not see these branches.
"""


@dataclass(frozen=True, slots=True)
class NumberedChange:
    """A committed change of what a table shows."""

    number: int
    milliseconds: int
    location: str
    """Location of the metadata that the change wrote."""
    before: str | None
    """Location of the metadata it was made to; None for the oldest known change."""


def log_of(state: TableState) -> Log:
    """The commits that are named in the table's metadata."""
    metadata = state.metadata
    commits = [Commit(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    return Log(
        (*commits, Commit(metadata.last_updated_ms, state.metadata_location)),
        tuple((entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log),
    )


def changes_of(
    lake: Lake, state: TableState, check: Callable[[], None] = lambda: None
) -> list[NumberedChange]:
    """The changes whose result can still be looked up, oldest first; creation is number 0.

    Raises: CatalogFault when the storage does not answer; what `check` raises.
    """
    counting = _Counting(lake, state.identifier, str(state.metadata.table_uuid), check)
    log = log_of(state)
    number = counting.first_number(log)
    changes = []
    for commit, before, is_change in zip(
        log.commits, (None, *log.commits), (True, *counting.changes(log)), strict=False
    ):
        if before is not None:
            number += is_change
        counting.remember(commit, number)
        if is_change:
            place = None if before is None else before.location
            changes.append(NumberedChange(number, commit.milliseconds, commit.location, place))
    return changes


def versions_of(
    lake: Lake, state: TableState, check: Callable[[], None] = lambda: None
) -> dict[int, int]:
    """For each snapshot, the number of the change that made it current.

    Snapshots that never were current, or too long ago, are missing. Raises: CatalogFault when the
    storage does not answer; what `check` raises.
    """
    current = {entry.timestamp_ms: entry.snapshot_id for entry in state.metadata.snapshot_log}
    changes = changes_of(lake, state, check)
    unclear = [change.location for change in changes if change.milliseconds not in current]
    heads = lake.metadata_heads.of(state.identifier, str(state.metadata.table_uuid), unclear, check)
    found: dict[int, int] = {}
    for change in changes:
        head = heads.get(change.location)
        snapshot_id = current.get(change.milliseconds) if head is None else head.snapshot_id
        if snapshot_id is not None:
            found.setdefault(snapshot_id, change.number)
    return found


def ancestors_of(metadata: TableMetadata, snapshot_id: int | None) -> list[int]:
    """A snapshot and its ancestors, youngest first, as far back as they are kept."""
    found: dict[int, None] = {}
    while snapshot_id is not None and snapshot_id not in found:
        snapshot = metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            break
        found[snapshot_id] = None
        snapshot_id = snapshot.parent_snapshot_id
    return list(found)


class _Counting:
    """Counts the changes of a table."""

    def __init__(self, lake: Lake, table: Identifier, uuid: str, check: Callable[[], None]) -> None:
        self._heads = lake.metadata_heads
        self._table = table
        self._uuid = uuid
        self._check = check

    def remember(self, commit: Commit, number: int) -> None:
        self._heads.numbers.add((self._uuid, commit.location), number)

    def first_number(self, log: Log) -> int:
        """The number of changes up to and including the oldest commit of a log."""
        older: list[Log] = []
        number = self._known_number(log)
        while number is None:
            self._check()
            found = self._heads.log(self._table, log.commits[0])
            if found is None or len(found.commits) == 1 or len(older) > _MOST_LOGS:
                number = _number_in_name(log) or 0
            else:
                older.append(found)
                log = found
                number = self._known_number(log)
        return number + sum(sum(self.changes(each)) for each in older)

    def _known_number(self, log: Log) -> int | None:
        known = self._heads.numbers.find((self._uuid, log.commits[0].location), None)
        if known is None and _number_in_name(log) == 0:
            return 0
        return known

    def changes(self, log: Log) -> list[bool]:
        """For each commit after the first, whether it changed what the table shows."""
        proven = _proven(log)
        pairs = list(zip(log.commits, log.commits[1:], strict=False))
        asked = dict.fromkeys(
            each.location
            for pair, is_proven in zip(pairs, proven, strict=True)
            if not is_proven
            for each in pair
        )
        heads = self._heads.of(self._table, self._uuid, list(asked), self._check)
        return [
            is_proven
            or heads[before.location] is None
            or heads[before.location] != heads[after.location]
            for (before, after), is_proven in zip(pairs, proven, strict=True)
        ]


_MOST_LOGS = 10_000


def _proven(log: Log) -> list[bool]:
    """For each commit after the first, whether the log proves that it changed the current snapshot.

    The snapshot log has the time of the commit, to the millisecond. It proves nothing where several
    commits have the same time.
    """
    moments, last = set(), None
    for milliseconds, snapshot_id in log.shown:
        if snapshot_id != last:
            moments.add(milliseconds)
        last = snapshot_id
    times = Counter(commit.milliseconds for commit in log.commits)
    return [
        times[commit.milliseconds] == 1 and commit.milliseconds in moments
        for commit in log.commits[1:]
    ]


def _number_in_name(log: Log) -> int | None:
    """The number in the name of the oldest metadata file; None where files have no numbers.

    The file of the creation has number 0.
    """
    found = []
    for commit in log.commits:
        match = _NUMBERED.search(commit.location)
        if match is None:
            return None
        # Hadoop's catalog begins to count with 1.
        found.append(int(match[2]) - bool(match[1]))
    return found[0] if found == list(range(found[0], found[0] + len(found))) else None


# -------------------------------------------------------------------------------------- travelling


def state_at(
    lake: Lake, state: TableState, point: TimePoint, check: Callable[[], None] = lambda: None
) -> TableState:
    """The table as it was, with the columns of that time.

    Raises: NotFound when there is no such point; BadRequest when its text cannot be read;
    CatalogFault.
    """
    if point.is_latest:
        return state
    if point.unit == "timestamp":
        return _at_timestamp(lake, state, point.value)
    number = _number(point)
    if number is not None:
        return _numbered(lake, state, number, point.unit, check)
    return _named(lake, state, point.value.strip())


def names_snapshot(
    lake: Lake, state: TableState, point: TimePoint, check: Callable[[], None] = lambda: None
) -> bool:
    """Whether a point means a snapshot, by id or by name, and not a change.

    Raises: CatalogFault.
    """
    if point.unit == "timestamp" or point.is_latest:
        return False
    number = _number(point)
    if number is None:
        return True
    changes = changes_of(lake, state, check)
    return not changes[0].number <= number <= changes[-1].number


def _number(point: TimePoint) -> int | None:
    text = point.value.strip()
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None


def _numbered(
    lake: Lake, state: TableState, number: int, unit: str, check: Callable[[], None]
) -> TableState:
    log = log_of(state)
    first = _number_in_name(log)
    snapshot = state.metadata.snapshot_by_id(number)
    if snapshot is not None and first is not None and number >= first + len(log.commits):
        # There never were that many changes: no need to count them.
        return _of_snapshot(lake, state, snapshot)
    changes = changes_of(lake, state, check)
    if changes[0].number <= number <= changes[-1].number:
        title = f"{unit} {number} of table {state.identifier}"
        return _after(
            lake,
            state,
            changes[number - changes[0].number].location,
            title,
            is_last=number == changes[-1].number,
        )
    if snapshot is not None:
        return _of_snapshot(lake, state, snapshot)
    if 0 <= number < changes[0].number:
        raise NotFound(
            f"{unit} {number} of table {state.identifier} is no longer kept: the oldest is "
            f"{changes[0].number}"
        )
    raise NotFound(
        f"table {state.identifier} has no {unit} {number}: its latest is {changes[-1].number}, "
        "and it has no snapshot of that id"
    )


def _named(lake: Lake, state: TableState, name: str) -> TableState:
    refs = state.metadata.refs
    if name == _MAIN and name not in refs:
        return lake.states.at(state, None, state.schema)
    found = None if name.startswith(WORKING_BRANCH) else refs.get(name)
    if found is None:
        known = (
            ", ".join(
                sorted(
                    each for each in refs if each != _MAIN and not each.startswith(WORKING_BRANCH)
                )
            )
            or "none"
        )
        raise NotFound(
            f"table {state.identifier} has no tag or branch {name!r}: its tags and branches are "
            f"{known}"
        )
    snapshot = state.metadata.snapshot_by_id(found.snapshot_id)
    if snapshot is None:
        raise NotFound(f"the snapshot of {name!r} of table {state.identifier} is no longer kept")
    if found.snapshot_ref_type is SnapshotRefType.BRANCH:
        # A branch is read with the table's present columns, as Spark reads it.
        return lake.states.at(state, snapshot, state.schema)
    return _of_snapshot(lake, state, snapshot)


def _at_timestamp(lake: Lake, state: TableState, text: str) -> TableState:
    moment = parse_timestamp(text)
    milliseconds = (moment - _EPOCH).total_seconds() * 1000
    log = log_of(state)
    index = bisect_right(log.commits, milliseconds, key=lambda commit: commit.milliseconds)
    if index:
        title = f"table {state.identifier} as it was at {text}"
        return _after(
            lake, state, log.commits[index - 1].location, title, is_last=index == len(log.commits)
        )
    if _number_in_name(log):
        older = [
            entry for entry in state.metadata.snapshot_log if entry.timestamp_ms <= milliseconds
        ]
        snapshot = state.metadata.snapshot_by_id(older[-1].snapshot_id) if older else None
        if snapshot is not None:
            return _of_snapshot(lake, state, snapshot)
        raise NotFound(
            f"table {state.identifier} is no longer kept as it was at {text}: "
            f"its oldest version is of {_shown(log.commits[0])}"
        )
    raise NotFound(
        f"table {state.identifier} did not exist at {text}: it was created at "
        f"{_shown(log.commits[0])}"
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _shown(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.milliseconds / 1000, timezone.utc).isoformat(
        " ", "milliseconds"
    )


def _after(
    lake: Lake, state: TableState, location: str, title: str, *, is_last: bool
) -> TableState:
    if is_last:  # later commits have changed nothing that is shown
        return lake.states.at(state, state.metadata.current_snapshot(), state.metadata.schema())
    then = lake.state(state.identifier, location)
    snapshot = then.snapshot
    if snapshot is not None and state.metadata.snapshot_by_id(snapshot.snapshot_id) is None:
        raise NotFound(f"{title} is no longer kept: its snapshot has expired")
    # The present metadata still know these files, and users see what they saw then.
    return then


def _of_snapshot(lake: Lake, state: TableState, snapshot: Snapshot) -> TableState:
    schema = (
        state.metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
    )
    return lake.states.at(state, snapshot, state.schema if schema is None else schema)
