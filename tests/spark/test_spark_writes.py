"""Statements that Spark carries out: large ones, and those on files that only Spark writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient, ServerError

_SPARK_ONLY = replace(LakeSettings(), update_rows_in_place=0, refresh_seconds=0.0)
_ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "kind": pa.array([f"k{number % 3}" for number in range(100)]),
        "small": pa.array([number % 200 for number in range(100)], pa.uint8()),
        "at": pa.array([number * 1_000_000 for number in range(100)], pa.timestamp("us")),
    }
)


@pytest.fixture(scope="module")
def lake(lake, tmp_path_factory) -> Iterator[LakeCatalog]:
    """A lake for these tests alone: listing it asks Spark for everything in the catalog."""
    with LakeCatalog(tmp_path_factory.mktemp("by_spark_too"), name="by_spark_too") as own:
        yield own


@pytest.fixture(scope="module")
def by_spark(lake) -> Iterator[DuckDBClient]:
    """A client, not attached yet, of a server on this lake that leaves every UPDATE to Spark."""
    other = LakeCatalog(
        spark=lake.spark, spark_catalog=lake.spark_catalog, settings=_SPARK_ONLY, name="by_spark"
    )
    with (
        other,
        Server(other, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "by_spark", timeout=120) as client,
    ):
        yield client


@pytest.fixture
def client(lake) -> Iterator[DuckDBClient]:
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=120) as client,
    ):
        yield client.attach()


def _attach_again(client: DuckDBClient) -> None:
    client.detach()
    client.attach()


def _contents(lake, namespace, table) -> list[tuple[Any, ...]]:
    name = f"`{lake.spark_catalog}`.{namespace}.{table}"
    return [
        tuple(row) for row in lake.spark.sql(f"SELECT _row_id, * FROM {name} ORDER BY id").collect()
    ]


def _refs(lake, namespace, table) -> list[str]:
    name = f"`{lake.spark_catalog}`.{namespace}.{table}"
    return [row[0] for row in lake.spark.sql(f"SELECT name FROM {name}.refs").collect()]


def test_both_ways_give_the_same_table(lake, client, by_spark, namespace):
    for table in ("a", "b"):
        client.create_table(namespace, table, _ROWS.schema)
        client.insert(namespace, table, _ROWS)
    _attach_again(by_spark)
    for user, table in ((client, "a"), (by_spark, "b")):
        assert (
            user.update(
                namespace, table, {"small": "255", "kind": "kind || '!'"}, where="id % 7 = 1"
            ).total
            == 15
        )
        assert user.delete(namespace, table, "id % 11 = 3").total == 9
        assert user.update(namespace, table, {"at": "NULL"}, where="id < 20").total == 18
    own = _contents(lake, namespace, "a")
    assert own == _contents(lake, namespace, "b")
    assert len(own) == 91
    assert (
        client.scan(namespace, "a").sort_by("id").equals(client.scan(namespace, "b").sort_by("id"))
    )
    assert _refs(lake, namespace, "b") == ["main"]
    name = f"`{lake.spark_catalog}`.{namespace}"
    for table in ("a", "b"):
        summaries = lake.spark.sql(
            f"SELECT summary FROM {name}.{table}.snapshots ORDER BY committed_at"
        ).collect()
        operations = [row[0].get("sparkport.operation") for row in summaries]
        assert operations == ["insert", "update", "delete", "update"]


@pytest.mark.parametrize(
    "layout",
    ["WRITE ORDERED BY kind, id DESC", "SET TBLPROPERTIES ('write.format.default' = 'orc')"],
)
def test_tables_whose_files_only_spark_writes(lake, client, namespace, layout):
    client.create_table(namespace, "t", _ROWS.schema)
    lake.spark.sql(f"ALTER TABLE `{lake.spark_catalog}`.{namespace}.t {layout}")
    _attach_again(client)
    assert client.insert(namespace, "t", _ROWS).total == 100
    assert client.update(namespace, "t", {"small": "1"}, where="id = 50").total == 1
    assert client.delete(namespace, "t", "id >= 98").total == 2
    rows = client.scan(namespace, "t").sort_by("id")
    assert rows.column("id").to_pylist() == list(range(98))
    assert rows.column("small").to_pylist() == [
        1 if number == 50 else number for number in range(98)
    ]
    ids = [row[0] for row in _contents(lake, namespace, "t")]
    assert len(set(ids)) == 98
    assert _refs(lake, namespace, "t") == ["main"]


def test_keys_are_kept_by_spark_too(lake, client, by_spark, namespace):
    columns = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("v", pa.int32())])
    client.create_table(namespace, "t", columns, unique=[["id", "part"]])
    rows = {"id": [1, 2, 3], "part": [1, 1, 2], "v": [0, 0, 0]}
    client.insert(namespace, "t", pa.table(rows, schema=columns))
    _attach_again(by_spark)
    with pytest.raises(ServerError, match='Duplicate key "id: 3, part: 2" violates unique'):
        by_spark.update(namespace, "t", {"part": "2", "id": "3"}, where="id = 2")
    with pytest.raises(ServerError, match="Duplicate key"):
        by_spark.update(namespace, "t", {"id": "1"}, where="id = 2")  # only one column of the key
    assert by_spark.update(namespace, "t", {"id": "id + 1"}).total == 3
    assert sorted(client.scan(namespace, "t").column("id").to_pylist()) == [2, 3, 4]
