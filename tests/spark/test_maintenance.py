"""Maintenance of tables: optimize, expire_snapshots, rollback_to, tag."""

from __future__ import annotations

import datetime
import threading
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.calling import Caller
from tests.spark.lake_tables import CTX, create, find
from tests.spark.places import path_of
from tests.spark.spark_jobs import running, wait_for

import sparkport as sp
from sparkport import errors
from sparkport.catalog import Context, ScanOptions, TimePoint
from sparkport.spark.lake.version_log import changes_of
from sparkport.testing import DuckDBClient, ServerError

_MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
_PROPERTIES = f"TBLPROPERTIES ('format-version' = '3', {_MERGE_ON_READ})"


@pytest.fixture
def caller(lake, namespace) -> Caller:
    return Caller(lake, namespace)


@pytest.fixture
def name(lake, namespace) -> str:
    """A table: version 0 is empty, 1 has two rows, 2 a new column, 3 another row, 4 a row less."""
    table = f"{lake.spark_catalog}.{namespace}.t"
    for statement in (
        f"CREATE TABLE {table} (id BIGINT, v STRING) USING iceberg {_PROPERTIES}",
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b')",
        f"ALTER TABLE {table} ADD COLUMN w INT",
        f"INSERT INTO {table} VALUES (3, 'c', 7)",
        f"DELETE FROM {table} WHERE id = 1",
    ):
        lake.spark.sql(statement)
    return table


def _rows(lake, namespace, version: object = None, table: str = "t") -> list[dict[str, Any]]:
    point = None if version is None else TimePoint("version", str(version))
    found = find(lake, namespace, table).scan(CTX, ScanOptions(time_point=point))
    rows = [row for batch in found for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["rowid"])


def _version(lake, namespace, table: str = "t") -> int:
    return changes_of(lake._lake, find(lake, namespace, table).state)[-1].number


def _files(caller, content: str = "data") -> list[str]:
    return [
        each["path"] for each in caller.call("files", "t").to_pylist() if each["content"] == content
    ]


def _everything(spark, name) -> list[tuple[Any, ...]]:
    query = f"SELECT _row_id, _last_updated_sequence_number, * FROM {name}"
    return sorted(tuple(row) for row in spark.sql(query).collect())


# ---------------------------------------------------------------------------------------- optimize


def test_small_files_become_one_and_rows_stay_what_they_are(lake, namespace, caller, spark, name):
    spark.sql(f"UPDATE {name} SET v = 'B' WHERE id = 2")
    before, shown = _everything(spark, name), _rows(lake, namespace)
    running = find(lake, namespace, "t").scan(CTX, ScanOptions(batch_size=1))
    first = next(running)

    found = caller.call("optimize", "t").to_pylist()

    assert [each["action"] for each in found] == ["data files", "delete files", "manifests"]
    assert (found[0]["files_before"], found[0]["files_after"]) == (3, 1)
    assert found[0]["bytes_before"] > 0
    assert found[0]["bytes_after"] > 0
    assert len(_files(caller)) == 1
    assert _files(caller, "delete vector") == []
    assert _everything(spark, name) == before
    assert _rows(lake, namespace) == shown
    rest = [row for batch in running for row in batch.to_pylist()]
    assert sorted([*first.to_pylist(), *rest], key=lambda row: row["rowid"]) == shown, (
        "a running scan goes on"
    )


def test_what_is_well_is_left_alone(lake, namespace, caller, name):
    caller.call("optimize", "t")
    version = _version(lake, namespace)

    again = caller.call("optimize", "t").to_pylist()

    assert [(each["files_before"], each["files_after"]) for each in again] == [(0, 0)] * 3
    assert _version(lake, namespace) == version


def test_manifests_are_put_together_and_row_ids_stay(lake, namespace, caller, spark):
    name = f"{lake.spark_catalog}.{namespace}.t"
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg PARTITIONED BY (id) {_PROPERTIES}")
    for number in range(4):
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
    before = _everything(spark, name)

    found = caller.call("optimize", "t").to_pylist()

    assert (found[0]["files_before"], found[2]["files_before"], found[2]["files_after"]) == (
        0,
        4,
        1,
    )
    assert found[2]["bytes_after"] < found[2]["bytes_before"]
    assert _everything(spark, name) == before


