"""`set_care` says how a table is taken care of; `care` and `files` tell what it has and needs."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.server.test_http import ask, status
from tests.spark.calling import Caller
from tests.spark.lake_tables import CTX, create, find, sql_name
from tests.spark.places import path_of

import sparkport as sp
from sparkport import errors
from sparkport.catalog import Context, ScanOptions
from sparkport.engine.cache import Cache
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care.compaction import compaction_need
from sparkport.spark.care.reports import CareLog, shown_runs
from sparkport.spark.functions.care_functions import Care, SetCare
from sparkport.spark.iceberg import manifests
from sparkport.spark.lake.care_settings import CARE_PROPERTY, care_of
from sparkport.spark.lake.version_log import number_of
from sparkport.testing import DuckDBClient, ServerError

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("shape", pa.list_(pa.int32()))])
NAMES = [each.name for each in SetCare(None, ()).signature.parameters][1:]  # type: ignore[arg-type]  # its signature needs no lake


def set_care(lake: LakeCatalog, namespace: str, table: str = "t", **said: Any) -> dict[str, Any]:
    """Call `set_care` as a client does, and return its row."""
    arguments = [table, *(said.get(name) for name in NAMES)]
    (row,) = Caller(lake, namespace).call("set_care", *arguments).to_pylist()
    return dict(row)


def care(
    lake: LakeCatalog, namespace: str, log: CareLog | None = None, ctx: Context = CTX
) -> dict[str, dict[str, Any]]:
    """The rows of `care`, by table."""
    function = Care(lake._lake, log, (namespace,))
    batches = function.execute(ctx, (), ScanOptions())
    rows = pa.Table.from_batches(list(batches), Care.columns).to_pylist()
    return {row["table_name"]: row for row in rows}


def state_of(lake: LakeCatalog, namespace: str, table: str = "t") -> Any:
    return find(lake, namespace, table).state


def own(lake: LakeCatalog, namespace: str, table: str = "t") -> Any:
    text = state_of(lake, namespace, table).metadata.properties.get(CARE_PROPERTY)
    return None if text is None else json.loads(text)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cared")


@pytest.fixture(scope="module")
def lake(lake: LakeCatalog, warehouse: Path) -> Iterator[LakeCatalog]:
    """A lake whose tables wait for care: it looks once a day. The shared one keeps the JVM."""
    settings = LakeSettings(statistics_rows=0, care=True, care_seconds=86_400.0)
    with LakeCatalog(warehouse, name="cared", settings=settings) as own:
        yield own


@pytest.fixture
def made(lake: LakeCatalog, namespace: str) -> str:
    """A table that was made here."""
    create(lake, namespace, "t", COLUMNS)
    return namespace


@pytest.fixture
def foreign(lake: LakeCatalog, namespace: str) -> str:
    """A table that another engine has made."""
    lake.spark.sql(f"CREATE TABLE {sql_name(lake, namespace, 'f')} (id BIGINT) USING iceberg")
    return namespace


# ---------------------------------------------------------------------------------------- set_care


def test_a_table_has_the_settings_of_the_lake_until_it_says_otherwise(lake, made):
    defaults = LakeSettings()

    assert set_care(lake, made) == {
        "table_name": "t",
        "enabled": True,
        "why_not": "",
        "keep_days": defaults.care_keep_days,
        "keep_versions": defaults.care_keep_versions,
        "most_versions": defaults.care_most_versions,
        "small_files": defaults.care_small_files,
        "file_bytes": defaults.care_file_bytes,
        "file_seconds": defaults.care_file_seconds,
        "sort": "",
    }
    assert own(lake, made) is None, "nothing was said"


def test_what_is_said_holds_and_what_is_not_said_stays(lake, made):
    first = set_care(lake, made, keep_days=0.5, small_files=5, file_bytes=1 << 20)
    second = set_care(lake, made, keep_days=30.0, enabled=False)

    assert (first["enabled"], first["keep_days"], first["small_files"]) == (True, 0.5, 5)
    assert (second["enabled"], second["why_not"]) == (False, "switched off")
    assert (second["keep_days"], second["small_files"], second["file_bytes"]) == (30, 5, 1 << 20)
    assert own(lake, made) == {
        "keep_days": 30.0,
        "small_files": 5,
        "file_bytes": 1 << 20,
        "enabled": False,
    }


def test_reset_forgets_what_was_said_but_not_what_is_said_with_it(lake, made):
    set_care(lake, made, keep_days=1.0, small_files=5)

    assert set_care(lake, made, reset=True, small_files=6)["keep_days"] == 7
    assert own(lake, made) == {"small_files": 6}
    set_care(lake, made, reset=True)
    assert own(lake, made) is None


def test_it_is_one_commit_and_no_version(lake, made):
    before = state_of(lake, made)
    set_care(lake, made, keep_days=1.0, sort="id")
    after = state_of(lake, made)
    set_care(lake, made, keep_days=1.0)

    assert number_of(lake._lake, after) == number_of(lake._lake, before)
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert state_of(lake, made).metadata_location == after.metadata_location, (
        "what holds already is not written again"
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"keep_days": -1.0}, "keep_days must be a number of days"),
        ({"keep_days": math.nan}, "keep_days must be a number of days"),
        ({"keep_days": math.inf}, "keep_days must be a number of days"),
        ({"keep_versions": 0}, "keep_versions must be a number of versions, at least 1"),
        ({"most_versions": -5}, "most_versions must be a number of versions, at least 1"),
        ({"small_files": 1}, "small_files must be a number of files, at least 2"),
        ({"file_bytes": 0}, "file_bytes must be a number of bytes"),
        ({"file_seconds": -0.1}, "file_seconds must be a number of seconds"),
        ({"keep_versions": 20, "most_versions": 10}, "at least 20 versions .* at most 10"),
        ({"most_versions": 50}, "at most 50 versions cannot be kept where at least 100 are"),
        ({"sort": "id, nothing"}, "has no column nothing"),
        ({"sort": "id; DROP TABLE t"}, "sort names columns"),
        ({"sort": "id,"}, "sort names columns"),
        ({"sort": "x" * 1001}, "sort must be names of columns"),
        ({"sort": "shape"}, "values without an order"),
    ],
)
def test_nonsense_is_refused_before_anything_is_changed(lake, made, said, problem):
    before = state_of(lake, made).metadata_location

    with pytest.raises(errors.BadRequest, match=problem):
        set_care(lake, made, enabled=False, **said)

    assert state_of(lake, made).metadata_location == before


def test_two_numbers_of_versions_may_be_said_one_after_the_other_if_they_fit(lake, made):
    assert set_care(lake, made, keep_versions=1000)["most_versions"] == 1000, "as many are kept"
    assert set_care(lake, made, keep_versions=10, most_versions=20)["most_versions"] == 20
    with pytest.raises(errors.BadRequest, match="say both keep_versions and most_versions"):
        set_care(lake, made, keep_versions=30)
    assert own(lake, made) == {"keep_versions": 10, "most_versions": 20}


def test_an_order_is_said_and_removed(lake, made):
    assert set_care(lake, made, sort=' day, "ID" DESC ')["sort"] == 'day, "ID" DESC'
    assert set_care(lake, made, keep_days=1.0)["sort"] == 'day, "ID" DESC'
    assert set_care(lake, made, sort="")["sort"] == ""
    assert own(lake, made) == {"keep_days": 1.0}


def test_a_table_of_another_engine_is_left_alone_until_something_is_said(lake, foreign):
    remedy = "made by another engine: set_care('f', enabled := true)"

    assert set_care(lake, foreign, "f", sort="")["why_not"] == remedy
    assert own(lake, foreign, "f") is None
    assert set_care(lake, foreign, "f", enabled=True)["why_not"] == ""
    assert set_care(lake, foreign, "f", sort="id")["enabled"]
    assert set_care(lake, foreign, "f", reset=True)["why_not"] == remedy


def test_what_another_engine_has_written_there_does_no_harm(lake, foreign):
    name = sql_name(lake, foreign, "f")
    for text in ("nonsense", '{"keep_days": -1, "unknown": 1, "small_files": 9}', "[]"):
        lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{CARE_PROPERTY}' = '{text}')")
        assert set_care(lake, foreign, "f")["keep_days"] == 7

    set_care(lake, foreign, "f", keep_days=2.0)

    assert own(lake, foreign, "f") == {"keep_days": 2.0}


def test_several_who_say_something_at_once_all_are_heard(lake, made):
    said = {"keep_days": 3.0, "small_files": 7, "file_bytes": 1 << 22, "file_seconds": 5.0}
    threads = [
        threading.Thread(target=set_care, args=(lake, made), kwargs={name: value})
        for name, value in said.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert own(lake, made) == said


def test_it_takes_the_privilege_to_alter_and_a_table_of_iceberg(lake, made):
    lake.spark.sql(f"CREATE VIEW {sql_name(lake, made, 'v')} AS SELECT 1 AS a")
    grants = [
        sp.Grant(("reader",), "**", (sp.Privilege.READ,)),
        sp.Grant(("owner",), "**", (sp.Privilege.READ, sp.Privilege.ALTER)),
    ]
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=sp.Policy(grants))
    said = {"keep_days": pa.array([2.0])}
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        with (
            DuckDBClient(server.location, lake.name, token="reader", timeout=60) as client,
            pytest.raises(ServerError, match="no alter permission"),
        ):
            client.table_function(made, "set_care", "t", named=said)
        assert own(lake, made) is None
        with DuckDBClient(server.location, lake.name, token="owner", timeout=60) as client:
            found = client.table_function(made, "set_care", "t", named=said)
            assert found["keep_days"].to_pylist() == [2.0]
            with pytest.raises(ServerError, match="not an Iceberg table"):
                client.table_function(made, "set_care", "v", named=said)
    assert own(lake, made) == {"keep_days": 2.0}


# -------------------------------------------------------------------------------------------- care


@pytest.fixture
def table(lake, namespace) -> str:
    """A table of three files, with two deleted rows."""
    name = sql_name(lake, namespace, "t")
    merge = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    for statement in (
        f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ({merge})",
        *(
            f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id FROM range({each}, {each + 10})"
            for each in (0, 10, 20)
        ),
        f"DELETE FROM {name} WHERE id IN (1, 11)",
    ):
        lake.spark.sql(statement)
    set_care(lake, namespace, enabled=True)
    return namespace


def test_what_a_table_has_and_needs_is_told(lake, table):
    row = care(lake, table)["t"]

    assert (row["enabled"], row["why_not"], row["needs"]) == (True, "", "")
    assert (row["keep_days"], row["keep_versions"], row["most_versions"]) == (7, 100, 500)
    assert (row["versions"], row["data_files"], row["small_files"]) == (5, 3, 3)
    assert (row["delete_files"], row["deleted_rows"]) == (2, 2)
    files = Caller(lake, table).call("files", "t").to_pylist()
    data = [each for each in files if each["content"] == "data"]
    assert row["bytes"] == sum(each["bytes"] for each in data)
    assert row["metadata_bytes"] > 1000
    history = Caller(lake, table).call("history", "t")
    assert row["oldest_version_at"] == history["committed_at"][0].as_py()
    assert sorted(each["deleted_rows"] for each in data) == [0, 1, 1]
    assert [row[name] for name in ("last_step", "last_at", "last_done", "last_problem")] == [
        None
    ] * 4
    assert (row["running"], row["progress"]) == (False, None)


def test_needs_follow_the_settings_of_the_table(lake, table, monkeypatch):
    later = SimpleNamespace(time=lambda: time.time() + 86_400)
    monkeypatch.setattr("sparkport.spark.functions.care_functions.time", later)
    assert care(lake, table)["t"]["needs"] == ""
    set_care(lake, table, small_files=2, keep_days=0.0, keep_versions=1, most_versions=2)

    needs = care(lake, table)["t"]["needs"].split("; ")

    assert needs == ["3 small files", "3 of 4 snapshots are past what is kept"]
    set_care(lake, table, file_bytes=1)
    row = care(lake, table)["t"]
    assert row["small_files"] == 0
    assert row["needs"] == needs[1]


def test_small_is_what_would_be_joined(lake, table):
    state = state_of(lake, table)
    files = Caller(lake, table).call("files", "t").to_pylist()
    sizes = sorted(each["bytes"] for each in files if each["content"] == "data")
    for wanted in (1, *(2 * each + more for each in sizes for more in (0, 1, 2))):
        set_care(lake, table, file_bytes=wanted, small_files=2)
        settings = care_of(lake._lake.settings, state_of(lake, table).metadata.properties)
        need = compaction_need(state, settings)
        listed = Caller(lake, table).call("files", "t").to_pylist()
        small = {each["path"] for each in listed if each["is_small"]}
        assert len(small) == sum(each < wanted / 2 for each in sizes)
        assert (need is None) == (len(small) < 2)
        if need is not None:
            assert need.why == f"{len(small)} small files"
            assert {each.entry.path for each in need.files} <= small


def _fail() -> None:
    raise errors.CatalogFault("it does not answer")


def test_the_last_step_and_the_one_that_runs_are_told(lake, table):
    create(lake, table, "u")
    log, identifier = CareLog(), state_of(lake, table).identifier
    with log.step(identifier, "join files", "3 small files") as step:
        step.tell("3 files became 1")
    with log.step(identifier, "forget versions", "old ones"):
        _fail()
    with log.step(identifier, "remove files", "unused ones") as step:
        step.report(0.25)
        meanwhile = care(lake, table, log)
    after = care(lake, table, log)["t"]

    assert (meanwhile["t"]["running"], meanwhile["t"]["progress"]) == (True, 0.25)
    assert (meanwhile["u"]["running"], meanwhile["u"]["last_step"]) == (False, None)
    assert (after["running"], after["last_step"], after["last_problem"]) == (
        False,
        "forget versions",
        "it does not answer",
    )
    assert after["last_at"] is not None
    assert [(each["table"], each["step"], each["problem"]) for each in shown_runs(log)] == [
        (f"{table}.t", "forget versions", "it does not answer"),
        (f"{table}.t", "join files", ""),
    ]


def test_why_a_table_is_left_alone_is_told(lake, table, foreign):
    create(lake, table, "off")
    create(lake, table, "empty")
    lake.spark.sql(f"CREATE VIEW {sql_name(lake, table, 'v')} AS SELECT 1 AS a")
    set_care(lake, table, "off", enabled=False)
    name = sql_name(lake, table, "t")
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'false')")

    found = care(lake, table)

    assert {each["table_name"]: each["why_not"] for each in found.values()} == {
        "empty": "",
        "f": "made by another engine: set_care('f', enabled := true)",
        "off": "switched off",
        "t": "it shares its files with others: gc.enabled is false",
    }
    assert [row["enabled"] for row in found.values()] == [True, False, False, False]
    assert (found["empty"]["data_files"], found["empty"]["needs"]) == (0, "")


def test_of_a_table_that_only_spark_reaches_what_its_metadata_tell_is_told(
    lake, table, monkeypatch
):
    create(lake, table, "odd")
    known = lake._lake.state

    def state(identifier: Any, location: str) -> Any:
        if identifier.name == "odd":
            raise errors.Unsupported("it has columns of a type that only Spark can read")
        return replace(known(identifier, location), io=None)

    monkeypatch.setattr(lake._lake, "state", state)
    found = care(lake, table)

    assert found["t"]["why_not"] == "only Spark can reach its files: no version is forgotten"
    assert (found["t"]["enabled"], found["t"]["versions"], found["t"]["needs"]) == (True, 5, "")
    assert [found["t"][name] for name in ("data_files", "bytes", "metadata_bytes")] == [None] * 3
    assert (found["odd"]["enabled"], found["odd"]["why_not"]) == (False, "only Spark can read it")


def test_where_the_lake_takes_no_care_that_is_said(lake, warehouse, table):
    with LakeCatalog(warehouse, name="careless", settings=LakeSettings(care=False)) as careless:
        row = care(careless, table)["t"]

    assert (row["enabled"], row["why_not"]) == (
        False,
        "switched off for the whole lake: lake_care",
    )


def test_a_table_in_trouble_does_not_hide_the_others(lake, table, monkeypatch):
    create(lake, table, "u")
    monkeypatch.setattr(manifests, "_lists", Cache(1))
    path = path_of(state_of(lake, table).snapshot.manifest_list)
    kept = path.rename(path.with_suffix(".away"))
    try:
        found = care(lake, table)
    finally:
        kept.rename(path)

    assert "table" in found["t"]["why_not"]
    assert str(path) not in found["t"]["why_not"]
    assert found["t"]["versions"] is None
    assert found["u"]["why_not"] == ""


def test_only_tables_that_the_caller_may_read_as_a_whole_are_told_of(lake, table):
    for name in ("hidden", "masked", "listed"):
        create(lake, table, name)
    read, see = sp.Privilege.READ, sp.Privilege.LIST
    policy = sp.Policy(
        [
            sp.Grant(("all",), "**", (read,)),
            *(
                sp.Grant(("some",), f"*.{table}.{name}", (read,))
                for name in ("t", "care", "masked")
            ),
            sp.Grant(("some",), f"*.{table}.listed", (see,)),
        ],
        masks=[sp.Mask(f"*.{table}.masked", "name", to=("some",))],
    )
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        for who, expected in (("all", ["hidden", "listed", "masked", "t"]), ("some", ["t"])):
            with DuckDBClient(server.location, lake.name, token=who, timeout=60) as client:
                found = client.table_function(table, "care")
                assert found["table_name"].to_pylist() == expected


def test_a_schema_without_tables_has_no_rows_and_a_cancelled_call_ends(lake, namespace, made):
    assert Caller(lake, namespace).call("care").num_rows == 1
    ctx = Context()
    ctx.cancellation.cancel()
    with pytest.raises(errors.Cancelled):
        care(lake, made, ctx=ctx)
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.`{namespace}_empty`")
    assert Caller(lake, f"{namespace}_empty").call("care").num_rows == 0


def test_the_status_page_and_the_metrics_tell_of_a_lake(lake, made):
    with lake._care_log.step(
        state_of(lake, made).identifier, "join files", "9 small files"
    ) as step:
        step.tell("9 files became 1", files_removed=8)
    with sp.Server(lake, "grpc://127.0.0.1:0", sp.ServerSettings(http="127.0.0.1:0")) as server:
        assert server.status_page is not None
        shown = status(server.status_page)["care"]
        metrics = ask(server.status_page, "/metrics")[2]

    assert (shown[0]["object"], shown[0]["done"]) == (f"cared.{made}.t", "9 files became 1")
    assert 'sparkport_catalog_care_files_removed{catalog="cared"} 8.0' in metrics
    assert 'sparkport_catalog_care_running{catalog="cared"} 0.0' in metrics
    assert made not in metrics
