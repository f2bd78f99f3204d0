"""A statement by Flight SQL that is cancelled, however that is done, stops and leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import AdbcStatusCode, Error
from tests.server.protobuf import command, decoded, message
from tests.server.raw_client import SERVICE, RawClient, failure_of, ticket_message
from tests.spark.lake_tables import create, find, folder, insert, values
from tests.spark.running import Runner
from tests.spark.spark_jobs import running, wait_for

from sparkport.catalog import Constraints
from sparkport.server import Server
from sparkport.spark import LakeCatalog

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
ENDLESS = "SELECT count(*) FROM range(0, 1000000000000) WHERE sha2(cast(id AS STRING), 512) = 'x'"
_SLOW = "SELECT id + 100 AS id, sha2(cast(id AS STRING), 512) AS name FROM range(0, 1000000000)"
CHANGE = "INSERT INTO {}.t " + _SLOW
"""More than could be written while a test waits."""


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture(autouse=True)
def table(lake: LakeCatalog, namespace: str) -> None:
    create(lake, namespace, "t", COLUMNS, constraints=Constraints(primary_key=("id",)))
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")


@pytest.fixture
def run(lake: LakeCatalog, namespace: str) -> Runner:
    return Runner(lake, namespace)


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    with dbapi.connect(server.location, autocommit=True) as connection:
        yield connection


@pytest.fixture
def raw(server: Server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


def statement(name: str, text: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(command(name, (1, text)))


def plan(raw: RawClient, text: str) -> flight.FlightInfo:
    asked = statement("CommandStatementQuery", text).serialize()
    return flight.FlightInfo.deserialize(raw.call("GetFlightInfo", asked)[0])


class Attempt:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self.error: Any = None
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error

    def ended(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.error is not None
        return self.error


def expect_works(lake: LakeCatalog) -> None:
    assert wait_for(lambda: running(lake.spark) > 0, 60), "Spark runs no job"


def expect_written(run: Runner, before: Any) -> None:
    assert wait_for(lambda: run.left("t") != before, 60), "Spark writes no file"


def expect_nothing_left(lake: LakeCatalog, namespace: str, run: Runner, before: Any) -> None:
    assert wait_for(lambda: running(lake.spark) == 0, 60), "Spark goes on"
    assert wait_for(lambda: run.left("t") == before, 60), "a branch or a file is left"
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2]
    assert wait_for(lambda: not list(folder(find(lake, namespace, "t")).rglob("*.tmp")))


def test_a_query_is_cancelled_by_its_cursor(connection, lake):
    with connection.cursor() as cursor:

        def fetch() -> None:
            cursor.execute(ENDLESS)
            cursor.fetchall()

        attempt = Attempt(fetch)
        expect_works(lake)
        cursor.adbc_cancel()
        error = attempt.ended()
        assert isinstance(error, Error)
        assert error.status_code is AdbcStatusCode.CANCELLED
    assert wait_for(lambda: running(lake.spark) == 0, 60)


@pytest.mark.parametrize("call", ["execute", "executemany"])
def test_a_change_is_cancelled_by_its_cursor(connection, lake, namespace, run, call):
    """`execute` changes by GetFlightInfo, and `executemany` by DoPut."""
    before = run.left("t")
    with connection.cursor() as cursor:
        text = CHANGE.format(namespace)
        if call == "execute":
            attempt = Attempt(lambda: cursor.execute(text))
        else:
            attempt = Attempt(lambda: cursor.executemany(f"{text} WHERE id <> ?", [(3,)]))
        expect_written(run, before)
        cursor.adbc_cancel()
        error = attempt.ended()
        assert isinstance(error, Error)
        assert error.status_code is AdbcStatusCode.CANCELLED
    expect_nothing_left(lake, namespace, run, before)


def test_a_change_in_a_transaction_is_cancelled_and_ends_it(server, lake, namespace, run):
    before = run.left("t")
    with dbapi.connect(server.location) as connection, connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {namespace}.t WHERE id = 1")
        attempt = Attempt(lambda: cursor.execute(CHANGE.format(namespace)))
        expect_works(lake)
        cursor.adbc_cancel()
        assert isinstance(attempt.ended(), Error)
        assert wait_for(lambda: is_ended(cursor, namespace), 60), "the transaction goes on"
        with pytest.raises(Error, match="not active"):
            connection.commit()
    expect_nothing_left(lake, namespace, run, before)


def is_ended(cursor: Any, namespace: str) -> bool:
    """Whether the transaction of a cursor has ended: a while after the client was told so."""
    try:
        cursor.execute(f"SELECT id FROM {namespace}.t")
        cursor.fetchall()
    except Error as error:
        return "not active" in str(error)
    return False


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_query_is_cancelled_by_another_call(raw, lake, action):
    info = plan(raw, ENDLESS)
    stream = raw.open("DoGet", ticket_message(info.endpoints[0].ticket.ticket), timeout=100)
    attempt = Attempt(lambda: list(stream))
    expect_works(lake)
    body = message((1, info.serialize()))
    if action == "CancelQuery":
        body = command("ActionCancelQueryRequest", (1, info.serialize()))
    (answer,) = raw.action(action, body)
    if action == "CancelFlightInfo":
        assert decoded(answer) == {1: 1}
    assert failure_of(attempt.ended()).code == "CANCELLED"
    assert wait_for(lambda: running(lake.spark) == 0, 60)


def test_a_client_that_goes_away_ends_its_query(server, lake):
    with RawClient(server.location) as client:
        info = plan(client, ENDLESS)
        stream = client.open("DoGet", ticket_message(info.endpoints[0].ticket.ticket), timeout=100)
        attempt = Attempt(lambda: list(stream))
        expect_works(lake)
    attempt.ended()
    assert wait_for(lambda: running(lake.spark) == 0, 60)


@pytest.mark.parametrize("method", ["GetFlightInfo", "DoPut"])
def test_a_client_that_goes_away_ends_its_change(server, lake, namespace, run, method):
    before = run.left("t")
    text = CHANGE.format(namespace)
    with RawClient(server.location) as client:
        if method == "DoPut":
            sent = message((1, statement("CommandStatementUpdate", text).serialize()))
            attempt = Attempt(lambda: list(client.open("DoPut", sent, timeout=100)))
        else:
            asked = statement("CommandStatementQuery", text).serialize()
            call = client.channel.unary_unary(SERVICE + "GetFlightInfo")
            attempt = Attempt(lambda: call(asked, timeout=100))
        expect_written(run, before)
    attempt.ended()
    expect_nothing_left(lake, namespace, run, before)


def test_an_ingest_is_cancelled_and_leaves_no_table(connection, lake, namespace, run):
    before = run.left("t")
    may_go_on = threading.Event()
    sent = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [7], "name": ["x"]})
        sent.set()
        may_go_on.wait(60)
        yield pa.record_batch({"id": [8], "name": ["x"]})

    reader = pa.RecordBatchReader.from_batches(COLUMNS, batches())
    with connection.cursor() as cursor:
        attempt = Attempt(
            lambda: cursor.adbc_ingest("new", reader, mode="create", db_schema_name=namespace)
        )
        assert sent.wait(60)
        cursor.adbc_cancel()
        may_go_on.set()
        attempt.ended()
    assert wait_for(lambda: find(lake, namespace, "new") is None, 60), "the table is left"
    expect_nothing_left(lake, namespace, run, before)