def test_files_are_written_in_an_order(lake, namespace, caller, spark, name):
    spark.sql(f"INSERT INTO {name} SELECT id, 'x', 1 FROM range(100, 200)")
    before = _everything(spark, name)

    caller.call("optimize", "t", 10_000_000, "id DESC NULLS LAST")

    (path,) = _files(caller)
    import pyarrow.parquet as pq

    ids = pq.read_table(path_of(path))["id"].to_pylist()
    assert ids == sorted(ids, reverse=True)
    assert _everything(spark, name) == before


def test_a_cancelled_call_stops_and_changes_nothing(lake, namespace, caller, spark):
    name = f"{lake.spark_catalog}.{namespace}.t"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v DOUBLE) USING iceberg {_PROPERTIES}")
    spark.sql(f"INSERT INTO {name} SELECT id, rand() FROM range(0, 3000000, 1, 4)")
    version = 1

    while not (caught := _cancelled(caller, spark)):  # it had ended before, if the machine is slow
        version = _version(lake, namespace)
        assert version < 5, "it does not stop"

    assert isinstance(caught[0], errors.Cancelled)
    assert _version(lake, namespace) == version
    assert wait_for(lambda: not running(spark))


def _cancelled(caller, spark) -> list[errors.SparkportError]:
    """The error of a call that is cancelled after Spark has begun."""
    ctx = Context()
    caught: list[errors.SparkportError] = []

    def run() -> None:
        try:
            list(caller.function("optimize").execute(ctx, ["t", None, "v"], ScanOptions()))
        except errors.SparkportError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert wait_for(lambda: running(spark) > 0 or not thread.is_alive(), 60)
    ctx.cancellation.cancel()
    thread.join(timeout=60)
    assert not thread.is_alive()
    return caught


def test_a_write_that_comes_between_is_not_lost(lake, namespace, caller, spark):
    name = f"{lake.spark_catalog}.{namespace}.t"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v DOUBLE) USING iceberg {_PROPERTIES}")
    spark.sql(f"INSERT INTO {name} SELECT id, rand() FROM range(0, 1000000, 1, 4)")
    caught = []

    def run() -> None:
        try:
            caller.call("optimize", "t", None, "v")
        except errors.SparkportError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert wait_for(lambda: running(spark) > 0 or not thread.is_alive(), 60)
    _delete(spark, f"{name} WHERE id % 10 = 3")
    thread.join(timeout=120)

    assert not thread.is_alive()
    assert all(isinstance(each, errors.Conflict) for each in caught), caught
    assert spark.sql(f"SELECT count(*), count(DISTINCT id) FROM {name}").collect() == [
        (900_000, 900_000)
    ]


def _delete(spark, rows: str) -> None:
    """Delete rows, again if need be.

    Iceberg refuses a DELETE whose files were rewritten since it was planned.
    """
    while True:
        try:
            spark.sql(f"DELETE FROM {rows}")
            return
        except Exception as error:
            if "missing data files" not in str(error):
                raise


def test_an_empty_table_has_nothing_to_optimize(lake, namespace, caller):
    create(lake, namespace, "e")
    assert caller.call("optimize", "e")["files_after"].to_pylist() == [0, 0, 0]
    assert _version(lake, namespace, "e") == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((-5,), errors.BadRequest, "target_file_size is a number of bytes"),
        ((None, " "), errors.BadRequest, "sort names columns"),
        ((None, "nope"), errors.BadRequest, "Cannot find field 'nope'"),
        ((None, "id ; DROP TABLE t"), errors.BadRequest, "Unable to parse sortOrder"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    lake, namespace, caller, name, arguments, error, words
):
    with pytest.raises(error, match=words):
        caller.call("optimize", "t", *arguments)
    assert _version(lake, namespace) == 4


