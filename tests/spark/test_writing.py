"""INSERT, UPDATE and DELETE on the lake, as DuckDB's users run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Context
from sparkport.server import Server
from sparkport.testing import DuckDBClient, ServerError

_PEOPLE = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "name": ["ann", "bob", "cid", None]})


@pytest.fixture(scope="module")
def server(lake) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server, lake) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def people(client, namespace) -> str:
    client.create_table(namespace, "people", _PEOPLE.schema)
    assert client.insert(namespace, "people", _PEOPLE).total == 4
    return "people"


def _rows(client: DuckDBClient, schema: str, table: str) -> list[tuple[Any, ...]]:
    rows = client.scan(schema, table)
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def test_rows_are_inserted_updated_and_deleted(client, lake, namespace, people):
    assert client.update(namespace, people, {"name": "upper(name)"}, where="id < 3").total == 2
    assert client.delete(namespace, people, "id = 3").total == 1
    expected = [(1, "ANN"), (2, "BOB"), (4, None)]
    assert _rows(client, namespace, people) == expected
    spark = lake.spark.sql(
        f"SELECT id, name FROM `{lake.spark_catalog}`.{namespace}.people ORDER BY id"
    ).collect()
    assert [tuple(row) for row in spark] == expected


def test_an_updated_row_keeps_its_id(client, lake, namespace, people):
    before = client.scan(namespace, people, ["rowid", "id"]).to_pylist()
    for _ in range(3):
        client.update(namespace, people, {"name": "'x'"})
    after = client.scan(namespace, people, ["rowid", "id"]).to_pylist()
    assert sorted(map(repr, before)) == sorted(map(repr, after))
    spark = lake.spark.sql(
        f"SELECT _row_id, id FROM `{lake.spark_catalog}`.{namespace}.people"
    ).collect()
    assert {(row[0], row[1]) for row in spark} == {(row["rowid"], row["id"]) for row in before}


def _keyed(*rows: tuple[int, int]) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int32())})


@pytest.mark.parametrize("returning", [False, True])
def test_a_constraint_is_kept_and_named(client, namespace, returning):
    columns = pa.schema([("k", pa.int64()), ("v", pa.int32())])
    client.create_table(namespace, "t", columns, primary_key=["k"], checks=["v > 0"])
    client.insert(namespace, "t", _keyed((1, 1), (2, 2)))
    with pytest.raises(ServerError, match='Duplicate key "k: 2" violates primary key'):
        client.insert(namespace, "t", _keyed((3, 1), (2, 2)), returning=returning)
    with pytest.raises(ServerError, match='Duplicate key "k: 3" violates primary key'):
        client.insert(namespace, "t", _keyed((3, 1), (3, 2)), returning=returning)
    with pytest.raises(ServerError, match=r"CHECK constraint failed on table t .*v = 0"):
        client.update(namespace, "t", {"v": "0"}, where="k = 2", returning=returning)
    with pytest.raises(ServerError, match="Duplicate key"):
        client.update(namespace, "t", {"k": "1"}, where="k = 2", returning=returning)
    client.update(namespace, "t", {"k": "3 - k"}, returning=returning)
    assert _rows(client, namespace, "t") == [(1, 2), (2, 1)]


def test_a_block_sees_its_own_changes_and_others_the_committed_ones(
    client, server, lake, namespace, people
):
    client.begin()
    client.delete(namespace, people, "id = 1")
    client.insert(namespace, people, _PEOPLE.slice(0, 1))
    assert len(_rows(client, namespace, people)) == 4
    client.commit()
    assert len(_rows(client, namespace, people)) == 4


def test_changes_wait_for_lake_commit_and_are_seen_by_nobody_else(
    client, server, lake, namespace, people
):
    with DuckDBClient(server.location, lake.name, timeout=60) as other:
        before = _rows(other.attach(), namespace, people)
        client.begin()
        client.call(namespace, "lake_begin", {}, rows=1)
        client.delete(namespace, people, "id = 1")
        client.insert(
            namespace, people, pa.table({"id": pa.array([7, 8], pa.int64()), "name": ["g", "h"]})
        )
        client.update(namespace, people, {"name": "'new'"}, where="id IN (2, 7)")
        client.delete(namespace, people, "id = 8")
        own = [(2, "new"), (3, "cid"), (4, None), (7, "new")]
        assert _rows(client, namespace, people) == own
        assert _rows(other, namespace, people) == before
        other.insert(namespace, people, pa.table({"id": pa.array([9], pa.int64()), "name": ["i"]}))
        assert _rows(client, namespace, people) == own
        client.call(namespace, "lake_commit", {}, rows=1)
        client.commit()
        both = sorted([*own, (9, "i")], key=repr)
        assert _rows(other, namespace, people) == both
        assert _rows(client, namespace, people) == both
    table = f"`{lake.spark_catalog}`.{namespace}.people"
    assert [
        tuple(row) for row in lake.spark.sql(f"SELECT id, name FROM {table} ORDER BY id").collect()
    ] == both
    assert [row[0] for row in lake.spark.sql(f"SELECT name FROM {table}.refs").collect()] == [
        "main"
    ]
    assert lake.spark.sql(f"SELECT count(DISTINCT _row_id) FROM {table}").collect()[0][0] == 5


def test_lake_rollback_leaves_the_table_as_it_was(client, server, lake, namespace, people):
    before = _rows(client, namespace, people)
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)
    client.update(namespace, people, {"name": "'new'"})
    client.call(namespace, "lake_rollback", {}, rows=1)
    assert _rows(client, namespace, people) == before
    client.commit()
    table = f"`{lake.spark_catalog}`.{namespace}.people"
    assert [row[0] for row in lake.spark.sql(f"SELECT name FROM {table}.refs").collect()] == [
        "main"
    ]
    assert lake.spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0] == 1


def test_what_others_have_changed_meanwhile_is_a_conflict(client, server, lake, namespace, people):
    with DuckDBClient(server.location, lake.name, timeout=60) as other:
        other.attach()
        client.begin()
        client.scan(namespace, people)  # what the block sees
        other.update(namespace, people, {"name": "'theirs'"}, where="id = 1")
        client.update(namespace, people, {"name": "'mine'"}, where="id = 2")
        client.commit()
        client.begin()
        client.scan(namespace, people)
        other.update(namespace, people, {"name": "'again'"}, where="id = 1")
        with pytest.raises(
            ServerError, match=r"row 0 of table .* was changed by somebody else"
        ) as caught:
            client.update(namespace, people, {"name": "'mine'"}, where="id = 1")
        assert caught.value.code == "ABORTED"
        client.commit()
    assert _rows(client, namespace, people)[:2] == [(1, "again"), (2, "mine")]


def _travelled(client: DuckDBClient, schema: str, table: str, version: int) -> int:
    return client.scan(schema, table, at=("version", str(version))).num_rows


@pytest.mark.parametrize("ending", ["lake_commit", "lake_rollback"])
def test_a_transaction_takes_nothing_along_that_others_have_left(
    client, server, lake, namespace, people, ending
):
    client.delete(namespace, people, "id = 4")
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)
    client.insert(namespace, people, pa.table({"id": pa.array([9], pa.int64()), "name": ["i"]}))
    with DuckDBClient(server.location, lake.name, timeout=60) as other:
        other.attach().table_function(namespace, "rollback_to", "people", "1")
        client.call(namespace, ending, {}, rows=1)
        client.commit()
        assert [_travelled(other, namespace, people, version) for version in (1, 2, 3)] == [4, 3, 4]


@pytest.mark.parametrize("ending", ["lake_commit", "lake_rollback"])
def test_a_transaction_leaves_no_file_that_the_table_does_not_know(
    client, lake, namespace, people, ending
):
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)
    client.delete(namespace, people, "id = 1")
    client.insert(
        namespace, people, pa.table({"id": pa.array([7, 8], pa.int64()), "name": ["g", "h"]})
    )
    client.update(namespace, people, {"name": "'new'"}, where="id IN (2, 7)")
    client.call(namespace, ending, {}, rows=1)
    client.commit()
    assert _unknown_files(lake, namespace, people) == set()


def _unknown_files(lake: Any, namespace: str, table: str) -> set[Path]:
    state = lake.schema(Context(), namespace).table(Context(), table).state
    known = set()
    for snapshot in state.metadata.snapshots:
        known.add(_local(snapshot.manifest_list))
        for manifest in snapshot.manifests(state.io):
            known.add(_local(manifest.manifest_path))
            known |= {
                _local(entry.data_file.file_path)
                for entry in manifest.fetch_manifest_entry(state.io)
            }
    files = {
        path
        for path in _local(state.metadata.location).rglob("*")
        if path.is_file() and path.suffix != ".crc"
    }
    return {path for path in files if not path.name.endswith(".metadata.json")} - known


def _local(location: str) -> Path:
    return Path(re.sub("^file:/+", "/", location))
