"""The versions of a table: which commits count, which number each has, and what it showed.

A commit is a change when the table shows something else after it: other rows, other columns, other
constraints. Tags, branches, settings of Iceberg and the care of files do not count. The table after
n changes is version n.

Strategy: what a version was is known from two places. The metadata files of the last commits tell
all. Older ones are removed (`write.metadata.delete-after-commit.enabled`), and what they told is
found in the present metadata (version_timeline.py). A commit that drops a metadata file from the
log first notes there what only that file says (version_notes.py, decision 0042). Where other
engines have removed files, the rest counts; where the storage does not answer, that is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkport.spark.iceberg.metadata_heads import (
    Commit,
    Log,
    MetadataHead,
    digest_of,
    number_in_name,
)
from sparkport.spark.iceberg.table_state import SHAPING, TableState, has_row_lineage
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_timeline import (
    NumberedChange,
    Recorded,
    Shape,
    Timeline,
    is_care,
    noted_number,
    present_shape,
)

__all__ = [
    "changes_of",
    "heads_of",
    "log_of",
    "number_of",
    "remember_number",
    "shape_at",
    "versions_of",
]

_MOST_LOGS = 10_000
Check = Callable[[], None]


def log_of(state: TableState) -> Log:
    """The commits that are named in the table's metadata."""
    metadata = state.metadata
    commits = [Commit(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    return Log(
        (*commits, Commit(metadata.last_updated_ms, state.metadata_location)),
        tuple((entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log),
    )


def number_of(lake: Lake, state: TableState, check: Check = lambda: None) -> int:
    """The number of the version that a state is. Raises: CatalogFault; what `check` raises."""
    key = (str(state.metadata.table_uuid), state.metadata_location)
    known = lake.metadata_heads.numbers.find(key, None)
    return changes_of(lake, state, check)[-1].number if known is None else known


def remember_number(lake: Lake, state: TableState, number: int) -> None:
    """Note the number of a state that this server has just committed."""
    key = (str(state.metadata.table_uuid), state.metadata_location)
    lake.metadata_heads.numbers.add(key, number)


def changes_of(lake: Lake, state: TableState, check: Check = lambda: None) -> list[NumberedChange]:
    """The changes whose result can still be looked up, oldest first; creation is number 0.

    Raises: CatalogFault when the storage does not answer; what `check` raises.
    """
    timeline, log = Timeline(state), log_of(state)
    counting = _Counting(lake, state, timeline, check)
    flags = (True, *counting.changes(log))
    numbers = counting.numbers(log, flags)
    younger: list[NumberedChange] = []
    for index, (commit, number) in enumerate(zip(log.commits, numbers, strict=True)):
        counting.remember(commit, number)
        if flags[index] and (not younger or number > younger[-1].number):
            before = None if index == 0 else log.commits[index - 1].location
            younger.append(NumberedChange(number, commit.milliseconds, commit.location, before))
    older = _older(lake, state, timeline, log.commits[0], numbers[0], check)
    if older and older[-1].number == younger[0].number:
        del younger[0]  # the oldest commit in the log was no change
    return [*older, *younger]


def _older(
    lake: Lake, state: TableState, timeline: Timeline, oldest: Commit, number: int, check: Check
) -> list[NumberedChange]:
    """The changes before the oldest commit in the log."""
    if not timeline.entries or timeline.entries[0].milliseconds >= oldest.milliseconds:
        return []
    uuid, place = str(state.metadata.table_uuid), oldest.location
    head = lake.metadata_heads.of(state.identifier, uuid, [place], check)[place]
    return timeline.before(
        oldest,
        number,
        None if head is None else head.snapshot_id,
        lambda: shape_at(lake, state, oldest, check),
    )


def shape_at(lake: Lake, state: TableState, commit: Commit, check: Check) -> Shape:
    """The properties `SHAPING` after a commit; the present ones where its file is gone.

    Raises: CatalogFault; what `check` raises.
    """
    shape = present_shape(state.metadata)
    heads = lake.metadata_heads
    uuid, place = str(state.metadata.table_uuid), commit.location
    head = heads.of(state.identifier, uuid, [place], check)[place]
    if head is None or head.shape == tuple(map(digest_of, shape)):
        return shape
    properties = heads.properties(state.identifier, place)
    return tuple(properties.get(name) for name in SHAPING)


def versions_of(lake: Lake, state: TableState, check: Check = lambda: None) -> dict[int, int]:
    """For each snapshot, the number of the change that made it current.

    A snapshot that the care of the table has made has the number of the one before. Snapshots that
    never were current, or too long ago, are missing. Raises: CatalogFault when the storage does not
    answer; what `check` raises.
    """
    metadata = state.metadata
    current = {entry.timestamp_ms: entry.snapshot_id for entry in metadata.snapshot_log}
    changes = changes_of(lake, state, check)
    unclear = [
        change.location
        for change in changes
        if change.location is not None and change.milliseconds not in current
    ]
    heads = lake.metadata_heads.of(state.identifier, str(metadata.table_uuid), unclear, check)
    found: dict[int, int] = {}
    for change in changes:
        head = None if change.location is None else heads.get(change.location)
        if change.recorded is not None:
            snapshot_id = change.recorded.snapshot_id
        else:
            snapshot_id = current.get(change.milliseconds) if head is None else head.snapshot_id
        if snapshot_id is not None:
            found.setdefault(snapshot_id, change.number)
    snapshots = {each.snapshot_id: each for each in metadata.snapshots}
    for entry in metadata.snapshot_log:
        snapshot = snapshots.get(entry.snapshot_id)
        if snapshot is not None and is_care(snapshot):
            parent = found.get(snapshot.parent_snapshot_id or -1, noted_number(snapshot))
            if parent is not None:
                found[snapshot.snapshot_id] = parent
    return found


def heads_of(
    lake: Lake, state: TableState, changes: Sequence[NumberedChange], check: Check
) -> tuple[list[MetadataHead | None], list[MetadataHead | None]]:
    """What the table showed after each change, and before it; None where that is not known.

    Raises: CatalogFault.
    """
    places = dict.fromkeys(
        each for change in changes for each in (change.before, change.location) if each
    )
    uuid = str(state.metadata.table_uuid)
    known = lake.metadata_heads.of(state.identifier, uuid, list(places), check)
    after = [
        _head(state, change.recorded)
        if change.recorded is not None
        else known[change.location or ""]
        for change in changes
    ]
    before = [
        known[change.before] if change.before is not None else earlier
        for change, earlier in zip(changes, [None, *after], strict=False)
    ]
    return after, before


def _head(state: TableState, recorded: Recorded) -> MetadataHead:
    return MetadataHead(
        recorded.snapshot_id,
        recorded.schema_id,
        has_row_lineage(state.metadata.format_version),
        tuple(map(digest_of, recorded.shape)),
    )


class _Counting:
    """Counts the changes of a table by its metadata files."""

    def __init__(self, lake: Lake, state: TableState, timeline: Timeline, check: Check) -> None:
        self._heads = lake.metadata_heads
        self._state = state
        self._uuid = str(state.metadata.table_uuid)
        self._timeline = timeline
        self._check = check
        self._read: dict[str, MetadataHead | None] = {}
        """What was read of metadata files, by their locations."""

    def remember(self, commit: Commit, number: int) -> None:
        self._heads.numbers.add((self._uuid, commit.location), number)

    def numbers(self, log: Log, flags: Sequence[bool]) -> list[int]:
        """The number of each commit; `flags` tell whether it was a change."""
        found: list[int | None] = list(map(self._known, log.commits))
        for index in range(1, len(found)):
            if found[index] is None and flags[index]:
                found[index] = self._made_between(log.commits[index - 1], log.commits[index])
        first = next((index for index, each in enumerate(found) if each is not None), None)
        if first is None:
            first, found[0] = 0, self._first_number(log)
        for index in range(first, 0, -1):
            after = found[index]
            assert after is not None
            found[index - 1] = after - flags[index]
        numbers: list[int] = []
        for index, each in enumerate(found):
            counted = numbers[-1] + flags[index] if numbers else 0
            numbers.append(counted if each is None else each)
        return numbers

    def _known(self, commit: Commit) -> int | None:
        known = self._heads.numbers.find((self._uuid, commit.location), None)
        if known is None and (entry := self._timeline.at(commit)) is not None:
            known = entry.number
        return known

    def _made_between(self, before: Commit, commit: Commit) -> int | None:
        """The number of a commit whose snapshot has another time than the commit itself."""
        head, earlier = self._read.get(commit.location), self._read.get(before.location)
        if head is None or earlier is None or head.snapshot_id == earlier.snapshot_id:
            return None
        entry = self._timeline.made_between(before, commit, head.snapshot_id)
        return None if entry is None else entry.number

    def _first_number(self, log: Log) -> int:
        """The number of changes up to and including the oldest commit of a log."""
        older: list[Log] = []
        first, number = log, self._known_start(log)
        while number is None:
            self._check()
            found = self._heads.log(self._state.identifier, log.commits[0])
            if found is None or len(found.commits) == 1 or len(older) > _MOST_LOGS:
                noted = self._noted_start(first.commits[0])
                if noted is not None:
                    return noted
                number = number_in_name(log.commits) or 0
            else:
                older.append(found)
                log = found
                number = self._known_start(log)
        return number + sum(sum(self.changes(each)) for each in older)

    def _known_start(self, log: Log) -> int | None:
        known = self._known(log.commits[0])
        return 0 if known is None and number_in_name(log.commits) == 0 else known

    def _noted_start(self, commit: Commit) -> int | None:
        """The least that the number of a commit can be, after versions that were noted."""
        entry = self._timeline.last_before(commit)
        if entry is None or entry.number is None:
            return None
        since = [
            each
            for each in self._timeline.entries
            if entry.milliseconds < each.milliseconds <= commit.milliseconds and not each.is_care
        ]
        return entry.number + len(since)

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
        heads = self._heads.of(self._state.identifier, self._uuid, list(asked), self._check)
        self._read |= heads
        return [
            not self._is_care(after)
            if is_proven
            else heads[before.location] is None
            or self._essence(heads[before.location]) != self._essence(heads[after.location])
            for (before, after), is_proven in zip(pairs, proven, strict=True)
        ]

    def _is_care(self, commit: Commit) -> bool:
        entry = self._timeline.at(commit)
        return entry is not None and entry.is_care

    def _essence(self, head: MetadataHead | None) -> MetadataHead | None:
        """What tells of changes: of a snapshot that care has made, the one before."""
        metadata = self._state.metadata
        while head is not None and head.snapshot_id is not None:
            snapshot = metadata.snapshot_by_id(head.snapshot_id)
            if snapshot is None or not is_care(snapshot):
                break
            head = replace(head, snapshot_id=snapshot.parent_snapshot_id)
        return head


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
