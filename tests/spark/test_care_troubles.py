"""Care that is disturbed: it gives up, says so, loses nothing, and is tried again later."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.care_load import (
    COLUMNS,
    SECONDS,
    Load,
    care_of_all,
    data_files,
    end_readers,
    files_in,
    refused,
    rows_at,
    served,
    strays,
)
from tests.spark.hastened_care import hasten
from tests.spark.lake_tables import find, sql_name

from sparkport.errors import CatalogFault
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care import table_care
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.parquet_output import ParquetOutput
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog
from sparkport.testing import DuckDBClient

_KEEP, _SMALL = 5, 4
_SETTINGS = LakeSettings(
    care_seconds=0.05,
    care_keep_days=0,
    care_keep_versions=_KEEP,
    care_most_versions=10,
    care_small_files=_SMALL,
    care_file_seconds=0,
)
_MOMENTS = {
    "files are written": (ParquetOutput, "finish"),
    "the swap": (SqliteCatalog, "swap"),
    "a file is removed": (LocalStorage, "delete"),
}
Served = tuple[LakeCatalog, Load]


@pytest.fixture
def warehouse(lake: LakeCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a lake of one test. The shared lake keeps the JVM running."""
    hasten(monkeypatch.setattr)
    return tmp_path / "lake"


@pytest.fixture
def cared(warehouse: Path) -> Iterator[Served]:
    """A lake with a table that needs care."""
    with served(warehouse, _SETTINGS) as (lake, client):
        load = Load(client).create()
        load.run(40, 12, 6)
        yield lake, load


@pytest.fixture
def other(warehouse: Path, cared: Served) -> Iterator[tuple[LakeCatalog, DuckDBClient]]:
    """Another server of the same lake."""
    with served(warehouse, _SETTINGS) as found:
        yield found


@contextmanager
def _at(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, action: Callable[[], Any]
) -> Iterator[None]:
    """Have something happen once, before a function that care calls in the block."""
    real = getattr(owner, name)
    happened = threading.Event()

    def preceded(*args: Any, **kwargs: Any) -> Any:
        if not happened.is_set():
            happened.set()  # what the action calls is not preceded by it
            action()
        return real(*args, **kwargs)

    with monkeypatch.context() as patches:
        patches.setattr(owner, name, preceded)
        yield
    assert happened.is_set(), "care has not come by"


def _expect_recovery(lake: LakeCatalog, load: Load) -> None:
    """Expect that nothing is lost, and that care does its work when it is left alone."""
    load.expect_present()
    load.expect_versions(range(load.version - _KEEP + 1, load.version + 1))
    end_readers(lake)
    care_of_all(lake)
    load.expect_present()
    load.expect_versions(range(load.version - _KEEP + 1, load.version + 1))
    assert len(data_files(load.client)) < 2 * _SMALL
    assert refused(load.client, 1) == "NOT_FOUND"
    assert strays(lake) == set()


# ------------------------------------------------------------------------------------ somebody else


