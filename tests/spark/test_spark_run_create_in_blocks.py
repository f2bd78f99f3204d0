"""Tables and views that blocks of `lake_begin()` and transactions of Flight SQL make."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_manager import DatabaseError
from tests.spark.independent_readers import rows_by
from tests.spark.lake_tables import create, find, insert, values
from tests.spark.running import all_files, run
from tests.spark.spark_jobs import running, wait_for
from tests.spark.test_flight_sql import connect, server

from sparkport.catalog import Context
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient, ServerError

__all__ = ["connect", "run", "server"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def source(lake: LakeCatalog, namespace: str) -> None:
    """Table `s` has two rows."""
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(1, 'ann'), (2, 'bob')")


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=100) as client:
        yield client.attach()


def _attach_again(client: DuckDBClient) -> None:
    client.detach()
    client.attach()


def _call(client: DuckDBClient, namespace: str) -> Callable[..., Any]:
    def call(name: str, *given: Any) -> Any:
        columns = {f"a{at}": pa.array([each]) for at, each in enumerate(given)}
        return client.call(namespace, name, columns, rows=1)

    return call


def test_duckdb_sees_what_was_made_once_it_has_attached_again(client, namespace, lake):
    """It does not ask for new objects before, whoever makes them (airport §3.8)."""
    assert "t" not in client.tables(namespace)
    made = "CREATE TABLE t AS SELECT * FROM s"
    version = client.catalog_version
    found = client.table_function(namespace, "spark_run", made).to_pylist()
    assert found[0]["rows_inserted"] == 2
    client.table_function(
        namespace, "spark_run", ["CREATE VIEW v AS SELECT id, upper(name) AS name FROM t"]
    )
    _attach_again(client)
    assert sorted(client.scan(namespace, "t")["name"].to_pylist()) == ["ann", "bob"]
    assert client.catalog_version != version
    assert sorted(client.scan(namespace, "v")["name"].to_pylist()) == ["ANN", "BOB"]
    client.insert(namespace, "t", pa.table({"id": [7], "name": ["g"]}))
    client.table_function(namespace, "spark_run", "CREATE OR REPLACE TABLE t AS SELECT 5 AS five")
    _attach_again(client)
    assert client.scan(namespace, "t", ["five"])["five"].to_pylist() == [5]
    client.table_function(namespace, "spark_run", "DROP VIEW v")
    _attach_again(client)
    assert "v" not in client.tables(namespace)


@pytest.mark.parametrize("reader", ["duckdb", "pyiceberg"])
def test_other_readers_read_what_was_made(namespace, lake, run, reader):
    run(["CREATE TABLE t AS SELECT * FROM s", "INSERT INTO t SELECT 3, 'cid'"])
    run("CREATE OR REPLACE TABLE t PARTITIONED BY (name) AS SELECT id * 2 AS id, name FROM t")
    metadata = find(lake, namespace, "t").state.metadata_location
    assert rows_by(reader, metadata) == [(2, "ann"), (4, "bob"), (6, "cid")]


def test_a_block_publishes_what_it_makes_or_leaves_nothing(client, namespace, lake):
    call, before = _call(client, namespace), all_files(lake)
    for end in ("lake_rollback", "lake_commit"):
        client.begin()
        call("lake_begin")
        call("spark_run", "CREATE TABLE t AS SELECT * FROM s")
        call("spark_run", "CREATE VIEW v AS SELECT count(*) AS n FROM t")
        call("spark_run", "INSERT INTO t SELECT n + 10, 'n' FROM v")
        call("spark_run", "CREATE OR REPLACE TABLE s AS SELECT id AS other FROM t")
        assert find(lake, namespace, "t") is None
        with pytest.raises(ServerError, match="only statements of spark_run see"):
            client.scan(namespace, "s")  # it would be the old one
        assert len(values(find(lake, namespace, "s"), "id")) == 2
        call(end)
        client.commit()
        if end == "lake_rollback":
            assert all_files(lake) == before
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2, 12]
    assert sorted(values(find(lake, namespace, "s"), "other")) == [1, 2, 12]
    _attach_again(client)
    assert client.scan(namespace, "v", ["n"])["n"].to_pylist() == [3]


def test_a_table_that_a_block_replaces_takes_no_other_changes(client, namespace, lake):
    call = _call(client, namespace)
    client.begin()
    call("lake_begin")
    call("spark_run", "CREATE OR REPLACE TABLE s AS SELECT 9 AS id, 'z' AS name")
    with pytest.raises(ServerError, match="only statements of spark_run see"):
        client.insert(namespace, "s", pa.table({"id": [7], "name": ["lost?"]}))
    with pytest.raises(ServerError, match="takes only INSERT before that is committed"):
        call("spark_run", "UPDATE s SET id = 1")
    call("lake_commit")
    client.commit()
    assert values(find(lake, namespace, "s"), "id") == [9]
    _attach_again(client)
    client.begin()
    call("lake_begin")
    client.insert(namespace, "s", pa.table({"id": [8], "name": ["h"]}))
    with pytest.raises(ServerError, match="was changed before in this transaction"):
        call("spark_run", "CREATE OR REPLACE TABLE s AS SELECT 1 AS id, 'x' AS name")
    call("lake_rollback")
    client.commit()
    assert values(find(lake, namespace, "s"), "id") == [9]


def test_a_transaction_of_flight_sql(connect, namespace, lake):
    connection, before = connect(autocommit=False), all_files(lake)
    with connection.cursor() as cursor:
        for end in (connection.rollback, connection.commit):
            cursor.execute(f"CREATE TABLE {namespace}.t AS SELECT * FROM {namespace}.s")
            assert cursor.rowcount == 2
            cursor.execute(f"INSERT INTO {namespace}.t SELECT id + 10, name FROM {namespace}.t")
            cursor.execute(f"INSERT INTO {namespace}.t VALUES (?, ?)", (100, "p"))
            cursor.execute(f"CREATE VIEW {namespace}.v AS SELECT id FROM {namespace}.t")
            cursor.execute(f"SELECT count(*), max(id) FROM {namespace}.v")
            assert cursor.fetchone() == (5, 100)
            cursor.execute(f"SELECT * FROM {namespace}.t")
            assert cursor.fetch_arrow_table().num_rows == 5
            assert find(lake, namespace, "t") is None
            end()
            if end == connection.rollback:
                assert all_files(lake) == before
                with pytest.raises(DatabaseError):
                    cursor.execute(f"SELECT * FROM {namespace}.t")
        connection.rollback()
    assert len(values(find(lake, namespace, "t"), "id")) == 5


_SMALL = "TBLPROPERTIES ('write.parquet.row-group-size-bytes' = '1048576')"
_SLOW = "SELECT id, sha2(cast(id AS STRING), 512) AS name FROM range(0, 1000000000)"
"""More than could be written while a test waits."""


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TABLE t {_SMALL} AS {_SLOW}",
        f"CREATE OR REPLACE TABLE s {_SMALL} AS {_SLOW}",
        [f"CREATE TABLE t {_SMALL} AS SELECT * FROM s", f"INSERT INTO t {_SLOW}"],
    ],
    ids=["create", "replace", "pipeline"],
)
def test_a_caller_that_goes_away_leaves_nothing(lake, namespace, run, statement):
    before = all_files(lake)
    own = re.compile(r"\d+-\d+-[0-9a-f]{32}-.*\.parquet")
    errors: list[Exception] = []
    ctx = Context()

    def work() -> None:
        try:
            run(statement, ctx=ctx)
        except Exception as error:
            errors.append(error)

    def is_writing() -> bool:
        new = [each for each in all_files(lake) - before if own.fullmatch(each.name)]
        return len(new) > (1 if isinstance(statement, list) else 0)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert wait_for(is_writing, 90), "Spark writes no file"
    finally:
        ctx.cancellation.cancel()
    thread.join(90)
    assert not thread.is_alive()
    assert len(errors) == 1
    assert wait_for(lambda: running(lake.spark) == 0, 60), "Spark goes on"
    assert wait_for(lambda: all_files(lake) == before, 60), "files are left"
    assert sorted(values(find(lake, namespace, "s"), "id")) == [1, 2]
    assert find(lake, namespace, "t") is None
