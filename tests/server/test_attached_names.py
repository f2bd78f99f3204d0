"""Replies to a catalog attached without a name have no name either (airport §3.5, T9)."""

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import zstandard

import sparkport as sp
from sparkport.testing import DuckDBClient


@pytest.mark.parametrize("name", ["shop", ""])
def test_time_travel_works_under_the_name_that_was_attached(name):
    builder = sp.CatalogBuilder("shop")
    builder.schema("s").table("t", pa.table({"id": [1, 2]}))
    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, name) as client,
    ):
        assert client.scan("s", "t", at=("VERSION", "0")).to_pydict() == {"id": [1, 2]}
        client.insert("s", "t", pa.table({"id": [3]}))
        assert client.count("s", "t") == 3


def test_a_body_without_a_catalog_leaves_it_to_the_header():
    first, second = sp.CatalogBuilder("first"), sp.CatalogBuilder("second")
    second.schema("only_in_second")
    options = flight.FlightCallOptions(timeout=20, headers=[(b"airport-catalog", b"second")])
    with (
        sp.Server([first, second], "grpc://127.0.0.1:0") as server,
        flight.connect(server.location) as client,
    ):
        (result,) = client.do_action(flight.Action("list_schemas", msgpack.packb({})), options)
    length, frame = msgpack.unpackb(result.body.to_pybytes())
    root = msgpack.unpackb(zstandard.decompress(frame, max_output_size=length))
    assert [schema["name"] for schema in root["schemas"]] == ["only_in_second"]


@pytest.mark.parametrize(("condition", "kept"), [("false", []), ("true", [1, 2]), ("NULL", [])])
def test_a_condition_without_columns_keeps_all_rows_or_none(condition, kept):
    builder = sp.CatalogBuilder("shop")
    builder.schema("s").table("t", pa.table({"id": [1, 2]}))
    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "shop") as client,
    ):
        assert client.scan("s", "t", where=condition).column("id").to_pylist() == kept