@pytest.mark.parametrize("function", ["optimize", "expire_snapshots", "rollback_to", "tag"])
def test_only_iceberg_tables_are_cared_for(lake, namespace, caller, spark, name, function):
    spark.sql(f"CREATE VIEW {lake.spark_catalog}.{namespace}.w AS SELECT 1 AS a")
    rest = {"rollback_to": (1,), "tag": ("x",)}.get(function, ())
    for table, error, words in (
        ("w", errors.Unsupported, "not an Iceberg table"),
        ("nope", errors.NotFound, "table nope does not exist"),
        (None, errors.NotFound, "needs the name of a table"),
    ):
        with pytest.raises(error, match=words):
            caller.call(function, pa.array([table], pa.string()), *rest)


def test_odd_names_are_found(lake, namespace, caller, spark):
    table = create(lake, namespace, "o'd d.t`x")
    spark.sql(f"INSERT INTO {table.identifier.sql} VALUES (1, 1, 'a')")
    spark.sql(f"INSERT INTO {table.identifier.sql} VALUES (2, 1, 'a')")
    assert caller.call("optimize", "o'd d.t`x")["files_after"][0].as_py() == 1
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    assert caller.call("expire_snapshots", "o'd d.t`x", moment, 1)[
        "expired_snapshots"
    ].to_pylist() == [2]


# -------------------------------------------------------------------------------- expire_snapshots

_TOMORROW = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)


def test_young_snapshots_are_kept_unless_somebody_says_otherwise(lake, namespace, caller, name):
    (found,) = caller.call("expire_snapshots", "t").to_pylist()
    assert set(found.values()) == {0}
    assert len(_rows(lake, namespace, 1)) == 2


def test_old_versions_are_forgotten_and_their_files_removed(lake, namespace, caller, spark, name):
    caller.call("optimize", "t")
    old = path_of(_files(caller)[0]).parent
    stray = old / "being-written.parquet"
    stray.write_bytes(b"PAR1")
    present = _rows(lake, namespace)

    (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 1).to_pylist()

    assert found["expired_snapshots"] >= 3
    assert (found["data_files"], found["delete_files"], found["snapshots_in_use"]) == (2, 1, 0)
    assert found["manifest_lists"] == found["expired_snapshots"]
    assert _rows(lake, namespace) == present
    assert stray.exists(), "what no snapshot ever had is not its business"
    assert len(list(old.glob("*.parquet"))) == 2
    with pytest.raises(errors.NotFound, match="is no longer kept: its snapshot has expired"):
        _rows(lake, namespace, 1)


def test_the_last_ones_are_kept(lake, namespace, caller, name):
    (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 2).to_pylist()
    assert found["expired_snapshots"] == 1
    assert [row["id"] for row in _rows(lake, namespace, 3)] == [1, 2, 3]
    with pytest.raises(errors.BadRequest, match="at least 1"):
        caller.call("expire_snapshots", "t", _TOMORROW, 0)


def test_tags_and_branches_keep_their_rows(lake, namespace, caller, spark, name):
    caller.call("tag", "t", "first", "1")
    spark.sql(
        f"ALTER TABLE {name} CREATE BRANCH side AS OF VERSION {_snapshot(lake, namespace, 3)}"
    )

    (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 1).to_pylist()

    assert (found["expired_snapshots"], found["data_files"]) == (0, 0)
    assert [row["v"] for row in _rows(lake, namespace, "first")] == ["a", "b"]
    assert len(_rows(lake, namespace, "side")) == 3


def _snapshot(lake, namespace, version: int) -> int:
    point = TimePoint("version", str(version))
    return int(find(lake, namespace, "t")._at(CTX, point).snapshot.snapshot_id)


