"""`spark_run` replaces tables: what stays of the old one, and who may lose what."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, drop, find, insert, sql_name, values
from tests.spark.running import all_files, created_meanwhile, run

from sparkport.catalog import Constraints, Context, ScanOptions
from sparkport.errors import AlreadyExists, Conflict, NotFound
from sparkport.spark import LakeCatalog
from sparkport.spark.lake.version_log import number_of

__all__ = ["created_meanwhile", "run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def table(lake: LakeCatalog, namespace: str) -> None:
    """Table `t` has a key, a CHECK, a default, and two rows; table `s` has other rows."""
    rules = Constraints(primary_key=("id",), not_null=("id",), checks=("(name <> 'bad')",))
    create(lake, namespace, "t", _COLUMNS, constraints=rules, comment="the old one")
    find(lake, namespace, "t").set_default(Context(), "name", "'none'")
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(2, 'BOB'), (3, 'CID')")


def test_a_replaced_table_has_only_what_the_statement_says(lake, namespace, run):
    before = find(lake, namespace, "t").state
    (report,) = run("CREATE OR REPLACE TABLE t AS SELECT id, 'bad' AS name FROM s")
    table = find(lake, namespace, "t")
    assert (report["rows_inserted"], report["version"]) == (2, number_of(lake._lake, table.state))
    assert not table.constraints
    assert not table.comment
    assert "default" not in (table.arrow_schema.field("name").metadata or {})
    assert table.state.metadata.table_uuid == before.metadata.table_uuid
    run("INSERT INTO t SELECT CAST(NULL AS BIGINT), 'bad'")
    old = f"{sql_name(lake, namespace, 't')} VERSION AS OF {before.snapshot.snapshot_id}"
    assert {tuple(row) for row in lake.spark.sql(f"SELECT * FROM {old}").collect()} == {
        (1, "ann"),
        (2, "bob"),
    }
    (report,) = run("REPLACE TABLE t COMMENT 'new' PARTITIONED BY (id) AS SELECT 7 AS id")
    table = find(lake, namespace, "t")
    assert (table.comment, values(table, "id")) == ("new", [7])


def test_a_table_that_is_absent_is_made_by_or_replace_only(lake, namespace, run):
    before = all_files(lake)
    with pytest.raises(NotFound, match="does not exist"):
        run("REPLACE TABLE u AS SELECT 1 AS x")
    assert all_files(lake) == before
    (report,) = run("CREATE OR REPLACE TABLE u AS SELECT 1 AS x")
    assert report["version"] == 0
    run("CREATE OR REPLACE TABLE U AS SELECT 2 AS y")  # names differ not only in case
    assert values(find(lake, namespace, "u"), "y") == [2]


def test_a_view_is_not_replaced_by_a_table_nor_a_table_by_a_view(lake, namespace, run):
    run("CREATE VIEW v AS SELECT * FROM t")
    before = all_files(lake)
    for statement in (
        "CREATE OR REPLACE TABLE v AS SELECT 1 AS x",
        "CREATE OR REPLACE VIEW t AS SELECT 1 AS x",
        "CREATE TABLE v AS SELECT 1 AS x",
        "CREATE VIEW t AS SELECT 1 AS x",
    ):
        with pytest.raises(AlreadyExists, match="exists already"):
            run(statement)
    assert all_files(lake) == before


def test_a_failing_replacement_leaves_the_table(lake, namespace, run):
    before, files = find(lake, namespace, "t").state, all_files(lake)
    for query in ("id / 0", "CASE WHEN id = 3 THEN raise_error('no') ELSE id END"):
        with pytest.raises(Exception, match=r"(?i)zero|no"):
            run(f"CREATE OR REPLACE TABLE t AS SELECT {query} AS x FROM s")
    assert all_files(lake) == files
    assert find(lake, namespace, "t").state.metadata_location == before.metadata_location


def test_open_readers_finish_with_the_old_rows(lake, namespace, run):
    reader = iter(find(lake, namespace, "t").scan(Context(), ScanOptions()))
    held = find(lake, namespace, "t")
    run("CREATE OR REPLACE TABLE t AS SELECT 'x' AS other")
    for scan in (reader, held.scan(Context(), ScanOptions())):
        found = [row["name"] for batch in scan for row in batch.to_pylist()]
        assert sorted(found) == ["ann", "bob"]
    assert values(find(lake, namespace, "t"), "other") == ["x"]


_SELF = "CREATE OR REPLACE TABLE t AS SELECT id, upper(name) AS name FROM t"


@pytest.mark.parametrize("through", ["t", "a view"])
def test_rows_of_others_are_not_lost_by_a_table_that_replaces_itself(
    lake, namespace, run, created_meanwhile, through
):
    statement = _SELF
    if through == "a view":
        run("CREATE VIEW v AS SELECT * FROM t")
        statement = _SELF.replace("FROM t", "FROM v")
    created_meanwhile(lambda: insert(lake, namespace, "t", "(7, 'new')"))
    with pytest.raises(Conflict, match="reads and replaces, was changed by somebody else"):
        run(statement)
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2, 7]
    run(statement)
    assert sorted(values(find(lake, namespace, "t"), "name")) == ["ANN", "BOB", "NEW"]


def test_a_compaction_does_not_hinder_a_table_that_replaces_itself(
    lake, namespace, run, created_meanwhile
):
    insert(lake, namespace, "t", "(4, 'dan')")

    def compact() -> None:
        lake.spark.sql(
            f"CALL `{lake.spark_catalog}`.system.rewrite_data_files(table => '{namespace}.t', "
            "options => map('rewrite-all', 'true'))"
        ).collect()

    created_meanwhile(compact)
    run(_SELF)
    assert sorted(values(find(lake, namespace, "t"), "name")) == ["ANN", "BOB", "DAN"]


def test_what_others_do_to_a_replaced_table_is_in_its_history(
    lake, namespace, run, created_meanwhile
):
    created_meanwhile(lambda: insert(lake, namespace, "t", "(7, 'new')"))
    (report,) = run("CREATE OR REPLACE TABLE t AS SELECT * FROM s")
    table = find(lake, namespace, "t")
    assert sorted(values(table, "id", "name")) == [(2, "BOB"), (3, "CID")]
    assert report["version"] == number_of(lake._lake, table.state) == 4
    operations = [each.summary["total-records"] for each in table.state.metadata.snapshots]
    assert operations[-2:] == ["3", "2"]


def test_a_replaced_table_that_others_alter_or_drop_is_a_conflict_or_replaced(
    lake, namespace, run, created_meanwhile
):
    name = sql_name(lake, namespace, "t")
    created_meanwhile(lambda: lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN more INT"))
    run("CREATE OR REPLACE TABLE t AS SELECT id FROM s")
    assert find(lake, namespace, "t").arrow_schema.names[:1] == ["id"]
    assert "more" not in find(lake, namespace, "t").arrow_schema.names
    before = all_files(lake)
    created_meanwhile(lambda: drop(lake, namespace, "t"))
    with pytest.raises(Conflict, match="was dropped by somebody else"):
        run("CREATE OR REPLACE TABLE t AS SELECT id FROM s")
    assert find(lake, namespace, "t") is None
    assert not all_files(lake) - before
