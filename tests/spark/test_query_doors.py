"""What spark_sql must not reach: the environment, other callers' sessions, tables not granted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.spark.calling import Caller

import sparkport as sp
from sparkport import errors
from sparkport.catalog import Context, Privilege
from sparkport.spark import LakeCatalog
from sparkport.spark.functions.queries import Queries
from sparkport.spark.functions.sql_functions import session_without_extensions
from sparkport.spark.jvm.session.adopted import without_substitution
from sparkport.spark.scan import query_plans
from sparkport.testing import DuckDBClient, ServerError

UNREADABLE = "spark_sql asks for a table that you have no permission to read, or that is not there"
POLICY = sp.Policy(
    [
        sp.Grant(("ada",), "*.doors.orders", (Privilege.READ,)),
        sp.Grant(("ada",), "*.doors.totals", (Privilege.READ,)),
        sp.Grant(("ada",), "*.doors.broken", (Privilege.READ,)),
        sp.Grant(("ada",), "*.doors.spark_sql", (Privilege.SPARK_SQL,)),
    ]
)


@pytest.fixture(scope="module")
def client(lake: LakeCatalog, warehouse: Path) -> Iterator[DuckDBClient]:
    """A client of Ada, who may read orders and totals, and call spark_sql."""
    inside = f"`{lake.spark_catalog}`.doors"
    for statement in (
        f"CREATE NAMESPACE {inside}",
        f"CREATE TABLE {inside}.orders (id BIGINT, at TIMESTAMP) USING iceberg",
        f"INSERT INTO {inside}.orders VALUES (1, TIMESTAMP '2020-01-01'), (2, TIMESTAMP "
        "'2021-01-01')",
        f"CREATE TABLE {inside}.secrets (salary BIGINT, at TIMESTAMP) USING iceberg",
        f"INSERT INTO {inside}.secrets VALUES (987654321, TIMESTAMP '2030-01-01')",
        f"CREATE VIEW {inside}.totals AS SELECT count(*) AS n FROM {inside}.orders",
        f"CREATE VIEW {inside}.unseen AS SELECT count(*) AS n FROM {inside}.orders",
        f"CREATE TABLE {inside}.passing (gone BIGINT, salary BIGINT) USING iceberg",
        f"CREATE VIEW {inside}.broken AS SELECT gone FROM {inside}.passing",
        f"ALTER TABLE {inside}.passing DROP COLUMN gone",
    ):
        lake.spark.sql(statement)
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY)
    with ExitStack() as stack:
        catalog = stack.enter_context(
            LakeCatalog(warehouse, name="doors", spark_catalog=lake.spark_catalog)
        )
        server = stack.enter_context(sp.Server(catalog, "grpc://127.0.0.1:0", settings))
        yield stack.enter_context(DuckDBClient(server.location, "doors", token="ada", timeout=60))


@pytest.fixture
def ask(client: DuckDBClient) -> Callable[..., list[dict[str, Any]]]:
    def ask(text: str, *arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.table_function(
            "doors", "spark_sql", text, *arguments
        ).to_pylist()
        return found

    return ask


def refusal(ask: Callable[..., Any], text: str, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(ServerError) as caught:
        ask(text, *arguments)
    return caught.value.code, str(caught.value).partition("message: ")[2]


# ------------------------------------------------------------------------------- hidden and absent


NAMINGS = {
    "plain": "SELECT * FROM {}",
    "column": "SELECT nonsense FROM {}",
    "schema": "SELECT * FROM doors.{}",
    "catalog": "SELECT * FROM lake.doors.{}",
    "alias": "SELECT x.nonsense FROM {} AS x",
    "identifier": "SELECT nonsense FROM IDENTIFIER('{}')",
    "identifier, schema": "SELECT * FROM IDENTIFIER('doors.{}')",
    "identifier, expression": "SELECT * FROM IDENTIFIER('doors.' || '{}')",
    "version": "SELECT nonsense FROM {} VERSION AS OF 1",
    "timestamp": "SELECT nonsense FROM {} TIMESTAMP AS OF '2040-01-01'",
    "metadata": "SELECT * FROM doors.{}.snapshots",
    "metadata, absent": "SELECT * FROM doors.{}.nonsense",
    "branch": "SELECT * FROM doors.{}.branch_main",
    "table": "TABLE {}",
    "from": "FROM {} |> SELECT nonsense",
    "join": "SELECT * FROM orders JOIN {} USING (id)",
    "scalar": "SELECT (SELECT max(nonsense) FROM {})",
    "exists": "SELECT 1 FROM orders WHERE EXISTS (SELECT nonsense FROM {})",
    "in": "SELECT * FROM orders WHERE id IN (SELECT nonsense FROM IDENTIFIER('{}'))",
    "cte": "WITH s AS (SELECT nonsense FROM {}) SELECT * FROM s",
    "cte of that name": "WITH {0} AS (SELECT 1 AS one) SELECT * FROM {0}, doors.{0}",
    "name out of scope": "SELECT * FROM (WITH {0} AS (SELECT 1 AS one) SELECT * FROM {0}), {0}",
    "lateral": "SELECT * FROM orders, LATERAL (SELECT nonsense FROM {})",
    "union": "SELECT id FROM orders UNION SELECT nonsense FROM {}",
    "pivot": "SELECT * FROM {} PIVOT (sum(nonsense) FOR id IN (1, 2))",
    "sample": "SELECT * FROM {} TABLESAMPLE (10 PERCENT)",
    "stream": "SELECT * FROM STREAM {}",
    "recursive": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r, {} WHERE n < 3) "
    "SELECT * FROM r",
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_hidden_tables_and_absent_ones_get_the_same_words(ask, naming: str) -> None:
    text = NAMINGS[naming]
    hidden, view, absent = (
        refusal(ask, text.format(name)) for name in ("secrets", "unseen", "absents")
    )

    assert hidden == view == absent == ("PERMISSION_DENIED", UNREADABLE)


@pytest.mark.parametrize("name", ["secrets", "absents"])
def test_parameters_name_no_hidden_table(ask, name: str) -> None:
    assert refusal(ask, "SELECT * FROM IDENTIFIER(:t)", {"t": name}) == (
        "PERMISSION_DENIED",
        UNREADABLE,
    )
    assert refusal(ask, "SELECT * FROM IDENTIFIER(?)", [name]) == ("PERMISSION_DENIED", UNREADABLE)
    assert refusal(ask, "SELECT * FROM IDENTIFIER('doors.' || :t)", {"t": name}) == (
        "PERMISSION_DENIED",
        UNREADABLE,
    )


def test_a_time_is_no_way_to_read_a_table(ask) -> None:
    """Spark would run the subquery while it analyses the query."""
    for text in (
        "SELECT * FROM orders TIMESTAMP AS OF (SELECT max(at) FROM secrets)",
        "SELECT * FROM orders TIMESTAMP AS OF (SELECT max(at) FROM absents)",
        "SELECT * FROM orders WHERE id IN (SELECT id FROM orders TIMESTAMP AS OF (SELECT max(at) "
        "FROM secrets))",
    ):
        code, message = refusal(ask, text)
        assert (code, "as a value, not as a subquery" in message) == ("INVALID_ARGUMENT", True)


def test_what_a_view_has_lost_is_not_told(ask) -> None:
    assert ask("SELECT n FROM totals") == [{"n": 2}]
    assert refusal(ask, "SELECT * FROM broken") == ("PERMISSION_DENIED", UNREADABLE)


def test_of_tables_that_may_be_read_everything_is_told(ask) -> None:
    assert refusal(ask, "SELECT nonsense FROM orders")[0] == "NOT_FOUND"
    assert "`id`" in refusal(ask, "SELECT nonsense FROM orders")[1]
    assert "snapshot" in refusal(ask, "SELECT * FROM orders VERSION AS OF 12345")[1]
    assert ask("SELECT count(*) AS n FROM orders TIMESTAMP AS OF current_timestamp()") == [{"n": 2}]
    assert ask("SELECT count(*) AS n FROM IDENTIFIER(:t)", {"t": "orders"}) == [{"n": 2}]
    assert ask("SELECT count(*) AS n FROM IDENTIFIER('doors.' || 'orders')") == [{"n": 2}]
    assert ask("SELECT count(*) AS n FROM doors.orders.snapshots") == [{"n": 1}]
    assert ask("FROM orders |> WHERE id > 1 |> AGGREGATE count(*) AS n") == [{"n": 1}]


@pytest.fixture
def functions(lake: LakeCatalog) -> Iterator[str]:
    """A schema of Spark's session catalog with functions that read tables of it and of another."""
    session = session_without_extensions(lake.spark, "default")
    statements = (
        "CREATE DATABASE doors_functions",
        "CREATE TABLE doors_functions.p USING parquet AS SELECT id FROM range(3)",
        "CREATE DATABASE doors_hidden",
        "CREATE TABLE doors_hidden.q USING parquet AS SELECT 987654321 AS salary",
        "CREATE FUNCTION doors_functions.top() RETURNS BIGINT RETURN (SELECT max(id) FROM "
        "doors_functions.p)",
        "CREATE FUNCTION doors_functions.each() RETURNS TABLE (a BIGINT) RETURN SELECT id FROM "
        "doors_functions.p",
        "CREATE FUNCTION doors_functions.leak() RETURNS INT RETURN (SELECT max(salary) FROM "
        "doors_hidden.q)",
    )
    for statement in statements:
        session.sql(statement)
    yield "doors_functions"
    for name in ("doors_functions", "doors_hidden"):
        session.sql(f"DROP DATABASE {name} CASCADE")


