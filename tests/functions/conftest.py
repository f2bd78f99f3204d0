"""Servers with functions, and clients attached to them, for the time of a test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
from tests.functions.catalogs import LOCAL, SOON

import sparkport as sp
from sparkport.service import function_guard
from sparkport.testing import DuckDBClient

Serve: TypeAlias = Callable[..., DuckDBClient]
Start: TypeAlias = Callable[[sp.CatalogBuilder], str]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a server with short time limits and idle times, and return its location."""
    quick = {
        "_POLL_SECONDS": 0.02,
        "_GRACE_SECONDS": 0.25,
        "_LINGER_SECONDS": 0.05,
        "_LONGEST_ROUND_SECONDS": 0.1,
    }
    for name, seconds in quick.items():
        monkeypatch.setattr(function_guard, name, seconds)
    with ExitStack() as stack:

        def start(builder: sp.CatalogBuilder) -> str:
            server = sp.Server(builder, LOCAL, sp.ServerSettings(idle_thread_seconds=0.05)).start()
            stack.callback(server.stop, 0)
            return server.location

        yield start


@pytest.fixture
def serve(start: Start) -> Iterator[Serve]:
    """Start a server and attach a client to it."""
    with ExitStack() as stack:

        def serve(builder: sp.CatalogBuilder, **options: Any) -> DuckDBClient:
            client = DuckDBClient(start(builder), builder.name, **{"timeout": SOON, **options})
            return stack.enter_context(client)

        yield serve
