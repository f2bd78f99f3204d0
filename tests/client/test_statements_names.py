"""Names as users type them: DuckDB ignores case, and its DDL sends what was typed."""

from __future__ import annotations

from collections.abc import Iterator

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from sparkport.memory import MemoryCatalog, MemoryTable
from sparkport.server import Server
from sparkport.testing import DuckDBClient, ServerError

CATALOG = "shop"


@pytest.fixture
def client() -> Iterator[DuckDBClient]:
    catalog = MemoryCatalog(CATALOG)
    catalog.add_schema("Sales").add_table(MemoryTable("Orders", pa.table({"Id": [1, 2]})))
    with (
        Server(catalog, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, CATALOG, timeout=20) as client,
    ):
        yield client


def alter(client: DuckDBClient, action: str, **more: object) -> dict[str, object]:
    """ALTER TABLE sALES.oRDERS as the real client sends it: with the names as typed."""
    body = {
        "catalog": CATALOG,
        "schema": "sALES",
        "name": "oRDERS",
        "ignore_not_found": False,
        **more,
    }
    (answer,) = client.action(action, msgpack.packb(body))
    described: dict[str, object] = msgpack.unpackb(
        flight.FlightInfo.deserialize(answer).app_metadata
    )
    return described


def test_a_table_is_altered_whatever_the_case_of_its_name(client):
    column = pa.schema([("extra", pa.int32())]).serialize().to_pybytes()
    described = alter(client, "add_column", if_column_not_exists=False, column_schema=column)
    # The answer has the listed names, which the client compares (trap T9).
    assert (described["schema"], described["name"]) == ("Sales", "Orders")
    alter(client, "rename_column", old_name="iD", new_name="number")
    assert client.scan("sales", "orders").column_names == ["number", "extra"]


def test_a_table_is_renamed_whatever_the_case_of_its_name(client):
    assert alter(client, "rename_table", new_table_name="Purchases")["name"] == "Purchases"
    assert set(client.tables("sales")) == {"Purchases"}


def test_a_table_is_dropped_whatever_the_case_of_its_name(client):
    body = {
        "type": "table",
        "catalog_name": CATALOG,
        "schema_name": "SALES",
        "name": "ORDERS",
        "ignore_not_found": False,
    }
    assert client.action("drop_table", msgpack.packb(body)) == []
    assert client.tables("Sales") == {}


def test_a_table_of_the_same_name_in_other_letters_exists_already(client):
    with pytest.raises(ServerError) as caught:
        client.create_table("sales", "ORDERS", {"id": "INTEGER"})
    assert caught.value.code == "ALREADY_EXISTS"
    assert (
        client.create_table("sales", "ORDERS", {"id": "INTEGER"}, if_not_exists=True).name
        == "Orders"
    )


def test_a_schema_is_dropped_whatever_the_case_of_its_name(client):
    client.create_schema("Mixed Case ü")
    client.drop_schema("mIXED cASE ü")
    assert set(client.schemas()) == {"Sales"}


def test_letters_outside_ascii_are_told_apart(client):
    client.create_schema("Ü")
    with pytest.raises(ServerError) as caught:
        client.drop_schema("ü")
    assert caught.value.code == "NOT_FOUND"


def test_create_schema_if_not_exists_takes_a_schema_in_other_letters_for_the_same(client):
    client.create_schema("Empty")
    client.create_schema("EMPTY")
    client.detach()
    assert set(client.schemas()) == {"Sales", "Empty"}
