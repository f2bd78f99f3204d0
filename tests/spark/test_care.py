"""A table that takes care of itself stays small, and shows what it promises to show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.server.raw_client import RawClient, decode_stream, path, ticket_message
from tests.spark.care_load import (
    COLUMNS,
    Load,
    care_of_all,
    data_files,
    end_readers,
    files_in,
    rows_at,
    served,
    strays,
)
from tests.spark.hastened_care import hasten
from tests.spark.independent_readers import READERS, rows_by
from tests.spark.lake_tables import CTX, find, sql_name

from sparkport.catalog import ScanOptions
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient, ServerError

_EVERYTHING = bool(os.environ.get("SPARKPORT_TEST_EVERYTHING"))
_KEEP, _MOST, _SMALL = 20, 30, 8
_FEW = 25
"""So many versions that may go are too few to forget them."""
_SETTINGS = LakeSettings(
    care=True,
    care_seconds=0.05,
    care_keep_days=0,
    care_keep_versions=_KEEP,
    care_most_versions=_MOST,
    care_small_files=_SMALL,
    care_file_seconds=0,
)
_LOAD = (10_000, 5_000, 2_000) if _EVERYTHING else (400, 200, 80)
_TURNS = 40
"""The load is divided into so many parts, with care between them."""


@pytest.fixture
def warehouse(lake: LakeCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a lake of one test. The shared lake keeps the JVM running."""
    hasten(monkeypatch.setattr)
    return tmp_path / "lake"


@pytest.fixture
def cared(warehouse: Path) -> Iterator[tuple[LakeCatalog, Load]]:
    with served(warehouse, _SETTINGS) as (lake, client):
        yield lake, Load(client).create()


def _cared_for(lake: LakeCatalog) -> set[str]:
    """Have care do all that is needed, while nobody reads; the names of the steps."""
    end_readers(lake)
    return {each.step for each in care_of_all(lake)}


