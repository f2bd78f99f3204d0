"""INSERTs that are committed without the JVM are what Iceberg's Java would have written."""

from __future__ import annotations

import dataclasses
import datetime
import errno
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from tests.spark.compared_commits import comparable, is_by_java, metadata_of, told_by_spark
from tests.spark.lake_tables import create, find, sql_name, values
from tests.spark.places import path_of

from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg import manifests
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.table_state import metadata_text
from sparkport.spark.lake.lake import WrittenMetadata
from sparkport.spark.lake.plain_commit import PlainCommit
from sparkport.spark.lake.sql_catalog import SqlCatalog
from sparkport.testing import DuckDBClient, ServerError

_ROWS = pa.table({"id": pa.array([1, 2, None], pa.int64()), "word": ["a", "b" * 40, None]})


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def by_java(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have Java make commits while it is called with True."""

    def switch(is_on: bool) -> None:
        monkeypatch.setattr(SqlCatalog, "takes_plain", not is_on)

    return switch


def _header(location: str) -> dict[str, str]:
    with AvroFile[Any](StorageIO(dict).new_input(location)) as file:
        return dict(file.header.meta)


def test_metadata_and_manifests_are_what_java_writes(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, by_java: Any
) -> None:
    for table, is_on in (("plain", False), ("java", True)):
        by_java(is_on)
        client.create_table(namespace, table, _ROWS.schema)
        for count in (3, 1, 2):
            client.insert(namespace, table, _ROWS.slice(0, count))
        assert is_by_java(lake, namespace, table) == is_on
    plain, java = (metadata_of(lake, namespace, table) for table in ("plain", "java"))
    assert comparable(plain) == comparable(java)
    assert plain["next-row-id"] == 6
    told = [told_by_spark(lake, namespace, table) for table in ("plain", "java")]
    assert told[0] == told[1]
    lists = [each["snapshots"][-1]["manifest-list"] for each in (plain, java)]
    headers = [_header(each) for each in lists]
    # Java writes its own form of the schema beside Avro's, which nobody needs.
    assert headers[0].keys() == headers[1].keys() - {"iceberg.schema"}
    same = ("first-row-id", "format-version", "sequence-number", "avro.codec")
    assert [headers[0][key] for key in same] == [headers[1][key] for key in same]


def test_columns_of_all_kinds_have_the_metrics_that_java_writes(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, by_java: Any
) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    rows = pa.table(
        {
            "yes": pa.array([True, None]),
            "small": pa.array([-5, 7], pa.int16()),
            "large": pa.array([2**62, None], pa.int64()),
            "nan": pa.array([float("nan"), -0.0]),
            "price": pa.array([Decimal("-12.34"), None], pa.decimal128(12, 2)),
            "wide": pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
            "text": pa.array(["\N{SNOWMAN}" * 30, None]),
            "bytes": pa.array([b"\xff" * 30, b""]),
            "day": pa.array([moment.date(), None]),
            "at": pa.array([moment, None], pa.timestamp("us")),
            "nothing": pa.nulls(2, pa.int32()),
            "tags": pa.array([["x", None], None]),
            "point": pa.array([{"x": 1, "y": None}, None]),
        }
    )
    for table, is_on in (("plain", False), ("java", True)):
        by_java(is_on)
        client.create_table(namespace, table, rows.schema)
        client.insert(namespace, table, rows)
        assert is_by_java(lake, namespace, table) == is_on
    told = [told_by_spark(lake, namespace, table) for table in ("plain", "java")]
    assert repr(told[0]) == repr(told[1])


def test_what_is_remembered_of_manifests_is_what_they_say(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    for _ in range(2):
        client.insert(namespace, "t", _ROWS)
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


def _plain(entry: manifests.ManifestEntry) -> dict[str, Any]:
    """An entry of a manifest, with maps of one class."""
    values = {each.name: getattr(entry, each.name) for each in dataclasses.fields(entry)}
    return {key: dict(each) if isinstance(each, Mapping) else each for key, each in values.items()}


def test_java_goes_on_where_this_server_has_written_and_the_other_way_round(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    name = sql_name(lake, namespace, "t")
    for number in range(3):
        client.insert(namespace, "t", _ROWS.slice(0, 1))
        client.update(namespace, "t", {"word": f"'{number}'"}, where="id = 1")
        lake.spark.sql(f"INSERT INTO {name} VALUES (10, 'spark')")
        client.delete(namespace, "t", where="id = 2")
    expected = sorted(values(find(lake, namespace, "t"), "id", "word"), key=repr)
    read = lake.spark.sql(f"SELECT id, word FROM {name}").collect()
    assert sorted(map(tuple, read), key=repr) == expected
    assert len(expected) == 3 + 3 + 3 - 1
    ids = values(find(lake, namespace, "t"), "rowid")
    assert len(set(ids)) == len(ids)


def test_small_manifests_are_joined(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    create(lake, namespace, "t", _ROWS.schema)
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '5')"
    )
    for _ in range(10):
        client.insert(namespace, "t", _ROWS.slice(0, 1))
        assert not is_by_java(lake, namespace, "t")
    assert lake.spark.sql(f"SELECT * FROM {name}.manifests").count() < 5
    assert len(values(find(lake, namespace, "t"), "id")) == 10
    rows = lake.spark.sql(f"SELECT _row_id, _last_updated_sequence_number FROM {name}").collect()
    assert sorted(map(tuple, rows)) == [(number, number + 1) for number in range(10)]
    assert sorted(values(find(lake, namespace, "t"), "rowid")) == list(range(10))
    numbers = f"SELECT sequence_number, file_sequence_number FROM {name}.entries"
    expected = [(number + 1, number + 1) for number in range(10)]
    assert sorted(map(tuple, lake.spark.sql(numbers).collect())) == expected


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')",
        "ALTER TABLE {} ADD PARTITION FIELD id",
        "ALTER TABLE {} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none')",
    ],
)
def test_what_is_not_plain_is_left_to_java(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, change: str
) -> None:
    create(lake, namespace, "t", _ROWS.schema)
    lake.spark.sql(change.format(sql_name(lake, namespace, "t")))
    client.insert(namespace, "t", _ROWS)
    assert lake.spark.table(sql_name(lake, namespace, "t")).count() == 3
    state = find(lake, namespace, "t").state
    text = metadata_text(state.io, state.metadata_location)
    assert json.loads(text)["snapshots"][-1]["summary"]["engine-name"] == "spark"


def test_a_table_that_was_upgraded_is_left_to_java_once(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} USING iceberg TBLPROPERTIES ('format-version' = '2') "
        "AS SELECT CAST(1 AS BIGINT) AS id, 'a' AS word"
    )
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    client.detach()
    client.attach()
    client.insert(namespace, "t", _ROWS)
    assert is_by_java(lake, namespace, "t")
    client.insert(namespace, "t", _ROWS)
    assert not is_by_java(lake, namespace, "t")
    assert sorted(values(find(lake, namespace, "t"), "rowid")) == list(range(7))


def test_old_metadata_are_kept_and_removed_as_the_table_wants_it(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    create(lake, namespace, "t", _ROWS.schema)
    lake.spark.sql(
        f"ALTER TABLE {sql_name(lake, namespace, 't')} SET TBLPROPERTIES ("
        "'write.metadata.previous-versions-max' = '2',"
        "'write.metadata.delete-after-commit.enabled' = 'true')"
    )
    for _ in range(5):
        client.insert(namespace, "t", _ROWS.slice(0, 1))
    assert not is_by_java(lake, namespace, "t")
    metadata = metadata_of(lake, namespace, "t")
    assert len(metadata["metadata-log"]) == 2
    folder = path_of(metadata["location"]) / "metadata"
    left = {each.name for each in folder.glob("*.metadata.json")}
    named = {Path(each["metadata-file"]).name for each in metadata["metadata-log"]}
    present = Path(find(lake, namespace, "t").state.metadata_location).name
    assert left >= {*named, present}
    # Spark's ALTER was made before the property was there.
    assert len(left) <= 4


def test_what_this_program_does_not_know_stays_in_the_metadata(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    create(lake, namespace, "t", _ROWS.schema)
    client.insert(namespace, "t", _ROWS)
    state = find(lake, namespace, "t").state
    path = path_of(state.metadata_location)
    path.write_text(json.dumps({**json.loads(path.read_text()), "of-tomorrow": [1]}))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    lake._lake._written.replace(state.identifier, WrittenMetadata("", "{}"))
    client.insert(namespace, "t", _ROWS)
    assert metadata_of(lake, namespace, "t")["of-tomorrow"] == [1]


@pytest.mark.parametrize("which", ["-m0.avro", "snap-", ".metadata.json"])
def test_a_file_that_cannot_be_written_leaves_none_behind(
    lake: LakeCatalog,
    client: DuckDBClient,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    folder = path_of(find(lake, namespace, "t").state.metadata.location)
    before = sorted(folder.rglob("*"))
    created = LocalStorage.create

    def full(storage: LocalStorage, location: str) -> pa.NativeFile:
        if which in location:
            raise OSError(errno.ENOSPC, "no space left on device")
        return created(storage, location)

    monkeypatch.setattr(LocalStorage, "create", full)
    with pytest.raises(ServerError, match=r"the storage of table .* is full; nothing was changed"):
        client.insert(namespace, "t", _ROWS)
    monkeypatch.undo()
    assert sorted(folder.rglob("*")) == before
    client.insert(namespace, "t", _ROWS)
    assert len(values(find(lake, namespace, "t"), "id")) == 6


def test_a_writer_that_was_slower_tries_again_and_leaves_nothing_of_its_first_try(
    lake: LakeCatalog, client: DuckDBClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    add = PlainCommit.add
    tries: list[PlainCommit] = []

    def slow(append: PlainCommit, *arguments: Any) -> None:
        add(append, *arguments)
        if not tries:
            lake.spark.sql(f"INSERT INTO {sql_name(lake, namespace, 't')} VALUES (7, 'spark')")
        tries.append(append)

    monkeypatch.setattr(PlainCommit, "add", slow)
    client.insert(namespace, "t", _ROWS.slice(0, 1))
    assert len(tries) == 2
    assert sorted(values(find(lake, namespace, "t"), "id"), key=repr) == [1, 1, 2, 7, None]
    metadata = metadata_of(lake, namespace, "t")
    folder = path_of(metadata["location"]) / "metadata"
    assert len(list(folder.glob("snap-*.avro"))) == len(metadata["snapshots"]) == 3
    assert len(list(folder.glob("*-m0.avro"))) == 3
    assert len(list(folder.glob("*.metadata.json"))) == len(metadata["metadata-log"]) + 1
