"""Files that DuckDB reads by itself: only those whose plain read gives exactly the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkport.catalog import Context, ScanOptions
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient

CTX = Context(from_duckdb=True)
_V3 = "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"


@pytest.fixture(scope="module")
def direct(lake, warehouse) -> Iterator[Any]:
    settings = LakeSettings(in_place_bytes=-1, direct=True)
    with LakeCatalog(
        warehouse, name="direct", spark_catalog=lake.spark_catalog, settings=settings
    ) as catalog:
        yield catalog


@pytest.fixture
def sql(lake, namespace):
    """Run Spark SQL in which {t} is a table."""
    return lambda text: lake.spark.sql(
        text.replace("{t}", f"`{lake.spark_catalog}`.{namespace}.t")
    ).collect()


def _directly(direct, namespace: str, *columns: str, **options: Any) -> Any:
    table = direct.schema(CTX, namespace).table(CTX, "t")
    return table.directly(CTX, ScanOptions(columns=columns, **options))


def _files(found: Any) -> int:
    return 0 if found is None else sum(len(call.arguments[0]) for call in found.references)


def test_plain_files_are_named_and_the_others_sent(direct, namespace, sql):
    sql(f"CREATE TABLE {{t}} (a INT, b STRING) USING iceberg {_V3}")
    sql("INSERT INTO {t} SELECT id, 'x' FROM range(0, 10, 1, 1)")
    sql("INSERT INTO {t} SELECT id + 10, 'y' FROM range(0, 10, 1, 1)")
    assert (_files(found := _directly(direct, namespace, "a")), found.partitions) == (2, ())
    sql("DELETE FROM {t} WHERE a = 3")
    found = _directly(direct, namespace, "a")
    assert (_files(found), len(found.partitions)) == (1, 1)
    with (
        Server(direct, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "direct", timeout=60) as client,
    ):
        assert sorted(client.scan(namespace, "t", ["a"])["a"].to_pylist()) == [
            n for n in range(20) if n != 3
        ]
        assert client.count(namespace, "t") == 19


def test_columns_that_were_renamed_or_promoted_are_not_read_directly(direct, namespace, sql):
    sql(f"CREATE TABLE {{t}} (a INT, b STRING, c INT) USING iceberg {_V3}")
    sql("INSERT INTO {t} VALUES (1, 'x', 2)")
    sql("ALTER TABLE {t} RENAME COLUMN b TO bb")
    sql("ALTER TABLE {t} ALTER COLUMN c TYPE BIGINT")
    sql("ALTER TABLE {t} ADD COLUMN d INT")
    assert _files(_directly(direct, namespace, "a", "d")) == 1
    assert _directly(direct, namespace, "bb") is None
    assert _directly(direct, namespace, "a", "c") is None
    sql("ALTER TABLE {t} DROP COLUMN a")
    sql("ALTER TABLE {t} ADD COLUMN a INT")
    assert _directly(direct, namespace, "a") is None, "the file has another column of that name"


def test_what_a_filter_narrows_down_is_read_by_the_server(direct, namespace, sql):
    from sparkport.catalog.filters import BOOLEAN, Constant, Filter

    sql(f"CREATE TABLE {{t}} (a INT) USING iceberg {_V3}")
    sql("INSERT INTO {t} VALUES (1)")
    assert _directly(direct, namespace, "a", filter=Filter((Constant(BOOLEAN, True),))) is None


@pytest.mark.parametrize("column", ["i INT", "s STRING"])
def test_partitions_with_null_read_as_null(direct, namespace, sql, column):
    name = column.split()[0]
    sql(f"CREATE TABLE {{t}} (k INT, {column}) USING iceberg PARTITIONED BY ({name}) {_V3}")
    sql("INSERT INTO {t} VALUES (1, 7), (2, NULL)")
    with (
        Server(direct, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "direct", timeout=60) as client,
    ):
        rows = sorted(
            client.scan(namespace, "t", ["k", name]).to_pylist(), key=lambda row: row["k"]
        )
    assert rows == [{"k": 1, name: 7 if name == "i" else "7"}, {"k": 2, name: None}]
    assert _files(_directly(direct, namespace, "k", name)) == 2


def test_a_path_that_duckdb_takes_for_a_pattern_is_not_named(direct, namespace, sql, warehouse):
    place = warehouse / "strange[ab]"
    sql(f"CREATE TABLE {{t}} (a INT) USING iceberg LOCATION 'file://{place}' {_V3}")
    sql("INSERT INTO {t} VALUES (1)")
    assert _directly(direct, namespace, "a") is None
