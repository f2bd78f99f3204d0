"""Note in a table's metadata what versions were, before the files that tell it are gone."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from sparkport.spark.iceberg.metadata_heads import Commit, MetadataHead, digest_of
from sparkport.spark.iceberg.table_state import SHAPING, TableState
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_log import changes_of, heads_of
from sparkport.spark.lake.version_timeline import (
    HISTORY,
    NumberedChange,
    Recorded,
    noted_number,
    noted_versions,
    present_shape,
)

__all__ = ["SHORT_LOG", "history_to_keep", "recorded_history"]

SHORT_LOG: Mapping[str, str] = {
    "write.metadata.previous-versions-max": "10",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties by which a table keeps few metadata files. What older ones tell is noted."""

_MOST_VERSIONS = 1_000
_MOST_CHARACTERS = 256 * 1024
_Line = list[Any]
"""A version in the property: number, milliseconds, snapshot id, schema id, changed properties."""


def history_to_keep(
    lake: Lake, state: TableState, most: int, forgotten: Set[int] = frozenset()
) -> str | None:
    """The value of `HISTORY` that the next commit must write; None if it can stay as it is.

    The next commit leaves at most so many metadata files in the log, and its snapshots but for
    those `forgotten`. Raises: CatalogFault.
    """
    metadata = state.metadata
    logged = [Commit(each.timestamp_ms, each.metadata_file) for each in metadata.metadata_log]
    number = max(0, len(logged) + 1 - most)
    if not number:
        return recorded_history(lake, state, forgotten=forgotten) if forgotten else None
    next_one = [*logged, Commit(metadata.last_updated_ms, state.metadata_location)][number]
    places = [each.location for each in (*logged[:number], next_one)]
    uuid = str(metadata.table_uuid)
    heads = lake.metadata_heads.of(state.identifier, uuid, places, lambda: None)
    others = heads[next_one.location]
    known = lake.metadata_heads.numbers
    if any(known.find((uuid, each.location), None) is None for each in logged[:number]):
        changes_of(lake, state)  # remembers the numbers of all
    for each in logged[:number]:
        its_number = known.find((uuid, each.location), None)
        if not _is_told(metadata, each, its_number, heads[each.location], others):
            return recorded_history(lake, state, forgotten=forgotten)
    return recorded_history(lake, state, forgotten=forgotten) if forgotten else None


def _is_told(
    metadata: TableMetadata,
    commit: Commit,
    number: int | None,
    head: MetadataHead | None,
    others: MetadataHead | None,
) -> bool:
    """Whether a snapshot tells all that the metadata file of a commit tells.

    `others` is the oldest file that stays.
    """
    if head is None:
        return True  # it is gone already
    if head.snapshot_id is not None and metadata.snapshot_by_id(head.snapshot_id) is None:
        return True  # its rows are gone already
    log = metadata.snapshot_log
    index = bisect_right(log, commit.milliseconds, key=lambda each: each.timestamp_ms) - 1
    if index < 0 or log[index].snapshot_id != head.snapshot_id:
        return False
    snapshot = metadata.snapshot_by_id(log[index].snapshot_id)
    if (
        snapshot is None
        or snapshot.timestamp_ms != log[index].timestamp_ms
        or noted_number(snapshot) != number
        or snapshot.schema_id != head.schema
    ):
        return False
    noted = noted_versions(metadata)
    if not noted:
        return others is not None and others.shape == head.shape
    before = [each for each in noted if each.milliseconds <= commit.milliseconds]
    return tuple(map(digest_of, (before or noted)[-1 if before else 0].shape or ())) == head.shape


