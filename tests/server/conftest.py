"""Servers and clients for the tests of this folder; both are gone when the test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest
from tests.server.raw_client import RawClient

from sparkport.server import Server, ServerSettings
from sparkport.server.options import Catalogs

Start: TypeAlias = Callable[..., Server]
Connect: TypeAlias = Callable[[Server], RawClient]

LOCAL = "grpc://127.0.0.1:0"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server on a free port."""
    servers: list[Server] = []

    def start(catalogs: Catalogs, settings: ServerSettings | None = None) -> Server:
        server = Server(catalogs, LOCAL, settings).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop(grace=0)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects a client to a server."""
    with ExitStack() as clients:
        yield lambda server: clients.enter_context(RawClient(server.location))


@pytest.fixture
def serve(start: Start, connect: Connect) -> Callable[..., RawClient]:
    """Starts a server and connects a client to it."""
    return lambda catalogs, settings=None: connect(start(catalogs, settings))
