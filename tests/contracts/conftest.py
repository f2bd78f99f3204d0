"""Servers, clients and catalogs for the tests of this folder; all are gone when the test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pyarrow as pa
import pytest
from tests.contracts.contract_client import ContractClient

from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.server import Server, ServerSettings
from sparkport.server.options import Catalogs

Serve: TypeAlias = Callable[..., ContractClient]

ITEMS = pa.schema(
    [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("price", pa.float64())]
)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server on a free port, and connects a client to it."""
    with ExitStack() as stack:

        def serve(catalogs: Catalogs, settings: ServerSettings | None = None) -> ContractClient:
            server = Server(catalogs, "grpc://127.0.0.1:0", settings).start()
            stack.callback(server.stop, 0)
            client = ContractClient(server.location)
            stack.callback(client.close)
            return client

        yield serve


@pytest.fixture
def catalog() -> MemoryCatalog:
    """Schema `shop` with a table `items` of three rows, whose ids are 0, 1 and 2; an empty schema
    `spare`.
    """
    catalog = MemoryCatalog("lake", settings=MemorySettings(statistics_rows=0))
    shop = catalog.add_schema("shop", comment="What we sell")
    rows = [{"id": 1, "name": "ant", "price": 1.5}, {"id": 2, "name": "bee", "price": None}]
    rows.append({"id": 3, "name": None, "price": 3.5})
    shop.add_table(MemoryTable("items", pa.Table.from_pylist(rows, ITEMS), comment="Small animals"))
    catalog.add_schema("spare")
    return catalog


@pytest.fixture
def client(serve: Serve, catalog: MemoryCatalog) -> ContractClient:
    return serve(catalog)