def recorded_history(
    lake: Lake,
    state: TableState,
    check: Callable[[], None] = lambda: None,
    forgotten: Set[int] = frozenset(),
) -> str | None:
    """The value of `HISTORY` with which no version needs a metadata file; None if it has that.

    Versions whose snapshots are about to be `forgotten` are left out. Raises: CatalogFault; what
    `check` raises.
    """
    changes = changes_of(lake, state, check)
    shown = [
        (change, recorded)
        for change, recorded in zip(
            changes, _all_recorded(lake, state, changes, check), strict=True
        )
        if recorded is not None and recorded.snapshot_id not in forgotten
    ]
    lines = _lines(state, shown[-_MOST_VERSIONS:])
    present = state.metadata.properties.get(HISTORY)
    text = json.dumps(lines, separators=(",", ":"))
    while len(text) > _MOST_CHARACTERS:
        shown = shown[len(shown) // 2 :]
        text = json.dumps(_lines(state, shown), separators=(",", ":"))
    return None if text == (present or "[]") else text


def _all_recorded(
    lake: Lake, state: TableState, changes: Sequence[NumberedChange], check: Callable[[], None]
) -> Iterator[Recorded | None]:
    """What each version showed; None where that is not known, or cannot be noted."""
    heads, _ = heads_of(lake, state, changes, check)
    shape = present_shape(state.metadata)
    shapes = {tuple(map(digest_of, shape)): shape}
    for change, head in zip(changes, heads, strict=True):
        if change.recorded is not None or head is None or isinstance(head.schema, str):
            yield change.recorded
            continue
        if head.shape not in shapes:
            assert change.location is not None
            properties = lake.metadata_heads.properties(state.identifier, change.location)
            shapes[head.shape] = tuple(properties.get(name) for name in SHAPING)
        yield Recorded(head.snapshot_id, head.schema, shapes[head.shape])


def _lines(state: TableState, shown: Sequence[tuple[NumberedChange, Recorded]]) -> list[_Line]:
    """The versions that must be noted; none if snapshots tell all."""
    metadata = state.metadata
    snapshots = {each.snapshot_id: each for each in metadata.snapshots}
    times = _times(metadata, shown)
    is_needed = []
    for index, (change, recorded) in enumerate(shown):
        snapshot = snapshots.get(recorded.snapshot_id or -1)
        before = shown[index - 1] if index else None
        shape = present_shape(metadata) if before is None else before[1].shape
        # Between two known numbers those in a row are known, too.
        is_in_a_row = before is not None and change.number == before[0].number + 1
        is_needed.append(
            snapshot is None
            or times[index] is None
            or recorded.schema_id != snapshot.schema_id
            or recorded.shape != shape
            or (
                (noted_number(snapshot), snapshot.timestamp_ms) != (change.number, times[index])
                and (not is_in_a_row or index == len(shown) - 1)
            )
        )
    lines: list[_Line] = []
    if any(is_needed):
        is_needed[0] = True
        known: Mapping[str, str | None] = dict.fromkeys(SHAPING)
        for (change, recorded), time, wanted in zip(shown, times, is_needed, strict=True):
            now = dict(zip(SHAPING, recorded.shape, strict=True))
            if wanted:
                changed = {name: text for name, text in now.items() if text != known[name]}
                moment = change.milliseconds if time is None else time
                place = (recorded.snapshot_id, recorded.schema_id)
                lines.append([change.number, moment, *place, changed])
                known = now
    return lines


def _times(
    metadata: TableMetadata, shown: Sequence[tuple[NumberedChange, Recorded]]
) -> list[int | None]:
    """When each version's snapshot was made current; None where it was so before.

    Java may take the time of a snapshot shortly before that of its commit.
    """
    log = metadata.snapshot_log
    found: list[int | None] = []
    for index, (change, recorded) in enumerate(shown):
        last = bisect_right(log, change.milliseconds, key=lambda each: each.timestamp_ms) - 1
        is_other = not index or shown[index - 1][1].snapshot_id != recorded.snapshot_id
        is_logged = last >= 0 and log[last].snapshot_id == recorded.snapshot_id
        found.append(log[last].timestamp_ms if is_other and is_logged else None)
    return found
