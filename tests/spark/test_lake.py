"""The lake as users see it: listing, views, versions of the catalog, scans amid changes."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from sparkport.catalog import Access, Context, Restrictions, ScanOptions
from sparkport.errors import BadRequest, Conflict, NotFound, SparkportError
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.iceberg.parts import DeleteVector, FilePart
from sparkport.spark.iceberg.table_state import States
from sparkport.spark.scan import routes, streams
from sparkport.spark.scan.routes import planned_state
from sparkport.testing import DuckDBClient

CTX = Context()
_V3 = "USING iceberg TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"


@pytest.fixture
def server(lake) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server, lake) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def sql(lake, namespace):
    """Run Spark SQL in which {n} is the namespace."""
    return lambda text: lake.spark.sql(
        text.replace("{n}", f"`{lake.spark_catalog}`.{namespace}")
    ).collect()


def test_namespaces_and_tables_of_other_engines_are_listed_with_their_comments(
    lake, namespace, sql
):
    sql("CREATE NAMESPACE {n}.inner COMMENT 'what is inside'")
    sql(
        f"CREATE TABLE {{n}}.inner.t (a INT COMMENT 'first', b STRING NOT NULL) {_V3[:13]} "
        "COMMENT 'a table'"
    )
    schema = lake.schema(CTX, f"{namespace}.inner")
    assert (schema.name, schema.comment) == (f"{namespace}.inner", "what is inside")
    (table,) = schema.tables(CTX)
    assert (table.name, table.comment) == ("t", "a table")
    assert table.arrow_schema.field("b").nullable is False
    assert namespace in [each.name for each in lake.schemas(CTX)]


def test_the_version_of_the_catalog_rises_with_every_commit_and_only_then(lake, namespace, sql):
    before = lake.version(CTX).number
    assert lake.version(CTX).number == before
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    created = lake.version(CTX).number
    assert created > before
    sql("INSERT INTO {n}.t VALUES (1)")
    assert lake.version(CTX).number > created


def test_the_arrow_schema_stays_the_same_object_while_only_rows_change(lake, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    schema = lake.schema(CTX, namespace)
    before = schema.table(CTX, "t").arrow_schema
    sql("INSERT INTO {n}.t VALUES (1)")
    assert schema.table(CTX, "t").arrow_schema is before


def test_a_client_with_an_old_schema_is_told_so(client, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT, b INT) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1, 2)")
    assert client.scan(namespace, "t").to_pylist() == [{"a": 1, "b": 2}]
    sql("ALTER TABLE {n}.t DROP COLUMN a")
    with pytest.raises(Exception, match=r"attach"):
        client.scan(namespace, "t")
    client.detach()
    assert client.scan(namespace, "t").to_pylist() == [{"b": 2}]
    assert client.scan(namespace, "t").to_pylist() == [{"b": 2}]


def test_views_are_tables_that_can_be_read(client, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT, b STRING) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1, 'x'), (2, 'y'), (3, NULL)")
    sql("CREATE VIEW {n}.v AS SELECT a * 10 AS ten, b FROM {n}.t WHERE a > 1")
    assert sorted(client.scan(namespace, "v").to_pylist(), key=str) == [
        {"ten": 20, "b": "y"},
        {"ten": 30, "b": None},
    ]
    assert client.scan(namespace, "v", ["ten"], where="b = 'y'").to_pylist() == [{"ten": 20}]
    assert client.count(namespace, "v") == 2


def test_a_view_that_no_longer_resolves_says_so_and_the_rest_stays_usable(client, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    sql(f"CREATE TABLE {{n}}.u (a INT) {_V3}")
    sql("CREATE VIEW {n}.v AS SELECT a FROM {n}.u")
    sql("DROP TABLE {n}.u")
    with pytest.raises(Exception, match=rf"{namespace}\.v.*{namespace}.*u"):
        client.scan(namespace, "v")
    assert client.scan(namespace, "t").num_rows == 0


def test_a_table_whose_files_are_gone_says_so_and_the_rest_stays_usable(
    lake, namespace, sql, client
):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1)")
    (path,) = (row[0] for row in sql("SELECT file_path FROM {n}.t.files"))
    os.remove(path.removeprefix("file:"))
    with pytest.raises(
        Exception, match=rf"a data file of table {namespace}\.t is missing"
    ) as caught:
        client.scan(namespace, "t")
    assert path not in str(caught.value)
    assert client.count(namespace, "t") == 1


def test_a_table_without_metadata_is_left_out_and_told_about_by_name(lake, namespace, sql):
    sql(f"CREATE TABLE {{n}}.gone (a INT) {_V3}")
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    entry = lake._lake.catalog.entry((namespace,), "gone")
    os.remove(entry.location.removeprefix("file:").removeprefix("//"))
    schema = lake.schema(CTX, namespace)
    assert [table.name for table in schema.tables(CTX)] == ["t"]
    with pytest.raises(NotFound, match=rf"the metadata of table {namespace}\.gone is missing"):
        schema.table(CTX, "gone")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_a_table_whose_metadata_are_gone_is_dropped_over_the_wire(
    lake, namespace, sql, client, monkeypatch, damage
):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    assert client.count(namespace, "t") == 0
    location = lake._lake.catalog.entry((namespace,), "t").location
    damage(Path(location.removeprefix("file:").removeprefix("//")))
    monkeypatch.setattr(lake._lake, "states", States())  # so that it is read again
    client.drop_table(namespace, "t")
    assert lake._lake.catalog.entry((namespace,), "t") is None


def test_a_scan_keeps_its_snapshot_while_others_commit_compact_and_drop_columns(
    lake, namespace, sql
):
    sql(f"CREATE TABLE {{n}}.t (a INT, b STRING) {_V3}")
    for number in range(4):
        sql(f"INSERT INTO {{n}}.t SELECT id + {number * 1000}, 'x' FROM range(1000)")
    table = lake.schema(CTX, namespace).table(CTX, "t")
    partitions = table.partitions(CTX, ScanOptions())
    reader = iter(table.scan(CTX, ScanOptions(batch_size=100)))
    rows = [next(reader)]
    sql("DELETE FROM {n}.t WHERE a < 2000")
    catalog = lake.spark_catalog
    lake.spark.sql(
        f"CALL `{catalog}`.system.rewrite_data_files(table => '{namespace}.t', options => "
        "map('rewrite-all', 'true'))"
    )
    sql("ALTER TABLE {n}.t DROP COLUMN b")
    sql("INSERT INTO {n}.t VALUES (-1)")
    rows += list(reader)
    assert sorted(row["a"] for batch in rows for row in batch.to_pylist()) == list(range(4000))
    # A stream that begins only now reads the same rows: its partition names the snapshot.
    late = lake.schema(CTX, namespace).table(CTX, "t")
    assert late.arrow_schema.names == ["a", "rowid"]
    planned = late.as_planned(CTX, partitions[0])
    assert planned.arrow_schema.names == ["a", "b", "rowid"]
    assert (
        sum(batch.num_rows for batch in planned.scan(CTX, ScanOptions(partition=partitions[0])))
        == 4000
    )


class _FilteredAccess(Access):
    def restrictions(self, schema: str, table: str) -> Restrictions:
        return Restrictions(("a > 0",))


def test_a_stream_is_read_without_planning_again(lake, namespace, sql, monkeypatch):
    sql(f"CREATE TABLE {{n}}.t (a INT, b STRING) {_V3}")
    for number in range(3):
        sql(f"INSERT INTO {{n}}.t SELECT id + {number * 1000}, 'x' FROM range(1000)")
    sql("DELETE FROM {n}.t WHERE a % 7 = 0")
    table = lake.schema(CTX, namespace).table(CTX, "t")
    (partition,) = table.partitions(CTX, ScanOptions())

    def plan_again(*_: object) -> NoReturn:
        raise AssertionError("the scan was planned twice")

    monkeypatch.setattr(routes, "_plan", plan_again)  # as on a server that has not planned it
    rows = [
        row["a"]
        for batch in table.scan(CTX, ScanOptions(partition=partition))
        for row in batch.to_pylist()
    ]

    assert sorted(rows) == [value for value in range(3000) if value % 7]
    assert str(lake._lake.staging.root.parent).encode() not in zlib.decompress(
        streams.unpacked(table.state, partition).files
    )


def test_a_stream_names_no_files_to_those_who_may_not_see_all_of_the_table(lake, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1)")
    table = lake.schema(CTX, namespace).table(CTX, "t")
    restricted = replace(CTX, access=_FilteredAccess())
    (partition,) = table.partitions(restricted, ScanOptions())

    stream = streams.unpacked(table.state, partition)
    assert (stream.source, stream.files) == (streams.FileSource.PLAN, b"")
    assert sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(partition=partition))) == 1


def test_streams_of_too_many_files_are_found_by_planning_again(lake, namespace, sql, monkeypatch):
    monkeypatch.setattr(streams, "_MOST_BYTES", 10)
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1)")
    table = lake.schema(CTX, namespace).table(CTX, "t")
    (partition,) = table.partitions(CTX, ScanOptions())

    assert streams.unpacked(table.state, partition).source is streams.FileSource.PLAN
    assert sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(partition=partition))) == 1


def test_parts_survive_the_journey_in_a_stream(lake, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    state = lake.schema(CTX, namespace).table(CTX, "t").state
    here = f"{state.metadata.location}/data/1.parquet"
    full = FilePart(
        here,
        10,
        1000,
        first_row_id=5,
        may_hold_row_ids=False,
        vector=DeleteVector(f"{state.metadata.location}/data/v.puffin", 4, 40, 2),
        position_deletes=("s3://elsewhere/deletes.parquet",),
        partition=((1, "a"), (2, None), (3, 1.5)),
        row_groups=(1, None),
        split_offsets=(4, 500),
        bytes=77,
    )
    groups = [(full,), (FilePart("s3://elsewhere/2.parquet", 1, 1), full)]

    packed = streams.packed(state, groups, streams.FileSource.PLAN, carried=True)

    found = [streams.unpacked(state, each) for each in packed]
    assert [(each.index, each.count) for each in found] == [(0, 2), (1, 2)]
    assert [streams.parts_of(state, each) for each in found] == groups
    odd = replace(full, partition=((1, b"bytes"),))
    (again,) = streams.packed(state, [(odd,)], streams.FileSource.PLAN, carried=True)
    assert streams.unpacked(state, again).source is streams.FileSource.PLAN


def test_a_partition_of_another_table_is_refused(lake, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (a INT) {_V3}")
    sql(f"CREATE TABLE {{n}}.u (a INT) {_V3}")
    sql("INSERT INTO {n}.t VALUES (1)")
    sql("INSERT INTO {n}.u VALUES (1)")
    schema = lake.schema(CTX, namespace)
    (partition,) = schema.table(CTX, "t").partitions(CTX, ScanOptions())
    other = schema.table(CTX, "u")
    with pytest.raises(Conflict, match="has changed since the query was planned"):
        planned_state(lake._lake, other.state, partition)
    with pytest.raises(BadRequest):
        planned_state(lake._lake, other.state, b"something")


def test_a_large_scan_is_divided_and_read_by_spark_tasks(lake, warehouse, namespace, sql):
    sql(f"CREATE TABLE {{n}}.t (id BIGINT, b STRING) {_V3}")
    for number in range(3):
        sql(
            f"INSERT INTO {{n}}.t SELECT id + {number * 70000}, concat('row ', id) FROM range(0, "
            "70000, 1, 1)"
        )
    sql("DELETE FROM {n}.t WHERE id % 10 = 0")
    settings = LakeSettings(in_place_bytes=0, endpoint_bytes=1, endpoints=3)
    with LakeCatalog(
        warehouse, name="tasks", spark_catalog=lake.spark_catalog, settings=settings
    ) as opened:
        divided: Any = opened
        table = divided.schema(CTX, namespace).table(CTX, "t")
        assert len(table.partitions(CTX, ScanOptions())) == 3
        with (
            Server(divided, "grpc://127.0.0.1:0") as server,
            DuckDBClient(server.location, "tasks", timeout=60) as client,
        ):
            found = client.scan(namespace, "t", ["id", "rowid"])
            assert sorted(found["id"].to_pylist()) == [n for n in range(210_000) if n % 10]
            assert len(set(found["rowid"].to_pylist())) == 189_000
            # A single row of a large row group is read in another way than all of them.
            ids = dict(zip(found["id"].to_pylist(), found["rowid"].to_pylist(), strict=True))
            point = client.scan(
                namespace, "t", ["b", "id", "rowid"], where="id IN (140123, 123, 120)"
            )
            assert sorted(point.to_pylist(), key=lambda row: row["id"]) == [
                {"b": "row 123", "id": 123, "rowid": ids[123]},
                {"b": "row 123", "id": 140_123, "rowid": ids[140_123]},
            ]
            assert client.count(namespace, "t") == 189_000


class _again:  # noqa: N801 - used as a function
    """Another catalog on the same session and Spark catalog, with other settings."""

    def __init__(self, lake: LakeCatalog, name: str, settings: LakeSettings) -> None:
        self._catalog = LakeCatalog(
            spark=lake.spark, spark_catalog=lake.spark_catalog, name=name, settings=settings
        )

    def __enter__(self) -> Any:
        return self._catalog

    def __exit__(self, *_: object) -> None:
        self._catalog.close()


@pytest.fixture(scope="module")
def small(lake, tmp_path_factory) -> Iterator[LakeCatalog]:
    """Another catalog in the session of the lake, with only two schemas: SQL reads all tables."""
    with LakeCatalog(tmp_path_factory.mktemp("small"), name="small") as catalog:
        for name in ("n", "m"):
            catalog.spark.sql(f"CREATE NAMESPACE small.{name}")
        yield catalog


def test_any_spark_catalog_can_be_served_on_a_session_of_ones_own(small):
    spark = small.spark
    spark.sql(f"CREATE TABLE small.n.t (a INT) {_V3}")
    spark.sql("INSERT INTO small.n.t VALUES (1)")
    spark.sql("CREATE VIEW small.n.v AS SELECT a + 1 AS b FROM small.n.t")
    with _again(small, "other", replace(LakeSettings(), refresh_seconds=0.2)) as other:
        names = [table.name for table in other.schema(CTX, "n").tables(CTX)]
        assert names == ["t", "v"]
        version = other.version(CTX).number
        spark.sql(f"CREATE TABLE small.n.later (a INT) {_V3}")
        deadline = time.monotonic() + 60
        while "later" not in [table.name for table in other.schema(CTX, "n").tables(CTX)]:
            assert time.monotonic() < deadline, (
                "a table that another engine has made is not noticed"
            )
            time.sleep(0.1)
        assert other.version(CTX).number > version


def test_tables_of_other_formats_in_the_session_catalog_can_be_read(lake):
    lake.spark.sql("CREATE DATABASE IF NOT EXISTS spark_catalog.plain")
    lake.spark.sql("CREATE TABLE spark_catalog.plain.parquet_table (a INT, b STRING) USING parquet")
    try:
        lake.spark.sql("INSERT INTO spark_catalog.plain.parquet_table VALUES (1, 'x'), (2, NULL)")
        with LakeCatalog(spark=lake.spark, spark_catalog="spark_catalog", name="session") as other:
            plain: Any = other.schema(CTX, "plain")
            table = plain.table(CTX, "parquet_table")
            assert table.arrow_schema.remove(2) == pa.schema(
                [("a", pa.int32()), ("b", pa.string())]
            )
            options = ScanOptions(columns=("a", "b"))
            rows = [row for batch in table.scan(CTX, options) for row in batch.to_pylist()]
            assert sorted(rows, key=str) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    finally:
        lake.spark.sql("DROP TABLE spark_catalog.plain.parquet_table")


@pytest.mark.parametrize("options", [{}, {"warehouse": "x", "spark": object()}])
def test_a_lake_is_either_embedded_or_on_a_session(options):
    with pytest.raises(BadRequest, match="a warehouse folder, a source or a Spark session"):
        LakeCatalog(**options)


def test_an_unknown_spark_catalog_is_refused(lake):
    with pytest.raises(SparkportError, match="nowhere"):
        LakeCatalog(spark=lake.spark, spark_catalog="nowhere")


def test_a_table_with_columns_that_only_spark_knows_is_shown_by_spark(client, namespace, sql):
    sql(
        "CREATE TABLE {n}.t (a INT, v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    sql("""INSERT INTO {n}.t SELECT 1, parse_json('{"x": [1, 2]}')""")
    assert client.scan(namespace, "t").to_pylist() == [{"a": 1, "v": '{"x":[1,2]}'}]


def test_a_view_of_any_catalog_that_gets_other_columns_is_noticed(small):
    small.spark.sql("CREATE VIEW small.m.v AS SELECT 1 AS a")
    with _again(small, "other", replace(LakeSettings(), refresh_seconds=0.1)) as other:
        view = other.schema(CTX, "m").table(CTX, "v")
        assert view.arrow_schema.names == ["a", "rowid"]
        small.spark.sql("CREATE OR REPLACE VIEW small.m.v AS SELECT 1 AS a, 2 AS b")
        with pytest.raises(SparkportError, match="attach"):
            list(view.scan(CTX, ScanOptions()))
        later = other.schema(CTX, "m").table(CTX, "v")
        assert later.arrow_schema.names == ["a", "b", "rowid"]
        options = ScanOptions(columns=("a", "b"))
        assert [row for batch in later.scan(CTX, options) for row in batch.to_pylist()] == [
            {"a": 1, "b": 2}
        ]


def test_what_is_wrong_with_a_table_is_logged_once(lake, namespace, sql, caplog):
    sql(f"CREATE TABLE {{n}}.gone (a INT) {_V3}")
    os.remove(
        lake._lake.catalog.entry((namespace,), "gone")
        .location.removeprefix("file:")
        .removeprefix("//")
    )
    for _ in range(3):
        assert list(lake.schema(CTX, namespace).tables(CTX)) == []
    assert [record.message for record in caplog.records if "left out" in record.message] == [
        f"{namespace}.gone is left out of the listing: the metadata of table {namespace}.gone is "
        "missing: "
        "it was removed from the storage"
    ]
