"""What CREATE TABLE AS says of a table: what is kept of it, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, insert, values
from tests.spark.running import all_files, run

from sparkport.catalog import Constraints
from sparkport.errors import AlreadyExists, SparkportError
from sparkport.spark import LakeCatalog

__all__ = ["run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def source(lake: LakeCatalog, namespace: str) -> None:
    """Table `s` has three rows."""
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(1, 'ann'), (2, 'bob'), (3, 'cid')")


def test_a_table_that_is_there_stays_as_it_is(lake, namespace, run):
    before = all_files(lake)
    (report,) = run("CREATE TABLE IF NOT EXISTS s AS SELECT 1 AS x")
    assert (report["rows_inserted"], report["files"], report["version"]) == (0, 0, None)
    for statement in ("CREATE TABLE s AS SELECT 1 AS x", "CREATE TABLE S AS SELECT 1 AS x"):
        with pytest.raises(AlreadyExists, match=rf"table {namespace}\.s exists already"):
            run(statement)
    run("CREATE TABLE IF NOT EXISTS S AS SELECT 1 AS x")
    assert all_files(lake) == before
    assert len(values(find(lake, namespace, "s"), "id")) == 3
    run("CREATE TABLE IF NOT EXISTS fresh AS SELECT 1 AS x")
    assert values(find(lake, namespace, "fresh"), "x") == [1]


def test_a_table_has_the_partitions_comment_and_properties_that_were_given(lake, namespace, run):
    run(
        "CREATE TABLE t USING iceberg PARTITIONED BY (name, bucket(4, id), days(at)) "
        "COMMENT 'of ann''s' TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '5', "
        "'team' = 'x') AS SELECT id, name, TIMESTAMP '2020-01-01 00:00:00' AS at FROM s"
    )
    table = find(lake, namespace, "t")
    fields = table.state.metadata.specs()[table.state.metadata.default_spec_id].fields
    assert [str(each.transform) for each in fields] == ["identity", "bucket[4]", "day"]
    assert table.comment == "of ann's"
    properties = table.state.metadata.properties
    assert (properties["team"], properties["write.merge.mode"]) == ("x", "merge-on-read")
    assert sorted(values(table, "id")) == [1, 2, 3]
    run("INSERT INTO t SELECT 9, 'zoe', TIMESTAMP '2021-01-01 00:00:00'")
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2, 3, 9]


_REFUSED = {
    "CREATE TABLE t LOCATION '/tmp/elsewhere' AS SELECT 1 AS x": "no LOCATION",
    "CREATE TABLE t USING parquet AS SELECT 1 AS x": "Iceberg tables only",
    "CREATE TABLE t USING iceberg OPTIONS ('a' = 'b') AS SELECT 1 AS x": "no OPTIONS",
    "CREATE TABLE t TBLPROPERTIES ('write.data.path' = '/tmp/x') AS SELECT 1 AS x": "server's to",
    "CREATE TABLE t TBLPROPERTIES ('WRITE.metadata.path' = 'x') AS SELECT 1 AS x": "server's to",
    "CREATE TABLE t TBLPROPERTIES ('sparkport.types' = 'x') AS SELECT 1 AS x": "server's to",
    "CREATE TABLE t TBLPROPERTIES ('format-version' = '1') AS SELECT 1 AS x": "server's to",
    "CREATE TABLE t PARTITIONED BY (nothing) AS SELECT 1 AS x": "names column nothing",
    "CREATE TABLE t AS SELECT 1 AS x, 2 AS X": "names that differ",
    "CREATE TABLE t AS SELECT 1 AS x, NULL AS y": "column y of .* has no type",
    "CREATE TABLE t AS SELECT array(NULL) AS y": "column y of .* has no type",
    "CREATE TABLE t AS SELECT make_ym_interval(1, 2) AS y": "cast it",
    "CREATE TABLE t AS SELECT 1 AS rowid": "cannot be called rowid",
    "CREATE TABLE t AS SELECT * FROM nowhere": "nowhere",
    "CREATE TABLE t AS SELECT nothing FROM s": "nothing",
    "CREATE TABLE nowhere.t AS SELECT 1 AS x": "schema nowhere does not exist",
    "CREATE TABLE spark_catalog.default.t AS SELECT 1 AS x": "this lake only",
    "CREATE TABLE t (x INT)": ".",
    "CREATE TABLE t LIKE s": ".",
    "CREATE EXTERNAL TABLE t AS SELECT 1 AS x": ".",
    "CREATE TEMPORARY VIEW v AS SELECT 1 AS x": ".",
    "REPLACE TABLE t AS SELECT 1 AS x": "does not exist",
    "CREATE TABLE IDENTIFIER('t') AS SELECT 1 AS x": r"as schema\.",
    "CREATE TABLE t AS SELECT CAST(raise_error('no') AS INT) AS x": "no",
    "CREATE TABLE t AS SELECT id / 0 AS x FROM s": "(?i)zero",
    "CREATE TABLE t AS SELECT * FROM parquet.`/etc`": ".",
    "CREATE TABLE t AS SELECT java_method('java.lang.System', 'exit', '1') AS x": ".",
}


@pytest.mark.parametrize("statement", _REFUSED)
def test_what_cannot_be_made_leaves_nothing(lake, namespace, run, statement):
    before = all_files(lake)
    with pytest.raises(SparkportError, match=_REFUSED[statement]) as caught:
        run(statement)
    assert str(lake._lake.staging.root.parent) not in caught.value.message
    assert all_files(lake) == before
    assert find(lake, namespace, "t") is None


def test_an_empty_query_makes_an_empty_table(lake, namespace, run):
    (report,) = run("CREATE TABLE t AS SELECT * FROM s WHERE id > 99")
    assert (report["rows_inserted"], report["files"]) == (0, 0)
    assert values(find(lake, namespace, "t"), "id") == []
    run("INSERT INTO t SELECT * FROM s")
    assert len(values(find(lake, namespace, "t"), "id")) == 3


def test_values_markers_and_names_of_any_kind(lake, namespace, run):
    run("CREATE TABLE v AS VALUES (1, 'a'), (2, 'b') AS t (x, y)")
    assert sorted(values(find(lake, namespace, "v"), "x", "y")) == [(1, "a"), (2, "b")]
    run("CREATE TABLE m AS SELECT id, :what AS w FROM s WHERE id = :id", {"id": 2, "what": "x'y"})
    assert values(find(lake, namespace, "m"), "id", "w") == [(2, "x'y")]
    run(
        "CREATE TABLE `wéird ``name``` AS SELECT id AS `my id`, name AS `größe` FROM s WHERE id = 1"
    )
    assert values(find(lake, namespace, "wéird `name`"), "my id", "größe") == [(1, "ann")]
    run("CREATE TABLE w AS WITH big AS (SELECT max(id) AS id FROM s) SELECT * FROM big")
    assert values(find(lake, namespace, "w"), "id") == [3]


def test_nested_and_other_types_of_iceberg(lake, namespace, run):
    run(
        "CREATE TABLE t AS SELECT array(1, 2) AS a, map('k', 2.5D) AS m, "
        "named_struct('x', 1, 'y', array('z')) AS r, DATE '2020-02-03' AS d, "
        "CAST(1.25 AS DECIMAL(9, 2)) AS n, X'00ff' AS b, true AS f, CAST(7 AS TINYINT) AS small, "
        "TIMESTAMP_NTZ '2020-01-01 00:00:00' AS at"
    )
    table = find(lake, namespace, "t")
    (row,) = values(table, "a", "r", "b", "f", "small")
    assert row == ([1, 2], {"x": 1, "y": ["z"]}, b"\x00\xff", True, 7)
    assert table.arrow_schema.field("n").type == pa.decimal128(9, 2)
    assert table.arrow_schema.field("small").type == pa.int32()  # Iceberg has no shorter one


def test_a_type_that_only_sparkport_declares_becomes_that_of_its_values(lake, namespace, run):
    create(lake, namespace, "u", pa.schema([("small", pa.uint8()), ("big", pa.uint64())]))
    run("INSERT INTO u VALUES (255, 18446744073709551615)")
    run("CREATE TABLE t AS SELECT * FROM u")
    table = find(lake, namespace, "t")
    kinds = {each.name: each.type for each in table.arrow_schema}
    assert values(table, "small", "big") == [(255, 2**64 - 1)]
    assert (kinds["small"], kinds["big"]) == (pa.int32(), pa.decimal128(20, 0))


def test_nothing_that_a_source_forbids_or_has_by_default_is_taken_over(lake, namespace, run):
    constraints = Constraints(primary_key=("id",), not_null=("id",), checks=("(id > 0)",))
    create(lake, namespace, "strict", _COLUMNS, constraints=constraints)
    insert(lake, namespace, "strict", "(1, 'a')")
    run("CREATE TABLE t AS SELECT * FROM strict")
    assert not find(lake, namespace, "t").constraints
    run("INSERT INTO t SELECT CAST(NULL AS BIGINT), 'x'")
