"""Iceberg tables of other versions, formats and habits: they work, or are refused with a reason."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import find
from tests.spark.odd_tables import MERGE_ON_READ, OddTables

from sparkport.errors import PreconditionFailed
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.write.spark_writes import own_session
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def odd_lake(lake: LakeCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    """A lake for these tests alone: some of their tables stay broken."""
    with LakeCatalog(tmp_path_factory.mktemp("odd"), name="odd") as own:
        yield own


@pytest.fixture(scope="module")
def client(odd_lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with (
        Server(odd_lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, odd_lake.name, timeout=100) as client,
    ):
        yield client


@pytest.fixture
def tables(odd_lake: LakeCatalog, client: DuckDBClient) -> OddTables:
    name = f"n{next(_NUMBERS)}"
    odd_lake.spark.sql(f"CREATE NAMESPACE {odd_lake.spark_catalog}.{name}")
    return OddTables(odd_lake, name, client)


# ------------------------------------------------------------------------------ versions 1 and 2


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_are_read_added_to_and_altered(tables: OddTables, version: int) -> None:
    tables.make("t", version)
    assert tables.expect_same("t") == [(1, "a"), (2, "b"), (3, "c"), (4, None)]
    assert tables.insert("t", (5, "e")) == 1
    assert (5, "e") in tables.expect_same("t")
    tables.client.add_column(tables.namespace, "t", "n", pa.int32())
    tables.client.add_constraint(tables.namespace, "t", "UNIQUE (id)")
    with pytest.raises(ServerError, match='Duplicate key "id: 5"'):
        tables.insert("t", (5, "again"))
    assert (5, "e", None) in tables.expect_same("t")


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_older_versions_cannot_be_changed_and_it_is_said_why(
    tables: OddTables, version: int
) -> None:
    tables.make("t", version)
    tables.attach()
    why = f"has version {version} of Iceberg's format, in which rows have no ids; set .* to 3"
    for change in (tables.update, tables.delete):
        with pytest.raises(ServerError, match=why):
            change("t", "id = 1")
    assert len(tables.expect_same("t")) == 4


def test_a_table_has_row_ids_with_its_first_commit_after_the_upgrade(tables: OddTables) -> None:
    tables.make("t", 2, **MERGE_ON_READ)
    tables.sql("INSERT INTO @t VALUES (5, 'e')")
    tables.sql("DELETE FROM @t WHERE id = 3")
    before = tables.java("t").currentSnapshot().snapshotId()
    tables.sql("ALTER TABLE @t SET TBLPROPERTIES ('format-version' = '3')")
    assert tables.expect_same("t") == [(1, "a"), (2, "b"), (4, None), (5, "e")]
    with pytest.raises(ServerError, match="was upgraded, and its rows get their ids with the next"):
        tables.update("t", "id = 1")
    assert tables.insert("t", (6, "f")) == 1
    assert tables.update("t", "id <= 2") == 2
    assert tables.delete("t", "id = 4") == 1
    assert tables.expect_same("t") == [(1, "new"), (2, "new"), (5, "e"), (6, "f")]
    old = tables.client.scan(tables.namespace, "t", ["id", "rowid"], at=("VERSION", str(before)))
    assert sorted(old.column("id").to_pylist()) == [1, 2, 4, 5]
    assert set(old.column("rowid").to_pylist()) == {-1}


# ------------------------------------------------------------------------------------ delete files


def test_position_delete_files(tables: OddTables) -> None:
    tables.make("t", 2, layout="PARTITIONED BY (v)", **MERGE_ON_READ)
    tables.sql("DELETE FROM @t WHERE id = 3")
    tables.sql("UPDATE @t SET v = 'z' WHERE id = 2")
    assert tables.sql("SELECT count(*) FROM @t.delete_files WHERE content = 1")[0][0] >= 1
    assert tables.expect_same("t") == [(1, "a"), (2, "z"), (4, None)]
    assert tables.insert("t", (3, "again")) == 1
    assert (3, "again") in tables.expect_same("t")
    tables.sql("ALTER TABLE @t SET TBLPROPERTIES ('format-version' = '3')")
    assert tables.insert("t", (9, "i")) == 1
    assert tables.delete("t", "id = 1") == 1, "the vector takes over what the old file deletes"
    assert tables.expect_same("t") == [(2, "z"), (3, "again"), (4, None), (9, "i")]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["PARQUET", "AVRO"])
def test_equality_delete_files(tables: OddTables, version: int, kind: str) -> None:
    tables.make("t", version, **MERGE_ON_READ)
    tables.delete_equal("t", [1, 3, 77], kind)
    assert tables.expect_same("t") == [(2, "b"), (4, None)]
    assert tables.insert("t", (3, "again"), (5, "e")) == 2, "older deletes do not hit new rows"
    assert tables.expect_same("t") == [(2, "b"), (3, "again"), (4, None), (5, "e")]
    if version == 3:
        assert tables.delete("t", "id = 2") == 1
        assert tables.expect_same("t") == [(3, "again"), (4, None), (5, "e")]
        assert tables.update("t", "id IN (3, 4)") == 2, "left to Spark"
        assert tables.expect_same("t") == [(3, "new"), (4, "new"), (5, "e")]


# ------------------------------------------------------------------------------- formats of files


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_data_files_of_other_formats(tables: OddTables, version: int, kind: str) -> None:
    tables.make("t", version, **{"write.format.default": kind})
    assert len(tables.expect_same("t")) == 4
    assert tables.insert("t", (5, "e")) == 1
    assert (5, "e") in tables.expect_same("t")
    kinds = {row[0] for row in tables.sql("SELECT file_format FROM @t.files")}
    assert kinds == {kind.upper()}, "the table's own format is kept"


def test_changes_of_other_formats_need_merge_on_read(tables: OddTables) -> None:
    tables.make("t", 3, **{"write.format.default": "orc"})
    tables.attach()
    with pytest.raises(ServerError, match="set its properties write"):
        tables.delete("t", "id = 1")
    tables.make("m", 3, **{"write.format.default": "orc"}, **MERGE_ON_READ)
    tables.attach()
    assert tables.delete("m", "id = 1") == 1
    assert tables.update("m", "id = 2") == 1
    assert tables.expect_same("m") == [(2, "new"), (3, "c"), (4, None)]


def test_a_table_of_mixed_formats(tables: OddTables) -> None:
    tables.make("t", 3, **{"write.format.default": "orc"}, **MERGE_ON_READ)
    for number, kind in enumerate(("avro", "parquet"), 5):
        tables.sql(f"ALTER TABLE @t SET TBLPROPERTIES ('write.format.default' = '{kind}')")
        tables.sql(f"INSERT INTO @t VALUES ({number}, '{kind}')")
    assert len(tables.expect_same("t")) == 6
    assert tables.insert("t", (7, "g")) == 1
    assert tables.delete("t", "id IN (1, 5, 6)") == 3
    assert tables.update("t", "id IN (2, 7)") == 2
    assert tables.expect_same("t") == [(2, "new"), (3, "c"), (4, None), (7, "new")]


def test_metadata_may_be_compressed(tables: OddTables) -> None:
    tables.make("t", 3, **{"write.metadata.compression-codec": "gzip"})
    assert tables.metadata("t").name.endswith(".gz.metadata.json")
    tables.expect_same("t")
    assert tables.insert("t", (5, "e")) == 1
    assert tables.update("t", "id = 1") == 1
    assert tables.delete("t", "id = 2") == 1
    assert tables.expect_same("t") == [(1, "new"), (3, "c"), (4, None), (5, "e")]


# ------------------------------------------------------------------------------ layout and history


def test_partitions_and_orders_may_have_changed(tables: OddTables) -> None:
    tables.make("t", 2, layout="PARTITIONED BY (v)")
    for change, row in (
        ("ADD PARTITION FIELD bucket(4, id)", "(5, 'a'), (6, NULL)"),
        ("DROP PARTITION FIELD v", "(7, 'a')"),
        ("REPLACE PARTITION FIELD bucket(4, id) WITH truncate(10, id)", "(8, 'zz'), (88, 'c')"),
        ("WRITE ORDERED BY v DESC NULLS LAST, id", "(9, 'i')"),
        ("RENAME COLUMN v TO w", "(10, 'j')"),
        ("RENAME COLUMN w TO v", "(11, 'k')"),
    ):
        tables.sql(f"ALTER TABLE @t {change}")
        tables.sql(f"INSERT INTO @t VALUES {row}")
    assert len(tables.expect_same("t", "v = 'a' AND id > 4", "id BETWEEN 8 AND 90")) == 12
    tables.sql("ALTER TABLE @t SET TBLPROPERTIES ('format-version' = '3')")
    assert tables.insert("t", (12, "a")) == 1
    assert tables.delete("t", "v = 'a'") == 4
    assert len(tables.expect_same("t", "v = 'a'", "id BETWEEN 8 AND 90")) == 9


def test_a_registered_table_outside_of_the_warehouse(tables: OddTables, tmp_path: Path) -> None:
    tables.make("made", 3, layout=f"LOCATION '{tmp_path}/outside'")
    file = tables.metadata("made")
    tables.sql("DROP TABLE @made")
    catalog, name = tables.lake.spark_catalog, f"{tables.namespace}.t"
    tables.sql(
        f"CALL {catalog}.system.register_table(table => '{name}', metadata_file => '{file}')"
    )
    assert len(tables.expect_same("t")) == 4
    assert tables.insert("t", (5, "e")) == 1
    assert tables.update("t", "id = 1") == 1
    assert (1, "new") in tables.expect_same("t")
    assert list(tmp_path.glob("outside/data/*.parquet")), "new files are put beside the others"


def test_a_table_that_others_rename(tables: OddTables) -> None:
    tables.make("t", 3)
    tables.expect_same("t")
    tables.sql(f"ALTER TABLE @t RENAME TO {tables.namespace}.moved")
    with pytest.raises((ServerError, ClientSideError), match=r"does not exist|not found"):
        tables.rows("t")
    assert len(tables.expect_same("moved")) == 4
    assert tables.update("moved", "id = 1") == 1
    assert (1, "new") in tables.expect_same("moved")


# ------------------------------------------------------------------------------------------- names


def test_tables_whose_names_differ_only_in_case_are_refused(tables: OddTables) -> None:
    for name in ("twin", "Twin", "other"):
        tables.make(name, 3, f"(1, '{name}')")
    tables.attach()
    why = r"tables n\d+\.Twin and n\d+\.twin have names that differ only in case, which DuckDB"
    for spelling in ("twin", "Twin"):
        with pytest.raises(ServerError, match=why):
            tables.rows(spelling)
        with pytest.raises(ServerError, match=why):
            tables.insert(spelling, (2, "x"))
        with pytest.raises(ServerError, match=why):
            tables.client.drop_table(tables.namespace, spelling)
    assert tables.rows("other") == [(1, "other")]
    tables.sql(f"ALTER TABLE @Twin RENAME TO {tables.namespace}.second")
    tables.attach()
    assert (tables.rows("twin"), tables.rows("second")) == ([(1, "twin")], [(1, "Twin")])


def test_schemas_whose_names_differ_only_in_case_are_refused(tables: OddTables) -> None:
    tables.make("t", 3)
    upper = f"{tables.lake.spark_catalog}.{tables.namespace.upper()}"
    tables.lake.spark.sql(f"CREATE NAMESPACE {upper}")
    tables.lake.spark.sql(f"CREATE TABLE {upper}.t (id BIGINT) USING iceberg")
    try:
        tables.attach()
        with pytest.raises(ServerError, match=r"schemas N\d+ and n\d+ have names that differ only"):
            tables.client.scan(tables.namespace, "t")
    finally:
        tables.lake.spark.sql(f"DROP TABLE {upper}.t")
        tables.lake.spark.sql(f"DROP NAMESPACE {upper}")
    assert len(tables.expect_same("t")) == 4


def test_columns_whose_names_differ_only_in_case_are_read(tables: OddTables) -> None:
    """DuckDB gives the second of them another name."""
    session = own_session(tables.lake.spark, {"spark.sql.caseSensitive": "true"})
    name = f"{tables.lake.spark_catalog}.{tables.namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT, v STRING, V STRING) USING iceberg")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a', 'A'), (2, 'b', 'B')")
    tables.attach()
    assert tables.rows("t") == [(1, "a", "A"), (2, "b", "B")]
    assert tables.rows("t", "v = 'a'") == [(1, "a", "A")]
    assert tables.rows("t", "V_1 = 'B'") == [(2, "b", "B")]


# ------------------------------------------------------------------------------- newer than we are


def test_a_table_of_the_next_version_is_read_by_spark(tables: OddTables) -> None:
    tables.make("t", 3)
    tables.rewrite("t", lambda metadata: metadata.update({"format-version": 4}))
    assert len(tables.expect_same("t")) == 4
    with pytest.raises(ServerError, match="only Spark can read it as it is"):
        tables.update("t", "id = 1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format-version": 5}, r"has version 5 of Iceberg's format, and versions up to 4 are"),
        (
            {"type": "quaternion"},
            "column q of table .* has the type quaternion, which is",
        ),
    ],
    ids=["version", "type"],
)
def test_what_nobody_here_can_read_is_left_out_and_named(
    tables: OddTables, caplog: pytest.LogCaptureFixture, change: dict[str, Any], message: str
) -> None:
    tables.make("fine", 3)
    tables.make("t", 3)

    def newer(metadata: dict[str, Any]) -> None:
        if "type" in change:
            column = {"id": 9, "name": "q", "required": False, **change}
            metadata["schemas"][0]["fields"].append(column)
        else:
            metadata.update(change)

    tables.rewrite("t", newer)
    with caplog.at_level(logging.WARNING):
        assert len(tables.expect_same("fine")) == 4
    assert "t is left out of the listing" in caplog.text
    with pytest.raises(ClientSideError, match="does not exist"):
        tables.rows("t")
    with pytest.raises(PreconditionFailed, match=message):
        find(tables.lake, tables.namespace, "t")


def _with_column(tables: OddTables, kind: Any) -> None:
    column = {"id": 9, "name": "q", "required": False, "type": kind}

    def add(metadata: dict[str, Any]) -> None:
        metadata["schemas"][0]["fields"].append(column)
        metadata["last-column-id"] = 10

    tables.make("t", 3)
    tables.rewrite("t", add)
    tables.attach()


def test_types_that_only_spark_knows(tables: OddTables) -> None:
    _with_column(tables, "variant")
    assert tables.rows("t", "id > 2") == [(3, "c", None), (4, None, None)]
    with pytest.raises(ServerError, match="column q is of type variant, which only Spark knows"):
        tables.insert("t", (5, "e"))
    for change in (tables.update, tables.delete):
        with pytest.raises(ServerError, match="only Spark can read it as it is"):
            change("t", "id = 1")
    with pytest.raises(ServerError, match="only Spark can read it as it is; alter it with Spark"):
        tables.client.add_column(tables.namespace, "t", "n", pa.int32())
    assert len(tables.rows("t")) == 4


@pytest.mark.parametrize(
    "kind",
    [
        "geometry",
        "geometry(OGC:CRS84)",
        "geometry(srid:3857)",
        "geography(OGC:CRS84, karney)",
        {
            "type": "list",
            "element": "geography(EPSG:4326)",
            "element-id": 10,
            "element-required": False,
        },
    ],
    ids=str,
)
def test_places_are_read_and_deleted_and_not_written(tables: OddTables, kind: Any) -> None:
    _with_column(tables, kind)
    assert tables.rows("t", "id > 2") == [(3, "c", None), (4, None, None)]
    why = r"to table n\d+\.t from here, .* its column q is of type (geometry|geography)"
    with pytest.raises(ServerError, match=why):
        tables.insert("t", (5, "e"))
    with pytest.raises(ServerError, match=why):
        tables.update("t", "id = 1")
    assert tables.delete("t", "id = 1") == 1
    deleted = tables.client.delete(tables.namespace, "t", "id = 2", returning=True)
    assert deleted.rows is not None
    assert deleted.rows.select(["id", "q"]).to_pylist() == [{"id": 2, "q": None}]
    tables.client.add_column(tables.namespace, "t", "n", pa.int32())
    assert tables.rows("t") == [(3, "c", None, None), (4, None, None, None)]


def test_an_encrypted_table_says_what_to_set(tables: OddTables) -> None:
    def encrypt(metadata: dict[str, Any]) -> None:
        metadata["properties"]["encryption.key-id"] = "master"
        metadata["encryption-keys"] = [{"key-id": "k", "encrypted-key-metadata": "AAAA"}]
        metadata["snapshots"][-1]["key-id"] = "k"

    tables.make("fine", 3)
    tables.make("t", 3)
    tables.rewrite("t", encrypt)
    why = r"table n\d+\.t is encrypted, and the catalog's options do not say who has the keys: set"
    tables.attach()
    for attempt in (
        lambda: tables.rows("t"),
        lambda: tables.insert("t", (5, "e")),
        lambda: tables.update("t", "id = 1"),
        lambda: tables.client.add_column(tables.namespace, "t", "n", pa.int32()),
    ):
        with pytest.raises(ServerError, match=why):
            attempt()
    assert len(tables.expect_same("fine")) == 4
