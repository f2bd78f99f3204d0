"""Which versions of a table are forgotten, and the commit that forgets them.

Strategy: what goes is a beginning of the table's history, as far as neither its number nor its age
keeps it. Tags and branches keep their own snapshots in there. Iceberg cuts the list of what was
current at the last snapshot that is removed, so that it has no gaps. What is in use ends the
beginning: a transaction that is published later looks at all that was committed since it began.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from sparkport.spark.care.expired_files import drop_note, write_note
from sparkport.spark.care.reached_files import Pause, only_in
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.folders import may_collect
from sparkport.spark.lake.history import WORKING_BRANCH, ancestors_of
from sparkport.spark.lake.iceberg_commit import Draft, begin, commit
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_log import number_of, versions_of
from sparkport.spark.lake.version_notes import recorded_history
from sparkport.spark.lake.version_timeline import noted_number

__all__ = ["Expired", "Expiry", "expire", "expiry_need"]

_DAY = 86_400_000
_HOUR = 3_600_000
_PLANNING_SECONDS = 10.0
"""How long a snapshot stays after it was current: other servers may be planning with it."""
_FEW = 25
_ATTEMPTS = 3
_MOST_SECONDS_BEFORE = 10.0
"""A note must not be older when the commit is made: files go by its age."""
_STAGED = "wap.id"
"""In the summary of a snapshot that waits to be published by its own name."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Snapshots of a table that are to be forgotten."""

    state: TableState
    snapshots: frozenset[int]
    versions: int
    """How many versions cannot be read any more then."""
    why: str
    """In a few words, for the report."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What was forgotten."""

    snapshots: int
    versions: int
    files: int
    """How many files of rows nobody needs any more."""
    locked_seconds: float
    """How long other writers of this server had to wait."""


# ------------------------------------------------------------------------------------- what may go


