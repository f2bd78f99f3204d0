"""AT (…): versions, snapshots, tags, branches, timestamps; and what a transaction sees."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from tests.spark.lake_tables import find

from sparkport.catalog import Context, ScanOptions, SchemaRequest, TimePoint
from sparkport.errors import BadRequest, NotFound
from sparkport.server import Server
from sparkport.spark.iceberg.metadata_heads import MetadataHeads
from sparkport.testing import DuckDBClient, ServerError

_PROPERTIES = "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"


@pytest.fixture
def history(lake, namespace) -> str:
    """A table: version 0 is empty, 1 has two rows, 2 a column more, 3 a row less, 4 a new name."""
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    for statement in (
        f"CREATE TABLE {table} (id BIGINT, v STRING) USING iceberg {_PROPERTIES}",
        f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')",
        f"ALTER TABLE {table} ADD COLUMN extra INT",
        f"DELETE FROM {table} WHERE id = 1",
        f"ALTER TABLE {table} RENAME COLUMN v TO w",
    ):
        lake.spark.sql(statement)
    return namespace


@pytest.fixture
def client(lake) -> Iterator[DuckDBClient]:
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        yield client.attach()


def _rows(lake, namespace, unit, value) -> tuple[list[str], list[dict[str, Any]]]:
    ctx, point = Context(), TimePoint(unit, str(value))
    table = lake.schema(ctx, namespace).table(ctx, "t")
    names = table.schema_for_request(ctx, SchemaRequest(time_point=point)).names
    rows = [
        row for batch in table.scan(ctx, ScanOptions(time_point=point)) for row in batch.to_pylist()
    ]
    return names, [{key: value for key, value in row.items() if key != "rowid"} for row in rows]


def _id(lake, namespace, number) -> int:
    snapshots = f"`{lake.spark_catalog}`.{namespace}.t.snapshots"
    query = f"SELECT snapshot_id FROM {snapshots} ORDER BY committed_at"
    return lake.spark.sql(query).collect()[number][0]


def test_versions_count_changes_of_rows_and_of_columns(lake, history):
    assert _rows(lake, history, "version", 0) == (["id", "v", "rowid"], [])
    assert _rows(lake, history, "version", 1) == (
        ["id", "v", "rowid"],
        [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}],
    )
    names, rows = _rows(lake, history, "version", 2)
    assert names == ["id", "v", "extra", "rowid"]
    assert rows == [{"id": 1, "v": "a", "extra": None}, {"id": 2, "v": "b", "extra": None}]
    assert _rows(lake, history, "version", 3)[1] == [{"id": 2, "v": "b", "extra": None}]
    assert _rows(lake, history, "version", 4) == (
        ["id", "w", "extra", "rowid"],
        [{"id": 2, "w": "b", "extra": None}],
    )


def test_what_changes_nothing_that_is_shown_does_not_count(lake, history):
    table = f"`{lake.spark_catalog}`.{history}.t"
    shown = [_rows(lake, history, "version", number) for number in range(5)]
    for statement in (
        f"ALTER TABLE {table} CREATE TAG now",
        f"ALTER TABLE {table} CREATE BRANCH side",
        f"INSERT INTO {table}.branch_side VALUES (7, 'z', 1)",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.target-file-size-bytes' = '1000000')",
        f"ALTER TABLE {table} DROP BRANCH side",
    ):
        lake.spark.sql(statement)
    assert [_rows(lake, history, "version", number) for number in range(5)] == shown
    with pytest.raises(NotFound, match="its latest is 4"):
        _rows(lake, history, "version", 5)

    find(lake, history, "t").set_default(Context(), "extra", "5")
    lake.spark.sql(f"INSERT INTO {table} VALUES (8, 'y', 1)")
    assert _rows(lake, history, "version", 4) == shown[4]
    assert _rows(lake, history, "version", 5)[1] == shown[4][1]
    assert len(_rows(lake, history, "version", 6)[1]) == 2


def test_versions_keep_their_numbers_when_the_log_is_cut(lake, namespace):
    table = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.metadata.previous-versions-max' = '2')"
    )
    for number in range(1, 5):
        lake.spark.sql(f"INSERT INTO {table} VALUES ({number})")
        lake.spark.sql(f"ALTER TABLE {table} CREATE TAG t{number}")
        assert len(_rows(lake, namespace, "version", number)[1]) == number
    lake._lake.metadata_heads = MetadataHeads(lake._lake.metadata_heads._open)  # as after a restart
    assert len(_rows(lake, namespace, "version", 3)[1]) == 3
    with pytest.raises(NotFound, match=r"version 2 .* is no longer kept: the oldest is 3"):
        _rows(lake, namespace, "version", 2)
    with pytest.raises(NotFound, match="its latest is 4"):
        _rows(lake, namespace, "version", 5)


def test_the_client_travels_with_the_columns_of_that_time(client, history):
    assert client.scan(history, "t", at=("VERSION", "1")).to_pylist() == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]
    assert client.scan(history, "t", at=("VERSION", "0")).num_rows == 0
    found = client.scan(history, "t", ["v"], where="id = 2", at=("VERSION", "2"))
    assert found.to_pylist() == [{"v": "b"}]


@pytest.mark.parametrize(("value", "problem"), [("5", "its latest is 4"), ("-1", "no version -1")])
def test_a_version_that_does_not_exist_is_not_found(lake, history, value, problem):
    with pytest.raises(NotFound, match=problem):
        _rows(lake, history, "version", value)


def test_snapshots_are_found_by_their_ids_with_their_columns(lake, history):
    first = _id(lake, history, 0)
    assert _rows(lake, history, "version", first) == _rows(lake, history, "version", 1)
    assert _rows(lake, history, "snapshot", first) == _rows(lake, history, "version", 1)


def test_tags_keep_their_columns_and_branches_have_the_present_ones(lake, history):
    table = f"`{lake.spark_catalog}`.{history}.t"
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG first AS OF VERSION {_id(lake, history, 0)}")
    lake.spark.sql(f"ALTER TABLE {table} CREATE BRANCH side AS OF VERSION {_id(lake, history, 0)}")
    assert _rows(lake, history, "version", "first") == _rows(lake, history, "version", 1)
    names, rows = _rows(lake, history, "version", "side")
    assert names == ["id", "w", "extra", "rowid"]
    assert [row["w"] for row in rows] == ["a", "b"]
    assert _rows(lake, history, "version", "main")[1] == [{"id": 2, "w": "b", "extra": None}]
    with pytest.raises(
        NotFound, match=r"no tag or branch 'other': its tags and branches are first, side"
    ):
        _rows(lake, history, "version", "other")


def test_latest_is_the_present_whatever_others_have_named_so(lake, history, client):
    table = f"`{lake.spark_catalog}`.{history}.t"
    lake.spark.sql(f"ALTER TABLE {table} CREATE TAG latest AS OF VERSION {_id(lake, history, 0)}")
    assert _rows(lake, history, "version", "latest") == _rows(lake, history, "version", 4)
    assert client.scan(history, "t", at=("VERSION", "latest")).to_pylist() == [
        {"id": 2, "w": "b", "extra": None}
    ]
    lake.spark.sql(f"INSERT INTO {table} VALUES (3, 'c', 7)")
    assert client.scan(history, "t", ["id"], at=("VERSION", "latest")).num_rows == 2


def test_latest_tells_how_many_rows_there_are_and_keeps_to_the_transaction(lake, history, client):
    def told() -> int:
        with client._session.statement():
            return client._bound(history, "t", ("VERSION", "latest")).total_records

    assert told() == client.table(history, "t").total_records == 1
    client.begin()
    assert client.scan(history, "t", at=("VERSION", "latest")).num_rows == told() == 1
    lake.spark.sql(f"INSERT INTO `{lake.spark_catalog}`.{history}.t VALUES (3, 'c', 7)")
    assert client.scan(history, "t", at=("VERSION", "latest")).num_rows == told() == 1
    client.commit()
    assert client.scan(history, "t", at=("VERSION", "latest")).num_rows == told() == 2
    client.detach()
    assert client.attach().table(history, "t").total_records == 2


def test_latest_of_a_table_that_was_altered_is_refused_as_without_it(lake, history, client):
    client.table(history, "t")
    lake.spark.sql(f"ALTER TABLE `{lake.spark_catalog}`.{history}.t ADD COLUMN more INT")
    for at in (None, ("VERSION", "latest")):
        with pytest.raises(ServerError, match="ATTACH it again"):
            client.scan(history, "t", at=at)


def test_timestamps_find_what_was_there_at_that_moment(lake, history):
    log = f"`{lake.spark_catalog}`.{history}.t.metadata_log_entries"
    query = f"SELECT timestamp FROM {log} ORDER BY timestamp"
    moments = [row[0].replace(tzinfo=timezone.utc) for row in lake.spark.sql(query).collect()]
    for number, moment in enumerate(moments):
        assert _rows(lake, history, "timestamp", moment.isoformat()) == _rows(
            lake, history, "version", number
        )
    now = datetime.now(timezone.utc).isoformat()
    assert _rows(lake, history, "timestamp", now) == _rows(lake, history, "version", 4)


def test_a_time_before_the_table_is_not_found_and_says_when_it_was_created(lake, history):
    with pytest.raises(NotFound, match=r"did not exist at 2001-01-01.* it was created at 20\d\d-"):
        _rows(lake, history, "timestamp", "2001-01-01 00:00:00")
    with pytest.raises(BadRequest, match="cannot be read"):
        _rows(lake, history, "timestamp", "yesterday")


def test_an_expired_snapshot_is_not_found(lake, history):
    lake.spark.sql(
        f"CALL `{lake.spark_catalog}`.system.expire_snapshots(table => '{history}.t', older_than "
        "=> TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    with pytest.raises(NotFound, match=r"version 1 .* is no longer kept: its snapshot has expired"):
        _rows(lake, history, "version", 1)
    assert len(_rows(lake, history, "version", 4)[1]) == 1


def test_all_scans_of_a_transaction_read_one_snapshot(lake, history):
    first = Context(transaction_id=lake.begin_transaction(Context()))
    later = Context(transaction_id=lake.begin_transaction(Context()))

    def ids(ctx: Context) -> list[int]:
        table = lake.schema(ctx, history).table(ctx, "t")
        return [row["id"] for batch in table.scan(ctx, ScanOptions()) for row in batch.to_pylist()]

    assert ids(first) == [2]
    lake.spark.sql(f"INSERT INTO `{lake.spark_catalog}`.{history}.t VALUES (3, 'c', 7)")
    assert ids(first) == [2]
    assert sorted(ids(later)) == [2, 3]
    assert sorted(ids(Context())) == [2, 3]
    lake.commit_transaction(Context(), first.transaction_id)
    assert sorted(ids(first)) == [2, 3]


def test_a_transaction_sees_the_columns_of_an_alteration(lake, history):
    """DDL has no transaction id, but the next statement expects the new columns (airport §2.2)."""
    ctx = Context(transaction_id=lake.begin_transaction(Context()))
    assert "x" not in lake.schema(ctx, history).table(ctx, "t").arrow_schema.names
    lake.spark.sql(f"ALTER TABLE `{lake.spark_catalog}`.{history}.t ADD COLUMN x INT")
    assert "x" in lake.schema(ctx, history).table(ctx, "t").arrow_schema.names