@pytest.mark.parametrize("moment", _MOMENTS)
def test_statements_of_another_server_come_first(
    cared: Served,
    other: tuple[LakeCatalog, DuckDBClient],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    lake, load = cared

    def change() -> None:
        own, load.client = load.client, other[1]
        load.update()
        load.delete()
        load.insert()
        load.client = own

    with _at(monkeypatch, *_MOMENTS[moment], change):
        lake.care_now()
    _expect_recovery(lake, load)


@pytest.mark.parametrize("moment", _MOMENTS)
def test_two_servers_that_care_at_once_lose_nothing(
    cared: Served,
    other: tuple[LakeCatalog, DuckDBClient],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    lake, load = cared
    with _at(monkeypatch, *_MOMENTS[moment], other[0].care_now):
        lake.care_now()
    _expect_recovery(lake, load)


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize(
    "call",
    [
        "rewrite_data_files(table => 's.t', options => map('min-input-files', '2'))",
        "expire_snapshots(table => 's.t', older_than => now(), retain_last => 5)",
        "rewrite_manifests(table => 's.t')",
    ],
)
def test_another_engine_may_do_the_same(
    cared: Served, monkeypatch: pytest.MonkeyPatch, moment: str, call: str
) -> None:
    lake, load = cared

    def run() -> None:
        lake.spark.sql(f"CALL `{lake.spark_catalog}`.system.{call}").collect()

    load.expect_present()
    with _at(monkeypatch, *_MOMENTS[moment], run):
        lake.care_now()
    load.expect_present()
    load.run(6, 2)
    care_of_all(lake)
    load.expect_present()
    assert len(data_files(load.client)) < 2 * _SMALL


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_table_that_is_dropped_meanwhile_is_gone(
    cared: Served,
    other: tuple[LakeCatalog, DuckDBClient],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    lake, load = cared
    load.client.create_table("s", "neighbour", COLUMNS)
    load.client.insert("s", "neighbour", pa.table({"id": [1], "v": [2]}, schema=COLUMNS))
    with _at(monkeypatch, *_MOMENTS[moment], lambda: other[1].drop_table("s", "t")):
        lake.care_now()
    assert find(lake, "s", "t") is None
    assert lake.care_now() == []
    assert load.client.scan("s", "neighbour").to_pylist() == [{"id": 1, "v": 2}]


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_table_that_is_renamed_meanwhile_has_all_its_rows(
    cared: Served,
    other: tuple[LakeCatalog, DuckDBClient],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    lake, load = cared
    with _at(monkeypatch, *_MOMENTS[moment], lambda: other[1].rename_table("s", "t", "t2")):
        lake.care_now()
    other[1].rename_table("s", "t2", "t")
    _expect_recovery(lake, load)


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_table_that_is_made_anew_meanwhile_keeps_its_new_rows(
    cared: Served,
    other: tuple[LakeCatalog, DuckDBClient],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    lake, load = cared

    def replace() -> None:
        other[1].drop_table("s", "t")
        other[1].create_table("s", "t", COLUMNS)
        other[1].insert("s", "t", pa.table({"id": [1], "v": [2]}, schema=COLUMNS))

    with _at(monkeypatch, *_MOMENTS[moment], replace):
        lake.care_now()
    assert rows_at(load.client) == {1: 2}
    care_of_all(lake)
    assert rows_at(load.client) == {1: 2}


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_table_that_spark_replaces_meanwhile_keeps_its_new_rows(
    cared: Served, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    lake, load = cared

    def replace() -> None:
        lake.spark.sql(
            f"CREATE OR REPLACE TABLE {sql_name(lake, 's', 't')} USING iceberg "
            "TBLPROPERTIES ('format-version' = '3') AS SELECT 1L AS id, 2L AS v"
        )

    with _at(monkeypatch, *_MOMENTS[moment], replace):
        lake.care_now()
    assert rows_at(load.client) == {1: 2}
    care_of_all(lake)
    assert rows_at(load.client) == {1: 2}


# ------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize(
    "error",
    [
        CatalogFault("the catalog cannot be reached"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        RuntimeError("nobody expects this"),
    ],
    ids=["catalog", "full", "broken", "unexpected"],
)
def test_a_fault_is_told_and_care_is_tried_again(
    cared: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
    error: Exception,
) -> None:
    lake, load = cared

    def fail() -> None:
        raise error

    with caplog.at_level(logging.WARNING), _at(monkeypatch, *_MOMENTS[moment], fail):
        runs = list(lake.care_now())
    assert caplog.records
    assert not any("Traceback" in each.problem or "/" in each.problem for each in runs)
    _expect_recovery(lake, load)


def test_a_full_disk_does_not_stop_care_for_ever(
    cared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, load = cared
    before = {each for each in files_in(lake) if "data" in each.parts}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patches:
        for name in ("create", "write_all"):
            patches.setattr(LocalStorage, name, full)
        for _ in range(3):
            lake.care_now()
        load.expect_present()
        assert {each for each in files_in(lake) if "data" in each.parts} <= before
    _expect_recovery(lake, load)


def test_the_thread_outlives_a_catalog_that_is_away(
    cared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, load = cared
    asked = threading.Semaphore(0)

    def away(*_: Any) -> None:
        asked.release()
        raise CatalogFault("the catalog cannot be reached")

    with monkeypatch.context() as patches:
        patches.setattr(SqliteCatalog, "listing", away)
        lake.start_care()
        for _ in range(3):
            assert asked.acquire(timeout=SECONDS), "care does not look"
    _until(lambda: len(data_files(load.client)) < _SMALL)
    _expect_recovery(lake, load)


def test_a_lake_is_closed_while_care_is_at_work(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()
    with served(warehouse, _SETTINGS) as (lake, client):
        load = Load(client).create()
        load.run(40, 12, 6)
        at_work = threading.Event()

        def wait() -> None:
            at_work.set()
            assert closing.wait(SECONDS)

        with _at(monkeypatch, ParquetOutput, "finish", wait):
            lake.start_care()
            assert at_work.wait(SECONDS)
            closer = threading.Timer(0, lake.close)
            closer.start()
            _until(lambda: not lake._open)
            closing.set()
            closer.join(SECONDS)
            assert not closer.is_alive()
    with served(warehouse, _SETTINGS) as (lake, client):
        load.client = client
        _expect_recovery(lake, load)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


# ------------------------------------------------------------------------------------ odd settings


def test_a_sort_column_that_is_gone_harms_nothing(cared: Served) -> None:
    lake, load = cared
    client = load.client
    client.add_column("s", "t", "w", pa.int64())
    client.table_function("s", "set_care", "t", named={"sort": "w"})
    client.remove_column("s", "t", "w")
    lake.care_now()
    assert rows_at(client) == load.rows
    client.table_function("s", "set_care", "t", named={"sort": "id DESC"})
    care_of_all(lake)
    assert rows_at(client) == load.rows
    assert len(data_files(client)) < 2 * _SMALL


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nonsense",
        "[]",
        "null",
        '"x"',
        "{",
        '{"keep_versions": "many", "small_files": -3, "sort": 5, "no": 1, "keep_days": 1e999}',
        '{"keep_versions": 0, "most_versions": 0, "file_seconds": -1, "file_bytes": 0}',
        '{"sort": "' + "x" * 5000 + '"}',
    ],
)
def test_nonsense_that_another_engine_wrote_is_left_out(cared: Served, value: str) -> None:
    lake, load = cared
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    lake.spark.sql(
        f"ALTER TABLE {sql_name(lake, 's', 't')} SET TBLPROPERTIES ('sparkport.care' = '{quoted}')"
    )
    care_of_all(lake)
    _expect_recovery(lake, load)


@pytest.mark.parametrize("sort", ["no_such_column", "id; DROP TABLE t", "rand()", "id,,v"])
def test_an_order_that_cannot_be_is_told_and_harms_nothing(cared: Served, sort: str) -> None:
    lake, load = cared
    lake.spark.sql(
        f"ALTER TABLE {sql_name(lake, 's', 't')} SET TBLPROPERTIES "
        f"""('sparkport.care' = '{{"sort": "{sort}"}}')"""
    )
    problems = {each.problem for each in lake.care_now() if each.problem}
    assert all("call set_care" in each for each in problems)
    load.expect_present()
    assert refused(load.client, 1) == "NOT_FOUND", "versions are forgotten all the same"
    load.client.table_function("s", "set_care", "t", named={"sort": ""})
    _expect_recovery(lake, load)


@pytest.mark.parametrize("days", [-3_650, -1, 1, 3_650])
def test_a_clock_that_jumps_costs_no_promised_version(
    cared: Served, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    lake, load = cared
    now, jump = time.time_ns, days * 86_400 * 10**9
    with monkeypatch.context() as patches:
        patches.setattr(table_care, "time", SimpleNamespace(time_ns=lambda: now() + jump))
        lake.care_now()
        load.expect_present()
        load.run(3, 1)
        lake.care_now()
        load.expect_present()
    load.run(12, 4, 2)
    _expect_recovery(lake, load)
