"""`spark_run` makes, replaces and drops views, alone and in pipelines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, insert, sql_name, values
from tests.spark.running import all_files, run

from sparkport.errors import AlreadyExists, BadRequest, NotFound, SparkportError, Unsupported
from sparkport.spark import LakeCatalog

__all__ = ["run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def source(lake: LakeCatalog, namespace: str) -> None:
    """Table `s` has two rows."""
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(1, 'ann'), (2, 'bob')")


def _rows(lake: LakeCatalog, namespace: str, name: str) -> list[Any]:
    found = lake.spark.sql(f"SELECT * FROM {sql_name(lake, namespace, name)}")
    return sorted(map(tuple, found.collect()))


def test_a_view_is_made_replaced_and_dropped(lake, namespace, run):
    before = all_files(lake)
    (report,) = run("CREATE VIEW v (k COMMENT 'the key', n) COMMENT 'of s' AS SELECT * FROM s")
    assert (report["statement"], report["table"]) == ("create view", f"{namespace}.v")
    assert report["version"] is None
    assert _rows(lake, namespace, "v") == [(1, "ann"), (2, "bob")]
    view = find(lake, namespace, "v")
    assert [*view.arrow_schema.names][:2] == ["k", "n"]
    assert sorted(values(view, "k", "n")) == [(1, "ann"), (2, "bob")]
    with pytest.raises(AlreadyExists, match="exists already"):
        run("CREATE VIEW v AS SELECT 1 AS x")
    run("CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS x")
    run("CREATE OR REPLACE VIEW v AS SELECT name FROM s WHERE id = 2")
    assert _rows(lake, namespace, "v") == [("bob",)]
    assert values(find(lake, namespace, "v"), "name") == ["bob"]
    run("CREATE TABLE t AS SELECT * FROM v")
    assert values(find(lake, namespace, "t"), "name") == ["bob"]
    with pytest.raises(BadRequest, match="is a table"):
        run("DROP VIEW t")
    (report,) = run("DROP VIEW v")
    assert report["statement"] == "drop view"
    assert find(lake, namespace, "v") is None
    run("DROP VIEW IF EXISTS v")
    with pytest.raises(NotFound, match="does not exist"):
        run("DROP VIEW v")
    left = all_files(lake) - before
    assert all(f"/{namespace}/t-" in str(path) for path in left), "no file of the view"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE VIEW v AS SELECT * FROM v", "v"),
        ("CREATE VIEW v (a) AS SELECT * FROM s", "names 1 columns"),
        ("CREATE VIEW v AS SELECT 1 AS x, 2 AS x", "names that differ"),
        ("CREATE VIEW v AS SELECT NULL AS x", "has no type"),
        ("CREATE VIEW v TBLPROPERTIES ('location' = '/tmp') AS SELECT 1 AS x", "server's to set"),
        ("CREATE VIEW v AS SELECT * FROM nowhere", "nowhere"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1 AS x", "."),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1 AS x", "."),
        ("CREATE VIEW nowhere.v AS SELECT 1 AS x", "schema nowhere does not exist"),
        ("ALTER VIEW s AS SELECT 1 AS x", "."),
        ("DROP VIEW nowhere.v", "nowhere"),
    ],
)
def test_what_cannot_be_a_view_leaves_nothing(lake, namespace, run, statement, message):
    before = all_files(lake)
    with pytest.raises(SparkportError, match=message):
        run(statement)
    assert all_files(lake) == before


def test_a_view_does_not_read_itself_through_another(lake, namespace, run):
    run("CREATE VIEW a AS SELECT * FROM s")
    run("CREATE VIEW b AS SELECT * FROM a")
    with pytest.raises(BadRequest, match="cannot read itself"):
        run("CREATE OR REPLACE VIEW a AS SELECT * FROM b")
    with pytest.raises(SparkportError):
        run(["CREATE OR REPLACE VIEW a AS SELECT * FROM s", "CREATE OR REPLACE VIEW a AS TABLE b"])
    assert _rows(lake, namespace, "b") == [(1, "ann"), (2, "bob")]


def test_a_pipeline_reads_views_that_it_makes(lake, namespace, run):
    run(
        [
            "CREATE VIEW v AS SELECT id * 10 AS ten, name FROM s",
            "CREATE VIEW w (x) AS SELECT ten + 1 FROM v WHERE v.name = 'bob'",
            "CREATE TABLE t AS SELECT w.x, v.name FROM w JOIN v ON w.x > v.ten",
        ]
    )
    found = sorted(values(find(lake, namespace, "t"), "x", "name"))
    assert found == [(21, "ann"), (21, "bob")]
    assert _rows(lake, namespace, "w") == [(21,)]


def test_a_pipeline_does_not_make_drop_and_make_again_what_has_one_name(lake, namespace, run):
    run("CREATE VIEW v AS SELECT 1 AS x")
    before = all_files(lake)
    for statements in (
        ["DROP VIEW v", "CREATE VIEW v AS SELECT 2 AS x"],
        ["CREATE OR REPLACE VIEW v AS SELECT 2 AS x", "DROP VIEW v"],
        ["CREATE VIEW w AS SELECT 2 AS x", "CREATE OR REPLACE VIEW W AS SELECT 3 AS x"],
        ["DROP VIEW v", "CREATE TABLE v AS SELECT 2 AS x"],
    ):
        with pytest.raises(Unsupported, match="made or dropped before in this transaction"):
            run(statements)
    with pytest.raises(NotFound, match="has dropped it"):
        run(["DROP VIEW v", "CREATE TABLE t AS SELECT * FROM v"])
    assert all_files(lake) == before
    assert _rows(lake, namespace, "v") == [(1,)]


def test_a_view_that_is_published_does_not_show_an_older_state(lake, namespace, run):
    """What a pipeline has changed or replaced is not seen through it, and that is said."""
    run("CREATE VIEW v AS SELECT * FROM s")
    run("CREATE VIEW outer_v AS SELECT * FROM v")
    before = all_files(lake, but_commits=True)
    for first in (
        "INSERT INTO s SELECT 3, 'cid'",
        "CREATE OR REPLACE TABLE s AS SELECT 3 AS id, 'cid' AS name",
    ):
        for second in (
            "CREATE TABLE t AS SELECT count(*) AS n FROM v",
            "CREATE TABLE t AS SELECT v.id FROM v JOIN s ON s.id = v.id",
        ):
            with pytest.raises(Unsupported, match="through a view, which does not see"):
                run([first, second])
    with pytest.raises(Unsupported, match="through a view"):
        run(["CREATE OR REPLACE VIEW v AS SELECT 1 AS x", "CREATE TABLE t AS TABLE outer_v"])
    with pytest.raises(Unsupported, match="through a view"):
        run(
            [
                "CREATE TABLE t AS SELECT 1 AS id, 'x' AS name",
                "INSERT INTO s SELECT 3, 'cid'",
                "INSERT INTO t SELECT * FROM v",
            ]
        )
    assert all_files(lake, but_commits=True) == before
    run(["INSERT INTO s SELECT 3, 'cid'", "CREATE VIEW w AS SELECT count(*) AS n FROM v"])
    assert _rows(lake, namespace, "w") == [(3,)]