def expiry_need(
    lake: Lake,
    state: TableState,
    settings: CareSettings,
    now_ms: int,
    in_use: Set[int] | None = frozenset(),
    *,
    check: Callable[[], None] = lambda: None,
    at_once: bool = False,
    idle_seconds: float | None = None,
    planning_seconds: float = _PLANNING_SECONDS,
) -> Expiry | None:
    """Which snapshots of a table to forget now; None if none, or if it is not worth it yet.

    `in_use` are those that other servers read; None if nobody knows, and then nothing goes. With
    `at_once`, few are worth it, too. With `idle_seconds`, a transaction that was not used for so
    long keeps no more than `most_versions`. Raises: CatalogFault; what `check` raises.
    """
    metadata = state.metadata
    if in_use is None or state.io is None or not may_collect(metadata.properties):
        return None
    if len(metadata.snapshots) < 2:
        return None
    read = lake.transactions.snapshots_read(state.identifier)
    recently = lake.transactions.snapshots_read(state.identifier, idle_seconds)
    refs = _Refs(metadata)
    history = _History(
        metadata, versions_of(lake, state, check), number_of(lake, state, check), now_ms
    )
    rules = _Rules(settings, metadata)
    # Kept one by one: what is read now and then must not keep all that came after it.
    kept = refs.kept | in_use | recently
    planning = planning_seconds * 1000
    count = 0
    while count < len(history.entries) and not history.keeps(
        count, rules, planning, refs.working, read
    ):
        count += 1
    later = {each.snapshot_id for each in history.entries[count:]}
    due = {
        each.snapshot_id: history.due(index, rules)
        for index, each in enumerate(history.entries[:count])
        if each.snapshot_id not in later and each.snapshot_id not in kept
    }
    known = {each.snapshot_id for each in history.entries} | refs.reachable
    for each in metadata.snapshots:
        if each.snapshot_id in known or each.snapshot_id in kept:
            continue
        if idle_seconds is not None and noted_number(each) is not None:
            due[each.snapshot_id] = now_ms  # it was kept for a transaction, which is idle now
        elif each.snapshot_id not in read:
            since = each.timestamp_ms + rules.loose_ms(each)
            if since <= now_ms - planning:
                due[each.snapshot_id] = since
    is_late = any(each <= now_ms - _HOUR for each in due.values())
    is_worth_it = len(due) >= max(_FEW, settings.most_versions // 4) or is_late
    if not due or not (is_worth_it or at_once):
        return None
    why = f"{len(due)} of {len(metadata.snapshots)} snapshots are past what is kept"
    return Expiry(state, frozenset(due), history.versions_before(count), why)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A time during which a snapshot was current."""

    snapshot_id: int
    since: int
    number: int
    """Of its version; where that is not known, of a version before."""


class _Rules:
    """How long versions are kept: as the settings say, or longer if the table itself says so."""

    def __init__(self, settings: CareSettings, metadata: TableMetadata) -> None:
        self.keep_ms = min(settings.keep_days * _DAY, 1e15)
        self.keep_versions = settings.keep_versions
        self.most_versions = max(settings.most_versions, settings.keep_versions)
        main, properties = metadata.refs.get(MAIN_BRANCH), metadata.properties
        self.own_ms = max(
            _number(properties, "history.expire.max-snapshot-age-ms"),
            0 if main is None else main.max_snapshot_age_ms or 0,
        )
        """Snapshots that are younger are kept, however many there are."""
        self.own_count = max(
            _number(properties, "history.expire.min-snapshots-to-keep"),
            0 if main is None else main.min_snapshots_to_keep or 0,
        )

    def loose_ms(self, snapshot: Snapshot) -> float:
        """How long to keep a snapshot that no branch leads to."""
        summary = snapshot.summary
        is_staged = summary is not None and _STAGED in summary.additional_properties
        usual = self.keep_ms if is_staged else min(self.keep_ms, _HOUR)
        return max(usual, self.own_ms)


def _number(properties: Mapping[str, str], name: str) -> int:
    """A property that says to keep more; where it cannot be read, all is kept."""
    text = properties.get(name, "0")
    return int(text) if text.isdecimal() else 10**15


class _History:
    """What was current when, the oldest first, and how old that is."""

    def __init__(
        self, metadata: TableMetadata, numbers: Mapping[int, int], latest: int, now: int
    ) -> None:
        known = {each.snapshot_id: each for each in metadata.snapshots}
        shown = [(e.snapshot_id, e.timestamp_ms) for e in metadata.snapshot_log]
        shown = [each for each in shown if each[0] in known]
        current = metadata.current_snapshot_id
        if current is not None and (not shown or shown[-1][0] != current):
            shown.append((current, metadata.last_updated_ms))
        before = ancestors_of(metadata, known[shown[0][0]].parent_snapshot_id) if shown else []
        shown[:0] = [(each, known[each].timestamp_ms) for each in reversed(before)]
        self.entries: list[_Entry] = []
        number = -1
        for snapshot_id, since in shown:
            noted = numbers.get(snapshot_id, noted_number(known[snapshot_id]))
            number = number if noted is None else max(number, noted)
            self.entries.append(_Entry(snapshot_id, since, number))
        self._numbers = [each.number for each in self.entries]
        self._latest = max(latest, number)
        self._now = now

    def keeps(
        self, index: int, rules: _Rules, planning: float, working: Set[int], read: Set[int]
    ) -> bool:
        """Whether an entry, and so all after it, must stay."""
        entry, following = self.entries[index], self._following(index)
        if following == len(self.entries) or entry.snapshot_id in working:
            return True
        is_young = self._age(index, index + 1) < planning
        if is_young or self._age(index, following) < rules.own_ms:
            return True
        if len(self.entries) - index <= rules.own_count:
            return True
        behind = self._latest - (self.entries[following].number - 1)
        if behind >= rules.most_versions:
            return False
        return (
            behind < rules.keep_versions
            or self._age(index, following) < rules.keep_ms
            or entry.snapshot_id in read
        )

    def due(self, index: int, rules: _Rules) -> float:
        """Since when an entry may go, in milliseconds since 1970."""
        following = self._following(index)
        last, ended = self.entries[following].number - 1, self.entries[following].since
        by_age = max(self._reached(last + rules.keep_versions), ended + rules.keep_ms)
        return max(min(by_age, self._reached(last + rules.most_versions)), ended + rules.own_ms)

    def versions_before(self, index: int) -> int:
        """How many versions only the entries before this one show."""
        if not 0 < index < len(self.entries):
            return 0
        return max(0, self.entries[index].number - max(0, self.entries[0].number))

    def _following(self, index: int) -> int:
        """The index of the first entry of a later version."""
        return bisect_left(self._numbers, self._numbers[index] + 1)

    def _age(self, index: int, ended: int) -> float:
        """For how long an entry has not been current, the shortest that its times allow."""
        moment = max(self.entries[index].since, self.entries[ended].since)
        return max(0, self._now - moment)

    def _reached(self, number: int) -> float:
        """When the table had reached a version."""
        index = bisect_left(self._numbers, number)
        return self.entries[index].since if index < len(self.entries) else math.inf


class _Refs:
    """What the tags and branches of a table keep."""

    def __init__(self, metadata: TableMetadata) -> None:
        current = metadata.current_snapshot_id
        of_main = ancestors_of(metadata, current)
        main = {*of_main, *(each.snapshot_id for each in metadata.snapshot_log)}
        self.kept = set() if current is None else {current}
        self.working: set[int] = set()
        """What transactions work on, and what they began with."""
        self.reachable = set(of_main)
        for name, ref in metadata.refs.items():
            if name == MAIN_BRANCH:
                continue
            line = ancestors_of(metadata, ref.snapshot_id)
            self.reachable.update(line)
            own = line[:1]
            if ref.snapshot_ref_type is SnapshotRefType.BRANCH:
                # Up to and including where it has left the table's history.
                left = next((i for i, each in enumerate(line) if each in main), len(line))
                own = line[: left + 1]
            self.kept.update(own)
            if name.startswith(WORKING_BRANCH):
                self.working.update(own)


# -------------------------------------------------------------------------------------- the commit


def expire(
    lake: Lake,
    need: Expiry,
    pause: Pause,
    in_use: Callable[[], Set[int] | None] = frozenset,
    *,
    idle_seconds: float | None = None,
) -> Expired | None:
    """Forget snapshots; None if the table has changed so that they may be needed.

    `in_use` tells what other servers read, as for `expiry_need`. No file is removed: a note tells
    `remove_forgotten` which ones nobody needs any more. Raises: CatalogFault, OutcomeUnknown and
    the like; OSError, ValueError when the metadata cannot be read; what `pause` raises.
    """
    identifier = need.state.identifier
    files = only_in(need.state, need.snapshots, pause)
    recorded_history(lake, need.state, pause, need.snapshots)  # reads what the commit needs
    pause()
    with translated(f"table {identifier}"):
        begin(lake, identifier)  # has the JVM load the table while others can still write
    note = write_note(need.state, need.snapshots, files)
    noted = time.monotonic()
    with lake.locked(identifier):
        began = time.monotonic()
        is_made = False
        if began - noted < _MOST_SECONDS_BEFORE:
            with translated(f"table {identifier}"):
                for _ in range(_ATTEMPTS):
                    draft = begin(lake, identifier)
                    read = lake.transactions.snapshots_read(identifier, idle_seconds)
                    if not _may_go(need, draft.state, in_use(), read):
                        break
                    after = _without(lake, draft, need.snapshots)
                    if is_made := commit(draft, after, need.snapshots):
                        break
            lake.changed(identifier)
        locked = time.monotonic() - began
    if not is_made:
        drop_note(need.state, note)
        return None
    return Expired(len(need.snapshots), need.versions, len(files.files), locked)


def _may_go(need: Expiry, now: TableState, in_use: Set[int] | None, read: Set[int]) -> bool:
    """Whether nobody needs the snapshots in the table as it is now."""
    then, metadata, gone = need.state.metadata, now.metadata, need.snapshots
    if in_use is None or metadata.table_uuid != then.table_uuid:
        return False
    if not may_collect(metadata.properties):
        return False
    refs = _Refs(metadata)
    shown, before = _shown(metadata.snapshot_log, gone), _shown(then.snapshot_log, gone)
    return (
        gone <= {each.snapshot_id for each in metadata.snapshots}
        and not gone & (refs.kept | in_use | read)
        and shown == before  # none was made current again
    )


def _shown(log: Sequence[SnapshotLogEntry], gone: Set[int]) -> Counter[int]:
    return Counter(each.snapshot_id for each in log if each.snapshot_id in gone)


def _without(lake: Lake, draft: Draft, gone: Set[int]) -> object:
    """The org.apache.iceberg.TableMetadata of a draft without these snapshots."""
    iceberg = lake.gateway.jvm.org.apache.iceberg
    builder = iceberg.TableMetadata.buildFrom(draft.base)
    # As JSON: one call, and numbers of all sizes arrive as what they are.
    update = {"action": "remove-snapshots", "snapshot-ids": sorted(gone)}
    iceberg.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
    return builder.build()
