"""Limits on actions, listings, and transactions that wait for their commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import grpc
import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import numbers
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, action_message, failure_of, path
from tests.server.strangers import FLIGHT, Stranger
from tests.server.test_limits import ADA, BOB, NOTHING, in_use, with_tokens
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server import Server


class Slow:
    """An action that goes on until it is released."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __call__(self, ctx: sp.Context, body: bytes) -> Iterator[bytes]:
        yield b"begun"
        self.end.wait(30)


@pytest.fixture
def slow(start) -> Iterator[tuple[Callable[..., Server], Slow]]:
    action = Slow()

    def serve(**limits: int) -> Server:
        builder = sp.CatalogBuilder("cat")
        builder.schema("s").table("t", numbers())
        builder.action(name="slow")(action)
        server: Server = start(builder, with_tokens(**limits))
        return server

    yield serve, action
    action.end.set()


LISTINGS = ("ListFlights", "ListActions", "GetFlightInfo", "GetSchema")


@pytest.mark.parametrize("method", ["DoAction", *LISTINGS])
def test_a_principal_has_only_so_many_actions_and_listings(slow, connect, method):
    serve, action = slow
    server = serve(max_actions_per_principal=2)
    client = connect(server)
    calls = [client.open("DoAction", action_message("slow", b""), ADA) for _ in range(2)]
    for call in calls:
        next(call)
    message = {
        "DoAction": action_message("list_schemas", {"catalog_name": ""}),
        "ListActions": b"",
        "ListFlights": b"",
    }
    request = message.get(method, path("s", "t").serialize())

    failure = client.failure(method, request, ADA)

    assert failure.code == "RESOURCE_EXHAUSTED"
    assert (
        "you have 2 actions and listings under way, and 2 are all that is allowed"
        in failure.message
    )
    assert "(max_actions_per_principal)" in failure.message
    assert client.call(method, request, BOB)
    action.end.set()
    for call in calls:
        assert list(call) == []
    assert client.call(method, request, ADA)
    assert eventually(lambda: in_use(server) == NOTHING)


@pytest.mark.parametrize("method", ["DoAction", "DoGet", *LISTINGS])
def test_who_has_a_token_and_says_nothing_takes_a_place_of_its_own(slow, connect, method):
    server = slow[0](max_actions_per_principal=2)
    with Stranger(server.location) as silent:
        for _ in range(2):
            silent.open(FLIGHT + method, ADA)
        assert eventually(lambda: server._service.keeper.of_each("actions") == {"ada": 2})
        assert (
            connect(server).action_failure("list_schemas", {"catalog_name": ""}, ADA).code
            == "RESOURCE_EXHAUSTED"
        )
        assert connect(server).list_schemas("cat", BOB)
    assert eventually(lambda: in_use(server) == NOTHING)


def test_an_exchange_that_says_nothing_takes_a_place_too(slow):
    server = slow[0]()
    with RawClient(server.location) as client:
        handle = client.list_schemas("cat", ADA)["s"]["t"].descriptor.path
    with Stranger(server.location) as silent:
        silent.open(FLIGHT + "DoExchange", ADA)
        silent.open(FLIGHT + "DoExchange", {"airport-flight-path": b"/".join(handle).decode()})
        assert eventually(lambda: server._service.keeper.of_each("exchanges") == {"ada": 2})
    assert eventually(lambda: in_use(server) == NOTHING)


# -- transactions

NOTES = pa.schema([("id", pa.int64())])
INSERT = b'{"operation": "insert", "schema_name": "s", "table_name": "notes"}'


class Caller:
    """A caller that inserts rows in transactions that it commits later."""

    def __init__(self, client: RawClient, token: dict[str, str]) -> None:
        self._client = client
        self._token = token

    def begin(self) -> str:
        (answer,) = self._client.action("create_transaction", {"catalog_name": "cat"}, self._token)
        identifier: str = msgpack.unpackb(answer)["identifier"]
        return identifier

    def insert(self, transaction: str) -> str:
        """The code that it ends with."""
        stream = aimed(
            flight_data(NOTES, [{"id": 1}]), flight.FlightDescriptor.for_command(INSERT), "insert"
        )
        try:
            self._client.call(
                "DoPut", stream.messages, {**self._token, "x-transaction-id": transaction}
            )
        except grpc.RpcError as error:
            self.refusal = failure_of(error).message
            return failure_of(error).code
        return "OK"

    def end(self, transaction: str, how: str) -> None:
        self._client.action(f"{how}_transaction", {"transaction_id": transaction}, self._token)


@pytest.fixture
def notes(start) -> Callable[..., Server]:
    def serve(**limits: int) -> Server:
        builder = sp.CatalogBuilder("cat")
        builder.schema("s").table("notes", NOTES.empty_table())
        server: Server = start(builder, with_tokens(**limits))
        return server

    return serve


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_a_principal_has_only_so_many_transactions_with_changes(notes, connect, how):
    server = notes(max_transactions_per_principal=2)
    ada, bob = (Caller(connect(server), token) for token in (ADA, BOB))
    first, second, third = (ada.begin() for _ in range(3))
    assert [ada.insert(each) for each in (first, first, second)] == ["OK"] * 3
    assert server._service.keeper.of_each("transactions") == {"ada": 2}

    assert ada.insert(third) == "RESOURCE_EXHAUSTED"
    assert ada.refusal == (
        "you have 2 transactions with changes that wait for a commit, and 2 are all that is "
        "allowed at once (max_transactions_per_principal): commit one, or roll it back"
    )
    assert bob.insert(bob.begin()) == "OK"

    ada.end(first, how)
    assert ada.insert(ada.begin()) == "OK"
    assert server._service.keeper.of_each("transactions") == {"ada": 2, "bob": 1}


def test_all_together_have_only_so_many_transactions_with_changes(notes, connect):
    server = notes(max_transactions=2)
    ada, bob = (Caller(connect(server), token) for token in (ADA, BOB))
    assert [caller.insert(caller.begin()) for caller in (ada, bob, bob)] == [
        "OK",
        "OK",
        "RESOURCE_EXHAUSTED",
    ]
    assert "(max_transactions)" in bob.refusal