def test_what_functions_read_must_be_readable(lake: LakeCatalog, functions: str) -> None:
    access = sp.Policy([sp.Grant(("ada",), f"*.{functions}", (Privilege.READ,))]).access(
        sp.Identity("ada"), "session"
    )
    with LakeCatalog(spark=lake.spark, spark_catalog="spark_catalog", name="session") as catalog:
        queries = Queries(catalog._lake)

        def ask(text: str) -> list[tuple[Any, ...]]:
            ctx = Context(access=access, principal="ada")
            return sorted(
                map(
                    tuple,
                    queries.understand(
                        ctx, (functions,), "spark_sql", text, {}, None
                    ).rows.collect(),
                )
            )

        assert ask("SELECT count(*) FROM p") == [(3,)]
        assert ask("SELECT top()") == [(2,)]
        assert ask("SELECT a FROM each()") == [(0,), (1,), (2,)]
        for text in (
            "SELECT leak()",
            "SELECT * FROM doors_hidden.q",
            "SELECT * FROM p WHERE id = leak()",
        ):
            with pytest.raises(errors.PermissionDenied, match=UNREADABLE):
                ask(text)


def test_the_lists_name_nodes_that_there_are(lake: LakeCatalog) -> None:
    jvm: Any = lake.spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in query_plans._PARSED | query_plans._ANALYSED | query_plans._RELATIONS:
        if (
            name != query_plans._HIVE
            or loader.getResource("org/apache/spark/sql/hive/HiveUtils.class") is not None
        ):
            assert loader.loadClass(name) is not None