def _expect_promises(lake: LakeCatalog, load: Load) -> None:
    """Right after care."""
    client, latest = load.client, load.version
    promised = range(max(0, latest - _KEEP + 1), latest + 1)
    load.expect_present()
    load.expect_versions(promised)
    load.expect_forgotten({0, latest - _MOST - _FEW - 1} & set(range(promised[0])))
    listed = load.history()
    assert listed == list(range(listed[0], latest + 1)), "each version is listed once"
    assert listed[0] <= promised[0]
    assert len(listed) <= _MOST + _FEW + 1
    load.expect_changes(promised[0], latest)
    load.expect_changes(promised[len(promised) // 2], latest)
    known = client.table_function("s", "snapshots", "t")["version"].to_pylist()
    assert set(promised) - {0} <= set(known)
    assert len(data_files(client)) < 2 * _SMALL
    assert len(files_in(lake)) <= 8 * (_MOST + _FEW) + 60


@pytest.mark.timeout(7200 if _EVERYTHING else 280)
@pytest.mark.parametrize("is_in_background", [False, True], ids=["between", "meanwhile"])
def test_a_table_under_load_stays_small_and_keeps_its_promises(
    warehouse: Path, is_in_background: bool
) -> None:
    with served(warehouse, _SETTINGS) as (lake, client):
        load = Load(client).create()
        if is_in_background:
            lake.start_care()
        steps = set()
        for turn in range(_TURNS // 2):
            load.run(*(each // _TURNS for each in _LOAD))
            if not is_in_background:
                steps |= _cared_for(lake)
            if turn % 5 == 4:
                steps |= _cared_for(lake)
                _expect_promises(lake, load)
        before = load.history()
    with served(warehouse, _SETTINGS) as (lake, client):  # as after a restart
        load.client = client
        assert load.history() == before, "versions keep their numbers"
        _expect_promises(lake, load)
        for turn in range(_TURNS // 2):
            load.run(*(each // _TURNS for each in _LOAD))
            if turn % 4 == 3:
                steps |= _cared_for(lake)
        steps |= _cared_for(lake)
        _expect_promises(lake, load)
        assert _cared_for(lake) == set(), "there is nothing left to do"
        assert strays(lake) == set()
    assert {"join files", "forget versions", "remove files"} <= steps


def test_care_that_is_switched_off_does_nothing(warehouse: Path) -> None:
    with served(warehouse, LakeSettings(care=False, care_keep_days=0, care_small_files=2)) as (
        lake,
        client,
    ):
        load = Load(client).create()
        load.run(20, 5)
        lake.start_care()
        assert care_of_all(lake) == []
        assert len(data_files(client)) > 10
        load.expect_versions(range(load.version + 1))


def test_versions_are_kept_for_days_however_many(warehouse: Path) -> None:
    settings = LakeSettings(care_keep_versions=2, care_most_versions=1000, care_small_files=4)
    with served(warehouse, settings) as (lake, client):
        load = Load(client).create()
        for _ in range(6):
            load.run(6, 3, 1)
            care_of_all(lake)
        load.expect_versions(range(load.version + 1))
        assert load.history() == list(range(load.version + 1))
        load.expect_changes(0, load.version)
        load.expect_changes(13, 47)
        assert len(data_files(client)) < 8


def test_keys_stay_unique_and_known(warehouse: Path) -> None:
    with served(warehouse, _SETTINGS) as (lake, client):
        load = Load(client).create(primary_key=["id"])
        load.run(30, 10, 5)
        care_of_all(lake)
        present = dict(load.rows)
        for key in sorted(present)[:3]:
            with pytest.raises(ServerError, match="Duplicate key"):
                client.insert("s", "t", pa.table({"id": [key], "v": [1]}, schema=COLUMNS))
        load.run(5, 5, 1)
        load.expect_present()


# ------------------------------------------------------------------------------- who is reading


def test_a_scan_that_has_begun_reads_on(cared: tuple[LakeCatalog, Load]) -> None:
    lake, load = cared
    load.run(15, 4, 2)
    expected = dict(load.rows)
    running = find(lake, "s", "t").scan(CTX, ScanOptions(batch_size=1))
    first = next(running)
    for _ in range(4):
        load.run(20, 10, 4)
        care_of_all(lake)
    batches = [first, *running]
    found = pa.Table.from_batches(batches).to_pylist()
    assert {row["id"]: row["v"] for row in found} == expected
    assert len(found) == len(expected)
    del running
    care_of_all(lake)
    load.expect_present()


def test_tickets_are_read_after_their_version_was_forgotten(warehouse: Path) -> None:
    settings = replace(_SETTINGS, care_file_seconds=3_600.0)
    with (
        LakeCatalog(warehouse, name="cared", settings=settings) as lake,
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "cared", timeout=60) as client,
        RawClient(server.location) as raw,
    ):
        load = Load(client.attach()).create()
        load.run(15, 4, 2)
        expected = dict(load.rows)
        table = path("cared", "s", "t")
        (waiting,), (begun,) = raw.endpoints(table), raw.endpoints(table)
        call = raw.open("DoGet", ticket_message(begun.ticket.ticket), timeout=120)
        messages = [next(call)]
        for _ in range(4):
            load.run(20, 10, 4)
            care_of_all(lake)
        load.expect_forgotten([21])
        for found in (decode_stream([*messages, *call]), raw.get(waiting.ticket.ticket)):
            assert {row["id"]: row["v"] for row in found.rows()} == expected


def test_a_transaction_sees_the_same_rows_until_its_end(cared: tuple[LakeCatalog, Load]) -> None:
    lake, load = cared
    load.run(15, 4, 2)
    expected = dict(load.rows)
    with _another_client(lake) as reader:
        reader.begin()
        assert rows_at(reader) == expected
        for _ in range(4):
            load.run(20, 10, 4)
            care_of_all(lake)
        assert rows_at(reader) == expected
        reader.commit()
        assert rows_at(reader) == load.rows
    care_of_all(lake)
    _expect_promises(lake, load)


def test_a_transaction_with_changes_is_published_after_care(
    cared: tuple[LakeCatalog, Load],
) -> None:
    lake, load = cared
    load.run(15, 4, 2)
    mine = min(load.rows)
    with _another_client(lake) as writer:
        writer.begin()
        writer.call("s", "lake_begin", {}, rows=1)
        writer.update("s", "t", {"v": "-1"}, where=f"id = {mine}")
        writer.insert("s", "t", pa.table({"id": [-5], "v": [5]}, schema=COLUMNS))
        before = dict(load.rows)
        value = load.rows.pop(mine)  # the load changes other rows only
        for _ in range(4):
            load.run(20, 10, 4)
            care_of_all(lake)
        assert rows_at(writer) == {**before, mine: -1, -5: 5}
        writer.call("s", "lake_commit", {}, rows=1)
        writer.commit()
    assert value != -1
    assert rows_at(load.client) == {**load.rows, mine: -1, -5: 5}
    care_of_all(lake)
    assert rows_at(load.client) == {**load.rows, mine: -1, -5: 5}


def test_tags_and_branches_stay_readable(cared: tuple[LakeCatalog, Load]) -> None:
    lake, load = cared
    load.run(12, 3, 1)
    tagged = dict(load.rows)
    load.client.table_function("s", "tag", "t", "kept")
    lake.spark.sql(f"ALTER TABLE {sql_name(lake, 's', 't')} CREATE BRANCH side")
    lake.spark.sql(f"INSERT INTO {sql_name(lake, 's', 't')}.branch_side VALUES (-1, 1)")
    for _ in range(4):
        load.run(20, 10, 4)
        care_of_all(lake)
    load.expect_forgotten([16])
    assert rows_at(load.client, "kept") == tagged
    assert rows_at(load.client, "side") == {**tagged, -1: 1}
    _expect_promises(lake, load)


def test_a_reader_of_another_server_is_not_disturbed(warehouse: Path) -> None:
    settings = replace(_SETTINGS, care_file_seconds=3_600.0)
    with (
        served(warehouse, settings) as (lake, client),
        served(warehouse, settings) as (_, reader),
    ):
        load = Load(client).create()
        load.run(15, 4, 2)
        expected = dict(load.rows)
        reader.begin()
        assert rows_at(reader) == expected
        for _ in range(4):
            load.run(20, 10, 4)
            care_of_all(lake)
        assert rows_at(reader) == expected
        reader.commit()
        assert rows_at(reader) == load.rows


@contextmanager
def _another_client(lake: LakeCatalog) -> Iterator[DuckDBClient]:
    """A client of a server of its own, of the same lake."""
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        yield client.attach()


# ---------------------------------------------------------------------------- who else reads it


def test_others_read_the_present_and_what_was_promised(cared: tuple[LakeCatalog, Load]) -> None:
    lake, load = cared
    for _ in range(4):
        load.run(20, 10, 4)
        care_of_all(lake)
    load.run(2, 1, 1)
    state = find(lake, "s", "t").state
    numbers = load.client.table_function("s", "history", "t").to_pylist()
    snapshots = {each["version"]: each["snapshot_id"] for each in numbers}
    oldest = load.version - _KEEP + 1
    older = dict(load.states({oldest}))[oldest]
    for reader in READERS:
        found = rows_by(reader, state.metadata_location)
        assert found == sorted(load.rows.items(), key=repr), reader
        found = rows_by(reader, state.metadata_location, snapshot_id=snapshots[oldest])
        assert found == sorted(older.items(), key=repr), reader
