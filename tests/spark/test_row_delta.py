"""UPDATEs and DELETEs that are committed without the JVM are what Iceberg's Java would write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.compared_commits import comparable, is_by_java, metadata_of, told_by_spark
from tests.spark.independent_readers import rows_by
from tests.spark.lake_tables import find, sql_name, values
from tests.spark.test_append import _plain

from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg import manifests
from sparkport.spark.lake.sql_catalog import SqlCatalog
from sparkport.testing import DuckDBClient

_ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "word": [f"w{i}" for i in range(20)]})


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


def _change(client: DuckDBClient, namespace: str, table: str) -> None:
    """Statements that add vectors, replace some, and leave others as they are."""
    client.create_table_as(namespace, table, _ROWS)
    client.insert(namespace, table, _ROWS.slice(0, 3))
    client.delete(namespace, table, where="id = 4")
    client.update(namespace, table, {"word": "'new'"}, where="id IN (1, 7)")
    client.update(namespace, table, {"word": "'newer'"}, where="id IN (1, 8)")
    client.delete(namespace, table, where="id = 8")
    client.delete(namespace, table, where="id IN (15, 16)")
    client.update(namespace, table, {"id": "id + 100"}, where="id = 2")


def test_metadata_and_manifests_are_what_java_writes(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Names of the same length, which are in files.
    for table, is_on in (("plain", False), ("javas", True)):
        monkeypatch.setattr(SqlCatalog, "takes_plain", not is_on)
        _change(client, namespace, table)
        assert is_by_java(lake, namespace, table) == is_on
    plain, java = (metadata_of(lake, namespace, table) for table in ("plain", "javas"))
    assert comparable(plain) == comparable(java)
    told = [told_by_spark(lake, namespace, table) for table in ("plain", "javas")]
    assert list(map(_told, told[0])) == list(map(_told, told[1]))
    found = [_deletes(lake, namespace, table) for table in ("plain", "javas")]
    assert found[0] == found[1]


def _told(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def _deletes(lake: LakeCatalog, namespace: str, table: str) -> list[Any]:
    """What Iceberg's Java finds of delete vectors, also of those that are gone."""
    name = sql_name(lake, namespace, table)
    rows = lake.spark.sql(
        "SELECT status, sequence_number, file_sequence_number, data_file.record_count, "
        "data_file.content, data_file.content_offset, data_file.content_size_in_bytes, "
        f"data_file.sort_order_id, data_file.column_sizes FROM {name}.all_entries "
        "WHERE data_file.content = 1"
    ).collect()
    return _told(rows)


def test_what_is_remembered_of_manifests_is_what_they_say(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    _change(client, namespace, "t")
    state = find(lake, namespace, "t").state
    place = state.snapshot.manifest_list
    remembered = manifests.read_manifest_list(state.io, place)
    assert remembered == tuple(manifests._manifests(state.io, place))
    for each in remembered:
        assert manifests.is_remembered(each)
        known = manifests.read_manifest(state.io, each)
        assert list(map(_plain, known)) == list(
            map(_plain, manifests._live_entries(state.io, each))
        )


def test_delete_manifests_are_joined_too(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    client.create_table(namespace, "t", _ROWS.schema)
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '4')"
    )
    for number in range(10):
        client.insert(namespace, "t", _ROWS.slice(2 * number, 2))
    for number in range(0, 20, 2):
        client.delete(namespace, "t", where=f"id = {number}")
        assert not is_by_java(lake, namespace, "t")
    counted = lake.spark.sql(f"SELECT content, count(*) FROM {name}.manifests GROUP BY content")
    assert {content: count < 4 for content, count in counted.collect()} == {0: True, 1: True}
    rows = lake.spark.sql(f"SELECT id, _row_id FROM {name}").collect()
    assert sorted(map(tuple, rows)) == [(number, number) for number in range(1, 20, 2)]
    assert sorted(values(find(lake, namespace, "t"), "id", "rowid")) == sorted(map(tuple, rows))


@pytest.mark.parametrize("reader", ["pyiceberg", "duckdb"])
def test_other_engines_read_what_is_left(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, reader: str
) -> None:
    _change(client, namespace, "t")
    assert not is_by_java(lake, namespace, "t")
    found = client.scan(namespace, "t", ["id", "word"])
    expected = sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
    assert len(expected) == 20 + 3 - 1 - 1 - 2
    place = find(lake, namespace, "t").state.metadata_location
    assert rows_by(reader, place) == expected