# --------------------------------------------------------------------------------- past the tables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT * FROM orders WITH (`snapshot-id` = 1)", "takes no options"),
        ("SELECT * FROM IDENTIFIER('orders') WITH (path = '/etc/passwd')", "takes no options"),
        ("SELECT * FROM IDENTIFIER(concat('ord', 'ers'))", "takes a text or a parameter"),
        ("SELECT * FROM STREAM orders", "StreamingRelation"),
        ("SELECT TRANSFORM(id) USING 'cat' AS x FROM orders", "ScriptTransformation"),
    ],
)
def test_what_would_reach_past_the_tables_is_refused(ask, text: str, words: str) -> None:
    code, message = refusal(ask, text)

    assert (code, words in message) == ("INVALID_ARGUMENT", True), message


@pytest.mark.parametrize(
    "path",
    ["text.`/etc/hostname`", "parquet.`/tmp`", "iceberg.`/tmp`", "json.`file:/etc/hostname`"],
)
def test_files_are_no_tables(ask, path: str) -> None:
    assert refusal(ask, f"SELECT * FROM {path}") == ("PERMISSION_DENIED", UNREADABLE)


@pytest.mark.parametrize(
    "name", ["reflect", "java_method", "try_reflect", "builtin.reflect", "system.builtin.reflect"]
)
def test_no_method_of_java_is_called(ask, name: str) -> None:
    code, message = refusal(ask, f"SELECT {name}('java.lang.System', 'getProperty', 'user.home')")

    assert (code, "/root" in message) == ("NOT_FOUND", False)


