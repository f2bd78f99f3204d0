"""Flight SQL's transactions around SQL, and handles and tickets in the wrong hands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from adbc_driver_manager import OperationalError, ProgrammingError
from tests.server.protobuf import command, decoded, message, unwrapped
from tests.server.raw_client import RawClient, ticket_message
from tests.server.sql_catalog import DuckCatalog, DuckStatement

import sparkport as sp
from sparkport.catalog import Context
from sparkport.wire.signing import Signer
from sparkport.wire.tickets import QueryTicket, ResultTicket, encode_ticket

LIMITS = {
    DatabaseOptions.TIMEOUT_QUERY.value: "20",
    DatabaseOptions.TIMEOUT_FETCH.value: "20",
    DatabaseOptions.TIMEOUT_UPDATE.value: "20",
    "adbc.flight.sql.rpc.timeout_seconds.connect": "20",
}
SECRET = b"a secret of the tests, long enough"
ADA, BOB = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}


@pytest.fixture
def catalog() -> DuckCatalog:
    catalog = DuckCatalog()
    catalog.database.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
    return catalog


@pytest.fixture
def connection(catalog, start) -> Iterator[dbapi.Connection]:
    """A connection that does not commit by itself."""
    server = start([catalog])
    with dbapi.connect(server.location, db_kwargs=LIMITS) as connection:
        yield connection


@pytest.fixture
def raw(catalog, start) -> Iterator[RawClient]:
    """A client of a server that knows ada and bob."""
    tokens = sp.TokenAuthenticator({"a": "ada", "b": "bob"})
    server = start([catalog], sp.ServerSettings(authenticate=tokens, secret=SECRET))
    with RawClient(server.location) as client:
        yield client


def count(catalog: DuckCatalog) -> int:
    (found,) = catalog.database.cursor().execute("SELECT count(*) FROM t").fetchall()[0]
    return int(found)


# ------------------------------------------------------------------------------------ transactions


def test_changes_are_seen_when_they_are_committed(connection, catalog):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.executemany("INSERT INTO t VALUES (?)", [(2,), (3,)])
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(3,)]
        assert count(catalog) == 0
        connection.commit()

    assert count(catalog) == 3


def test_changes_are_gone_when_they_are_rolled_back(connection, catalog):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        connection.rollback()
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(0,)]

    assert count(catalog) == 0


def test_a_change_that_fails_ends_its_transaction(connection, catalog):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(OperationalError, match="uplicate key"):
            cursor.execute("INSERT INTO t VALUES (1), (1)")
        with pytest.raises(OperationalError, match=r"is not active \(state: aborted\)"):
            cursor.execute("SELECT count(*) FROM t")
        connection.rollback()
        cursor.execute("INSERT INTO t VALUES (2)")
        connection.commit()

    assert count(catalog) == 1


def test_a_transaction_is_not_committed_in_the_midst_of_a_change(raw, catalog, monkeypatch):
    begun, released = threading.Event(), threading.Event()
    execute = DuckStatement.execute

    def slow(self: DuckStatement, ctx: Context) -> int:
        begun.set()
        assert released.wait(20)
        return execute(self, ctx)

    monkeypatch.setattr(DuckStatement, "execute", slow)
    (answer,) = raw.action("BeginTransaction", command("ActionBeginTransactionRequest"), ADA)
    transaction = unwrapped(answer, "ActionBeginTransactionResult")[1]
    commit = command("ActionEndTransactionRequest", (1, transaction), (2, 1))
    change = descriptor("CommandStatementQuery", (1, "INSERT INTO t VALUES (1)"), (2, transaction))
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(raw.call, "GetFlightInfo", change, ADA)
        assert begun.wait(20)
        refused = raw.action_failure("EndTransaction", commit, ADA)
        assert (refused.code, "still running" in refused.message) == ("ABORTED", True)
        released.set()
        made.result(20)
    assert raw.action("EndTransaction", commit, ADA) == []

    assert count(catalog) == 1


def test_a_statement_that_could_not_be_analysed_leaves_its_transaction(connection, catalog):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(ProgrammingError, match="SELEC"):
            cursor.execute("SELEC")
        connection.commit()

    assert count(catalog) == 1


def test_a_transaction_belongs_to_who_began_it(raw):
    (answer,) = raw.action("BeginTransaction", command("ActionBeginTransactionRequest"), ADA)
    transaction = unwrapped(answer, "ActionBeginTransactionResult")[1]
    asked = descriptor("CommandStatementQuery", (1, "SELECT 1 AS x"), (2, transaction))

    assert raw.call("GetFlightInfo", asked, ADA)
    assert raw.failure("GetFlightInfo", asked, BOB).code == "FAILED_PRECONDITION"
    end = command("ActionEndTransactionRequest", (1, transaction), (2, 1))
    assert raw.action_failure("EndTransaction", end, BOB).code == "FAILED_PRECONDITION"
    assert raw.action("EndTransaction", end, ADA) == []
    failure = raw.failure("GetFlightInfo", asked, ADA)
    assert failure.code == "FAILED_PRECONDITION"
    assert "state: committed" in failure.message


# ----------------------------------------------------------------------------- handles and tickets


def descriptor(name: str, *fields: tuple[int, str | bytes | int]) -> bytes:
    encoded: bytes = flight.FlightDescriptor.for_command(command(name, *fields)).serialize()
    return encoded


def prepare(raw: RawClient, text: str, headers: dict[str, str]) -> bytes:
    body = command("ActionCreatePreparedStatementRequest", (1, text))
    (answer,) = raw.action("CreatePreparedStatement", body, headers)
    handle = unwrapped(answer, "ActionCreatePreparedStatementResult")[1]
    assert isinstance(handle, bytes)
    return handle


def uses_of(handle: bytes) -> list[tuple[str, bytes | list[bytes]]]:
    """The calls that take a handle of a prepared statement."""
    asked = descriptor("CommandPreparedStatementQuery", (1, handle))
    change = descriptor("CommandPreparedStatementUpdate", (1, handle))
    closing = command("ActionClosePreparedStatementRequest", (1, handle))
    return [
        ("GetFlightInfo", asked),
        ("GetSchema", asked),
        ("DoPut", [message((1, asked))]),
        ("DoPut", [message((1, change))]),
        ("DoAction", flight.Action("ClosePreparedStatement", closing).serialize()),
    ]


def test_a_handle_of_somebody_else_is_refused(raw):
    for method, sent in uses_of(prepare(raw, "SELECT 1 AS x", ADA)):
        assert raw.failure(method, sent, BOB).code == "PERMISSION_DENIED"


def test_a_handle_without_a_token_is_refused(raw):
    for method, sent in uses_of(prepare(raw, "SELECT 1 AS x", ADA)):
        assert raw.failure(method, sent).code == "UNAUTHENTICATED"


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"SELECT 1"])
def test_a_forged_handle_is_refused(raw, damage):
    for method, sent in uses_of(damage):
        failure = raw.failure(method, sent, ADA)
        assert failure.code == "INVALID_ARGUMENT"
        assert "prepare the statement again" in failure.message


def test_an_altered_handle_is_refused(raw, catalog):
    handle = prepare(raw, "DELETE FROM t WHERE a = 1", ADA).replace(b"a = 1", b"a > 1")
    for method, sent in uses_of(handle):
        assert raw.failure(method, sent, ADA).code == "INVALID_ARGUMENT"

    assert catalog.executed == []


def test_a_handle_is_no_ticket_and_a_ticket_no_handle(raw):
    handle = prepare(raw, "SELECT 1 AS x", ADA)
    assert raw.failure("DoGet", ticket_message(handle), ADA).code == "INVALID_ARGUMENT"

    ticket = encode_ticket(ResultTicket(1, sp.Identity("ada")), Signer(SECRET))
    for method, sent in uses_of(ticket):
        assert raw.failure(method, sent, ADA).code == "INVALID_ARGUMENT"


def ticket_for(identity: sp.Identity) -> bytes:
    ticket = QueryTicket("duck", "SELECT 1", "", "trace", bearer=identity)
    return encode_ticket(ticket, Signer(SECRET))


def test_a_ticket_stands_for_a_token_until_it_expires(raw):
    asked = descriptor("CommandStatementQuery", (1, "SELECT 1 AS x"))
    info = flight.FlightInfo.deserialize(raw.call("GetFlightInfo", asked, ADA)[0])
    ticket = info.endpoints[0].ticket.ticket

    assert raw.get(ticket).rows() == [{"x": 1}]
    assert raw.failure("DoGet", ticket_message(ticket), BOB).code == "PERMISSION_DENIED"
    expired = ticket_for(sp.Identity("ada", expires=1.0))
    assert raw.failure("DoGet", ticket_message(expired)).code == "UNAUTHENTICATED"
    forged = ticket[:-3] + b"bob"
    assert raw.failure("DoGet", ticket_message(forged), ADA).code == "INVALID_ARGUMENT"


def test_a_query_of_somebody_else_cannot_be_cancelled(raw):
    asked = descriptor("CommandStatementQuery", (1, "SELECT 1 AS x"))
    info = raw.call("GetFlightInfo", asked, ADA)[0]

    assert raw.action_failure("CancelFlightInfo", message((1, info)), BOB).code == (
        "PERMISSION_DENIED"
    )
    (answer,) = raw.action("CancelFlightInfo", message((1, info)), ADA)
    assert decoded(answer) == {1: 3}


def test_a_catalog_that_is_gone_is_not_replaced_by_another(start):
    server = start([DuckCatalog("first"), DuckCatalog("second")])
    with RawClient(server.location) as raw:
        handle = prepare(raw, "SELECT 1 AS x", {"airport-catalog": "second"})
        server.remove_catalog("second")
        failure = raw.failure(
            "GetFlightInfo", descriptor("CommandPreparedStatementQuery", (1, handle))
        )

    assert failure.code == "NOT_FOUND"
    assert "'second' is no longer being served" in failure.message


# ----------------------------------------------------------------------------------------- garbage

ACTIONS = {
    "CreatePreparedStatement": command("ActionCreatePreparedStatementRequest", (1, "SELECT 1")),
    "ClosePreparedStatement": command("ActionClosePreparedStatementRequest", (1, b"handle")),
    "BeginTransaction": command("ActionBeginTransactionRequest"),
    "EndTransaction": command("ActionEndTransactionRequest", (1, "t"), (2, 1)),
    "CancelQuery": command("ActionCancelQueryRequest", (1, b"info")),
    "CancelFlightInfo": message((1, b"info")),
    "SetSessionOptions": message((1, message((1, "catalog"), (2, message((1, "x")))))),
}


@pytest.mark.parametrize("name", list(ACTIONS))
def test_the_body_of_an_action_that_cannot_be_read_is_a_bad_request(raw, name):
    for garbage in (b"\xff", b"\x0a\xff", message((1, 5)), ACTIONS[name][:-1] + b"\xff"):
        assert raw.action_failure(name, garbage, ADA).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "sent",
    [
        command("CommandStatementUpdate", (1, b"\xff\xfe")),
        command("CommandStatementUpdate", (1, 5)),
        command("CommandStatementUpdate"),
        command("CommandStatementUpdate", (1, "SELECT 1"), (2, b"\xff")),
        command("CommandStatementIngest", (2, "t")),
        command("CommandStatementIngest", (1, b"\x08\x01\x10\x01")),
        command("CommandStatementIngest", (1, b"\x08\x07\x10\x01"), (2, "t")),
        command("CommandStatementIngest", (1, b"\xff"), (2, "t")),
        command("CommandStatementIngest", (1, 1), (2, "t")),
        command("CommandStatementIngest", (1, b"\x08\x01\x10\x01"), (2, "t"), (5, "yes")),
        command("CommandGetTables"),
        command("CommandStatementUpdate", (1, "SELECT 1"))[:-1],
    ],
)
def test_a_command_for_doput_that_cannot_be_read_is_a_bad_request(raw, sent):
    asked = flight.FlightDescriptor.for_command(sent).serialize()

    assert raw.failure("DoPut", [message((1, asked))], ADA).code == "INVALID_ARGUMENT"


def test_parameters_that_are_no_arrow_are_a_bad_request(raw):
    handle = prepare(raw, "SELECT ? AS x", ADA)
    asked = descriptor("CommandPreparedStatementQuery", (1, handle))
    columns = pa.schema([("x", pa.int64())]).serialize().to_pybytes()[8:]

    for messages in (
        [message((1, asked), (2, b"nonsense"))],
        [message((1, asked), (2, columns)), message((2, b"nonsense"), (1000, b"x"))],
    ):
        assert raw.failure("DoPut", messages, ADA).code == "INVALID_ARGUMENT"


def test_options_of_a_session_are_refused_one_by_one(raw):
    body = message(
        (1, message((1, "catalog"), (2, message((1, "duck"))))),
        (1, message((1, "schema"), (2, message((1, "s"))))),
    )
    (answer,) = raw.action("SetSessionOptions", body, ADA)

    assert answer == message((1, message((1, "schema"), (2, message((1, 1))))))
    assert raw.action("GetSessionOptions", b"", ADA) == [
        message((1, message((1, "catalog"), (2, message((1, "duck"))))))
    ]
