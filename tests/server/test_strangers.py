"""Callers without a token take what they can get, and do not hinder callers with a token."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, failure_of, path, ticket_message
from tests.server.strangers import FLIGHT, HEALTH, SOON, Stranger, announced
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server import Server, doorstep
from sparkport.server.doorstep import Doorstep
from sparkport.testing import DuckDBClient, ServerError
from sparkport.wire.headers import RequestHeaders

WANTS_TOKEN = ("DoPut", "Handshake", "ListFlights", "ListActions", "GetFlightInfo", "GetSchema")
WITH_HANDLES = ("DoExchange", "DoGet", "DoAction")
METHODS = (
    *(FLIGHT + method for method in (*WITH_HANDLES, *WANTS_TOKEN)),
    HEALTH + "Check",
    HEALTH + "Watch",
)
ADA = {"authorization": "Bearer a"}
MEGABYTE = 1024 * 1024
COLUMNS = pa.schema([("a", pa.int64())])


@pytest.fixture
def server(start) -> Server:
    builder = sp.CatalogBuilder("cat", sp.MemorySettings(statistics_rows=0))
    builder.schema("s").table("t", pa.table({"a": [1, 2, 3]}))
    settings = sp.ServerSettings(authenticate=sp.TokenAuthenticator({"a": "ada"}))
    server: Server = start(builder, settings)
    return server


@pytest.fixture
def stranger(server: Server) -> Iterator[Stranger]:
    with Stranger(server.location) as stranger:
        yield stranger


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller is cut off in favour of others."""
    monkeypatch.setattr(doorstep, "_PATIENCE_SECONDS", SOON)


def strangers_in(server: Server) -> int:
    assert server._door is not None
    return server._door.doorstep.occupied


def reads(server: Server, **tokens: Any) -> bool:
    with DuckDBClient(server.location, "cat", timeout=30, **tokens) as client:
        return client.scan("s", "t").to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]


# -- callers that say nothing


