"""What statements of `spark_run` may say: names, values, options; and what they count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, insert, sql_name, values
from tests.spark.running import Runner

from sparkport.catalog import Constraints
from sparkport.errors import BadRequest, ConstraintViolation, NotFound, SparkportError
from sparkport.spark import LakeCatalog

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_HOSTILE = "🦆'; DROP TABLE t; -- \\' /* `"


@pytest.fixture
def run(lake: LakeCatalog, namespace: str) -> Runner:
    """Runs statements on `t` and `s`, which have two rows each."""
    create(lake, namespace, "t", _COLUMNS)
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    create(lake, namespace, "s", _COLUMNS)
    insert(lake, namespace, "s", "(2, 'BOB'), (3, 'CID')")
    return Runner(lake, namespace)


def _rows(run: Runner, name: str = "t") -> list[Any]:
    return sorted(values(find(run.lake, run.namespace, name), "id", "name"))


# ---------------------------------------------------------------------------- the places of a name


SPELLINGS = {
    "characters beyond 16 bits before the name": "/* 🦆🦆𝒳 */ INSERT INTO t SELECT 9, 'x'",
    "such characters in a name of WITH": "WITH `🦆` AS (SELECT 9 AS id) INSERT INTO t "
    "SELECT id, 'x' FROM `🦆`",
    "comments around the name": "INSERT INTO /* t */ t -- t\n SELECT 9, 'x' -- INSERT INTO s",
    "quotes": "INSERT INTO `t` SELECT 9, 'x'",
    "a semicolon at the end": "INSERT INTO t SELECT 9, 'x' ;",
    "lines and tabs": "INSERT\tINTO\n\n t\r\nSELECT 9, 'x'",
    "the name in text and as alias": "INSERT INTO t SELECT t.id, t.name FROM (SELECT 9 AS id, 'x' "
    "AS name, 'INSERT INTO t' AS v) AS t",
    "the name of WITH is that of the table": "WITH t AS (SELECT 9 AS id, 'x' AS name) "
    "INSERT INTO t SELECT * FROM t",
    "TABLE before the name": "INSERT INTO TABLE t SELECT 9, 'x'",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_is_replaced_where_it_stands(run: Runner, spelling: str) -> None:
    assert run.counts(SPELLINGS[spelling]) == (1, 0, 0)
    assert _rows(run) == [(1, "ann"), (2, "bob"), (9, "x")]


def test_a_qualified_name_is_replaced_where_it_stands(run: Runner) -> None:
    lake, namespace = run.lake.spark_catalog, run.namespace
    for number, name in enumerate((f"{namespace}.t", f"`{lake}`.`{namespace}`.`t`"), 10):
        assert run.counts(f"INSERT INTO {name} SELECT {number}, 'x'") == (1, 0, 0)
    assert run.counts(f"UPDATE {namespace}.t SET name = 'y' WHERE t.id > 9") == (0, 2, 0)
    assert _rows(run)[2:] == [(10, "y"), (11, "y")]


def test_the_table_itself_and_a_name_in_with_can_be_read_many_times(run: Runner) -> None:
    statement = "WITH x AS (SELECT * FROM t) INSERT INTO t SELECT a.id + 10 * b.id, a.name FROM x a"
    assert run.counts(f"{statement}, x b, t c WHERE c.id = a.id") == (4, 0, 0)
    assert [number for number, _ in _rows(run)] == [1, 2, 11, 12, 21, 22]


# ------------------------------------------------------------------------------------------ values


VALUES: dict[str, tuple[str, Any]] = {
    "before the table": ("WITH x AS (SELECT :v AS v) INSERT INTO t SELECT 9, v FROM x", None),
    "after it": ("INSERT INTO t SELECT 9, :v", None),
    "after characters beyond 16 bits": ("/* 🦆 :v */ INSERT INTO t SELECT 9, :v -- 🦆", None),
    "in order": ("WITH x AS (SELECT ? AS v) INSERT INTO t SELECT 9, v FROM x", []),
    "by MERGE": (
        "MERGE INTO t USING (SELECT 9 AS id, :v AS name) s ON t.id = s.id AND t.name <> :v "
        "WHEN NOT MATCHED THEN INSERT *",
        None,
    ),
}


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("value", ["x" * 100, _HOSTILE, "t", ":v ? ${env:PATH}"])
def test_a_value_is_a_value(run: Runner, what: str, value: str) -> None:
    statement, form = VALUES[what]
    assert run.counts(statement, {"v": value} if form is None else [value]) == (1, 0, 0)
    assert _rows(run)[2:] == [(9, value)]


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        ("DELETE FROM t WHERE id = :id", {"other": 1}),
        ("DELETE FROM t WHERE id = :id", {"id": 1, "more": 2}),
        ("DELETE FROM t WHERE name = ':more' AND id = :id", {"id": 1, "more": 2}),
        ("DELETE FROM t WHERE id = ?", [1, 2]),
        ("DELETE FROM t WHERE id = :id", {}),
        ("DELETE FROM t WHERE id = ? OR id = ?", [1]),
        ("DELETE FROM t WHERE id = :id", None),
        ("DELETE FROM IDENTIFIER(:id)", {"id": "t"}),
        ("INSERT INTO IDENTIFIER(:id) SELECT 1, 'x'", {"id": "t"}),
    ],
)
def test_values_that_do_not_fit_are_refused(run: Runner, statement: str, arguments: Any) -> None:
    before = run.left("t")
    with pytest.raises(SparkportError) as caught:
        run(statement, arguments)
    assert type(caught.value) in (BadRequest, NotFound)
    assert "spark_run" in str(caught.value)
    assert run.left("t") == before


def test_a_source_may_be_named_by_a_value(run: Runner) -> None:
    assert run.counts("INSERT INTO t SELECT id + 10, name FROM IDENTIFIER(:t)", {"t": "s"})[0] == 2


# --------------------------------------------------------------------------- what is not to be said


REFUSED = {
    "INSERT INTO t WITH (`snapshot-property.sparkport.principal` = 'eve') SELECT * FROM s": (
        "takes no options"
    ),
    "INSERT INTO t WITH (branch = 'main') SELECT * FROM s": "takes no options",
    "INSERT INTO t SELECT * FROM s WITH (`snapshot-id` = 1)": "takes no options",
    "INSERT INTO IDENTIFIER('t') SELECT * FROM s": "name the table that is changed",
    "MERGE INTO IDENTIFIER('t') USING s ON false WHEN MATCHED THEN DELETE": "name the table",
    "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1 AS id, 'x' AS name, 3 AS more) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *": "no columns: leave WITH SCHEMA EVOLUTION out",
    "UPDATE t SET _row_id = 5": "has no column _row_id",
    "UPDATE t SET name = 'x', t._FILE = 'y'": "has no column _FILE",
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET _pos = 1": "no column _pos",
    "INSERT INTO t SELECT 1, 'x'; DROP TABLE t": "line 1",
    "INSERT INTO t SELECT 1, 'x', 2": "too many data columns",
    "UPDATE t SET nonsense = 1": "nonsense",
    "UPDATE t SET id = 1, id = 2": "mismatch: .*id",
    "EXPLAIN INSERT INTO t SELECT 1, 'x'": "this is an EXPLAIN statement",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_not_allowed_is_refused_with_the_reason(run: Runner, statement: str) -> None:
    before = run.left("t", "s")
    with pytest.raises(SparkportError, match=REFUSED[statement]) as caught:
        run(statement)
    assert type(caught.value) in (BadRequest, NotFound)
    assert "branch_" not in str(caught.value), "the caller has named a table, no branch"
    assert "position" not in str(caught.value) or "SYNTAX_ERROR" in str(caught.value)
    assert run.left("t", "s") == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO needed (id) SELECT 1",
        "INSERT INTO needed (id, name) SELECT 1, NULL",
        "MERGE INTO needed USING s ON false WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    ],
)
def test_a_column_without_null_is_not_left_out(run: Runner, statement: str) -> None:
    rules = Constraints(not_null=("name",))
    create(run.lake, run.namespace, "needed", _COLUMNS, constraints=rules)
    with pytest.raises(ConstraintViolation, match=r"NOT NULL constraint failed: needed\.name"):
        run(statement)


# ------------------------------------------------------------------------------------------ counts


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_are_only_copied_do_not_count(run: Runner, mode: str) -> None:
    name = sql_name(run.lake, run.namespace, "c")
    modes = ", ".join(f"'write.{each}.mode' = '{mode}'" for each in ("update", "delete", "merge"))
    run.lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '3', {modes})"
    )
    run.lake.spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'x' FROM range(10)")
    assert run.counts("UPDATE c SET name = 'y' WHERE id = 1") == (0, 1, 0)
    assert run.counts("DELETE FROM c WHERE id IN (2, 77)") == (0, 0, 1)
    assert run.counts(
        "MERGE INTO c USING (SELECT * FROM VALUES (3L, 'z'), (33L, 'n') AS v(id, name)) s "
        "ON c.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND c.id = 5 THEN DELETE"
    ) == (1, 1, 1)
    assert run.counts("UPDATE c SET name = name WHERE id < 4") == (0, 3, 0)
    assert _rows(run, "c") == [
        *((0, "x"), (1, "y"), (3, "z"), (4, "x"), (6, "x"), (7, "x"), (8, "x"), (9, "x")),
        (33, "n"),
    ]
