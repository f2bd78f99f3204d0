"""States of tables: what many states of a table have in common is kept once."""

from __future__ import annotations

import json
import uuid
from typing import Any

from sparkport.spark.iceberg import table_state as module
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import States, TableState

TABLE = Identifier("lake", ("s",), "t")
_START = 1_700_000_000_000


def metadata(commits: int, table: str, comment: str = "") -> str:
    """A table's metadata file after a number of commits."""
    snapshots = [
        {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": _START + number,
            "manifest-list": f"file:/lake/s/t/metadata/snap-{number}.avro",
            "summary": {"operation": "append", "comment": comment},
            "schema-id": 0,
        }
        for number in range(1, commits + 1)
    ]
    field = {"id": 1, "name": "id", "required": False, "type": "long"}
    found: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": table,
        "location": "file:/lake/s/t",
        "last-sequence-number": commits,
        "last-updated-ms": _START + commits,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "snapshots": snapshots,
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in snapshots
        ],
        "metadata-log": [
            {"metadata-file": f"file:/lake/{number}.json", "timestamp-ms": _START + number}
            for number in range(commits)
        ],
    }
    if commits:
        found |= {
            "current-snapshot-id": commits,
            "refs": {"main": {"snapshot-id": commits, "type": "branch"}},
        }
    return json.dumps(found)


def after_commits(states: States, count: int, table: str) -> list[TableState]:
    return [
        states.add(TABLE, f"{table}-{number}", metadata(number, table), None)
        for number in range(count)
    ]


def test_states_of_a_table_share_what_they_have_in_common():
    found = after_commits(States(), 50, str(uuid.uuid4()))

    assert [each.snapshot and each.snapshot.snapshot_id for each in found] == [None, *range(1, 50)]
    assert [len(each.metadata.snapshots) for each in found] == list(range(50))
    for name in ("snapshots", "snapshot_log", "metadata_log", "schemas"):
        kept = {id(entry) for each in found for entry in getattr(each.metadata, name)}
        assert len(kept) == len(getattr(found[-1].metadata, name)), name


def test_nothing_is_taken_from_a_table_that_was_there_before_under_that_name():
    states, others = States(), str(uuid.uuid4())
    after_commits(states, 5, str(uuid.uuid4()))

    (first, *_) = states.add(
        TABLE, "other", metadata(4, others, "of the other"), None
    ).metadata.snapshots

    assert first.summary is not None
    assert first.summary["comment"] == "of the other"


def test_what_differs_is_kept_although_it_has_the_same_number():
    """The specification does not allow it; nothing is lost when it happens nevertheless."""
    states, table = States(), str(uuid.uuid4())
    states.add(TABLE, "a", metadata(2, table, "first"), None)

    found = states.add(TABLE, "b", metadata(3, table, "second"), None)

    assert {each.summary and each.summary["comment"] for each in found.metadata.snapshots} == {
        "second"
    }


def test_old_states_are_forgotten_when_all_of_them_are_too_much(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENTRIES", 1000)
    states, table = States(), str(uuid.uuid4())
    after_commits(states, 60, table)

    kept = [number for number in range(60) if states.find(TABLE, f"{table}-{number}") is not None]

    assert kept == list(range(60 - len(kept), 60))
    assert sum(1 + 3 * number for number in kept) <= 1000
    assert kept
