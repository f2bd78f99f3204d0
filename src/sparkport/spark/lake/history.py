"""Time travel: find the state of a table that a point in time means.

The table after n changes is version n (version_log.py). It is shown with the columns, the defaults
and the constraints of that time. Snapshots, tags and branches are found by their names. The present
metadata know all files of what is kept, so nothing else is read but the beginning of a metadata
file, where it is still there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from datetime import datetime, timezone

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import TimePoint
from sparkport.engine.timestamps import parse_timestamp
from sparkport.errors import NotFound
from sparkport.spark.iceberg.metadata_heads import Commit, number_in_name
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_log import changes_of, log_of, shape_at
from sparkport.spark.lake.version_timeline import NumberedChange, Recorded, Timeline

__all__ = ["WORKING_BRANCH", "ancestors_of", "names_snapshot", "state_at"]

_MAIN = "main"
WORKING_BRANCH = "sparkport_"
"""The prefix of branches that statements and transactions work on.

Users do not see these branches.
"""


def ancestors_of(metadata: TableMetadata, snapshot_id: int | None) -> list[int]:
    """A snapshot and its ancestors, youngest first, as far back as they are kept."""
    parents = {each.snapshot_id: each.parent_snapshot_id for each in metadata.snapshots}
    found: dict[int, None] = {}
    while snapshot_id in parents and snapshot_id not in found:
        found[snapshot_id] = None
        snapshot_id = parents[snapshot_id]
    return list(found)


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
        return _at_timestamp(lake, state, point.value, check)
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
    first = number_in_name(log.commits)
    snapshot = state.metadata.snapshot_by_id(number)
    if snapshot is not None and first is not None and number >= first + len(log.commits):
        # There never were that many changes: no need to count them.
        return _of_snapshot(lake, state, snapshot)
    changes = changes_of(lake, state, check)
    index = bisect_right(changes, number, key=lambda change: change.number) - 1
    if index >= 0 and changes[index].number == number:
        title = f"{unit} {number} of table {state.identifier}"
        return _after(lake, state, changes[index], title, is_last=index == len(changes) - 1)
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


def _at_timestamp(
    lake: Lake, state: TableState, text: str, check: Callable[[], None]
) -> TableState:
    moment = parse_timestamp(text)
    milliseconds = (moment - _EPOCH).total_seconds() * 1000
    title = f"table {state.identifier} as it was at {text}"
    commits = log_of(state).commits
    index = bisect_right(commits, milliseconds, key=lambda commit: commit.milliseconds)
    if index:
        found = commits[index - 1]
        change = NumberedChange(-1, found.milliseconds, found.location)
        return _after(lake, state, change, title, is_last=index == len(commits))
    changes = changes_of(lake, state, check)
    index = bisect_right(changes, milliseconds, key=lambda change: change.milliseconds)
    if index:
        return _after(lake, state, changes[index - 1], title, is_last=False)
    if changes[0].number == 0:
        raise NotFound(
            f"table {state.identifier} did not exist at {text}: it was created at "
            f"{_shown(changes[0].milliseconds)}"
        )
    older = [entry for entry in state.metadata.snapshot_log if entry.timestamp_ms <= milliseconds]
    snapshot = state.metadata.snapshot_by_id(older[-1].snapshot_id) if older else None
    if snapshot is not None:
        return _of_snapshot(lake, state, snapshot)
    raise NotFound(
        f"table {state.identifier} is no longer kept as it was at {text}: "
        f"its oldest version is of {_shown(changes[0].milliseconds)}"
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _shown(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(" ", "milliseconds")


def _after(
    lake: Lake, state: TableState, change: NumberedChange, title: str, *, is_last: bool
) -> TableState:
    """The table as a change has left it. Raises: NotFound, CatalogFault."""
    metadata = state.metadata
    if is_last:  # later commits have changed nothing that is shown
        return lake.states.at(state, metadata.current_snapshot(), metadata.schema())
    recorded = change.recorded or _recorded(lake, state, change)
    if recorded is None:
        raise NotFound(f"{title} is no longer kept: its metadata have been removed")
    schema = metadata.schema_by_id(recorded.schema_id)
    if schema is None and change.location is not None:
        schema = lake.state(state.identifier, change.location).metadata.schema()
    snapshot = None
    if recorded.snapshot_id is not None:
        snapshot = metadata.snapshot_by_id(recorded.snapshot_id)
        if snapshot is None:
            raise NotFound(f"{title} is no longer kept: its snapshot has expired")
    if schema is None:
        raise NotFound(f"{title} is no longer kept: its columns have been forgotten")
    return lake.states.shaped(state, snapshot, schema, recorded.shape)


def _recorded(lake: Lake, state: TableState, change: NumberedChange) -> Recorded | None:
    """What a change has left, by its metadata file or, where that is gone, by the present ones."""
    assert change.location is not None
    commit = Commit(change.milliseconds, change.location)
    uuid = str(state.metadata.table_uuid)
    found = lake.metadata_heads.of(state.identifier, uuid, [commit.location], lambda: None)
    head, shape = found[commit.location], shape_at(lake, state, commit, lambda: None)
    if head is not None:
        # Metadata of version 1 need not have ids of schemas.
        schema_id = -1 if isinstance(head.schema, str) else head.schema
        return Recorded(head.snapshot_id, schema_id, shape)
    entry = Timeline(state).at(commit)
    if entry is None or entry.schema_id is None:
        return None
    return Recorded(entry.snapshot_id, entry.schema_id, shape)


def _of_snapshot(lake: Lake, state: TableState, snapshot: Snapshot) -> TableState:
    schema = (
        state.metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
    )
    return lake.states.at(state, snapshot, state.schema if schema is None else schema)
