"""The lake by Arrow's JDBC driver, in a JVM of its own, as DBeaver and Tableau use it.

The driver's `commit` and `rollback` are stubs, and it begins no transaction: each statement commits
by itself, whatever `setAutoCommit` was told.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from tests.parts.jars import Wanted, end_jvm, fetched, start_jvm
from tests.server.certificates import Authority
from tests.spark.lake_tables import create, find, insert, values
from tests.spark.spark_jobs import running, wait_for

import sparkport as sp
from sparkport.catalog import Constraints
from sparkport.server import Server
from sparkport.spark import LakeCatalog

_VERSION = "18.3.0"
_DRIVER = Wanted("org.apache.arrow", "flight-sql-jdbc-driver", _VERSION, is_alone=True)
_OPTIONS = ("--add-opens=java.base/java.nio=ALL-UNNAMED", "-Duser.timezone=UTC")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """The classes of a JVM that has the driver."""
    gateway = start_jvm(before=fetched(f"flight-sql-jdbc-{_VERSION}", [_DRIVER]), options=_OPTIONS)
    yield gateway.jvm
    end_jvm(gateway)


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def connection(java: Any, server: Server) -> Iterator[Any]:
    with connected(java, server, useEncryption="false") as connection:
        yield connection


@pytest.fixture
def table(lake: LakeCatalog, namespace: str) -> str:
    """Table `t`, with a key and two rows."""
    constraints = Constraints(primary_key=("id",), not_null=("id",))
    create(lake, namespace, "t", COLUMNS, constraints=constraints)
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    return f"{namespace}.t"


@contextmanager
def connected(java: Any, server: Server, **options: str) -> Iterator[Any]:
    address = server.location.rpartition("//")[2]
    properties = java.java.util.Properties()
    for name, value in options.items():
        properties.setProperty(name, value)
    driver = java.org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver()
    connection = driver.connect(f"jdbc:arrow-flight-sql://{address}/", properties)
    try:
        yield connection
    finally:
        connection.close()


def rows(result: Any) -> list[tuple[Any, ...]]:
    """All rows of a result; objects of Java as text."""
    width = range(1, result.getMetaData().getColumnCount() + 1)
    found = []
    while result.next():
        row = [result.getObject(at) for at in width]
        found.append(tuple(str(each) if hasattr(each, "getClass") else each for each in row))
    result.close()
    return found


def failure(call: Callable[[], Any]) -> str:
    """The message of the SQLException that a call ends with."""
    with pytest.raises(Py4JJavaError) as raised:
        call()
    error = raised.value.java_exception
    assert "SQL" in error.getClass().getSimpleName()
    return str(error.getMessage())


def ids(lake: LakeCatalog, namespace: str) -> list[int]:
    return sorted(values(find(lake, namespace, "t"), "id"))


# --------------------------------------------------------------------------------------- connecting


def test_a_connection_has_a_token_and_tls(java, lake, table, tmp_path: Path):
    authority = Authority()
    pair = authority.sign()
    (trusted := tmp_path / "authority.pem").write_bytes(authority.certificate)
    settings = sp.ServerSettings(
        authenticate=sp.TokenAuthenticator({"secret": "ada"}),
        tls_certificate=pair.certificate,
        tls_key=pair.key,
    )
    with Server(lake, "grpc+tls://127.0.0.1:0", settings) as server:
        options = {"useEncryption": "true", "tlsRootCerts": str(trusted)}
        with connected(java, server, token="secret", **options) as connection:
            statement = connection.createStatement()
            assert rows(statement.executeQuery(f"SELECT count(*) FROM {table}")) == [(2,)]

        def wrong() -> None:
            with connected(java, server, token="wrong", **options) as connection:
                connection.createStatement().executeQuery(f"SELECT * FROM {table}")

        assert "token" in failure(wrong)


# ----------------------------------------------------------------------------------------- metadata


def test_the_lake_is_described(connection, lake, namespace, table):
    about = connection.getMetaData()
    assert about.getDatabaseProductName() == "Sparkport"
    assert about.getDatabaseProductVersion() == sp.__version__
    assert rows(about.getCatalogs()) == [(lake.name,)]
    assert (namespace, lake.name) in rows(about.getSchemas())
    assert [each[:4] for each in rows(about.getTables(None, namespace, "%", None))] == [
        (lake.name, namespace, "t", "TABLE")
    ]
    columns = [each[2:6] for each in rows(about.getColumns(None, namespace, "t", "%"))]
    assert columns == [("t", "id", -5, "BIGINT"), ("t", "name", 12, "VARCHAR")]
    keys = [each[2:5] for each in rows(about.getPrimaryKeys(None, namespace, "t"))]
    assert keys == [("t", "id", 1)]
    assert rows(about.getImportedKeys(None, namespace, "t")) == []
    assert rows(about.getTableTypes()) == [("TABLE",)]


def test_what_the_lake_can_do_is_told(connection, table):
    about = connection.getMetaData()
    for able in (
        *("supportsTransactions", "supportsBatchUpdates", "supportsGroupBy", "supportsUnion"),
        *("supportsUnionAll", "supportsFullOuterJoins", "supportsSubqueriesInExists"),
        *("supportsSubqueriesInIns", "supportsCorrelatedSubqueries", "supportsColumnAliasing"),
        *("supportsExpressionsInOrderBy", "supportsOrderByUnrelated", "supportsLikeEscapeClause"),
        *("nullPlusNonNullIsNull", "isCatalogAtStart"),
    ):
        assert getattr(about, able)(), able
    for unable in ("isReadOnly", "supportsSavepoints", "supportsSelectForUpdate"):
        assert not getattr(about, unable)(), unable
    assert about.getDefaultTransactionIsolation() == 3  # REPEATABLE_READ in Flight SQL, not in JDBC
    assert about.supportsTransactionIsolationLevel(4)  # REPEATABLE_READ
    quote = about.getIdentifierQuoteString()
    query = f"SELECT {quote}id{quote} FROM {table} WHERE id = 1 ORDER BY name"
    assert rows(connection.createStatement().executeQuery(query)) == [(1,)]


def test_every_question_about_the_lake_has_an_answer(connection):
    about = connection.getMetaData()
    asked = [
        each.getName()
        for each in about.getClass().getMethods()
        if each.getParameterCount() == 0
        and each.getDeclaringClass().getName().startswith("org.apache.arrow")
    ]
    assert len(asked) > 50
    for name in asked:
        answer = getattr(about, name)()
        if hasattr(answer, "getClass") and answer.getClass().getName().endswith("ResultSet"):
            answer.close()


# --------------------------------------------------------------------------------------- statements


def test_statements_read_and_change(connection, lake, namespace, table):
    statement = connection.createStatement()
    assert sorted(rows(statement.executeQuery(f"SELECT * FROM {table}"))) == [
        *((1, "ann"), (2, "bob"))
    ]
    query = f"SELECT upper(name) AS n, id * 2 AS d FROM {table} ORDER BY id"
    assert rows(statement.executeQuery(query)) == [("ANN", 2), ("BOB", 4)]
    insertion = f"INSERT INTO {table} SELECT id + 10, name FROM {table}"
    assert statement.executeUpdate(insertion) == 2
    assert not statement.execute(f"DELETE FROM {table} WHERE id = 1")
    assert statement.getUpdateCount() == 1
    merge = f"MERGE INTO {table} t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert statement.executeUpdate(merge) == 1
    assert statement.execute(f"SELECT count(*) FROM {table}")
    assert rows(statement.getResultSet()) == [(2,)]
    assert ids(lake, namespace) == [11, 12]


def test_prepared_statements_have_parameters(connection, lake, namespace, table):
    query = connection.prepareStatement(f"SELECT name FROM {table} WHERE id = ? AND name < ?")
    about = query.getParameterMetaData()
    assert about.getParameterCount() == 2
    for number, name in ((1, "ann"), (2, "bob")):
        query.setLong(1, number)
        query.setString(2, "zz")
        assert rows(query.executeQuery()) == [(name,)]
    query.close()
    change = connection.prepareStatement(f"UPDATE {table} SET name = ? WHERE id = ?")
    change.setString(1, "x")
    change.setLong(2, 1)
    assert change.executeUpdate() == 1
    change.close()
    addition = connection.prepareStatement(f"INSERT INTO {table} VALUES (?, ?)")
    addition.setLong(1, 3)
    addition.setNull(2, 12)
    assert addition.executeUpdate() == 1
    addition.close()
    assert sorted(values(find(lake, namespace, "t"), "id", "name")) == [
        *((1, "x"), (2, "bob"), (3, None))
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("INSERT INTO {} (name, id) VALUES (?, ?)", [1, 2, *range(10, 20)]),
        ("UPDATE {} SET name = ? WHERE id = ? - 9", [1, 2]),
    ],
)
def test_a_batch_is_one_change(connection, lake, namespace, table, change, expected):
    """The driver answers with a single number, of all rows."""
    statement = connection.prepareStatement(change.format(table))
    for number in range(10, 20):
        statement.setString(1, f"n{number}")
        statement.setLong(2, number)
        statement.addBatch()
    assert sum(statement.executeBatch()) == (2 if expected == [1, 2] else 10)
    statement.close()
    assert ids(lake, namespace) == expected
    assert ("n10" in values(find(lake, namespace, "t"), "name")) is True


def test_parameters_keep_their_values(java, connection, lake, namespace):
    """The driver writes milliseconds of times and timestamps into whatever unit is announced."""
    columns = {
        "b": pa.bool_(),
        "i": pa.int32(),
        "l": pa.int64(),
        "d": pa.float64(),
        "m": pa.decimal128(9, 2),
        "day": pa.date32(),
        "ts": pa.timestamp("us"),
        "tz": pa.timestamp("us", "UTC"),
        "s": pa.string(),
        "bin": pa.binary(),
    }
    create(lake, namespace, "t", pa.schema(list(columns.items())))
    statement = connection.prepareStatement(
        f"INSERT INTO {namespace}.t VALUES ({', '.join('?' for _ in columns)})"
    )
    java_sql = java.java.sql
    moment = java_sql.Timestamp.valueOf("2025-01-02 03:04:05.678")
    statement.setBoolean(1, True)
    statement.setInt(2, -(2**31))
    statement.setLong(3, 2**40)
    statement.setDouble(4, 1.5)
    statement.setBigDecimal(5, java.java.math.BigDecimal("12.50"))
    statement.setDate(6, java_sql.Date.valueOf("2024-02-29"))
    statement.setTimestamp(7, moment)
    statement.setTimestamp(8, moment)
    statement.setString(9, "it's 🦆")
    statement.setBytes(10, b"\x00\xff")
    assert statement.executeUpdate() == 1
    statement.close()
    query = (
        "SELECT b, i, l, d, CAST(m AS STRING), CAST(day AS STRING), CAST(ts AS STRING), "
        f"unix_millis(tz), s, hex(bin) FROM {namespace}.t WHERE ts = ? AND tz = ? AND day = ?"
    )
    asked = connection.prepareStatement(query)
    asked.setTimestamp(1, moment)
    asked.setTimestamp(2, moment)
    asked.setDate(3, java_sql.Date.valueOf("2024-02-29"))
    assert rows(asked.executeQuery()) == [
        (
            *(True, -(2**31), 2**40, 1.5, "12.50", "2024-02-29", "2025-01-02 03:04:05.678"),
            *(1735787045678, "it's 🦆", "00FF"),
        )
    ]
    asked.close()


def test_each_statement_commits_whatever_the_driver_is_told(connection, lake, namespace, table):
    connection.setAutoCommit(False)
    statement = connection.createStatement()
    assert statement.executeUpdate(f"DELETE FROM {table} WHERE id = 1") == 1
    assert ids(lake, namespace) == [2]
    connection.rollback()
    assert ids(lake, namespace) == [2]
    connection.commit()


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FORM {}", r"Syntax error at or near 'n\d+'.*line 1, position 15"),
        ("SELECT nothing FROM {}", "`nothing` cannot be resolved"),
        ("SELECT * FROM {}_nope", "cannot be found"),
        ("DROP TABLE {}", "a query, INSERT INTO.*this is a DROP statement"),
        ("INSERT INTO {} VALUES (1, 'x')", "Duplicate key"),
        ("INSERT INTO {} VALUES (NULL, 'x')", "NOT NULL constraint failed"),
        ("SELECT id DIV 0 FROM {}", "Division by zero"),
    ],
)
def test_an_error_says_what_is_wrong(connection, lake, namespace, table, statement, message):
    def call() -> None:
        one = connection.createStatement()
        if one.execute(statement.format(table)):
            rows(one.getResultSet())

    found = failure(call).replace("\n", " ")
    assert re.search(message, found), found
    assert "Exception" not in found
    assert ids(lake, namespace) == [1, 2]


def test_a_query_is_cancelled(connection, lake):
    statement = connection.createStatement()
    found: list[Any] = []

    def run() -> None:
        query = (
            "SELECT count(*) FROM range(0, 1000000000000) WHERE sha2(CAST(id AS STRING), 512) = 'x'"
        )
        try:
            found.append(rows(statement.executeQuery(query)))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_for(lambda: running(lake.spark) > 0, 60), "Spark runs no job"
    statement.cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(each) for each in found] == [Py4JJavaError]
    assert wait_for(lambda: running(lake.spark) == 0, 60), "Spark goes on"
