"""Limits on what is asked other than rows: actions and listings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.server.catalogs import numbers
from tests.server.raw_client import RawClient, action_message, path
from tests.server.strangers import FLIGHT, Stranger
from tests.server.test_limits import ADA, BOB, NOTHING, in_use, with_tokens
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server import Server
from sparkport.service.limits import Limits


class Slow:
    """An action that goes on until it is told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __call__(self, ctx: sp.Context, body: bytes) -> Iterator[bytes]:
        yield b"begun"
        self.end.wait(30)


@pytest.fixture
def slow(start) -> Iterator[tuple[Callable[[Limits], Server], Slow]]:
    action = Slow()

    def serve(limits: Limits) -> Server:
        builder = sp.CatalogBuilder("cat")
        builder.schema("s").table("t", numbers())
        builder.action(name="slow")(action)
        server: Server = start(builder, with_tokens(limits))
        return server

    yield serve, action
    action.end.set()


LISTINGS = ("ListFlights", "ListActions", "GetFlightInfo", "GetSchema")


@pytest.mark.parametrize("method", ["DoAction", *LISTINGS])
def test_a_principal_has_only_so_many_actions_and_listings(slow, connect, method):
    serve, action = slow
    server = serve(Limits(max_actions_per_principal=2))
    client = connect(server)
    calls = [client.open("DoAction", action_message("slow", b""), ADA) for _ in range(2)]
    for call in calls:
        next(call)
    message = {"DoAction": action_message("list_schemas", {"catalog_name": ""}), "ListActions": b"", "ListFlights": b""}
    request = message.get(method, path("s", "t").serialize())

    failure = client.failure(method, request, ADA)

    assert failure.code == "RESOURCE_EXHAUSTED"
    assert "you have 2 actions and listings under way, and 2 are all that is allowed" in failure.message
    assert "(max_actions_per_principal)" in failure.message
    assert client.call(method, request, BOB)
    action.end.set()
    for call in calls:
        assert list(call) == []
    assert client.call(method, request, ADA)
    assert eventually(lambda: in_use(server) == NOTHING)


@pytest.mark.parametrize("method", ["DoAction", "DoGet", *LISTINGS])
def test_who_has_a_token_and_says_nothing_takes_a_place_of_its_own(slow, connect, method):
    server = slow[0](Limits(max_actions_per_principal=2))
    with Stranger(server.location) as silent:
        for _ in range(2):
            silent.open(FLIGHT + method, ADA)
        assert eventually(lambda: server._service.keeper.of_each("actions") == {"ada": 2})
        assert connect(server).action_failure("list_schemas", {"catalog_name": ""}, ADA).code == "RESOURCE_EXHAUSTED"
        assert connect(server).list_schemas("cat", BOB)
    assert eventually(lambda: in_use(server) == NOTHING)


def test_an_exchange_that_says_nothing_takes_a_place_too(slow):
    server = slow[0](Limits())
    with RawClient(server.location) as client:
        handle = client.list_schemas("cat", ADA)["s"]["t"].descriptor.path
    with Stranger(server.location) as silent:
        silent.open(FLIGHT + "DoExchange", ADA)
        silent.open(FLIGHT + "DoExchange", {"airport-flight-path": b"/".join(handle).decode()})
        assert eventually(lambda: server._service.keeper.of_each("exchanges") == {"ada": 2})
    assert eventually(lambda: in_use(server) == NOTHING)
