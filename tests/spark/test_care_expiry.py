"""Which versions of a table are forgotten, and when that is worth a commit."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from sparkport.errors import NotFound
from sparkport.spark.care.expiry import expiry_need
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.metadata_heads import MetadataHeads
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.transactions import Transactions
from sparkport.spark.lake.version_timeline import CARE, VERSION

_NOW = 1_800_000_000_000
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_TABLE = Identifier("lake", ("s",), "t")
_SETTINGS = CareSettings(
    enabled=True,
    keep_days=7,
    keep_versions=3,
    most_versions=10,
    small_files=32,
    file_bytes=1,
    file_seconds=0,
)


@dataclass(frozen=True)
class _Snapshot:
    """Snapshot n is version n, made so long before now, unless it says otherwise."""

    id: int
    ago: float
    version: int | None = None
    is_care: bool = False
    parent: int | None = None
    is_logged: bool = True
    summary: Mapping[str, str] | None = None


def _hourly(count: int, ago: float = 0) -> list[_Snapshot]:
    """Snapshots 1 to `count`, one an hour, of which the last was made `ago` before now."""
    return [_Snapshot(n, ago + (count - n) * _HOUR) for n in range(1, count + 1)]


def _state(
    snapshots: Sequence[_Snapshot],
    refs: Mapping[str, Mapping[str, Any]] | None = None,
    properties: Mapping[str, str] | None = None,
    log: Sequence[tuple[int, float]] | None = None,
) -> TableState:
    shown = [(e.id, e.ago) for e in snapshots if e.is_logged] if log is None else list(log)
    current = shown[-1][0]
    parent: int | None = None
    described = []
    for each in snapshots:
        own = parent if each.parent is None else each.parent
        version = each.id if each.version is None else each.version
        described.append(
            {
                "snapshot-id": each.id,
                **({} if not own else {"parent-snapshot-id": own}),
                "sequence-number": each.id,
                "timestamp-ms": int(_NOW - each.ago),
                "manifest-list": f"/t/metadata/{each.id}.avro",
                "summary": {
                    "operation": "append",
                    **({VERSION: str(version)} if each.is_logged else {}),
                    **({CARE: "join files"} if each.is_care else {}),
                    **(each.summary or {}),
                },
                "schema-id": 0,
                "first-row-id": 0,
                "added-rows": 0,
            }
        )
        parent = each.id if each.is_logged else parent
    metadata = {
        "format-version": 3,
        "table-uuid": "11111111-2222-3333-4444-555555555555",
        "location": "/t",
        "last-sequence-number": max(each.id for each in snapshots),
        "last-updated-ms": int(_NOW - shown[-1][1]),
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
            }
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": dict(properties or {}),
        "current-snapshot-id": current,
        "next-row-id": 0,
        "refs": {"main": {"snapshot-id": current, "type": "branch"}, **(refs or {})},
        "snapshots": described,
        "snapshot-log": [
            {"snapshot-id": each, "timestamp-ms": int(_NOW - ago)} for each, ago in shown
        ],
        "metadata-log": [],
    }
    text = json.dumps(metadata)
    return States().add(_TABLE, "/t/metadata/9.metadata.json", text, StorageIO(dict))


class _Lake(SimpleNamespace):
    """As much of a lake as counts versions, and has transactions."""

    def __init__(self) -> None:
        def gone(table: Identifier, location: str) -> Any:
            raise NotFound("there are no files")

        transactions = Transactions(LakeSettings(), States())
        super().__init__(metadata_heads=MetadataHeads(gone), transactions=transactions)


def _gone(state: TableState, settings: CareSettings = _SETTINGS, **options: Any) -> list[int]:
    lake: Any = options.pop("lake", None) or _Lake()
    need = expiry_need(lake, state, settings, _NOW, at_once=True, **options)
    return [] if need is None else sorted(need.snapshots)


def _tag(snapshot: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot, "type": "tag"}


def _branch(snapshot: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot, "type": "branch"}


def _replaced(snapshots: list[_Snapshot], **changes: _Snapshot) -> list[_Snapshot]:
    return [changes.get(f"s{each.id}", each) for each in snapshots]


# ------------------------------------------------------------------------------ numbers and ages


def test_at_least_so_many_versions_are_kept_however_old():
    assert _gone(_state(_hourly(8, ago=30 * _DAY))) == [1, 2, 3, 4, 5]
    assert _gone(_state(_hourly(3, ago=30 * _DAY))) == []


def test_at_most_so_many_versions_are_kept_however_young():
    assert _gone(_state(_hourly(10, ago=_MINUTE))) == []
    assert _gone(_state(_hourly(13, ago=_MINUTE))) == [1, 2, 3]


def test_a_version_is_as_old_as_its_end():
    """Version 1 was made long ago, but was current until yesterday."""
    young = [_Snapshot(1, 100 * _DAY), *(_Snapshot(n, _DAY - n * _HOUR) for n in range(2, 7))]
    assert _gone(_state(young)) == []
    old = [_Snapshot(1, 100 * _DAY), _Snapshot(2, 8 * _DAY), *young[2:]]
    assert _gone(_state(old)) == [1]


def test_what_was_current_a_moment_ago_stays():
    """Others may be planning with it."""
    quick = [_Snapshot(n, (40 - n) * 1_000) for n in range(1, 41)]
    assert _gone(_state(quick)) == list(range(1, 30))
    assert _gone(_state(quick), planning_seconds=30) == list(range(1, 10))


def test_a_snapshot_of_care_is_the_version_before():
    snapshots = [
        *_hourly(4, ago=30 * _DAY),
        _Snapshot(5, 29 * _DAY, version=4, is_care=True),
        _Snapshot(6, 28 * _DAY, version=5),
        _Snapshot(7, 27 * _DAY, version=5, is_care=True),
        _Snapshot(8, 26 * _DAY, version=6),
    ]
    # Versions 4, 5 and 6 are kept, with both snapshots that show them.
    assert _gone(_state(snapshots)) == [1, 2, 3]


def test_versions_without_snapshots_count():
    """After each snapshot a column was added."""
    snapshots = [_Snapshot(n, 30 * _DAY - n * _HOUR, version=2 * n) for n in range(1, 6)]
    # Versions 8, 9 and 10 are kept. Number 9 shows what number 8 made.
    assert _gone(_state(snapshots)) == [1, 2, 3]


def test_the_current_snapshot_stays_however_old():
    settings = replace(_SETTINGS, keep_versions=1, most_versions=1, keep_days=0)
    assert _gone(_state(_hourly(4, ago=900 * _DAY)), settings) == [1, 2, 3]


def test_a_version_that_was_returned_to_stays():
    log = [(1, 90 * _DAY), (2, 80 * _DAY), (3, 70 * _DAY), (1, 60 * _DAY), (4, 50 * _DAY)]
    snapshots = [_Snapshot(n, ago) for n, ago in ((1, 90 * _DAY), (2, 80 * _DAY), (3, 70 * _DAY))]
    snapshots.append(_Snapshot(4, 50 * _DAY, version=5))
    settings = replace(_SETTINGS, keep_versions=2)
    # Versions 4 (again what 1 was) and 5 are kept; that 3 ended with 4 is not known for sure.
    assert 1 not in _gone(_state(snapshots, log=log), settings)
    assert _gone(_state(snapshots, log=log), settings) == [2]


# ------------------------------------------------------------------------------ what keeps more


def test_tags_keep_their_snapshots_and_nothing_else():
    state = _state(_hourly(8, ago=30 * _DAY), {"release": _tag(2)})
    assert _gone(state) == [1, 3, 4, 5]


def test_branches_keep_what_they_have_and_what_they_left_from():
    """Branch `side` left from version 3, and has two snapshots of its own."""
    own = [
        _Snapshot(101, 20 * _DAY, parent=3, is_logged=False),
        _Snapshot(102, 20 * _DAY, parent=101, is_logged=False),
    ]
    state = _state([*_hourly(8, ago=30 * _DAY), *own], {"side": _branch(102)})
    assert _gone(state) == [1, 2, 4, 5]


def test_what_a_transaction_works_on_ends_what_goes():
    """It is published on top of all that was committed since it began."""
    own = [_Snapshot(101, _DAY, parent=3, is_logged=False)]
    state = _state([*_hourly(8, ago=30 * _DAY), *own], {"sparkport_abc": _branch(101)})
    assert _gone(state) == [1, 2]


def test_what_a_transaction_has_read_ends_what_goes():
    lake, state = _Lake(), _state(_hourly(8, ago=30 * _DAY))
    transaction = lake.transactions.begin()
    lake.transactions.travels(transaction, replace(state, snapshot=state.metadata.snapshots[3]))
    assert _gone(state, lake=lake) == [1, 2, 3]


def test_an_idle_transaction_keeps_no_more_than_most_versions_if_that_is_wanted():
    lake, state = _Lake(), _state(_hourly(14, ago=_MINUTE))
    transaction = lake.transactions.begin()
    lake.transactions.travels(transaction, replace(state, snapshot=state.metadata.snapshots[1]))
    assert _gone(state, lake=lake) == [1, 3, 4]
    assert _gone(state, lake=lake, idle_seconds=60) == [1, 3, 4]
    lake.transactions.find(transaction).last_used -= 61
    assert _gone(state, lake=lake) == [1, 3, 4]
    assert _gone(state, lake=lake, idle_seconds=60) == [1, 2, 3, 4]


def test_what_other_servers_read_stays():
    state = _state(_hourly(8, ago=30 * _DAY))
    everything = _gone(state)
    assert _gone(state, in_use={2, 5}) == [each for each in everything if each not in (2, 5)]
    assert {1, 2, 5} <= set(everything)
    assert _gone(state, in_use=None) == [], "nobody knows what they read"


def test_a_table_that_shares_its_files_keeps_all():
    assert _gone(_state(_hourly(8, ago=30 * _DAY), properties={"gc.enabled": "false"})) == []


@pytest.mark.parametrize(
    ("properties", "gone"),
    [
        ({"history.expire.max-snapshot-age-ms": str(3 * _HOUR)}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"history.expire.max-snapshot-age-ms": str(9 * _HOUR)}, [1, 2]),
        ({"history.expire.min-snapshots-to-keep": "4"}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"history.expire.min-snapshots-to-keep": "11"}, [1]),
        ({"history.expire.min-snapshots-to-keep": "a few"}, []),
    ],
)
def test_a_table_that_says_to_keep_more_keeps_more(properties, gone):
    settings = replace(_SETTINGS, most_versions=4)
    assert _gone(_state(_hourly(12, ago=_MINUTE), properties=properties), settings) == gone


def test_what_the_main_branch_says_counts_too():
    main = {**_branch(12), "min-snapshots-to-keep": 11}
    settings = replace(_SETTINGS, most_versions=4)
    assert _gone(_state(_hourly(12, ago=_MINUTE), {"main": main}), settings) == [1]


# ------------------------------------------------------------------------- outside of the history


def test_snapshots_that_nothing_leads_to_go_after_an_hour():
    loose = [
        _Snapshot(101, 2 * _HOUR, parent=7, is_logged=False),
        _Snapshot(102, _HOUR / 2, parent=7, is_logged=False),
        _Snapshot(103, 2 * _HOUR, parent=7, is_logged=False, summary={"wap.id": "audit"}),
        _Snapshot(104, 8 * _DAY, parent=7, is_logged=False, summary={"wap.id": "audit"}),
    ]
    assert _gone(_state([*_hourly(3), *loose])) == [101, 104]
    assert _gone(_state([*_hourly(3), *loose]), in_use={101}) == [104]


def test_what_was_before_the_log_goes_first():
    """Another engine has cut the log, and has left the snapshots."""
    snapshots = _hourly(8, ago=30 * _DAY)
    log = [(each.id, each.ago) for each in snapshots[4:]]
    assert _gone(_state(snapshots, log=log)) == [1, 2, 3, 4, 5]


def test_a_tag_that_is_dropped_lets_its_snapshot_go():
    """The history between it and the present is gone already."""
    snapshots = [_Snapshot(1, 90 * _DAY, is_logged=False), *_hourly(8, ago=_DAY)[5:]]
    snapshots[1] = replace(snapshots[1], parent=5)
    assert _gone(_state(snapshots, {"release": _tag(1)})) == []
    assert _gone(_state(snapshots)) == [1]


# ----------------------------------------------------------------------------- clocks that jump


def test_times_from_the_future_make_nothing_old():
    ahead = [_Snapshot(n, -_DAY + (8 - n) * _HOUR) for n in range(1, 9)]
    assert _gone(_state(ahead)) == []


def test_a_version_is_as_young_as_its_youngest_time():
    """The clock went ahead by a year when version 4 was made, and back again."""
    jumped = _replaced(_hourly(8, ago=30 * _DAY), s4=_Snapshot(4, -365 * _DAY))
    assert _gone(_state(jumped)) == [1, 2], "3 ended, and 4 began, in a year"


def test_a_clock_that_went_back_makes_nothing_old():
    """Version 5 seems to have begun 100 days ago; version 4 was made yesterday."""
    jumped = [
        *(_Snapshot(n, _DAY - n * _MINUTE) for n in range(1, 5)),
        *(_Snapshot(n, 100 * _DAY - n * _MINUTE) for n in range(5, 9)),
    ]
    assert _gone(_state(jumped)) == []


# --------------------------------------------------------------------------------- what is worth it


def test_few_snapshots_wait_until_they_are_many_or_late():
    settings = replace(_SETTINGS, keep_versions=3, most_versions=100)

    def need(count: int, ago: float) -> bool:
        # Each ended when it was a week old but for `ago`.
        past = [_Snapshot(n, 7 * _DAY + ago + (count - n)) for n in range(1, count + 1)]
        last = [_Snapshot(count + n, _DAY - n * _MINUTE) for n in range(1, 4)]
        state = _state([*past, *last])
        # The last of them ended with the first of the others.
        found = expiry_need(_Lake(), state, settings, _NOW)  # type: ignore[arg-type]
        assert found is None or len(found.snapshots) == count - 1
        return found is not None

    assert not need(20, ago=10 * _MINUTE)
    assert need(26, ago=10 * _MINUTE)
    assert need(2, ago=61 * _MINUTE)


def test_a_busy_table_is_looked_at_once_in_many_versions():
    settings = replace(_SETTINGS, keep_versions=10, most_versions=200)

    def count(versions: int) -> int:
        state = _state([_Snapshot(n, (versions + 60 - n) * 1_000) for n in range(1, versions + 1)])
        found = expiry_need(_Lake(), state, settings, _NOW)  # type: ignore[arg-type]
        assert found is None or found.versions == len(found.snapshots)
        return 0 if found is None else len(found.snapshots)

    assert count(249) == 0
    assert count(250) == 50


def test_a_thousand_snapshots_are_judged_in_no_time():
    state = _state([_Snapshot(n, (1_100 - n) * 1_000) for n in range(1, 1_001)])
    settings = replace(_SETTINGS, keep_versions=100, most_versions=500)
    began = time.process_time()
    assert len(_gone(state, settings)) == 500
    assert time.process_time() - began < 5