def test_what_open_transactions_read_is_kept(lake, namespace, caller, spark, name):
    reader = Context(transaction_id=lake.begin_transaction(CTX))
    traveller = Context(transaction_id=lake.begin_transaction(CTX))

    def ids(ctx: Context, version: int | None = None) -> list[int]:
        point = None if version is None else TimePoint("version", str(version))
        table = lake.schema(ctx, namespace).table(ctx, "t")
        found = table.scan(ctx, ScanOptions(columns=("id",), time_point=point))
        return sorted(row["id"] for batch in found for row in batch.to_pylist())

    assert ids(reader) == [2, 3]
    assert ids(traveller, 1) == [1, 2]
    spark.sql(f"DELETE FROM {name} WHERE true")

    (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 1).to_pylist()

    assert (found["expired_snapshots"], found["snapshots_in_use"]) == (1, 2)
    assert (ids(reader), ids(traveller, 1)) == ([2, 3], [1, 2])
    lake.commit_transaction(CTX, reader.transaction_id)
    lake.rollback_transaction(CTX, traveller.transaction_id)
    (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 1).to_pylist()
    assert (found["expired_snapshots"], found["snapshots_in_use"]) == (2, 0)


def test_a_transaction_that_waits_for_its_commit_keeps_what_it_began_with(
    lake, namespace, caller, spark, name
):
    with ExitStack() as stack:
        server = sp.Server(
            lake, "grpc://127.0.0.1:0", sp.ServerSettings(idle_thread_seconds=0.05)
        ).start()
        stack.callback(server.stop, 0)
        client = stack.enter_context(DuckDBClient(server.location, lake.name, timeout=60.0))
        client.begin()
        client.call(namespace, "lake_begin", {}, rows=1)
        client.update(namespace, "t", {"v": "'mine'"}, where="id = 2")
        (branch,) = {
            each for each in find(lake, namespace, "t").state.metadata.refs if each != "main"
        }
        assert caller.call("snapshots", "t")["branches"].to_pylist() == [[], [], ["main"]], (
            "nobody sees it"
        )
        for function in ("rollback_to", "table_changes"):
            with pytest.raises(errors.NotFound, match="its tags and branches are none"):
                caller.call(function, "t", branch)
        spark.sql(f"INSERT INTO {name} VALUES (10, 'theirs', 1)")
        spark.sql(f"INSERT INTO {name} VALUES (11, 'theirs', 1)")

        (found,) = caller.call("expire_snapshots", "t", _TOMORROW, 1).to_pylist()

        assert found["expired_snapshots"] == 3
        client.call(namespace, "lake_commit", {}, rows=1)
        client.commit()
    assert [(row["id"], row["v"]) for row in _rows(lake, namespace)] == [
        (2, "mine"),
        (3, "c"),
        (10, "theirs"),
        (11, "theirs"),
    ]


def test_a_branch_that_forgets_by_itself_does_not_take_what_is_read(
    lake, namespace, caller, spark, name
):
    reader = Context(transaction_id=lake.begin_transaction(CTX))
    assert lake.schema(reader, namespace).table(reader, "t") is not None
    spark.sql(f"DELETE FROM {name} WHERE true")
    handle = lake._lake.gateway.iceberg(find(lake, namespace, "t").identifier)
    handle.table.manageSnapshots().setMaxSnapshotAgeMs("main", 1).setMinSnapshotsToKeep(
        "main", 1
    ).commit()

    with pytest.raises(errors.PreconditionFailed, match="keeps snapshots for a limited time only"):
        caller.call("expire_snapshots", "t")
    lake.commit_transaction(CTX, reader.transaction_id)
    assert caller.call("expire_snapshots", "t")["expired_snapshots"].to_pylist() == [3]


def test_a_table_that_shares_its_files_is_refused(lake, namespace, caller, spark, name):
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    with pytest.raises(errors.PreconditionFailed, match="shares its files with others"):
        caller.call("expire_snapshots", "t", _TOMORROW, 1)


# ------------------------------------------------------------------------------------- rollback_to


@pytest.mark.parametrize("version", [0, 1, 2, 3, "3"])
def test_a_table_becomes_what_it_was(lake, namespace, caller, name, version):
    expected, columns = _rows(lake, namespace, version), _columns(lake, namespace, version)

    (found,) = caller.call("rollback_to", "t", version).to_pylist()

    assert found["version"] == 5
    assert "rows" in found["restored"]
    assert (_rows(lake, namespace), _columns(lake, namespace)) == (expected, columns)
    assert caller.call("history", "t")["version"].to_pylist() == list(range(6))
    assert _rows(lake, namespace, 5) == expected


