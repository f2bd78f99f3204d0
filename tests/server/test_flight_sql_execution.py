"""SQL by Flight SQL: queries, changes and parameters, as ADBC's driver sends them."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from adbc_driver_manager import NotSupportedError, OperationalError, ProgrammingError
from tests.server.protobuf import command, decoded, message, unwrapped
from tests.server.raw_client import RawClient, failure_of, ticket_message
from tests.server.sql_catalog import ENDLESS, DuckCatalog

import sparkport as sp

LIMITS = {
    DatabaseOptions.TIMEOUT_QUERY.value: "20",
    DatabaseOptions.TIMEOUT_FETCH.value: "20",
    DatabaseOptions.TIMEOUT_UPDATE.value: "20",
    "adbc.flight.sql.rpc.timeout_seconds.connect": "20",
}
OPTIONS = flight.FlightCallOptions(timeout=20)


@pytest.fixture
def catalog() -> DuckCatalog:
    catalog = DuckCatalog()
    catalog.database.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b VARCHAR)")
    catalog.database.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    return catalog


@pytest.fixture
def server(catalog, start) -> sp.Server:
    return start([catalog])


@pytest.fixture
def cursor(server) -> Iterator[dbapi.Cursor]:
    with (
        dbapi.connect(server.location, db_kwargs=LIMITS, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


@pytest.fixture
def raw(server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


def descriptor(name: str, *fields: tuple[int, str | bytes | int]) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(command(name, *fields))


def plan(raw: RawClient, text: str) -> flight.FlightInfo:
    """The FlightInfo of a statement."""
    asked = descriptor("CommandStatementQuery", (1, text)).serialize()
    return flight.FlightInfo.deserialize(raw.call("GetFlightInfo", asked)[0])


def contents(catalog: DuckCatalog) -> list[tuple[int, str]]:
    return catalog.database.cursor().execute("SELECT * FROM t ORDER BY a").fetchall()


# ----------------------------------------------------------------------------------------- queries


def test_a_query_gives_its_rows(cursor):
    cursor.execute("SELECT a, b FROM t ORDER BY a")

    assert cursor.fetchall() == [(1, "one"), (2, "two")]


def test_a_query_is_streamed_in_pieces(cursor):
    cursor.execute("SELECT range AS n FROM range(1000000)")
    batches = list(cursor.fetch_record_batch())

    assert len(batches) > 10
    assert sum(batch.num_rows for batch in batches) == 1_000_000


def test_two_columns_may_have_the_same_name(raw):
    info = plan(raw, "SELECT 1 AS x, 'y' AS x")

    stream = raw.get(info.endpoints[0].ticket.ticket)

    assert info.schema.names == stream.arrow_schema.names == ["x", "x"]
    assert [column.to_pylist() for column in stream.table.columns] == [[1], ["y"]]


def test_a_query_without_rows_has_its_columns(cursor):
    cursor.execute("SELECT a FROM t WHERE false")

    assert cursor.fetch_arrow_table().schema == pa.schema([("a", pa.int32())])


def test_both_analyses_of_a_query_have_one_trace_id(raw, catalog):
    info = plan(raw, "SELECT 1 AS x")
    raw.get(info.endpoints[0].ticket.ticket)
    (planned, _), (read, _) = catalog.traces

    assert planned == read
    assert planned


def test_a_query_can_be_described_without_running_it(cursor, catalog):
    arrow_schema = cursor.adbc_execute_schema("SELECT a, b FROM t")

    assert arrow_schema == pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("SELEC 1", ProgrammingError, "INVALID_ARGUMENT.*SELEC"),
        ("SELECT * FROM nope", ProgrammingError, "NOT_FOUND.*nope"),
        ("SELECT * FROM forbidden", ProgrammingError, "UNAUTHORIZED.*forbidden"),
        ("SELECT 1; SELECT 2", ProgrammingError, "one statement at a time"),
        ("  ", ProgrammingError, "the statement is empty"),
    ],
)
def test_a_statement_that_cannot_be_run_says_why(cursor, text, error, reason):
    with pytest.raises(error, match=reason):
        cursor.execute(text)


def test_a_query_whose_table_was_altered_since_it_was_planned_is_refused(raw, catalog):
    info = plan(raw, "SELECT * FROM t")
    catalog.database.execute("ALTER TABLE t ADD COLUMN c INTEGER")
    failure = raw.failure("DoGet", ticket_message(info.endpoints[0].ticket.ticket))

    assert failure.code == "FAILED_PRECONDITION"
    assert "run the query again" in failure.message


# ----------------------------------------------------------------------------------------- changes


def test_a_change_by_execute_is_made_once_and_tells_how_many_rows(cursor, catalog):
    cursor.execute("INSERT INTO t VALUES (3, 'three'), (4, 'four')")

    assert cursor.rowcount == 2
    assert cursor.fetchall() == [(2,)]
    assert len(catalog.executed) == 1
    assert len(contents(catalog)) == 4


def test_reading_the_result_of_a_change_again_changes_nothing(raw, catalog):
    info = plan(raw, "INSERT INTO t VALUES (3, 'three')")
    answers = [raw.get(info.endpoints[0].ticket.ticket).rows() for _ in range(2)]

    assert info.schema == pa.schema([("rows_changed", pa.int64())])
    assert answers == [[{"rows_changed": 1}]] * 2
    assert len(contents(catalog)) == 3


def test_describing_a_change_does_not_make_it(raw, catalog):
    asked = descriptor("CommandStatementQuery", (1, "DELETE FROM t")).serialize()
    raw.call("GetSchema", asked)

    assert catalog.executed == []
    assert len(contents(catalog)) == 2


def test_a_change_of_an_unknown_number_of_rows_says_so(cursor):
    cursor.execute("CREATE TABLE u (x INTEGER)")

    assert cursor.rowcount == -1
    assert cursor.fetchall() == [(None,)]


def test_a_change_that_fails_changes_nothing(cursor, catalog):
    with pytest.raises(OperationalError, match=r"Duplicate key.*FailedPrecondition"):
        cursor.execute("INSERT INTO t VALUES (3, 'three'), (1, 'again')")

    assert len(contents(catalog)) == 2


def update(raw: RawClient, name: str, *fields: tuple[int, str | bytes | int]) -> list[bytes]:
    """Send a command by DoPut as ADBC and Go's clients do: only a descriptor, and no schema."""
    sent = message((1, descriptor(name, *fields).serialize()))
    return [bytes(decoded(each)[1]) for each in raw.call("DoPut", [sent])]


