"""Every rule of a table holds for every statement that Spark or a client of Flight SQL runs.

What breaks one has the typed error, and leaves the table, its version and its files as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import Error
from tests.spark.lake_tables import create, find, folder, insert, values
from tests.spark.running import Runner

from sparkport.catalog import Constraints, Context
from sparkport.errors import (
    BadRequest,
    ConstraintViolation,
    NotWritable,
    SparkportError,
    Unsupported,
)
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.lake.liveness import FILES
from sparkport.spark.lake.version_log import number_of
from sparkport.testing import DuckDBClient, ServerError

_COLUMNS = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("n", pa.int64()), ("u", pa.int64())]
)
_RULES = Constraints(
    primary_key=("id",), not_null=("id", "name"), checks=("(n > 0)",), unique=(("u",),)
)
_CTX = Context()
_ROWS = [(1, "ann", 10, 100), (2, "bob", 20, 200)]
_LIMITS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "60" for each in ("fetch", "query", "update")
}

Row = tuple[Any, ...]
BROKEN: dict[str, tuple[Row, str, str]] = {
    "NOT NULL": ((9, None, 1, 900), "name = NULL", "NOT NULL constraint failed: t.name"),
    "CHECK": ((9, "x", -1, 900), "n = -n", "CHECK constraint failed"),
    "UNIQUE": ((9, "x", 1, 100), "u = 100", 'Duplicate key "u: 100"'),
    "PRIMARY KEY": ((1, "x", 1, 900), "id = 1", 'Duplicate key "id: 1"'),
}
"""A row that breaks a rule beside the first row, what breaks it in the second row, the words."""
rules = pytest.mark.parametrize("rule", BROKEN)


def _each(ways: Iterable[str]) -> pytest.MarkDecorator:
    """All rules in all ways; most of them are for the long tests."""
    cases = [
        pytest.param(rule, way, marks=[] if rule == often else pytest.mark.long)
        for number, way in enumerate(ways)
        for often in [tuple(BROKEN)[number % len(BROKEN)]]
        for rule in BROKEN
    ]
    return pytest.mark.parametrize(("rule", "way"), cases)


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


class _Tables:
    """Tables `t`, which has rules, and `s`, which has none; and the ways to change them."""

    def __init__(self, lake: LakeCatalog, namespace: str, server: Server) -> None:
        self.lake, self.namespace, self.server = lake, namespace, server
        self.run = Runner(lake, namespace)
        create(lake, namespace, "t", _COLUMNS, constraints=_RULES)
        create(lake, namespace, "s", _COLUMNS)
        for name in ("t", "s"):
            insert(lake, namespace, name, ", ".join(map(_literals, _ROWS)))

    def state(self) -> list[Any]:
        """All that a statement could leave: rows, versions, branches, files, and what is staged."""
        root = self.lake._lake.staging.root
        staged = [each for each in root.rglob("*") if each.is_file() and each.name not in FILES]
        found: list[Any] = [sorted(self.lake._lake.catalog.listing().namespaces), staged]
        schema: Any = self.lake.schema(_CTX, self.namespace)
        for table in schema.tables(_CTX):
            table = find(self.lake, self.namespace, table.name)
            branches = sorted(table.state.metadata.refs)
            files = {each for each in folder(table).rglob("*") if each.is_file()}
            kept = sorted(map(str, filter(_is_no_metadata, files)))
            number = number_of(self.lake._lake, table.state)
            rows = sorted(values(table, *table.state.definition.columns.names), key=repr)
            found.append((table.name, rows, number, branches, kept))
        return found

    def connect(self, *, autocommit: bool = True) -> Any:
        return dbapi.connect(self.server.location, db_kwargs=_LIMITS, autocommit=autocommit)


def _is_no_metadata(path: Path) -> bool:
    return ".metadata.json" not in path.name


def _literals(row: Row) -> str:
    return f"({', '.join('NULL' if each is None else repr(each) for each in row)})"


def _selected(row: Row) -> str:
    """A query of one row, each value with its type."""
    kinds = ("BIGINT", "STRING", "BIGINT", "BIGINT")
    named = zip(row, kinds, _COLUMNS.names, strict=True)
    return "SELECT " + ", ".join(
        f"CAST({'NULL' if value is None else repr(value)} AS {kind}) AS {name}"
        for value, kind, name in named
    )


@pytest.fixture
def tables(lake: LakeCatalog, namespace: str, server: Server) -> _Tables:
    return _Tables(lake, namespace, server)


# ------------------------------------------------------------------------------------- statements


def _statements(rule: str) -> dict[str, str]:
    row, assignment, _ = BROKEN[rule]
    new = f"(SELECT * FROM s WHERE id = 1 UNION ALL {_selected(row)})"
    source = f"({_selected((2, 'b', 2, 202))} UNION ALL {_selected((9, 'x', 1, 900))}) AS x"
    names = ", ".join(_COLUMNS.names)
    return {
        "insert select": f"INSERT INTO t {_selected(row)}",
        "insert values": f"INSERT INTO t VALUES {_literals((8, 'ok', 1, 800))}, {_literals(row)}",
        "insert by name": f"INSERT INTO t BY NAME SELECT u, n, name, id FROM ({_selected(row)})",
        "overwrite": f"INSERT OVERWRITE t SELECT * FROM {new}",
        "replace where": f"INSERT INTO t REPLACE WHERE id = 2 {_selected(row)}",
        "update": f"UPDATE t SET {assignment} WHERE id = 2",
        "merge, insert": f"MERGE INTO t USING {source} ON t.id = x.id "
        f"WHEN MATCHED THEN UPDATE SET n = x.n WHEN NOT MATCHED THEN INSERT ({names}) "
        f"VALUES {_literals(row)}",
        "merge, insert all": f"MERGE INTO t USING ({_selected(row)}) AS x ON false "
        "WHEN NOT MATCHED THEN INSERT *",
        "merge, update": f"MERGE INTO t USING {source} ON t.id = x.id "
        f"WHEN MATCHED THEN UPDATE SET {_qualified(assignment)} WHEN NOT MATCHED THEN INSERT *",
        "merge, by source": "MERGE INTO t USING (SELECT * FROM s WHERE id = 1) AS x ON t.id = x.id "
        f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {_qualified(assignment)}",
    }


def _qualified(assignment: str) -> str:
    return assignment.replace("-n", "-t.n")


@_each(_statements("CHECK"))
def test_no_statement_breaks_a_rule(tables: _Tables, rule: str, way: str) -> None:
    before = tables.state()
    with pytest.raises(ConstraintViolation) as caught:
        tables.run(_statements(rule)[way])
    assert BROKEN[rule][2] in caught.value.message
    assert tables.state() == before


@rules
def test_the_second_statement_of_a_pipeline_breaks_a_rule(tables: _Tables, rule: str) -> None:
    before = tables.state()
    with pytest.raises(ConstraintViolation) as caught:
        tables.run(
            [
                "CREATE TABLE made AS SELECT * FROM s",
                "INSERT INTO s SELECT id + 10, name, n, u FROM made",
                _statements(rule)["update"],
                "DELETE FROM s",
            ]
        )
    assert BROKEN[rule][2] in caught.value.message
    assert tables.state() == before


@rules
def test_a_rule_is_broken_in_a_block(tables: _Tables, rule: str) -> None:
    before = tables.state()
    with DuckDBClient(tables.server.location, "lake", timeout=60) as client:
        client.attach()

        def call(name: str, *given: Any) -> Any:
            columns = {f"a{at}": pa.array([each]) for at, each in enumerate(given)}
            return client.call(tables.namespace, name, columns, rows=1)

        client.begin()
        call("lake_begin")
        call("spark_run", "INSERT INTO s SELECT id + 10, name, n, u FROM t")
        try:
            call("spark_run", _statements(rule)["merge, insert all"])
        except ServerError as error:
            refused = error
            call("lake_rollback")
        else:
            with pytest.raises(ServerError) as caught:
                call("lake_commit")
            refused = caught.value
        client.rollback()
    assert refused.code == "FAILED_PRECONDITION"
    assert BROKEN[rule][2] in str(refused)
    assert tables.state() == before


# ------------------------------------------------------------------------------------- Flight SQL


def _refused(caught: pytest.ExceptionInfo[Error], rule: str) -> None:
    assert "FailedPrecondition" in str(caught.value)
    assert BROKEN[rule][2] in str(caught.value)


def _table(*rows: Row) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(each) for each in columns], schema=_COLUMNS)


def _in_order(tables: _Tables, cursor: Any, rule: str) -> None:
    marks = [(1, *_ROWS[0][1:]), BROKEN[rule][0]]
    cursor.executemany(f"UPDATE {tables.namespace}.t SET id = ?, name = ?, n = ?, u = ?", marks)


BY_FLIGHT_SQL: dict[str, Callable[[_Tables, Any, str], None]] = {
    "update": lambda tables, cursor, rule: cursor.execute(
        _statements(rule)["update"].replace("UPDATE t", f"UPDATE {tables.namespace}.t")
    ),
    "insert": lambda tables, cursor, rule: cursor.execute(
        f"INSERT INTO {tables.namespace}.t {_selected(BROKEN[rule][0])}"
    ),
    "prepared, plain": lambda tables, cursor, rule: cursor.executemany(
        f"INSERT INTO {tables.namespace}.t VALUES (?, ?, ?, ?)", [(8, "y", 8, 8), BROKEN[rule][0]]
    ),
    "prepared": lambda tables, cursor, rule: cursor.executemany(
        f"INSERT INTO {tables.namespace}.t SELECT ?, ?, ?, ?", [(8, "y", 8, 8), BROKEN[rule][0]]
    ),
    "ingest": lambda tables, cursor, rule: cursor.adbc_ingest(
        "t",
        _table((8, "y", 8, 8), BROKEN[rule][0]),
        mode="append",
        db_schema_name=tables.namespace,
    ),
}


@_each(BY_FLIGHT_SQL)
def test_no_statement_of_flight_sql_breaks_a_rule(tables: _Tables, rule: str, way: str) -> None:
    before = tables.state()
    with (
        tables.connect() as connection,
        connection.cursor() as cursor,
        pytest.raises(Error) as caught,
    ):
        BY_FLIGHT_SQL[way](tables, cursor, rule)
    _refused(caught, rule)
    assert tables.state() == before


@_each(BY_FLIGHT_SQL)
def test_no_transaction_of_flight_sql_breaks_a_rule(tables: _Tables, rule: str, way: str) -> None:
    before = tables.state()
    with tables.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {tables.namespace}.s SELECT 5, 'e', 50, 500")
        with pytest.raises(Error) as caught:  # noqa: PT012 - some are found by the commit
            BY_FLIGHT_SQL[way](tables, cursor, rule)
            connection.commit()
        _refused(caught, rule)
        connection.rollback()
    assert tables.state() == before


@pytest.mark.parametrize("mode", ["create", "replace", "create_append"])
@pytest.mark.parametrize("name", ["t", "fresh"])
def test_an_ingest_without_a_value_that_it_needs_leaves_nothing(
    tables: _Tables, mode: str, name: str
) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = pa.table([pa.array([1, None], pa.int64())], schema=columns)
    before = tables.state()
    with (
        tables.connect() as connection,
        connection.cursor() as cursor,
        pytest.raises(Error) as caught,
    ):
        cursor.adbc_ingest(name, table, mode=mode, db_schema_name=tables.namespace)
    expected = {"create": "ALREADY_EXISTS", "create_append": "INVALID_ARGUMENT"}
    if name == "t" and mode in expected:
        assert expected[mode] in str(caught.value)
    else:
        assert f"NOT NULL constraint failed: {name}.id (Failed" in str(caught.value)
    assert tables.state() == before


# --------------------------------------------------------------- errors in the midst of Spark's run


_BAD_ROW = "CASE WHEN id = 2 THEN CAST(name AS BIGINT) ELSE id END"
MIDWAY: dict[str, tuple[str, str]] = {
    "division": ("INSERT INTO t SELECT id + 10, name, 1 div (id - 2), u + 10 FROM s", "by zero"),
    "cast, insert": (f"INSERT INTO t SELECT {_BAD_ROW} + 10, name, n, u + 10 FROM s", "'bob'"),
    "cast, overwrite": (f"INSERT OVERWRITE t SELECT {_BAD_ROW}, name, n, u FROM s", "'bob'"),
    "cast, update": (f"UPDATE t SET n = {_BAD_ROW}", "'bob'"),
    "cast, delete": (f"DELETE FROM t WHERE {_BAD_ROW} > 0", "'bob'"),
    "cast, merge": (
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = CAST(s.name AS INT)",
        "'ann'|'bob'",
    ),
    "overflow": ("UPDATE t SET n = 9223372036854775807 + id", "overflow"),
    "raised": ("UPDATE t SET name = IF(id = 2, raise_error('boo'), name)", "boo"),
    "create": (f"CREATE TABLE made AS SELECT {_BAD_ROW} AS id FROM s", "'bob'"),
    "replace": (f"CREATE OR REPLACE TABLE t AS SELECT {_BAD_ROW} AS id FROM s", "'bob'"),
}


@pytest.mark.parametrize("what", MIDWAY)
def test_an_error_in_the_midst_leaves_nothing(tables: _Tables, what: str) -> None:
    statement, words = MIDWAY[what]
    before = tables.state()
    for statements in (statement, ["INSERT INTO s SELECT 7, 'g', 70, 700", statement]):
        with pytest.raises(BadRequest, match=words):
            tables.run(statements)
        assert tables.state() == before


def test_a_bad_function_of_the_lakes_own_leaves_nothing(tables: _Tables, warehouse: Path) -> None:
    def bad(number: int) -> int:
        return 10 // (number - 2)

    tables.lake.spark.udf.register("sparkport_bad", bad, "bigint")
    before = tables.state()
    try:
        with LakeCatalog(warehouse, spark_catalog=tables.lake.spark_catalog) as again:
            run = Runner(again, tables.namespace)
            with pytest.raises(SparkportError, match="ZeroDivisionError") as caught:
                run("UPDATE t SET n = sparkport_bad(id)")
    finally:
        tables.lake.spark.sql("DROP TEMPORARY FUNCTION sparkport_bad")
    assert "Traceback" not in caught.value.message
    assert "/" not in caught.value.message.replace("10 // (", "")
    assert tables.state() == before


# ---------------------------------------------------------------------------- tables of other kinds


@pytest.mark.parametrize("number", [1, 2])
def test_rules_hold_in_tables_of_older_formats(tables: _Tables, number: int) -> None:
    lake, namespace = tables.lake, tables.namespace
    name = f"`{lake.spark_catalog}`.`{namespace}`.old"
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING, n BIGINT, u BIGINT) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '{number}')"
    )
    insert(lake, namespace, "old", ", ".join(map(_literals, _ROWS)))
    table = find(lake, namespace, "old")
    table.set_not_null(_CTX, "name")
    table.add_constraint(_CTX, "CHECK (n > 0)")
    assert tables.run.counts("INSERT INTO old SELECT id + 10, name, n, u FROM s") == (2, 0, 0)
    before = tables.state()
    for rule in ("NOT NULL", "CHECK"):
        with pytest.raises(ConstraintViolation, match=BROKEN[rule][2].split(":")[0]):
            tables.run(f"INSERT INTO old {_selected(BROKEN[rule][0])}")
    for statement in (
        "UPDATE old SET n = 1",
        "DELETE FROM old WHERE id = 1",
        "INSERT OVERWRITE old SELECT * FROM s",
        "MERGE INTO old USING s ON old.id = s.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(NotWritable, match="have no ids"):
            tables.run(statement)
    assert tables.state() == before


def test_tables_of_other_formats_are_not_changed(lake: LakeCatalog) -> None:
    lake.spark.sql("CREATE DATABASE rules_of_others")
    lake.spark.sql("CREATE TABLE rules_of_others.p USING parquet AS SELECT id FROM range(3)")
    try:
        with LakeCatalog(spark=lake.spark, spark_catalog="spark_catalog", name="others") as others:
            run = Runner(others, "rules_of_others")
            for statement in (
                "INSERT INTO p SELECT 7",
                "INSERT OVERWRITE p SELECT 7",
                "UPDATE p SET id = 1",
                "DELETE FROM p",
                "MERGE INTO p USING p AS q ON p.id = q.id WHEN MATCHED THEN DELETE",
            ):
                with pytest.raises(NotWritable, match="is not an Iceberg table"):
                    run(statement)
            with pytest.raises(Unsupported, match="cannot make tables or views in this catalog"):
                run("CREATE TABLE q AS SELECT * FROM p")
        assert lake.spark.table("rules_of_others.p").count() == 3
    finally:
        lake.spark.sql("DROP DATABASE rules_of_others CASCADE")
