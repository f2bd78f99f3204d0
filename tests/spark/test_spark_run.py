"""`spark_run`: statements that Spark runs, under the promises of every write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, folder, insert, values
from tests.spark.running import run

from sparkport.catalog import Constraints
from sparkport.errors import BadRequest, ConstraintViolation, NotFound, NotWritable, SparkportError
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.lake.version_log import number_of
from sparkport.testing import DuckDBClient, ServerError

__all__ = ["run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_KEY = Constraints(primary_key=("id",), not_null=("id",), checks=("(name <> 'bad')",))


@pytest.fixture
def table(lake: LakeCatalog, namespace: str) -> None:
    """Table `t` has a key and a CHECK, and two rows; table `s` has other rows."""
    create(lake, namespace, "t", _COLUMNS, constraints=_KEY)
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(2, 'BOB'), (3, 'CID')")


_MERGE = (
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name "
    "WHEN NOT MATCHED THEN INSERT *"
)

CHANGES = {
    "insert": (
        "INSERT INTO t SELECT id + 10, name FROM s",
        (2, 0, 0),
        [(1, "ann"), (2, "bob"), (12, "BOB"), (13, "CID")],
    ),
    "overwrite": ("INSERT OVERWRITE t SELECT * FROM s", (2, 0, 2), [(2, "BOB"), (3, "CID")]),
    "update": (
        "UPDATE t SET name = upper(name) WHERE t.id IN (SELECT id FROM s)",
        (0, 1, 0),
        [(1, "ann"), (2, "BOB")],
    ),
    "delete": ("DELETE FROM t WHERE id = 1", (0, 0, 1), [(2, "bob")]),
    "merge": (_MERGE, (1, 1, 0), [(1, "ann"), (2, "BOB"), (3, "CID")]),
    "merge with all": (
        "MERGE INTO t AS x USING (SELECT * FROM s) y ON x.id = y.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (y.id, y.name) "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'old'",
        (1, 1, 1),
        [(1, "old"), (3, "CID")],
    ),
    "with": (
        "WITH big AS (SELECT max(id) AS id FROM s) INSERT INTO t (id, name) "
        "SELECT id, 'big' FROM big",
        (1, 0, 0),
        [(1, "ann"), (2, "bob"), (3, "big")],
    ),
    "nothing": ("DELETE FROM t WHERE id = 77", (0, 0, 0), [(1, "ann"), (2, "bob")]),
}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("what", CHANGES)
def test_a_statement_changes_rows_and_tells_how_many(lake, namespace, run, what):
    statement, counts, left = CHANGES[what]
    before = _version(lake, namespace, "t")
    (report,) = run(statement)
    told = (report["rows_inserted"], report["rows_updated"], report["rows_deleted"])
    assert told == counts
    assert report["table"] == f"{namespace}.t"
    assert report["version"] == _version(lake, namespace, "t") == before + (what != "nothing")
    assert sorted(_rows(lake, namespace, "t")) == left
    assert _branches(lake, namespace, "t") == []


_COPYING = ", ".join(
    f"'write.{each}.mode' = 'copy-on-write'" for each in ("delete", "update", "merge")
)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("what", CHANGES)
def test_rows_that_are_only_copied_are_not_counted(lake, namespace, run, what):
    _set(lake, namespace, _COPYING)
    statement, counts, left = CHANGES[what]
    ids = _row_ids(lake, namespace)
    (report,) = run(statement)
    told = (report["rows_inserted"], report["rows_updated"], report["rows_deleted"])
    assert told == counts
    assert sorted(_rows(lake, namespace, "t")) == left
    after = _row_ids(lake, namespace)
    assert what == "overwrite" or all(ids[key] == after[key] for key in ids if key in after)


@pytest.mark.usefixtures("table")
def test_rows_that_are_only_copied_are_not_checked(lake, namespace, run):
    _set(lake, namespace, _COPYING)
    lake.spark.sql(f"INSERT INTO `{lake.spark_catalog}`.{namespace}.t VALUES (7, 'bad'), (8, 'ok')")
    (report,) = run("UPDATE t SET name = 'new' WHERE id = 8")
    assert (report["rows_updated"], report["rows_inserted"]) == (1, 0)
    assert sorted(_rows(lake, namespace, "t"))[2:] == [(7, "bad"), (8, "new")]
    with pytest.raises(ConstraintViolation, match="CHECK constraint failed"):
        run("UPDATE t SET name = 'bad' WHERE id = 8")
    (report,) = run("UPDATE t SET name = 'good' WHERE name = 'bad'")
    assert report["rows_updated"] == 1


VIOLATIONS = {
    "a key twice in the source": "INSERT INTO t SELECT 5, name FROM s",
    "a key that is there": "INSERT INTO t SELECT 1, 'x'",
    "NULL in a key": "INSERT INTO t SELECT CAST(NULL AS BIGINT), 'x'",
    "NULL by UPDATE": "UPDATE t SET id = NULLIF(id, 2)",
    "NULL by MERGE": _MERGE.replace("INSERT *", "INSERT (id, name) VALUES (NULLIF(s.id, 3), 'x')"),
    "CHECK by INSERT": "INSERT INTO t VALUES (9, 'bad')",
    "CHECK by UPDATE": "UPDATE t SET name = 'bad' WHERE id = 2",
    "a key by UPDATE": "UPDATE t SET id = 1 WHERE id = 2",
    "CHECK by MERGE": _MERGE.replace("INSERT *", "INSERT (id, name) VALUES (s.id, 'bad')"),
    "a key by MERGE": _MERGE.replace("INSERT *", "INSERT (id, name) VALUES (1, 'x')"),
    "CHECK by OVERWRITE": "INSERT OVERWRITE t SELECT id, 'bad' FROM s",
    "a key by OVERWRITE": "INSERT OVERWRITE t SELECT 7, name FROM s",
}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("what", VIOLATIONS)
def test_a_violated_constraint_leaves_nothing(lake, namespace, run, what):
    before = _version(lake, namespace, "t"), _files(lake, namespace)
    with pytest.raises(ConstraintViolation) as caught:
        run(VIOLATIONS[what])
    if what.startswith("NULL"):
        assert caught.value.message == "NOT NULL constraint failed: t.id"
    assert (_version(lake, namespace, "t"), _files(lake, namespace)) == before
    assert sorted(_rows(lake, namespace, "t")) == [(1, "ann"), (2, "bob")]
    assert _branches(lake, namespace, "t") == []


BAD = {
    "SELECT 1": BadRequest,
    "DROP TABLE t": BadRequest,
    "CALL system.expire_snapshots('t')": BadRequest,
    "SET spark.sql.ansi.enabled = false": BadRequest,
    "INSERT INTO nowhere SELECT 1": NotFound,
    "INSERT INTO t SELECT * FROM nowhere": SparkportError,
    "INSERT INTO t SELECT * FORM s": BadRequest,
    "INSERT INTO t SELECT * FROM parquet.`/etc/passwd`": SparkportError,
    "INSERT INTO t SELECT 1, reflect('java.lang.System', 'exit', 1)": SparkportError,
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1": BadRequest,
    "FROM s INSERT INTO t SELECT * INSERT INTO t SELECT *": BadRequest,
    "INSERT INTO t.branch_x SELECT * FROM s": NotFound,
    "INSERT INTO t SELECT id FROM s": SparkportError,
    "": BadRequest,
}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("statement", BAD)
def test_bad_statements_are_refused(lake, namespace, run, statement):
    before = _version(lake, namespace, "t"), _files(lake, namespace)
    with pytest.raises(BAD[statement]):
        run(statement)
    assert (_version(lake, namespace, "t"), _files(lake, namespace)) == before
    assert _branches(lake, namespace, "t") == []


@pytest.mark.usefixtures("table")
def test_a_syntax_error_shows_its_position(run):
    with pytest.raises(BadRequest, match=r"line 1, position 29"):
        run("INSERT INTO t SELECT * FORM s")


@pytest.mark.usefixtures("table")
def test_a_source_that_matches_a_row_twice_is_refused(lake, namespace, run):
    insert(lake, namespace, "s", "(2, 'again')")
    before = _files(lake, namespace)
    with pytest.raises(BadRequest, match="several rows of the source match the same row of table"):
        run(_MERGE)
    assert _files(lake, namespace) == before
    assert sorted(_rows(lake, namespace, "t")) == [(1, "ann"), (2, "bob")]
    assert _branches(lake, namespace, "t") == []


@pytest.mark.usefixtures("table")
def test_values_are_passed_by_name_and_in_order(lake, namespace, run):
    run("DELETE FROM t WHERE id = :id", {"id": 1})
    run("UPDATE t SET name = ? WHERE id = ?", ["x", "2"])
    assert _rows(lake, namespace, "t") == [(2, "x")]


def test_a_view_is_not_changed(lake, namespace, run, table):
    lake.spark.sql(
        f"CREATE VIEW {lake.spark_catalog}.{namespace}.v AS "
        f"SELECT * FROM {lake.spark_catalog}.{namespace}.t"
    )
    with pytest.raises(NotWritable, match="is a view"):
        run("INSERT INTO v SELECT 1, 'x'")
    (report,) = run("INSERT INTO s SELECT id + 100, name FROM v")
    assert report["rows_inserted"] == 2


def test_declared_types_are_kept(lake, namespace, run):
    create(lake, namespace, "u", pa.schema([("small", pa.uint8()), ("big", pa.uint64())]))
    run("INSERT INTO u VALUES (255, 18446744073709551615)")
    assert values(find(lake, namespace, "u"), "small", "big") == [(255, 2**64 - 1)]
    with pytest.raises(SparkportError):
        run("INSERT INTO u VALUES (256, 1)")
    with pytest.raises(SparkportError):
        run("INSERT INTO u VALUES (-1, 1)")
    assert values(find(lake, namespace, "u"), "small", "big") == [(255, 2**64 - 1)]


@pytest.mark.usefixtures("table")
def test_a_pipeline_reads_what_it_has_written(lake, namespace, run):
    before = _version(lake, namespace, "t")
    reports = run(
        [
            "INSERT INTO t SELECT id + 10, name FROM s",
            "INSERT INTO s SELECT id + 100, name FROM t",
            "UPDATE t SET name = 'last' WHERE id IN (SELECT id - 100 FROM s WHERE id > 111)",
        ]
    )
    assert [each["statement"] for each in reports] == ["insert", "insert", "update"]
    assert sorted(_rows(lake, namespace, "t")) == [
        *((1, "ann"), (2, "bob")),
        *((12, "last"), (13, "last")),
    ]
    assert len(_rows(lake, namespace, "s")) == 6
    assert _version(lake, namespace, "t") == before + 1
    assert _branches(lake, namespace, "t") == _branches(lake, namespace, "s") == []


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("source", ["s", "{}.s", "s AS x", "{}.s x", "IDENTIFIER('s')"])
def test_a_pipeline_merges_from_a_table_that_it_has_changed(lake, namespace, run, source):
    alias = "x" if source.endswith("x") else "s"
    reports = run(
        [
            "INSERT INTO s VALUES (4, 'DAN')",
            f"MERGE INTO t USING {source.format(namespace)} ON t.id = {alias}.id WHEN MATCHED THEN "
            f"UPDATE SET name = {alias}.name WHEN NOT MATCHED THEN INSERT *",
        ]
    )
    assert (reports[1]["rows_inserted"], reports[1]["rows_updated"]) == (2, 1)
    expected = [(1, "ann"), (2, "BOB"), (3, "CID"), (4, "DAN")]
    assert sorted(_rows(lake, namespace, "t")) == expected


@pytest.mark.usefixtures("table")
def test_a_pipeline_changes_rows_that_it_has_changed(lake, namespace, run):
    reports = run(
        [
            "INSERT INTO t SELECT id + 10, name FROM s",
            "UPDATE t SET name = lower(name) WHERE id > 10",
            "DELETE FROM t WHERE name = 'cid'",
            "MERGE INTO t USING s ON t.id = s.id + 10 WHEN MATCHED THEN UPDATE SET name = 'm'",
            "INSERT OVERWRITE s SELECT * FROM t",
            "UPDATE s SET id = id + (SELECT max(id) FROM s)",
        ]
    )
    counts = [(each["rows_inserted"], each["rows_updated"]) for each in reports]
    assert counts == [(2, 0), (0, 2), (0, 0), (0, 1), (3, 0), (0, 3)]
    assert sorted(_rows(lake, namespace, "t")) == [(1, "ann"), (2, "bob"), (12, "m")]
    assert sorted(_rows(lake, namespace, "s")) == [(13, "ann"), (14, "bob"), (24, "m")]


def test_a_value_that_the_declared_type_lacks_is_refused(lake, namespace, run):
    create(lake, namespace, "small", pa.schema([("id", pa.int64()), ("pieces", pa.uint8())]))
    with pytest.raises(BadRequest, match="cannot hold the value 300 that the statement gives it"):
        run("INSERT INTO small VALUES (1, 300)")
    assert values(find(lake, namespace, "small"), "id") == []


@pytest.mark.usefixtures("table")
def test_a_pipeline_that_fails_leaves_nothing(lake, namespace, run):
    before = _files(lake, namespace)
    with pytest.raises(ConstraintViolation):
        run(["DELETE FROM s", "INSERT INTO t SELECT 20, 'x'", "INSERT INTO t SELECT 20, 'y'"])
    assert sorted(_rows(lake, namespace, "s")) == [(2, "BOB"), (3, "CID")]
    assert sorted(_rows(lake, namespace, "t")) == [(1, "ann"), (2, "bob")]
    assert _files(lake, namespace) == before
    assert _branches(lake, namespace, "t") == _branches(lake, namespace, "s") == []


@pytest.fixture(scope="module")
def server(lake) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server, lake) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.mark.usefixtures("table")
def test_the_client_runs_statements(client, lake, namespace):
    found = client.table_function(namespace, "spark_run", _MERGE)
    assert found.to_pylist()[0]["rows_inserted"] == 1
    with pytest.raises(ServerError, match="Duplicate key"):
        client.table_function(namespace, "spark_run", "INSERT INTO t SELECT 1, 'x'")


@pytest.mark.usefixtures("table")
def test_a_block_has_its_statements_run_together(client, lake, namespace):
    def call(name: str, *values: Any) -> Any:
        columns = {f"a{at}": pa.array([each]) for at, each in enumerate(values)}
        return client.call(namespace, name, columns, rows=1)

    client.begin()
    call("lake_begin")
    client.insert(namespace, "t", pa.table({"id": [7], "name": ["g"]}))
    reports = call("spark_run", "UPDATE t SET name = 'z' WHERE id = 7")
    assert [each["rows_updated"] for each in reports[0].as_py()] == [1]
    call("spark_run", ["INSERT INTO t SELECT id + 1, name FROM t WHERE id = 7"])
    with pytest.raises(ServerError, match=r"write SELECT lake\.schema\.spark_run"):
        client.table_function(namespace, "spark_run", "DELETE FROM t")
    assert client.scan(namespace, "t").num_rows == 4
    assert len(_rows(lake, namespace, "t")) == 2
    call("lake_commit")
    client.commit()
    assert _rows(lake, namespace, "t")[2:] == [(7, "z"), (8, "z")]
    client.table_function(namespace, "spark_run", "DELETE FROM t WHERE id > 6")
    assert len(_rows(lake, namespace, "t")) == 2
    assert _branches(lake, namespace, "t") == []


@pytest.mark.usefixtures("table")
def test_a_block_that_was_left_open_is_ended_from_outside(client, server, lake, namespace):
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)
    client.insert(namespace, "t", pa.table({"id": [7], "name": ["g"]}))
    client.rollback()  # DuckDB's own, of which the server hears nothing
    with pytest.raises(ServerError, match="an error has ended the block"):
        client.table_function(namespace, "spark_run", "DELETE FROM t")
    with DuckDBClient(server.location, lake.name, timeout=60, session_id="another") as other:
        other.attach()  # another process: it has no part in the block
        with pytest.raises(ServerError, match="nothing to end"):
            other.call(namespace, "lake_rollback", {}, rows=1)
    client.call(namespace, "lake_rollback", {}, rows=1)
    client.table_function(namespace, "spark_run", "DELETE FROM t WHERE id = 1")
    assert _rows(lake, namespace, "t") == [(2, "bob")]
    assert _branches(lake, namespace, "t") == []


def _rows(lake: LakeCatalog, namespace: str, name: str) -> list[Any]:
    return values(find(lake, namespace, name), "id", "name")


def _set(lake: LakeCatalog, namespace: str, properties: str) -> None:
    lake.spark.sql(
        f"ALTER TABLE `{lake.spark_catalog}`.{namespace}.t SET TBLPROPERTIES ({properties})"
    )


def _row_ids(lake: LakeCatalog, namespace: str) -> dict[int, int]:
    found = lake.spark.sql(f"SELECT id, _row_id FROM `{lake.spark_catalog}`.{namespace}.t")
    return {row[0]: row[1] for row in found.collect()}


def _version(lake: LakeCatalog, namespace: str, name: str) -> int:
    return number_of(lake._lake, find(lake, namespace, name).state)


def _branches(lake: LakeCatalog, namespace: str, name: str) -> list[str]:
    refs = find(lake, namespace, name).state.metadata.refs
    return [each for each in refs if each != "main"]


def _files(lake: LakeCatalog, namespace: str) -> set[Path]:
    """The data files of both tables, whether a table knows them or not."""
    return {
        path
        for name in ("t", "s")
        for path in folder(find(lake, namespace, name)).rglob("data/*")
        if path.is_file()
    }
