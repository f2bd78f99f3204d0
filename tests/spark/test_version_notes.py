"""Versions stay what they were, although the metadata files that told of them are removed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.spark.calling import Caller
from tests.spark.lake_tables import CTX, create, find
from tests.spark.places import path_of

from sparkport.catalog import (
    AddColumnOptions,
    DMLOptions,
    Operation,
    ScanOptions,
    SchemaRequest,
    TimePoint,
)
from sparkport.errors import NotFound
from sparkport.spark.care.expiry import expire, expiry_need
from sparkport.spark.iceberg.metadata_heads import MetadataHeads
from sparkport.spark.lake.care_settings import CARE_PROPERTY, care_of
from sparkport.spark.lake.version_log import changes_of, number_of, versions_of
from sparkport.spark.lake.version_notes import recorded_history
from sparkport.spark.lake.version_timeline import CARE, HISTORY, VERSION, is_care

_COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def _insert(lake: Any, namespace: str, number: int) -> None:
    table = find(lake, namespace, "t")
    columns = [each for each in table.arrow_schema if each.name != "rowid"]
    write = table.stage(CTX, Operation.INSERT, DMLOptions())
    values = [pa.array([number if each.name == "id" else None], each.type) for each in columns]
    write.apply(pa.record_batch(values, names=[each.name for each in columns]))
    write.commit()


def _shown(
    lake: Any, namespace: str, unit: Literal["version", "timestamp"], value: object
) -> tuple[Any, ...]:
    point = TimePoint(unit, str(value))
    table = find(lake, namespace, "t")
    columns = table.schema_for_request(CTX, SchemaRequest(time_point=point))
    batches = table.scan(CTX, ScanOptions(time_point=point))
    rows = [row for batch in batches for row in batch.to_pylist()]
    defaults = [(field.name, (field.metadata or {}).get(b"default")) for field in columns]
    return columns.names, defaults, sorted(row["id"] for row in rows)


def _forget(lake: Any) -> None:
    """Forget what the server remembers, as after a restart."""
    inner = lake._lake
    inner.metadata_heads = MetadataHeads(inner._open_metadata)


def _files(lake: Any, namespace: str) -> list[str]:
    folder = path_of(find(lake, namespace, "t").state.metadata.location) / "metadata"
    return sorted(each.name for each in folder.glob("*.metadata.json"))


def test_every_version_is_shown_as_it_was_when_its_metadata_are_gone(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    steps: list[Callable[[], object]] = [
        *(lambda number=number: _insert(lake, namespace, number) for number in range(25)),
        lambda: find(lake, namespace, "t").add_column(
            CTX, pa.schema([("extra", pa.int32())]), AddColumnOptions()
        ),
        *(lambda number=number: _insert(lake, namespace, number) for number in range(25, 30)),
        lambda: find(lake, namespace, "t").set_default(CTX, "extra", "5"),
        *(lambda number=number: _insert(lake, namespace, number) for number in range(30, 60)),
        lambda: find(lake, namespace, "t").rename_column(CTX, "extra", "more"),
        *(lambda number=number: _insert(lake, namespace, number) for number in range(60, 85)),
    ]
    shown = [_shown(lake, namespace, "version", 0)]
    moments = []
    for number, step in enumerate(steps, 1):
        step()
        state = find(lake, namespace, "t").state
        assert number_of(lake._lake, state) == number
        shown.append(_shown(lake, namespace, "version", number))
        moments.append(state.metadata.last_updated_ms)
    assert len(_files(lake, namespace)) == 11, "the present one and those in the log"

    for _ in range(2):
        for number, expected in enumerate(shown):
            assert _shown(lake, namespace, "version", number) == expected
        _forget(lake)
    with pytest.raises(NotFound, match=f"its latest is {len(steps)}"):
        _shown(lake, namespace, "version", len(steps) + 1)
    for number in random.Random(1).sample(range(1, len(steps)), 10):
        if moments[number - 1] < moments[number]:
            moment = f"{moments[number - 1] / 1000:.3f}"
            text = pa.scalar(moments[number - 1], pa.timestamp("ms", "UTC")).as_py().isoformat()
            assert _shown(lake, namespace, "timestamp", text) == shown[number], moment


def test_history_tells_of_versions_without_metadata(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    find(lake, namespace, "t").set_default(CTX, "v", "'x'")
    for number in range(30):
        _insert(lake, namespace, number)
    _forget(lake)
    told = Caller(lake, namespace).call("history", "t").to_pylist()
    assert [each["version"] for each in told] == list(range(32))
    assert [each["change"] for each in told] == ["create", "defaults", *["append"] * 30]
    snapshots = Caller(lake, namespace).call("snapshots", "t").to_pylist()
    assert [each["version"] for each in snapshots] == list(range(2, 32))


def test_rows_need_no_notes_but_for_the_creation(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    for number in range(50):
        _insert(lake, namespace, number)
    state = find(lake, namespace, "t").state
    noted = json.loads(state.metadata.properties[HISTORY])
    assert [each[0] for each in noted] == [0]
    assert state.snapshot.summary.additional_properties[VERSION] == "50"


def test_tags_and_settings_are_no_versions_when_their_metadata_are_gone(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    _insert(lake, namespace, 0)
    for number in range(1, 26):
        if number % 5 == 0:
            lake.spark.sql(f"ALTER TABLE {table} CREATE TAG t{number}")
        _insert(lake, namespace, number)
    _forget(lake)
    numbers = [each.number for each in changes_of(lake._lake, find(lake, namespace, "t").state)]
    assert numbers == list(range(27))


def test_changes_of_other_engines_are_noted_before_their_metadata_go(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(f"INSERT INTO {table} VALUES (0, 'a')")
    lake.spark.sql(f"ALTER TABLE {table} ADD COLUMN extra INT")
    lake.spark.sql(f"INSERT INTO {table} VALUES (1, 'b', 2)")
    lake._lake.changed()
    shown = [_shown(lake, namespace, "version", each) for each in range(4)]
    for number in range(2, 40):
        _insert(lake, namespace, number)
    _forget(lake)
    assert [_shown(lake, namespace, "version", each) for each in range(4)] == shown
    assert number_of(lake._lake, find(lake, namespace, "t").state) == 41


def test_a_snapshot_of_another_engine_has_no_number_that_is_not_certain(lake, namespace):
    """It removed the metadata of its own ALTER: the numbers before and after leave two choices."""
    create(lake, namespace, "t", _COLUMNS)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    for number in range(3):
        _insert(lake, namespace, number)
    lake.spark.sql(f"ALTER TABLE {table} ADD COLUMN extra INT")
    lake._lake.changed()
    _insert(lake, namespace, 3)
    state = find(lake, namespace, "t").state
    assert number_of(lake._lake, state) == 5
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')"
    )
    lake._lake.changed()
    _forget(lake)
    state = find(lake, namespace, "t").state
    numbers = [each.number for each in changes_of(lake._lake, state)]
    assert numbers[-1] == 5
    assert 4 not in numbers
    assert _shown(lake, namespace, "version", 5)[2] == [0, 1, 2, 3]


def test_what_care_makes_is_the_version_before(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    for number in range(3):
        _insert(lake, namespace, number)
    inner, table = lake._lake, find(lake, namespace, "t").state.identifier
    handle = inner.gateway.iceberg(table).table
    handle.newAppend().set(CARE, "compaction").set(VERSION, "3").commit()
    inner.changed()
    state = find(lake, namespace, "t").state
    assert number_of(inner, state) == 3
    for number in range(3, 30):
        _insert(lake, namespace, number)
        if number == 3:
            assert number_of(inner, find(lake, namespace, "t").state) == 4
    _forget(lake)
    state = find(lake, namespace, "t").state
    assert [each.number for each in changes_of(inner, state)] == list(range(31))
    made = next(each for each in state.metadata.snapshots if is_care(each))
    assert versions_of(inner, state)[made.snapshot_id] == 3
    assert _shown(lake, namespace, "version", 3)[2] == [0, 1, 2]
    assert _shown(lake, namespace, "version", 4)[2] == [0, 1, 2, 3]


def test_a_version_is_found_by_its_time_when_only_care_of_it_is_left_in_the_log(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    inner, table = lake._lake, find(lake, namespace, "t").state.identifier
    for number in range(3):
        _insert(lake, namespace, number)
    made = find(lake, namespace, "t").state.metadata.last_updated_ms
    moment = pa.scalar(made, pa.timestamp("ms", "UTC")).as_py().isoformat()
    for turn in range(25):
        handle = inner.gateway.iceberg(table).table
        handle.newAppend().set(CARE, "compaction").set(VERSION, "3").commit()
        inner.changed()
        if turn in (0, 8, 9, 10, 24):
            _forget(lake)
            state = find(lake, namespace, "t").state
            assert [each.number for each in changes_of(inner, state)][-1] == 3
            assert _shown(lake, namespace, "timestamp", moment)[2] == [0, 1, 2]
            assert _shown(lake, namespace, "version", 3)[2] == [0, 1, 2]
    _insert(lake, namespace, 3)
    assert _shown(lake, namespace, "timestamp", moment)[2] == [0, 1, 2]


def test_notes_of_a_table_of_0_1_make_its_metadata_removable(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1000')"
    )
    for number in range(30):  # Spark writes no numbers, as 0.1 did not
        lake.spark.sql(f"INSERT INTO {table} (id) VALUES ({number})")
        if number == 10:
            lake.spark.sql(f"ALTER TABLE {table} ADD COLUMN extra INT")
    lake._lake.changed()
    shown = [_shown(lake, namespace, "version", each) for each in range(32)]
    text = recorded_history(lake._lake, find(lake, namespace, "t").state)
    assert text is not None
    assert [each[0] for each in json.loads(text)] == [0, 12, 31], "first, ALTER, last"
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '2', "
        f"'{HISTORY}' = '{text}')"
    )
    lake._lake.changed()
    _forget(lake)
    assert len(_files(lake, namespace)) <= 3
    assert [_shown(lake, namespace, "version", each) for each in range(32)] == shown


def test_versions_without_numbers_keep_theirs_when_older_ones_are_forgotten(lake, namespace):
    create(lake, namespace, "t", _COLUMNS)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1000')"
    )
    for number in range(12):
        lake.spark.sql(f"INSERT INTO {table} (id) VALUES ({number})")
    lake._lake.changed()
    shown = [_shown(lake, namespace, "version", each) for each in range(13)]
    inner, state = lake._lake, find(lake, namespace, "t").state
    properties = {**state.metadata.properties, CARE_PROPERTY: '{"keep_days": 0}'}
    settings = replace(care_of(inner.settings, properties), keep_versions=6, most_versions=6)
    now = state.metadata.last_updated_ms + 60_000
    need = expiry_need(inner, state, settings, now, at_once=True)
    assert need is not None
    assert expire(inner, need, lambda: None) is not None
    lake.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '2')"
    )
    lake._lake.changed()
    _forget(lake)
    numbers = [each.number for each in changes_of(inner, find(lake, namespace, "t").state)]
    assert numbers == list(range(7, 13))
    assert [_shown(lake, namespace, "version", each) for each in numbers] == shown[7:]
    with pytest.raises(NotFound, match="the oldest is 7"):
        _shown(lake, namespace, "version", 6)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[1,2,3]]", '[["a",1,2,3,{}]]', "null"])
def test_nonsense_in_the_notes_is_left_out(lake, namespace, text):
    create(lake, namespace, "t", _COLUMNS)
    for number in range(3):
        _insert(lake, namespace, number)
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{HISTORY}' = '{text}')")
    lake._lake.changed()
    _forget(lake)
    assert number_of(lake._lake, find(lake, namespace, "t").state) == 3
    assert _shown(lake, namespace, "version", 2)[2] == [0, 1]
