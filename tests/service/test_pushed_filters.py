"""Filters are applied to the batches of tables that leave them to the service."""

import json
from collections.abc import Iterator

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import sparkport as sp
from sparkport.builder import CatalogBuilder
from sparkport.errors import BadRequest
from sparkport.service.calls import Call
from sparkport.service.registry import CatalogRegistry
from sparkport.service.service import Service
from sparkport.wire.flight_data import BatchReader, decode_flight_data

ROWID = 2**64 - 1


def less_than(column: str, limit: int, padding: str = "") -> str:
    """`column < limit` as DuckDB serialises it (airport §18.1)."""
    bigint = {"id": "BIGINT", "type_info": None}
    left = {
        "expression_class": "BOUND_COLUMN_REF",
        "type": "BOUND_COLUMN_REF",
        "alias": padding,
        "return_type": bigint,
        "binding": {"table_index": 0, "column_index": 0},
        "depth": 0,
    }
    right = {
        "expression_class": "BOUND_CONSTANT",
        "type": "VALUE_CONSTANT",
        "value": {"type": bigint, "is_null": False, "value": limit},
    }
    comparison = {
        "expression_class": "BOUND_COMPARISON",
        "type": "COMPARE_LESSTHAN",
        "left": left,
        "right": right,
    }
    return json.dumps({"filters": [comparison], "column_binding_names_by_index": [column]})


class Filtering(sp.Table):
    """Says that it filters by itself, and returns other rows."""

    applies_filters = True
    name = "filtering"
    arrow_schema = pa.schema([("id", pa.int64())])

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        assert options.filter is not None
        assert options.filter.columns == {"id"}
        yield pa.record_batch({"id": pa.array([1, 99], pa.int64())})


@pytest.fixture
def service() -> Service:
    builder = CatalogBuilder("c")
    rows = pa.table({"id": range(10), "name": [f"n{index}" for index in range(10)]})
    builder.schema("s").table("t", rows).table("filtering", Filtering())
    return Service(CatalogRegistry([("c", builder.build())]))


def read(
    service: Service, table: str, column_ids: list[int], filters: str
) -> list[dict[str, object]]:
    descriptor = flight.FlightDescriptor.for_path("s", table).serialize()
    body = msgpack.packb(
        {
            "descriptor": descriptor,
            "parameters": {"json_filters": filters, "column_ids": column_ids},
        }
    )
    (result,) = service.do_action(Call(), flight.Action("endpoints", body).serialize())
    rows: list[dict[str, object]] = []
    for endpoint in msgpack.unpackb(flight.Result.deserialize(result).body.to_pybytes()):
        ticket = flight.FlightEndpoint.deserialize(endpoint).ticket.serialize()
        first, *messages = service.do_get(Call(), ticket)
        reader = BatchReader(decode_flight_data(first))
        for message in messages:
            batch = reader.read(decode_flight_data(message))
            assert batch is not None
            rows += batch.to_pylist()
    return rows


def test_rows_that_do_not_match_are_not_sent(service: Service) -> None:
    assert [row["id"] for row in read(service, "t", [0, 1], less_than("id", 3))] == [0, 1, 2]


def test_a_filter_on_a_column_that_is_not_asked_for_still_filters(service: Service) -> None:
    rows = read(service, "t", [1], less_than("id", 2))
    assert rows == [{"id": None, "name": name, "rowid": None} for name in ("n0", "n1")]


def test_the_row_id_can_be_filtered_by_the_name_the_client_gives_it(service: Service) -> None:
    assert [row["id"] for row in read(service, "t", [0, ROWID], less_than("rowid", 4))] == [
        0,
        1,
        2,
        3,
    ]


def test_a_table_that_filters_by_itself_is_left_alone(service: Service) -> None:
    assert [row["id"] for row in read(service, "filtering", [0], less_than("id", 3))] == [1, 99]


def test_a_filter_too_large_for_tickets_is_left_to_the_client(service: Service) -> None:
    assert len(read(service, "t", [0], less_than("id", 3, padding="x" * 2_000_000))) == 10


def test_an_empty_filter_is_none(service: Service) -> None:
    assert len(read(service, "t", [0], "")) == 10


def test_a_filter_that_is_not_json_is_refused(service: Service) -> None:
    with pytest.raises(BadRequest):
        read(service, "t", [0], "{not json")