@pytest.mark.parametrize(
    "methods", [[FLIGHT + "DoExchange"], [FLIGHT + "DoAction"], METHODS], ids=["one", "two", "all"]
)
def test_two_thousand_silent_strangers_keep_nobody_waiting(server, methods, record_property):
    with ExitStack() as stack:
        strangers = [stack.enter_context(Stranger(server.location)) for _ in range(10)]
        for number in range(2000):
            strangers[number % 10].open(methods[number // 10 % len(methods)])

        for tokens in ({"token": "a"}, {"attach_token": "a"}):
            began = time.perf_counter()
            assert reads(server, **tokens)
            record_property(f"seconds with {next(iter(tokens))}", time.perf_counter() - began)

        assert strangers_in(server) <= 64
        assert eventually(
            lambda: sum(len(stranger.open_calls) for stranger in strangers) <= 64 + 32
        )


@pytest.mark.parametrize("method", [FLIGHT + method for method in WANTS_TOKEN])
def test_who_needs_a_token_and_brings_none_is_refused_before_anything_is_sent(
    server, stranger, method
):
    stranger.open(method)

    stranger.wait_until_open_calls(0)


@pytest.mark.parametrize("action", ["list_schemas", "drop_table", "create_transaction"])
def test_so_is_an_action_that_needs_one(stranger, action):
    stranger.open(FLIGHT + "DoAction", {"airport-action-name": action})

    stranger.wait_until_open_calls(0)


def test_a_token_that_nobody_knows_is_refused_before_anything_is_sent(server, stranger):
    for method in METHODS[:-2]:
        stranger.open(method, {"authorization": "Bearer wrong"})

    stranger.wait_until_open_calls(0)
    assert strangers_in(server) == 0


@pytest.mark.parametrize(
    "method", [*(FLIGHT + method for method in WITH_HANDLES), HEALTH + "Check", HEALTH + "Watch"]
)
def test_who_says_nothing_is_cut_off(monkeypatch, server, stranger, method):
    stranger.open(method)
    if method.startswith(FLIGHT):
        assert eventually(lambda: strangers_in(server) == 1)

    monkeypatch.setattr(doorstep, "LONGEST_SECONDS", 0.0)
    stranger.wait_until_open_calls(0)
    assert strangers_in(server) == 0


def test_who_sends_a_message_byte_by_byte_is_cut_off(monkeypatch, server, stranger):
    monkeypatch.setattr(doorstep, "LONGEST_SECONDS", 1.0)
    call = stranger.open(FLIGHT + "DoExchange")
    stop = threading.Event()

    def trickle() -> None:
        stranger.send(call, announced(1000))
        while call in stranger.open_calls and not stop.wait(0.05):
            stranger.send(call, b"\0")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        stranger.wait_until_open_calls(0)
    finally:
        stop.set()
        thread.join(SOON)


def test_a_first_message_that_does_not_say_who_it_is_is_the_last(server, stranger):
    call = stranger.open(FLIGHT + "DoExchange")
    stranger.send(call, announced(0))

    stranger.wait_until_open_calls(0)


def test_only_so_many_may_wait_and_they_do_not_stop_others_for_long(patient, server, connect):
    """A caller with only a ticket waits with them. DuckDB does not: it sends handles in headers."""
    client = connect(server)
    (endpoint,) = client.endpoints(path("s", "t"), headers=ADA)
    ticket = ticket_message(endpoint.ticket.ticket)
    with Stranger(server.location) as stranger:
        for _ in range(100):
            stranger.open(FLIGHT + "DoGet")
        stranger.wait_until_open_calls(64)

        failure = client.failure("DoGet", ticket)
        assert (failure.code, "send the token" in failure.message) == ("RESOURCE_EXHAUSTED", True)
        assert client.call("DoGet", ticket, ADA)
        with DuckDBClient(server.location, "cat", attach_token="a", timeout=30) as known:
            assert known.insert("s", "t", pa.table({"a": [4]})).total == 1
            assert known.count("s", "t") == 4
            assert known.statistics("s", "t", "a") is not None
        assert len(stranger.open_calls) == 64
    assert eventually(lambda: strangers_in(server) == 0)
    assert client.call("DoGet", ticket)


def test_who_keeps_others_waiting_is_cut_off_soon(server, connect):
    client = connect(server)
    (endpoint,) = client.endpoints(path("s", "t"), headers=ADA)
    with Stranger(server.location) as stranger:
        for _ in range(20):
            stranger.open(FLIGHT + "DoGet")
        assert eventually(lambda: strangers_in(server) > 0)
        for _ in range(20):
            assert client.call("DoGet", ticket_message(endpoint.ticket.ticket))
        stranger.wait_until_open_calls(2)


def test_health_is_told_although_strangers_ask_for_it_and_say_no_more(server, connect):
    stub = health_pb2_grpc.HealthStub(connect(server).channel)
    with Stranger(server.location) as stranger:
        for number in range(20):
            stranger.open(HEALTH + ("Check", "Watch")[number % 2])
        for _ in range(3):
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=SOON)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_many_connections_that_nobody_uses_are_no_hindrance(server):
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(Stranger(server.location))
        assert reads(server, token="a")


def test_connections_leave_files_to_those_who_read_them(monkeypatch, start):
    monkeypatch.setattr("sparkport.server.options._most_connections", lambda: 3)
    server = start(sp.CatalogBuilder("cat"))

    def answers() -> bool:
        try:
            with RawClient(server.location) as client:
                return bool(client.call("ListActions", b""))
        except grpc.RpcError as error:
            return failure_of(error).code != "UNAVAILABLE"

    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(Stranger(server.location))
        assert eventually(lambda: not answers())
    assert eventually(answers)


def test_who_connects_and_says_nothing_at_all_is_let_go(monkeypatch, start):
    monkeypatch.setattr("sparkport.server.options._HANDSHAKE_SECONDS", 0.2)
    server = start(sp.CatalogBuilder("cat"))
    host, port = server.location.removeprefix("grpc://").split(":")
    with socket.create_connection((host, int(port)), timeout=SOON) as connection:
        while connection.recv(1000):
            pass


# -- callers that say much


@pytest.mark.parametrize("method", WITH_HANDLES)
def test_of_a_stranger_only_a_small_message_is_read(server, connect, method):
    client = connect(server)
    large = b"\0" * (MEGABYTE + 1)

    failure = client.failure(method, large)
    assert (failure.code, "send the token" in failure.message) == ("RESOURCE_EXHAUSTED", True)
    assert client.failure(method, large[1:]).code in ("UNAUTHENTICATED", "INVALID_ARGUMENT")
    assert client.failure(method, large, ADA).code == "INVALID_ARGUMENT"


def test_only_a_few_large_messages_of_strangers_are_received_at_once(patient, server):
    """Only gRPC knows the memory of an incomplete message, so few are received at once."""
    with ExitStack() as stack:
        strangers = [stack.enter_context(Stranger(server.location)) for _ in range(20)]
        for stranger in strangers:
            stranger.send(
                stranger.open(FLIGHT + "DoExchange"), announced(200 * MEGABYTE) + b"\0" * 1000
            )
        assert eventually(lambda: strangers_in(server) == 20)
        assert len(server._door.doorstep._reading) == 2


def test_a_known_caller_sends_large_messages_with_its_token_or_what_it_was_handed_out(server):
    for tokens in ({"token": "a"}, {"attach_token": "a"}):
        with DuckDBClient(server.location, "cat", timeout=60, **tokens) as client:  # type: ignore[arg-type]
            rows = pa.table({"a": range(300_000)})
            assert client.insert("s", "t", rows).total == 300_000


# -- callers that show a handle of another caller


def handed_out(client: RawClient) -> dict[str, str]:
    (info,) = client.list_schemas("cat", ADA)["s"].values()
    return {"airport-flight-path": "/".join(element.decode() for element in info.descriptor.path)}


def test_a_descriptor_in_a_header_lets_nobody_do_what_needs_a_token(server, connect):
    client = connect(server)
    shown = handed_out(client)

    assert (
        client.action_failure("list_schemas", {"catalog_name": "cat"}, shown).code
        == "UNAUTHENTICATED"
    )
    for method in WANTS_TOKEN:
        assert client.failure(method, b"", shown).code == "UNAUTHENTICATED"


def test_nor_does_it_stand_for_the_one_in_the_message(server, connect):
    client = connect(server)
    plain = aimed(flight_data(COLUMNS, [{"a": 4}]), path("s", "t"), "insert")

    failure = client.failure("DoExchange", plain.messages, {**plain.headers, **handed_out(client)})

    assert failure.code == "UNAUTHENTICATED"
    assert reads(server, token="a")


def test_one_that_was_altered_is_none(patient, server, stranger, connect):
    shown = handed_out(connect(server))["airport-flight-path"]
    for altered in (
        shown[:-1] + ("0" if shown[-1] != "0" else "1"),
        shown.replace("/s/", "/x/"),
        "sparkport/",
        "a/b",
    ):
        stranger.open(FLIGHT + "DoExchange", {"airport-flight-path": altered})

    assert eventually(lambda: strangers_in(server) == 4)


def test_a_transaction_tells_who_has_begun_it_only_in_its_session(server, connect):
    ours = {**ADA, "airport-client-session-id": "ours"}
    (answer,) = connect(server).action("create_transaction", {"catalog_name": "cat"}, ours)
    begun = msgpack.unpackb(answer)["identifier"]
    transactions = server._service.transactions

    bearer = transactions.bearer_in(RequestHeaders(transaction_id=begun, session_id="ours"))
    assert bearer is not None
    assert bearer.name == "ada"
    for wrong in (
        RequestHeaders(transaction_id=begun, session_id="another"),
        RequestHeaders(transaction_id=begun.replace("~", "~0"), session_id="ours"),
        RequestHeaders(transaction_id="@~.", session_id="ours"),
        RequestHeaders(session_id="ours"),
    ):
        assert transactions.bearer_in(wrong) is None


# -- the doorstep itself


def test_nobody_is_cut_off_for_time_in_which_the_server_itself_stood_still(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(doorstep, "_monotonic", lambda: clock[0])
    step = Doorstep(2, 1)
    place = step.enter()
    assert place is not None
    reasons: list[str] = []
    place.cut = reasons.append
    step.begin(place)

    clock[0] += 60
    step.cut_off_late(stood_still=True)
    clock[0] += 10
    step.cut_off_late()
    assert reasons == []
    clock[0] += 1
    step.cut_off_late()
    assert reasons == ["the caller has not said who it is for 10 s"]
    assert step.occupied == 0


def test_there_is_room_for_so_many_and_again_when_one_has_left():
    step = Doorstep(2, 1)
    first, second = step.enter(), step.enter()
    assert first is not None
    assert second is not None
    assert step.enter() is None
    first.leave()
    first.leave()
    assert step.enter() is not None
    assert step.enter() is None


def test_what_is_refused_at_the_door_is_noted_like_everything_else(server, stranger):
    stranger.open(FLIGHT + "DoPut")
    stranger.wait_until_open_calls(0)

    def codes() -> list[tuple[str, str]]:
        assert server._watching is not None
        return [(work.rpc, work.code) for work in server._watching.activity.ended()]

    assert eventually(lambda: codes() == [("DoPut", "UNAUTHENTICATED")])


def test_when_too_many_are_refused_they_are_told_at_once(monkeypatch, server, stranger):
    monkeypatch.setattr(server._door._refusing_thread, "_line", threading.Semaphore(0))
    for _ in range(10):
        stranger.open(FLIGHT + "DoPut")

    stranger.wait_until_open_calls(0)
    assert reads(server, token="a")


def test_the_message_of_a_refusal_says_what_to_do(server, connect):
    client: Any = connect(server)
    with pytest.raises(grpc.RpcError, match="CREATE SECRET"):
        client.call("ListFlights", b"")
    with (
        pytest.raises(ServerError, match="CREATE SECRET"),
        DuckDBClient(server.location, "cat", timeout=30) as duckdb,
    ):
        duckdb.scan("s", "t")
