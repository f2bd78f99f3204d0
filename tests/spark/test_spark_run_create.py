"""`spark_run` makes tables and views from queries: nobody sees them before they are whole."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    create,
    find,
    in_pyiceberg,
    in_spark,
    insert,
    rows,
    values,
)
from tests.spark.running import run

from sparkport.spark import LakeCatalog
from sparkport.spark.lake.version_log import number_of

__all__ = ["run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def source(lake: LakeCatalog, namespace: str) -> None:
    """Table `s` has three rows."""
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(1, 'ann'), (2, 'bob'), (3, 'cid')")


@pytest.mark.usefixtures("source")
def test_a_table_is_made_from_a_query(lake, namespace, run):
    (report,) = run("CREATE TABLE t AS SELECT id, upper(name) AS name FROM s WHERE id > 1")
    assert report["statement"] == "create table as"
    assert report["table"] == f"{namespace}.t"
    assert (report["rows_inserted"], report["rows_updated"], report["rows_deleted"]) == (2, 0, 0)
    assert report["files"] >= 1
    table = find(lake, namespace, "t")
    assert report["version"] == number_of(lake._lake, table.state) == 0
    assert values(table, "id", "name") == [(2, "BOB"), (3, "CID")]
    assert in_pyiceberg(table).to_pylist() == [
        {"id": 2, "name": "BOB"},
        {"id": 3, "name": "CID"},
    ]
    assert in_spark(lake, namespace, "t") == [(2, "BOB"), (3, "CID")]
    summary = table.state.snapshot.summary
    assert summary["sparkport.operation"] == "spark_run create table as"
    assert table.state.metadata.format_version == 3


@pytest.mark.usefixtures("source")
def test_a_new_table_can_be_changed_like_any_other(lake, namespace, run):
    run("CREATE TABLE t AS SELECT * FROM s")
    (report,) = run("UPDATE t SET name = 'x' WHERE id = 1")
    assert (report["rows_updated"], report["version"]) == (1, 1)
    (report,) = run("INSERT INTO t SELECT 9, 'y'")
    assert report["version"] == 2


@pytest.mark.usefixtures("source")
def test_a_pipeline_reads_and_fills_the_tables_that_it_makes(lake, namespace, run):
    reports = run(
        [
            "CREATE TABLE a AS SELECT * FROM s",
            "CREATE TABLE b AS SELECT a.id + 10 AS id, a.name FROM a WHERE a.id < 3",
            "INSERT INTO b (name, id) SELECT name, id FROM a WHERE id = 3",
            "CREATE VIEW v AS SELECT b.id, s.name FROM b JOIN s ON b.name = s.name",
            "INSERT INTO s SELECT id + 100, name FROM v",
            f"CREATE TABLE {namespace}.c AS SELECT count(*) AS n FROM v",
        ]
    )
    assert [each["rows_inserted"] for each in reports] == [3, 2, 1, 0, 3, 1]
    assert [each["version"] for each in reports] == [0, 0, 0, None, 2, 0]
    assert values(find(lake, namespace, "b"), "id", "name") == [
        (11, "ann"),
        (12, "bob"),
        (3, "cid"),
    ]
    assert len(rows(find(lake, namespace, "s"))) == 6
    assert values(find(lake, namespace, "c"), "n") == [6]  # v reads what the pipeline inserted
    assert in_spark(lake, namespace, "a", "id") == [(1,), (2,), (3,)]
    found = lake.spark.sql(f"SELECT count(*) FROM {lake.spark_catalog}.{namespace}.v").collect()
    assert found[0][0] == 6


@pytest.mark.usefixtures("source")
def test_a_table_is_replaced_and_its_versions_stay(lake, namespace, run):
    run("CREATE TABLE t AS SELECT * FROM s")
    run("INSERT INTO t SELECT 4, 'dan'")
    (report,) = run("CREATE OR REPLACE TABLE t AS SELECT id * 2 AS id, 'x' AS extra FROM t")
    assert (report["statement"], report["rows_inserted"]) == ("replace table as", 4)
    table = find(lake, namespace, "t")
    assert report["version"] == number_of(lake._lake, table.state) == 2
    assert sorted(values(table, "id", "extra")) == [(2, "x"), (4, "x"), (6, "x"), (8, "x")]
    assert "write.data.path" not in table.state.metadata.properties