def _columns(lake, namespace, version: object = None) -> pa.Schema:
    point = None if version is None else TimePoint("version", str(version))
    return find(lake, namespace, "t")._at(CTX, point).definition.columns


def test_a_rollback_can_be_taken_back(lake, namespace, caller, name):
    present = _rows(lake, namespace)
    caller.call("rollback_to", "t", 1)
    caller.call("rollback_to", "t", 4)
    assert _rows(lake, namespace) == present
    assert _version(lake, namespace) == 6


def test_columns_defaults_and_constraints_come_back(lake, namespace, caller, spark):
    columns = pa.schema(
        [pa.field("id", pa.int64()), pa.field("v", pa.uint8(), True, {"default": "3"})]
    )
    table = create(
        lake,
        namespace,
        "t",
        columns,
        constraints=sp.catalog.Constraints(checks=("v < 100",)),
        comment="first",
    )
    spark.sql(f"INSERT INTO {table.identifier.sql} VALUES (1, 5)")
    before = find(lake, namespace, "t").state.definition
    spark.sql(f"COMMENT ON TABLE {table.identifier.sql} IS 'second'")
    from sparkport.catalog import RemoveColumnOptions

    table.remove_column(CTX, "v", RemoveColumnOptions(cascade=True))
    assert _rows(lake, namespace) == [{"id": 1, "rowid": 0}]

    (found,) = caller.call("rollback_to", "t", 1).to_pylist()

    assert found["restored"] == "columns, constraints, comment"
    after = find(lake, namespace, "t").state.definition
    assert after.columns.equals(before.columns, check_metadata=True)
    assert (after.constraints, after.comment) == (before.constraints, before.comment)
    assert _rows(lake, namespace) == [{"id": 1, "v": 5, "rowid": 0}]
    assert spark.sql(f"SELECT id, v FROM {table.identifier.sql}").collect() == [(1, 5)]


def test_new_rows_get_new_ids_after_a_rollback(lake, namespace, caller, spark, name):
    used = {row["rowid"] for version in range(5) for row in _rows(lake, namespace, version)}
    caller.call("rollback_to", "t", 1)
    spark.sql(f"INSERT INTO {name} VALUES (9, 'z')")
    (new,) = {row["rowid"] for row in _rows(lake, namespace)} - {0, 1}
    assert new not in used
    assert [row["id"] for row in _rows(lake, namespace)] == [1, 2, 9]


def test_snapshots_and_tags_are_gone_back_to(lake, namespace, caller, name):
    snapshot = _snapshot(lake, namespace, 1)
    first = _rows(lake, namespace, 1)
    caller.call("tag", "t", "third", "3")

    caller.call("rollback_to", "t", snapshot)
    assert (_rows(lake, namespace), _columns(lake, namespace).names) == (first, ["id", "v"])
    caller.call("rollback_to", "t", "third")
    assert _rows(lake, namespace) == _rows(lake, namespace, 3)


def test_going_to_the_present_changes_nothing(lake, namespace, caller, name):
    for version in (4, _snapshot(lake, namespace, 4)):
        (found,) = caller.call("rollback_to", "t", version).to_pylist()
        assert (found["version"], found["restored"]) == (4, "nothing: it is what it was")


def test_a_moment_is_gone_back_to(lake, namespace, caller, name):
    moment = caller.call("history", "t")["committed_at"][1].as_py()
    expected = _rows(lake, namespace, 1)
    caller.call("rollback_to", "t", pa.array([moment], pa.timestamp("us", "UTC")))
    assert _rows(lake, namespace) == expected


