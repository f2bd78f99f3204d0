"""SQL by Flight SQL on the lake, with the real ADBC driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import OperationalError, ProgrammingError
from tests.server.protobuf import command
from tests.spark.lake_tables import create, find, insert, values

import sparkport as sp
from sparkport.catalog import Constraints
from sparkport.server import Server
from sparkport.spark import LakeCatalog

LIMITS = {
    "adbc.flight.sql.rpc.timeout_seconds.fetch": "60",
    "adbc.flight.sql.rpc.timeout_seconds.query": "60",
    "adbc.flight.sql.rpc.timeout_seconds.update": "60",
}
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def connect(*, autocommit: bool = True) -> Any:
        opened.append(dbapi.connect(server.location, db_kwargs=LIMITS, autocommit=autocommit))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def cursor(connect: Callable[..., Any]) -> Iterator[Any]:
    with connect().cursor() as cursor:
        yield cursor


@pytest.fixture
def table(lake: LakeCatalog, namespace: str) -> str:
    """Table `t`, with a key and two rows."""
    constraints = Constraints(primary_key=("id",), not_null=("id",))
    create(lake, namespace, "t", COLUMNS, constraints=constraints)
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    return f"{namespace}.t"


def rows(lake: LakeCatalog, namespace: str) -> list[Any]:
    return sorted(values(find(lake, namespace, "t"), "id", "name"))


def test_a_query_is_run_by_spark(cursor, table):
    cursor.execute(f"SELECT upper(name) AS n, id * 2 AS d FROM {table} ORDER BY id")
    assert cursor.fetch_arrow_table().to_pydict() == {"n": ["ANN", "BOB"], "d": [2, 4]}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM {}", ["id", "name"]),
        ("TABLE {}", ["id", "name"]),
        ("SELECT name, id FROM {}", ["name", "id"]),
        ("SELECT name FROM {}", ["name"]),
    ],
)
def test_a_plain_read_is_a_scan(cursor, table, query, names):
    cursor.execute(query.format(table))
    found = cursor.fetch_arrow_table()
    assert found.column_names == names
    assert sorted(found["name"].to_pylist()) == ["ann", "bob"]


def test_an_empty_table_has_no_rows(cursor, lake, namespace):
    create(lake, namespace, "t", COLUMNS)
    cursor.execute(f"SELECT * FROM {namespace}.t")
    found = cursor.fetch_arrow_table()
    assert (found.num_rows, found.column_names) == (0, ["id", "name"])


def test_parameters_have_their_types(cursor, table):
    cursor.execute(f"SELECT name FROM {table} WHERE id = ? AND name = ?", (2, "bob"))
    assert cursor.fetchall() == [("bob",)]
    cursor.adbc_prepare(f"SELECT name FROM {table} WHERE id > ? AND name < ? LIMIT 5")
    markers = cursor.adbc_prepare(f"SELECT name FROM {table} WHERE id > ? AND name < ?")
    assert markers.types == [pa.int64(), pa.string()]
    assert cursor.adbc_prepare(f"UPDATE {table} SET id = ?").types == [pa.int64()]
    compared = "SELECT 1 WHERE ? = timestamp_ntz'2024-01-02' AND ? > timestamp'2024-01-02'"
    zones = [each.tz for each in cursor.adbc_prepare(compared).types]
    assert zones == [None, "UTC"]


def test_a_change_tells_how_many_rows_it_has_changed(cursor, lake, namespace, table):
    cursor.execute(f"UPDATE {table} SET name = upper(name)")
    assert cursor.rowcount == 2
    cursor.execute(f"DELETE FROM {table} WHERE id = ?", (1,))
    assert cursor.rowcount == 1
    assert rows(lake, namespace) == [(2, "BOB")]


def test_many_rows_are_inserted_by_one_statement(cursor, lake, namespace, table):
    cursor.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(n, f"n{n}") for n in range(10, 20)])
    assert len(rows(lake, namespace)) == 12
    with pytest.raises(OperationalError, match="Duplicate key"):
        cursor.executemany(f"INSERT INTO {table} (id) VALUES (?)", [(30,), (30,)])
    assert len(rows(lake, namespace)) == 12


def test_executions_of_a_change_are_done_all_or_none(cursor, lake, namespace, table):
    change = f"UPDATE {table} SET name = ?, id = id + 0 WHERE id = ?"
    cursor.executemany(change, [("x", 1), ("y", 2)])
    assert rows(lake, namespace) == [(1, "x"), (2, "y")]
    with pytest.raises(OperationalError, match="Duplicate key"):
        cursor.executemany(f"UPDATE {table} SET id = ? WHERE id = ?", [(5, 1), (5, 2)])
    assert rows(lake, namespace) == [(1, "x"), (2, "y")]


def test_a_transaction_is_committed_or_rolled_back(connect, lake, namespace, table):
    connection = connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} SELECT id + 10, name FROM {table}")
        cursor.execute(f"INSERT INTO {table} VALUES (?, ?)", (100, "p"))
        cursor.execute(f"SELECT count(*) FROM {table}")
        assert cursor.fetchone() == (5,)
        cursor.execute(f"SELECT * FROM {table}")
        assert cursor.fetch_arrow_table().num_rows == 5
        assert len(rows(lake, namespace)) == 2
        connection.rollback()
        assert len(rows(lake, namespace)) == 2
        cursor.execute(f"DELETE FROM {table} WHERE id = 1")
        connection.commit()
    assert rows(lake, namespace) == [(2, "bob")]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FORM {}", "position"),
        ("SELECT nothing FROM {}", "nothing"),
        ("DROP TABLE {}", "DROP"),
        ("SELECT * FROM {0}; DELETE FROM {0}", "syntax|end of input|;"),
        ("INSERT INTO {} VALUES (1, 'x')", "Duplicate key"),
    ],
)
def test_an_error_says_what_is_wrong(cursor, lake, namespace, table, statement, message):
    with pytest.raises((ProgrammingError, OperationalError), match=message):
        cursor.execute(statement.format(table))
    assert rows(lake, namespace) == [(1, "ann"), (2, "bob")]


def test_what_is_said_of_the_dialect_is_true(cursor, server, table):
    asked = flight.FlightDescriptor.for_command(command("CommandGetSqlInfo"))
    with flight.connect(server.location) as client:
        ticket = client.get_flight_info(asked).endpoints[0].ticket
        found = client.do_get(ticket).read_all().to_pylist()
    infos = {each["info_name"]: each["value"] for each in found}
    quote = infos[504]
    cursor.execute(f"SELECT {quote}id{quote} FROM {table} WHERE id = 1")
    assert cursor.fetchall() == [(1,)]
    cursor.execute("SELECT x FROM VALUES (1), (NULL) AS v(x) ORDER BY x")
    assert (infos[507], cursor.fetchall()) == (1, [(None,), (1,)])
    for number, statement in (
        *((501, "CREATE SCHEMA x"), (502, "CREATE TABLE x (a INT)")),
        *((502, f"DROP TABLE {table}"), (500, "CREATE CATALOG x")),
    ):
        assert not infos[number]
        with pytest.raises(ProgrammingError):
            cursor.execute(statement)
    assert [infos[number] for number in (3, 4, 8, 9, 10, 11, 563)] == [
        *(False, True, 1, True, True, True, True)
    ]


def test_a_reader_with_a_row_filter_sees_part_of_a_plain_read(lake, namespace, table):
    policy = sp.Policy(
        [sp.Grant(("ada",), "*", (sp.Privilege.READ,))],
        [sp.RowFilter(f"*.{table}", "id = 1", ("ada",))],
        [sp.Mask(f"*.{table}", "name", "'***'", ("ada",))],
    )
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
    options = LIMITS | {"adbc.flight.sql.authorization_header": "Bearer ada"}
    with (
        Server(lake, "grpc://127.0.0.1:0", settings) as server,
        dbapi.connect(server.location, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT * FROM {table}")
        assert cursor.fetchall() == [(1, "***")]
        with pytest.raises(ProgrammingError, match="spark_sql permission"):
            cursor.execute(f"SELECT count(*) FROM {table}")
        with pytest.raises(ProgrammingError, match="permission"):
            cursor.execute(f"INSERT INTO {table} VALUES (?, ?)", (7, "x"))
