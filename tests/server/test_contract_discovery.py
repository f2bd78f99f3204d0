"""The contracts' discovery actions: Arrow IPC in a Zstandard frame (airport §15.3)."""

import json

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import zstandard

import sparkport as sp

OPTIONS = flight.FlightCallOptions(timeout=20)


@pytest.fixture(scope="module")
def client():
    shop, lake = sp.CatalogBuilder("shop"), sp.CatalogBuilder("lake")
    shop.schema("sales").table("orders", pa.table({"id": [1]})).table(
        "old_orders", pa.table({"id": [1]})
    )
    shop.schema("main").table("t", pa.table({"x": ["a"]}))
    lake.schema("sales")
    with (
        sp.Server([shop, lake], "grpc://127.0.0.1:0") as server,
        flight.connect(server.location) as connected,
    ):
        yield connected


def ask(client, action, body=b""):
    (result,) = client.do_action(flight.Action(action, body), OPTIONS)
    stream = zstandard.ZstdDecompressor().decompressobj().decompress(result.body.to_pybytes())
    return pa.ipc.open_stream(stream).read_all()


def test_all_catalogs_are_listed(client):
    assert ask(client, "GetCatalogs").to_pydict() == {"catalog_name": ["lake", "shop"]}


def test_schemas_are_listed_as_they_are_published(client):
    assert ask(client, "GetDbSchemas").to_pydict() == {
        "catalog_name": ["lake", "shop", "shop"],
        "db_schema_name": ["sales", "main_", "sales"],
    }


@pytest.mark.parametrize("encode", [json.dumps, msgpack.packb], ids=["JSON", "MessagePack"])
def test_schemas_are_filtered_by_catalog_and_pattern(client, encode):
    body = encode({"catalog": "shop", "db_schema_filter_pattern": "s_les"})
    found = ask(client, "GetDbSchemas", body if isinstance(body, bytes) else body.encode())
    assert found.to_pylist() == [{"catalog_name": "shop", "db_schema_name": "sales"}]


def test_tables_are_filtered_by_pattern_and_can_bring_their_arrow_schema(client):
    body = json.dumps({"table_name_filter_pattern": "%orders", "include_schema": True}).encode()
    found = ask(client, "GetTables", body)
    assert found.column("table_name").to_pylist() == ["old_orders", "orders"]
    assert set(found.column("table_type").to_pylist()) == {"TABLE"}
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(found.column("table_schema")[0].as_py()))
    assert arrow_schema.names == ["id"]


def test_without_include_schema_there_is_none(client):
    for body in (b"", json.dumps({"include_schema": False}).encode()):
        found = ask(client, "GetTables", body)
        assert found.column_names == ["catalog_name", "db_schema_name", "table_name", "table_type"]
        assert found.num_rows == 3


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"catalog": "lake"}, []),
        # The default catalog, as in other actions.
        ({"catalog": ""}, ["t", "old_orders", "orders"]),
        ({"catalog_name": "shop", "schema_filter_pattern": "main%"}, ["t"]),
        (
            {"db_schema_filter_pattern": "sales", "table_name_filter_pattern": "_ld%"},
            ["old_orders"],
        ),
        ({"table_name_filter_pattern": "%o%d%s"}, ["old_orders", "orders"]),
        ({"table_types": ["VIEW", "TABLE"]}, ["t", "old_orders", "orders"]),
        ({"table_types": []}, ["t", "old_orders", "orders"]),
    ],
)
def test_filters_can_be_combined(client, filters, expected):
    found = ask(client, "GetTables", msgpack.packb(filters))
    assert found.column("table_name").to_pylist() == expected


def test_the_list_of_catalogs_can_be_filtered_too(client):
    assert ask(client, "GetCatalogs", b'{"catalog": "lake"}').to_pydict() == {
        "catalog_name": ["lake"]
    }


def test_a_pattern_is_not_a_regular_expression(client):
    assert (
        ask(client, "GetTables", json.dumps({"table_name_filter_pattern": ".*"}).encode()).num_rows
        == 0
    )


def test_tables_of_another_type_are_none(client):
    assert ask(client, "GetTables", json.dumps({"table_types": ["VIEW"]}).encode()).num_rows == 0
    assert ask(client, "GetTableTypes").to_pydict() == {"table_type": ["TABLE"]}


@pytest.mark.parametrize(
    "body", [b"\xff\xff", b"{", b"[1]", json.dumps({"table_types": 3}).encode(), b'{"catalog": 1}']
)
def test_a_body_that_cannot_be_read_is_refused(client, body):
    with pytest.raises(pa.ArrowInvalid, match="discovery"):
        ask(client, "GetTables", body)


def test_a_pattern_that_is_too_long_is_refused(client):
    with pytest.raises(pa.ArrowInvalid, match="pattern is longer"):
        ask(client, "GetTables", json.dumps({"table_name_filter_pattern": "%" * 10_001}).encode())


def test_an_unknown_catalog_is_not_found(client):
    with pytest.raises((KeyError, flight.FlightError), match="nope"):
        ask(client, "GetTables", json.dumps({"catalog": "nope"}).encode())