def test_an_update_needs_no_schema(raw, catalog):
    (answer,) = update(raw, "CommandStatementUpdate", (1, "DELETE FROM t"))

    assert decoded(answer) == {1: 2}
    assert contents(catalog) == []


def test_a_query_is_no_update(raw):
    sent = message((1, descriptor("CommandStatementUpdate", (1, "SELECT 1")).serialize()))
    failure = raw.failure("DoPut", [sent])

    assert failure.code == "INVALID_ARGUMENT"
    assert "run it as a query" in failure.message


# -------------------------------------------------------------------------------------- parameters


def test_a_query_with_parameters(cursor):
    for number, name in ((2, "two"), (1, "one")):
        cursor.execute("SELECT b FROM t WHERE a = ?", (number,))
        assert cursor.fetchall() == [(name,)]


def test_a_parameter_may_be_null(cursor):
    cursor.execute("SELECT CAST(? AS INTEGER) IS NULL AS missing", (None,))

    assert cursor.fetchall() == [(True,)]


def test_a_query_with_many_rows_of_parameters_gives_all_their_rows(cursor):
    cursor.execute("SELECT b FROM t WHERE a = ?", pa.record_batch({"a": [2, 1, 7]}))

    assert cursor.fetchall() == [("two",), ("one",)]


def test_a_change_with_parameters(cursor, catalog):
    cursor.execute("INSERT INTO t VALUES (?, ?)", (3, "three"))

    assert cursor.rowcount == 1
    assert contents(catalog)[2:] == [(3, "three")]


def test_many_rows_of_parameters_are_one_change(cursor, catalog):
    cursor.executemany("INSERT INTO t VALUES (?, ?)", [(n, str(n)) for n in range(10, 500)])

    assert cursor.rowcount == 490
    assert catalog.executed == ["INSERT INTO t VALUES (?, ?)"]
    assert len(contents(catalog)) == 492


def test_batches_of_parameters_are_joined(cursor, catalog):
    batches = [pa.record_batch({"a": [n], "b": [str(n)]}) for n in (8, 9)]
    cursor.executemany(
        "INSERT INTO t VALUES (?, ?)", pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    )

    assert contents(catalog)[2:] == [(8, "8"), (9, "9")]


def test_many_rows_of_parameters_are_all_stored_or_none(cursor, catalog):
    with pytest.raises(OperationalError, match="Duplicate key"):
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(3, "three"), (1, "again")])

    assert len(contents(catalog)) == 2


def test_no_rows_of_parameters_are_no_change(server, catalog):
    asked = descriptor("CommandStatementUpdate", (1, "INSERT INTO t VALUES (?, ?)"))
    columns = pa.schema([("a", pa.int32()), ("b", pa.string())])
    with flight.connect(server.location) as client:
        writer, results = client.do_put(asked, columns, OPTIONS)
        with writer:
            writer.done_writing()
            answer = results.read().to_pybytes()

    assert decoded(answer) == {1: 0}
    assert catalog.executed == []


@pytest.mark.parametrize("values", [(), (1, 2)])
def test_too_few_or_too_many_parameters_are_refused(cursor, values):
    with pytest.raises(ProgrammingError, match="INVALID_ARGUMENT"):
        cursor.execute("SELECT b FROM t WHERE a = ?", values)


