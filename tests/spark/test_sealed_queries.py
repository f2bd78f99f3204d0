"""A caller who may only read changes nothing by spark_sql: dumps before and after are equal.

Every statement of the grammars is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.spark.spark_statements import FORMS, ICEBERG, QUERIES, STATEMENTS

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient, ServerError

OPEN, VAULT = "open", "vault"
POLICY = sp.Policy([sp.Grant(("ada",), f"*.{OPEN}", (Privilege.READ, Privilege.SPARK_SQL))])


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, lake: LakeCatalog) -> Iterator[LakeCatalog]:
    """A lake of its own, in the shared JVM."""
    with LakeCatalog(tmp_path_factory.mktemp("sealed"), name="sealed") as catalog:
        for schema, table in ((OPEN, "t"), (VAULT, "gold")):
            name = f"{catalog.spark_catalog}.{schema}"
            catalog.spark.sql(f"CREATE NAMESPACE {name}")
            catalog.spark.sql(f"CREATE TABLE {name}.{table} (id BIGINT, v STRING) USING iceberg")
            catalog.spark.sql(f"INSERT INTO {name}.{table} VALUES (1, 'x'), (2, 'y')")
            catalog.spark.sql(f"CREATE VIEW {name}.w AS SELECT id FROM {name}.{table}")
        yield catalog


@pytest.fixture(scope="module")
def ask(sealed: LakeCatalog) -> Iterator[Callable[[str], Any]]:
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY)
    with ExitStack() as stack:
        server = stack.enter_context(sp.Server(sealed, "grpc://127.0.0.1:0", settings))
        client = stack.enter_context(
            DuckDBClient(server.location, "sealed", token="ada", timeout=60)
        )
        yield lambda text: client.table_function(OPEN, "spark_sql", text).to_pylist()


def dump(catalog: LakeCatalog) -> dict[str, Any]:
    """Names, rows, properties, functions, views, settings: all that statements can change."""
    spark = catalog.spark
    found: dict[str, Any] = {}
    for name in (catalog.spark_catalog, "spark_catalog"):
        for [namespace] in spark.sql(f"SHOW NAMESPACES IN {name}").collect():
            inside = f"{name}.`{namespace}`"
            found[inside] = spark.sql(f"DESCRIBE NAMESPACE EXTENDED {inside}").collect()
            for row in spark.sql(f"SHOW TABLES IN {inside}").collect():
                table = f"{inside}.`{row.tableName}`"
                found[table] = [
                    spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect(),
                    sorted(spark.sql(f"SHOW TBLPROPERTIES {table}").collect()),
                    sorted(spark.table(table).collect()),
                ]
            for row in spark.sql(f"SHOW VIEWS IN {inside}").collect():
                found[f"view {inside}.{row.viewName}"] = [
                    tuple(row),
                    sorted(spark.table(f"{inside}.{row.viewName}").collect()),
                ]
    found["functions"] = sorted(row[0] for row in spark.sql("SHOW FUNCTIONS").collect())
    found["settings"] = dict(spark.conf.getAll)
    found["current"] = [spark.catalog.currentCatalog(), spark.catalog.currentDatabase()]
    found["jars"] = list(spark.sql("LIST JARS").collect()) + list(spark.sql("LIST FILES").collect())
    found["schemas of the lake"] = {
        each: sorted(inside.entries)
        for each, inside in catalog._lake.catalog.listing().namespaces.items()
    }
    return found


_COMMON = ("plain", "immediate")
_RARE = [pytest.param(form, marks=pytest.mark.long) for form in FORMS if form not in _COMMON]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("form", [*_COMMON, *_RARE])
def test_no_statement_changes_anything(ask, sealed: LakeCatalog, form: str, tmp_path: Path) -> None:
    before = dump(sealed)
    statements = [each for alternatives in (STATEMENTS | ICEBERG).values() for each in alternatives]
    texts = [FORMS[form](each).replace("/tmp/evil", str(tmp_path / "evil")) for each in statements]

    outcomes = {text: outcome(ask, text) for text in texts}

    assert {text for text, code in outcomes.items() if code == "taken"} <= ARE_QUERIES
    assert set(outcomes.values()) <= {"taken", *EXPECTED}
    assert dump(sealed) == before
    assert not list(tmp_path.iterdir())
    assert ask("SELECT count(*) AS n FROM t") == [{"n": 2}]


EXPECTED = {
    "INVALID_ARGUMENT",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "NOT_FOUND",
}
ARE_QUERIES = {"FROM open.t RESET", "FROM open.t SET", "FROM open.t EXPLAIN SELECT 1"}
"""Texts in which the word is an alias of the table, so that they are queries."""


def outcome(ask: Callable[[str], Any], text: str) -> str:
    try:
        ask(text)
    except ServerError as error:
        return error.code
    return "taken"


def test_every_statement_of_the_grammars_is_tried(lake: LakeCatalog) -> None:
    """A new Spark or Iceberg may bring new statements: they belong into the table."""
    loader: Any = lake.spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]

    def alternatives(parser: str, rules: tuple[str, ...]) -> set[str]:
        found = set()
        for inner in loader.loadClass(parser).getDeclaredClasses():
            above = inner.getSuperclass().getSimpleName()
            if above in [f"{rule}Context" for rule in rules]:
                found.add(str(inner.getSimpleName()).removesuffix("Context"))
        return found

    spark = alternatives(
        "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
        ("Statement", "DmlStatementNoWith", "SetResetStatement"),
    )
    iceberg = alternatives(
        "org.apache.spark.sql.catalyst.parser.extensions.IcebergSqlExtensionsParser", ("Statement",)
    )
    assert spark - QUERIES == set(STATEMENTS)
    assert iceberg == set(ICEBERG)