def test_what_the_table_never_was_is_refused(lake, namespace, caller, spark, name):
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {name}.branch_side VALUES (9, 'z', 1)")
    side = find(lake, namespace, "t").state.metadata.refs["side"].snapshot_id

    with pytest.raises(errors.BadRequest, match="side is a branch"):
        caller.call("rollback_to", "t", "side")
    with pytest.raises(errors.BadRequest, match="is of a branch: the table never was"):
        caller.call("rollback_to", "t", side)
    for version, error, words in (
        (17, errors.NotFound, "its latest is 4"),
        ("nope", errors.NotFound, "no tag or branch 'nope'"),
        (None, errors.BadRequest, "takes a version as AT does"),
        (True, errors.BadRequest, "takes a version as AT does"),
        (1.5, errors.BadRequest, "takes a version as AT does"),
    ):
        with pytest.raises(error, match=words):
            caller.call("rollback_to", "t", version)
    assert _version(lake, namespace) == 4


def test_a_layout_that_needs_a_newer_column_is_refused(lake, namespace, caller, spark, name):
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD w")
    with pytest.raises(
        errors.Unsupported, match="is partitioned by w, a column that it did not have then"
    ):
        caller.call("rollback_to", "t", 1)
    caller.call("rollback_to", "t", 3)
    assert len(_rows(lake, namespace)) == 3


# --------------------------------------------------------------------------------------------- tag


def test_a_version_gets_a_name(lake, namespace, caller, name):
    (found,) = caller.call("tag", "t", "now").to_pylist()
    assert found == {"tag": "now", "snapshot_id": _snapshot(lake, namespace, 4), "schema_id": 1}
    caller.call("tag", "t", "two rows", "1")

    assert _rows(lake, namespace, "now") == _rows(lake, namespace)
    assert _rows(lake, namespace, "two rows") == _rows(lake, namespace, 1)
    assert _version(lake, namespace) == 4, "a tag is no change"


@pytest.mark.parametrize(
    ("tag", "version", "error", "words"),
    [
        ("taken", None, errors.AlreadyExists, "has a tag taken already"),
        ("side", None, errors.AlreadyExists, "has a branch side already"),
        ("main", None, errors.BadRequest, "reserved"),
        ("sparkport_1", None, errors.BadRequest, "reserved"),
        ("17", None, errors.BadRequest, "would take it for a number"),
        ("", None, errors.BadRequest, "needs a name"),
        (" a", None, errors.BadRequest, "without spaces around it"),
        ("a\nb", None, errors.BadRequest, "control characters"),
        ("x" * 201, None, errors.BadRequest, "at most 200"),
        (None, None, errors.BadRequest, "needs a name"),
        ("new", "0", errors.PreconditionFailed, "had no rows then"),
        ("new", "99", errors.NotFound, "its latest is 4"),
        ("new", "nope", errors.NotFound, "no tag or branch 'nope'"),
    ],
)
def test_a_tag_that_cannot_be_is_refused(
    lake, namespace, caller, spark, name, tag, version, error, words
):
    spark.sql(f"ALTER TABLE {name} CREATE TAG taken")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    with pytest.raises(error, match=words):
        caller.call("tag", "t", pa.array([tag], pa.string()), version)
    assert set(find(lake, namespace, "t").state.metadata.refs) == {"main", "taken", "side"}


# ----------------------------------------------------------------------------------- over the wire


def test_duckdb_cares_for_a_table(lake, namespace, name):
    with ExitStack() as stack:
        server = sp.Server(
            lake, "grpc://127.0.0.1:0", sp.ServerSettings(idle_thread_seconds=0.05)
        ).start()
        stack.callback(server.stop, 0)
        client = stack.enter_context(DuckDBClient(server.location, lake.name, timeout=60.0))

        def called(function, *arguments, **named):
            return client.table_function(namespace, function, *arguments, named=named).to_pylist()

        assert called("tag", "t", "first", version="1")[0]["tag"] == "first"
        assert called("rollback_to", "t", "first")[0]["version"] == 5
        assert called("rollback_to", "t", 4)[0]["version"] == 6
        assert called("optimize", "t", target_file_size=10_000_000)[0]["files_after"] == 1
        assert (
            called("expire_snapshots", "t", older_than=_TOMORROW, retain_last=1)[0][
                "expired_snapshots"
            ]
            > 0
        )
        assert client.scan(namespace, "t", at=("VERSION", "first")).num_rows == 2
        with pytest.raises(ServerError, match="has a tag first already"):
            called("tag", "t", "first")