def test_large_parameters_of_a_query_are_refused_with_the_remedy(cursor):
    with pytest.raises(Exception, match="more than 1 MiB: ingest them into a table"):
        cursor.execute("SELECT ? AS x", ("x" * 1_100_000,))


def test_a_prepared_statement_is_described(raw):
    (answer,) = raw.action(
        "CreatePreparedStatement",
        command("ActionCreatePreparedStatementRequest", (1, "SELECT a FROM t WHERE b = ?")),
    )
    found = unwrapped(answer, "ActionCreatePreparedStatementResult")

    assert pa.ipc.read_schema(pa.py_buffer(found[2])).names == ["a"]
    assert len(pa.ipc.read_schema(pa.py_buffer(found[3]))) == 1
    closing = command("ActionClosePreparedStatementRequest", (1, found[1]))
    assert raw.action("ClosePreparedStatement", closing) == []


def test_a_prepared_change_has_no_columns_by_which_jdbc_tells_it_from_a_query(raw, catalog):
    (answer,) = raw.action(
        "CreatePreparedStatement",
        command("ActionCreatePreparedStatementRequest", (1, "DELETE FROM t")),
    )
    found = unwrapped(answer, "ActionCreatePreparedStatementResult")
    assert 2 not in found
    assert catalog.executed == []

    (result,) = update(raw, "CommandPreparedStatementUpdate", (1, found[1]))
    assert decoded(result) == {1: 2}


# -------------------------------------------------------------------------- cancelling and sessions


def test_a_query_is_cancelled_by_its_client(cursor, catalog):
    cursor.execute(ENDLESS)
    reader = cursor.fetch_record_batch()
    assert reader.read_next_batch().num_rows == 1000
    cursor.adbc_cancel()

    assert catalog.closed.wait(20)


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_query_is_cancelled_by_another_call(raw, catalog, action):
    info = plan(raw, ENDLESS)
    stream = raw.open("DoGet", ticket_message(info.endpoints[0].ticket.ticket), timeout=20)
    next(stream), next(stream)
    body = message((1, info.serialize()))
    if action == "CancelQuery":
        body = command("ActionCancelQueryRequest", (1, info.serialize()))
    (answer,) = raw.action(action, body)

    result = decoded(answer)
    if action == "CancelQuery":
        result = unwrapped(answer, "ActionCancelQueryResult")
    assert result == {1: 1}
    with pytest.raises(grpc.RpcError) as ended:
        for _ in stream:
            pass
    assert failure_of(ended.value).code == "CANCELLED"
    assert catalog.closed.wait(20)


def test_a_query_that_does_not_run_cannot_be_cancelled(raw):
    info = plan(raw, "SELECT 1 AS x")
    (answer,) = raw.action("CancelFlightInfo", message((1, info.serialize())))

    assert decoded(answer) == {1: 3}


def test_a_session_tells_its_catalog_and_keeps_nothing(server, raw):
    with dbapi.connect(server.location, db_kwargs=LIMITS, autocommit=True) as connection:
        assert connection.adbc_current_catalog == "duck"
        connection.adbc_current_catalog = "duck"
        with pytest.raises((ProgrammingError, NotSupportedError, OperationalError)):
            connection.adbc_current_catalog = "other"

    assert raw.action("CloseSession", b"") == [message((1, 1))]


def test_a_catalog_that_runs_sql_says_so(raw):
    asked = descriptor("CommandGetSqlInfo").serialize()
    info = flight.FlightInfo.deserialize(raw.call("GetFlightInfo", asked)[0])
    rows = raw.get(info.endpoints[0].ticket.ticket).rows()
    given = {row["info_name"]: row["value"] for row in rows}

    assert [given[number] for number in (3, 4, 8, 9, 10, 11, 563)] == [
        *(False, True, 1, True, True, True, True)
    ]
    assert [given[number] for number in (501, 502, 504, 507)] == [False, False, '"', 3]
    assert [given[number] for number in (522, 528, 538, 540, 572)] == [3, 6, 7, 3, True]


def test_the_isolation_of_transactions_is_a_bigint_which_jdbc_wants(raw):
    asked = descriptor("CommandGetSqlInfo").serialize()
    info = flight.FlightInfo.deserialize(raw.call("GetFlightInfo", asked)[0])
    table = raw.get(info.endpoints[0].ticket.ticket).table.combine_chunks()
    at = table["info_name"].to_pylist().index(562)
    value = table["value"].chunk(0)[at]

    assert (value.as_py(), value.value.type) == (3, pa.int64())


def test_markers_of_times_are_announced_in_milliseconds_which_jdbc_writes_anyway(raw, catalog):
    catalog.marker_type = pa.timestamp("us", "UTC")
    (answer,) = raw.action(
        "CreatePreparedStatement",
        command("ActionCreatePreparedStatementRequest", (1, "SELECT a FROM t WHERE b = ?")),
    )
    markers = unwrapped(answer, "ActionCreatePreparedStatementResult")[3]
    assert pa.ipc.read_schema(pa.py_buffer(markers)).types == [pa.timestamp("ms", "UTC")]
