"""What is kept of a table after a commit: nothing is read back, and nobody is missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, drop, find, insert, values

from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg import table_state
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake import kept_tables
from sparkport.spark.lake.sql_catalog import SqlCatalog
from sparkport.testing import DuckDBClient

_COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog, namespace: str) -> Iterator[DuckDBClient]:
    create(lake, namespace, "t", _COLUMNS)
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of tables from now on: the JVM's tables, and metadata files."""
    found: list[str] = []
    load, read = Gateway.iceberg, table_state.metadata_text

    def loading(self: Gateway, *arguments: Any) -> Any:
        found.append("table")
        return load(self, *arguments)

    def reading(*arguments: Any) -> str:
        found.append("metadata")
        return read(*arguments)

    monkeypatch.setattr(Gateway, "iceberg", loading)
    monkeypatch.setattr("sparkport.spark.lake.lake.metadata_text", reading)
    return found


def _insert(client: DuckDBClient, namespace: str, *ids: int) -> None:
    client.insert(namespace, "t", pa.table({"id": pa.array(ids, pa.int64())}))


def test_a_statement_after_another_reads_nothing_back(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, loaded: list[str]
) -> None:
    _insert(client, namespace, 0)
    client.update(namespace, "t", {"id": "1"}, where="id = 0")  # has the JVM load the table
    loaded.clear()
    _insert(client, namespace, 2)
    client.update(namespace, "t", {"id": "id + 10"}, where="id = 1")
    client.delete(namespace, "t", where="id = 2")
    _insert(client, namespace, 3)
    assert loaded == []
    assert sorted(values(find(lake, namespace, "t"), "id")) == [3, 11]


def test_what_is_kept_is_what_the_file_says(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    for number in range(3):
        _insert(client, namespace, number)
    state = find(lake, namespace, "t").state
    text = table_state.metadata_text(state.io, state.metadata_location)
    read = table_state.States().add(state.identifier, state.metadata_location, text, state.io)
    assert state.metadata == read.metadata
    assert len(state.metadata.metadata_log) == 3


def test_others_are_noticed(lake: LakeCatalog, client: DuckDBClient, namespace: str) -> None:
    _insert(client, namespace, 1)
    insert(lake, namespace, "t", "(2)")
    _insert(client, namespace, 3)
    _insert(client, namespace, 4)
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2, 3, 4]


def test_a_table_of_the_same_name_is_another_one(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    _insert(client, namespace, 1)
    drop(lake, namespace, "t")
    create(lake, namespace, "t", _COLUMNS)
    _insert(client, namespace, 2)
    assert values(find(lake, namespace, "t"), "id") == [2]


def test_a_table_is_loaded_anew_from_time_to_time(
    client: DuckDBClient, namespace: str, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tables, "_MOST_COMMITS", 3)
    _insert(client, namespace, 0)
    monkeypatch.setattr(SqlCatalog, "takes_plain", False)  # the JVM makes all commits
    for _ in range(8):
        client.update(namespace, "t", {"id": "id + 1"})
    assert loaded.count("table") == 2
