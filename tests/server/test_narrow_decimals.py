"""Decimals travel in the narrowest form, to the clients that read it (decision 0041)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.raw_client import RawClient

from sparkport.engine.types import narrowed_schema
from sparkport.memory import MemoryCatalog, MemoryTable
from sparkport.server import Server
from sparkport.testing import DuckDBClient
from sparkport.testing.exchange import Changed
from sparkport.wire.headers import decode_headers

AGENT = "airport-user-agent"
Headers: TypeAlias = dict[str, str]
TAKES: Headers = {AGENT: "airport/20250723"}
TAKES_NOT: list[Headers] = [
    {},
    {AGENT: "airport/20240820"},
    {AGENT: "airport/20240820-03"},
    {AGENT: "airport/"},
    {AGENT: "airport/²0260101"},
    {AGENT: "other/20260101"},
]

NUMBERS = [Decimal("-99.9"), None, Decimal(0), Decimal("0.1"), Decimal("99.9"), None]
ROWS = 5000
"""More than two of DuckDB's vectors, and not a multiple of eight."""


def column(data_type: pa.DataType) -> pa.Array:
    return pa.array((NUMBERS * (ROWS // len(NUMBERS) + 1))[:ROWS], data_type)


def lists(values: pa.Array) -> pa.Array:
    offsets = pa.array([*range(0, ROWS, 3), ROWS][: ROWS + 1], pa.int32())
    ends = pa.concat_arrays([offsets, pa.array([ROWS] * (ROWS + 1 - len(offsets)), pa.int32())])
    return pa.ListArray.from_arrays(ends, values)


def table() -> pa.Table:
    wide = column(pa.decimal128(12, 1))
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "tiny": column(pa.decimal128(4, 1)),
            "small": column(pa.decimal128(9, 1)),
            "medium": column(pa.decimal128(18, 1)),
            "large": column(pa.decimal128(19, 1)),
            "largest": column(pa.decimal128(38, 1)),
            "own": column(pa.decimal64(9, 1)),
            "parts": pa.StructArray.from_arrays([wide, lists(wide)], ["n", "l"]),
            "flag": pa.StructArray.from_arrays(
                [wide, pa.array([True, None, False, True, True] * (ROWS // 5))], ["n", "b"]
            ),
        }
    )


NARROW = {
    "tiny": pa.decimal32(4, 1),
    "small": pa.decimal32(9, 1),
    "medium": pa.decimal64(18, 1),
    "large": pa.decimal128(19, 1),
    "largest": pa.decimal128(38, 1),
    "own": pa.decimal32(9, 1),
    "parts": pa.struct([("n", pa.decimal64(12, 1)), ("l", pa.list_(pa.decimal64(12, 1)))]),
    "flag": pa.struct([("n", pa.decimal64(12, 1)), ("b", pa.bool_())]),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    catalog = MemoryCatalog("c")
    catalog.add_schema("s").add_table(MemoryTable("t", table()))
    with Server(catalog, "grpc://127.0.0.1:0") as running:
        yield running


@pytest.fixture
def raw(server: Server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


def read(client: RawClient, server: Server, told: Headers, asks: Headers) -> pa.Table:
    """Scan with the handle that a listing gave, and without the row id."""
    descriptor = client.list_schemas("c", told)["s"]["t"].descriptor
    (endpoint,) = client.endpoints(descriptor, headers=asks)
    options = flight.FlightCallOptions(
        timeout=60, headers=[(key.encode(), value.encode()) for key, value in asks.items()]
    )
    with flight.FlightClient(server.location) as reader:
        return reader.do_get(endpoint.ticket, options).read_all().drop_columns("rowid")


def test_agents_before_the_first_that_reads_them_and_other_clients_do_not_take_them():
    assert decode_headers(TAKES.items()).takes_narrow_decimals
    assert decode_headers([(AGENT, "airport/20991231")]).takes_narrow_decimals
    for headers in TAKES_NOT:
        assert not decode_headers(headers.items()).takes_narrow_decimals


def test_a_schema_without_decimals_stays_the_same_object():
    plain = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.uuid())), ("c", pa.decimal128(38, 0))])

    assert narrowed_schema(plain) is plain


def test_a_client_that_reads_them_is_told_and_sent_narrow_decimals(raw: RawClient, server: Server):
    info = raw.list_schemas("c", TAKES)["s"]["t"]
    sent = read(raw, server, TAKES, TAKES)

    for name, kind in NARROW.items():
        assert info.schema.field(name).type == kind
        assert sent.schema.field(name).type == kind
    assert sent.cast(table().schema).equals(table())


@pytest.mark.parametrize("headers", TAKES_NOT[:3], ids=str)
def test_other_clients_get_the_types_of_the_table(raw: RawClient, server: Server, headers: Headers):
    info = raw.list_schemas("c", headers)["s"]["t"]

    assert info.schema.types[:-1] == table().schema.types
    assert read(raw, server, headers, headers).equals(table())


def test_duckdb_reads_the_narrow_form_as_the_same_values(raw: RawClient, server: Server):
    narrow, wide = read(raw, server, TAKES, TAKES), table()
    with duckdb.connect() as connection:
        connection.register("narrow", narrow)
        connection.register("wide", wide)
        for one, other in (("narrow", "wide"), ("wide", "narrow")):
            rows = connection.sql(f"SELECT * FROM {one} EXCEPT SELECT * FROM {other}")
            assert rows.fetchall() == []
        types = [connection.sql(f"SELECT * FROM {each}").types for each in ("narrow", "wide")]
    assert types[0] == types[1]


@pytest.mark.parametrize(("told", "asks"), [({}, TAKES), (TAKES, {})], ids=str)
def test_a_handle_says_which_form_its_holder_has_bound(
    raw: RawClient, server: Server, told: Headers, asks: Headers
):
    """So a client that attached to a server without narrow decimals goes on to read."""
    bound = raw.list_schemas("c", told)["s"]["t"].schema

    assert read(raw, server, told, asks).schema.types == bound.types[:-1]


def returned(changed: Changed, name: str) -> list[object]:
    assert changed.rows is not None
    values: list[object] = changed.rows.column(name).to_pylist()
    return values


def test_returning_and_time_travel_have_the_types_that_the_client_was_told(server: Server):
    """The simulated client refuses any other type."""
    with DuckDBClient(server.location, "c") as client:
        client.create_table(
            "s", "w", {"id": "INTEGER", "a": "DECIMAL(9,2)", "l": "DECIMAL(12,3)[]"}
        )
        rows = pa.table({"id": [1, 2], "a": [Decimal("1.25"), None], "l": [[Decimal(1)], None]})
        inserted = client.insert("s", "w", rows, returning=True)
        updated = client.update("s", "w", {"a": "a + 1"}, "id = 1", returning=True)
        deleted = client.delete("s", "w", "id = 1", returning=True)
        before = client.scan("s", "w", at=("VERSION", "1"))

    assert returned(inserted, "a") == [Decimal("1.25"), None]
    assert returned(inserted, "l") == [[Decimal(1)], None]
    assert returned(updated, "a") == [Decimal("2.25")]
    assert returned(deleted, "a") == [Decimal("2.25")]
    assert before.column("a").to_pylist() == [Decimal("1.25"), None]


def test_bounds_of_a_narrow_column_are_told(server: Server):
    with DuckDBClient(server.location, "c") as client:
        assert client.scan("s", "t", where="small > 99.8").num_rows == sum(
            value == Decimal("99.9") for value in table().column("small").to_pylist()
        )