@pytest.mark.parametrize(
    "variable",
    ["env:PATH", "system:java.home", "spark:spark.master", "hiveconf:spark.master", "spark.master"],
)
def test_nothing_is_substituted(ask, lake: LakeCatalog, variable: str) -> None:
    text = "${" + variable + "}"

    assert ask(f"SELECT '{text}' AS v") == [{"v": text}]
    assert ask(f"SELECT 1 AS `{text}`") == [{text: 1}]
    assert lake.spark.sql(f"SELECT '{text}' AS v").collect()[0].v == text


def test_a_session_that_would_substitute_is_refused(lake: LakeCatalog) -> None:
    class Settings:
        def set(self, key: str, value: str) -> None:
            raise ValueError(f"{key} is fixed")

    class Stubborn:
        conf = Settings()

    with pytest.raises(
        errors.PreconditionFailed, match=r"spark.sql.variable.substitute be switched off"
    ):
        without_substitution(Stubborn())  # type: ignore[arg-type]


def test_a_users_own_session_does_not_substitute(lake: LakeCatalog) -> None:
    session = lake.spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "true")
    with LakeCatalog(spark=session, spark_catalog="spark_catalog", name="own"):
        assert session.sql("SELECT '${env:PATH}' AS v").collect()[0].v == "${env:PATH}"


def test_every_query_has_a_session_of_its_own(lake: LakeCatalog, namespace: str) -> None:
    queries = Caller(lake, namespace).function("spark_sql")._queries
    ctx = Context()
    first = queries.understand(
        ctx, (namespace,), "spark_sql", "SELECT 1 AS a", {}, None
    ).rows.sparkSession
    first.sql("CREATE TEMPORARY VIEW mine AS SELECT 1 AS a")
    first.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    first.sql("USE spark_catalog")
    second = queries.understand(
        ctx, (namespace,), "spark_sql", "SELECT current_timezone() AS z", {}, None
    ).rows

    assert second.sparkSession._jsparkSession.hashCode() != first._jsparkSession.hashCode()
    assert second.collect()[0].z == "UTC"
    with pytest.raises(errors.NotFound):
        queries.understand(ctx, (namespace,), "spark_sql", "SELECT * FROM mine", {}, None)
    assert lake.spark.catalog.listTables() == [] or "mine" not in {
        each.name for each in lake.spark.catalog.listTables()
    }


def test_what_was_granted_when_it_was_planned_is_asked_again_when_it_is_read(
    lake: LakeCatalog, client
) -> None:
    function = Caller(lake, "doors").function("spark_sql")
    some, none = (
        sp.Policy(grants).access(sp.Identity("ada"), "doors") for grants in (POLICY_GRANTS, [])
    )
    function.schema_for_parameters(
        Context(access=some, principal="ada", trace_id="one"), ["SELECT id FROM orders"]
    )

    with pytest.raises(errors.PermissionDenied, match=UNREADABLE):
        function.schema_for_parameters(
            Context(access=none, principal="ada", trace_id="one"), ["SELECT id FROM orders"]
        )


POLICY_GRANTS = [sp.Grant(("ada",), "*.doors", (Privilege.READ,))]


def test_what_is_remembered_of_a_query_is_bounded(ask, lake: LakeCatalog) -> None:
    ctx = Context()
    with pytest.raises(
        errors.LimitExceeded, match="spark_sql takes a query of at most 1048576 characters"
    ):
        Caller(lake, "doors").function("spark_sql").schema_for_parameters(
            ctx, ["SELECT 1 --" + "x" * 2**20]
        )
    code, message = refusal(ask, "SELECT :t AS t", {"t": "x" * 2**20})
    assert (code, "list of arguments of at most" in message) == ("RESOURCE_EXHAUSTED", True)
    Caller(lake, "doors").function("spark_sql").schema_for_parameters(
        ctx, ["SELECT 1 AS a --" + "x" * 100_000]
    )
    assert len(ctx.progress.query) == 10_000


def test_arguments_are_values(ask) -> None:
    assert ask("SELECT count(*) AS n FROM orders WHERE at = :at", {"at": datetime(2020, 1, 1)}) == [
        {"n": 1}
    ]
    assert ask("SELECT :t AS t", {"t": "x' FROM secrets --"}) == [{"t": "x' FROM secrets --"}]
