"""Planning requests in both forms, points in time, and the answer to a question for statistics."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from sparkport.catalog.scan import TimePoint
from sparkport.catalog.statistics import ColumnStatistics
from sparkport.errors import BadRequest, CatalogFault
from sparkport.wire import scan
from sparkport.wire.ipc import decode_arguments, encode_arguments
from sparkport.wire.packing import pack

DESCRIPTOR = flight.FlightDescriptor.for_path("s", "t")
ARGUMENTS = pa.record_batch({"a": [1], "b": ["x"]})


def stream(*batches: pa.RecordBatch, schema: pa.Schema | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def endpoints(**parameters: Any) -> scan.EndpointsRequest:
    return scan.decode_endpoints(pack({"descriptor": DESCRIPTOR.serialize(), "parameters": parameters}))


def test_the_clients_form_of_endpoints() -> None:
    request = endpoints(
        json_filters="{}",
        column_ids=[3, 0, 2**64 - 1],
        table_function_parameters=stream(ARGUMENTS),
        table_function_input_schema=ARGUMENTS.schema.serialize().to_pybytes(),
        at_unit="VERSION",
        at_value="3",
    )
    assert request == scan.EndpointsRequest(
        DESCRIPTOR, "{}", (3, 0, 2**64 - 1), ARGUMENTS, ARGUMENTS.schema, TimePoint("version", "3")
    )


def test_empty_texts_mean_nothing() -> None:
    request = endpoints(
        json_filters="",
        column_ids=[],
        table_function_parameters="",
        table_function_input_schema="",
        at_unit="",
        at_value="",
    )
    assert request == scan.EndpointsRequest(DESCRIPTOR, "", (), None, None, None)


def test_parameters_may_be_missing_altogether() -> None:
    request = scan.decode_endpoints(pack({"descriptor": DESCRIPTOR.serialize()}))
    assert request == scan.EndpointsRequest(DESCRIPTOR, "", None, None, None, None)


def test_filters_that_are_not_text_are_no_filters() -> None:
    assert endpoints(json_filters=b'{"filters": "\xff"}').json_filters == ""


def test_the_contracts_form_of_endpoints() -> None:
    assert scan.decode_endpoints(pack({"schema": "s", "table": "t"})) == scan.EndpointsRequest(
        scan.ObjectName(None, "s", "t")
    )
    body = {"schema": "s", "table": "t", "catalog_name": "c", "time_point": {"unit": "Snapshot", "value": "abc"}}
    assert scan.decode_endpoints(pack(body)) == scan.EndpointsRequest(
        scan.ObjectName("c", "s", "t"), time_point=TimePoint("snapshot", "abc")
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "endpoints: the field 'schema' is missing"),
        ({"schema": "s"}, "endpoints: the field 'table' is missing"),
        ({"schema": "", "table": "t"}, "'schema' must not be empty"),
        ({"schema": "s", "table": "t", "time_point": "now"}, "'time_point' must be a map, not text"),
        ({"schema": "s", "table": "t", "time_point": {"unit": "week", "value": "1"}}, "not 'week'"),
        ({"descriptor": b"garbage"}, "descriptor"),
        ({"descriptor": ""}, "descriptor"),
        ({"descriptor": 5}, "'descriptor' must be bytes, not an integer"),
    ],
)
def test_wrong_endpoints_are_refused(body, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        scan.decode_endpoints(pack(body))
    assert problem.lower() in refusal.value.message.lower()


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"column_ids": [-1]}, "'column_ids' holds"),
        ({"column_ids": ["a"]}, "'column_ids' must hold integers, not text"),
        ({"column_ids": 5}, "'column_ids' must be a list, not an integer"),
        ({"table_function_parameters": b"x"}, "table_function_parameters is not a readable Arrow IPC stream"),
        ({"table_function_input_schema": b"x"}, "table_function_input_schema is not a readable Arrow schema"),
        ({"at_unit": "WEEK", "at_value": "1"}, "not 'WEEK'"),
    ],
)
def test_wrong_parameters_of_endpoints_are_refused(parameters, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        endpoints(**parameters)
    assert problem in refusal.value.message


# --------------------------------------------------------------------------------------------------- points in time


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("", "", None),
        ("VERSION", "3", TimePoint("version", "3")),
        ("version", "abc", TimePoint("version", "abc")),
        ("TIMESTAMP", "2024-01-02 03:04:05", TimePoint("timestamp", "2024-01-02 03:04:05")),
        ("timestamp", "2024-01-15T10:30:00Z", TimePoint("timestamp", "2024-01-15T10:30:00Z")),
        ("SnapShot", "abc123def", TimePoint("snapshot", "abc123def")),
    ],
)
def test_points_in_time_in_both_spellings(unit, value, expected) -> None:
    assert scan.decode_time_point(unit, value) == expected


@pytest.mark.parametrize(("unit", "value"), [("", "3"), ("WEEK", "3"), ("VERSION", "")])
def test_half_a_point_in_time_is_refused(unit, value) -> None:
    with pytest.raises(BadRequest):
        scan.decode_time_point(unit, value)


def test_flight_info_needs_a_descriptor() -> None:
    body = {"descriptor": DESCRIPTOR.serialize(), "at_unit": "VERSION", "at_value": "1"}
    assert scan.decode_flight_info(pack(body)) == scan.FlightInfoRequest(DESCRIPTOR, TimePoint("version", "1"))
    with pytest.raises(BadRequest, match="flight_info: the field 'descriptor' is missing"):
        scan.decode_flight_info(pack({"at_unit": "VERSION", "at_value": "1"}))


# -------------------------------------------------------------------------------------------------- table functions


def test_the_clients_form_of_table_function_flight_info() -> None:
    body = {
        "descriptor": DESCRIPTOR.serialize(),
        "parameters": stream(ARGUMENTS),
        "table_input_schema": ARGUMENTS.schema.serialize().to_pybytes(),
        "at_unit": "",
        "at_value": "",
    }
    assert scan.decode_table_function_flight_info(pack(body)) == scan.TableFunctionFlightInfoRequest(
        DESCRIPTOR, ARGUMENTS, ARGUMENTS.schema
    )


def test_the_contracts_form_of_table_function_flight_info_has_plain_values() -> None:
    body = {"name": "READ_IT", "parameters": ["text", b"bytes", 5, 1.5, None, True, ["x"], {"k": "v"}]}
    assert scan.decode_table_function_flight_info(pack(body)) == scan.TableFunctionFlightInfoRequest(
        scan.ObjectName(None, None, "READ_IT"), ("text", b"bytes", 5, 1.5, None, True, ["x"], {"k": "v"})
    )
    named = scan.decode_table_function_flight_info(pack({"name": "f", "schema": "s"}))
    assert (named.target, named.arguments) == (scan.ObjectName(None, "s", "f"), ())


@pytest.mark.parametrize("body", [{"parameters": []}, {"name": "f", "parameters": "x"}, {"name": ""}])
def test_a_wrong_table_function_call_is_refused(body) -> None:
    with pytest.raises(BadRequest, match=r"^table_function_flight_info: "):
        scan.decode_table_function_flight_info(pack(body))


def test_arguments_survive_the_way_through_a_ticket() -> None:
    assert decode_arguments(encode_arguments(ARGUMENTS), "x") == ARGUMENTS


def test_a_function_without_parameters_has_one_row_of_no_columns() -> None:
    none = pa.record_batch({"a": [1]}).select([])
    assert none.num_rows == 1
    decoded = decode_arguments(stream(none), "x")
    assert (decoded.num_rows, decoded.num_columns) == (1, 0)


@pytest.mark.parametrize(
    "data",
    [
        stream(schema=ARGUMENTS.schema),
        stream(ARGUMENTS, ARGUMENTS),
        stream(pa.record_batch({"a": [1, 2]})),
        stream(pa.record_batch({"a": pa.array([], pa.int64())})),
    ],
)
def test_arguments_are_exactly_one_row(data) -> None:
    with pytest.raises(BadRequest, match="parameters must hold exactly one row"):
        decode_arguments(data, "parameters")


def test_arguments_with_offsets_out_of_bounds_are_refused() -> None:
    data = bytearray(stream(pa.record_batch({"a": ["hello"]})))
    at = data.index(b"hello")
    offsets = data.rindex((5).to_bytes(4, "little"), 0, at)
    data[offsets : offsets + 4] = (1 << 20).to_bytes(4, "little")
    with pytest.raises(BadRequest, match="not a readable Arrow IPC stream"):
        decode_arguments(bytes(data), "parameters")


def test_parameters_of_an_in_out_exchange() -> None:
    metadata = pack(
        {"json_filters": "", "column_ids": [], "parameters": stream(ARGUMENTS), "at_unit": "", "at_value": ""}
    )
    assert scan.decode_in_out_parameters(metadata) == scan.InOutParameters("", (), ARGUMENTS, None)
    with pytest.raises(BadRequest):
        scan.decode_in_out_parameters(b"chunk_continues")


# ------------------------------------------------------------------------------------------------------- statistics


def answered(statistics: ColumnStatistics, data_type: pa.DataType) -> pa.RecordBatch:
    with pa.ipc.open_stream(scan.encode_column_statistics(statistics, data_type)) as reader:
        [batch] = list(reader)
    assert batch.num_rows == 1
    return batch


def test_a_question_for_statistics() -> None:
    body = {"flight_descriptor": DESCRIPTOR.serialize(), "column_name": "id", "type": "DECIMAL(10,2)"}
    assert scan.decode_column_statistics(pack(body)) == scan.ColumnStatisticsRequest(DESCRIPTOR, "id", "DECIMAL(10,2)")
    for key in body:
        with pytest.raises(BadRequest, match=f"column_statistics: the field '{key}' is missing"):
            scan.decode_column_statistics(pack({name: value for name, value in body.items() if name != key}))


@pytest.mark.parametrize(
    ("data_type", "minimum", "maximum"),
    [
        (pa.int32(), -5, 9),
        (pa.uint64(), 0, 2**64 - 1),
        (pa.float64(), -1.5, float("inf")),
        (pa.decimal128(10, 2), Decimal("-1.50"), Decimal("2.25")),
        (pa.date32(), datetime.date(2024, 1, 1), datetime.date(2024, 2, 29)),
        (pa.timestamp("us"), datetime.datetime(2024, 1, 1), datetime.datetime(2024, 2, 29, 1)),
        (pa.bool_(), False, True),
        (pa.uuid(), uuid.UUID(int=1), uuid.UUID(int=2)),
        (pa.opaque(pa.binary(16), "hugeint", "DuckDB"), b"\0" * 16, b"\1" * 16),
        (pa.int64(), None, None),
    ],
    ids=str,
)
def test_bounds_have_the_type_of_the_column(data_type, minimum, maximum) -> None:
    batch = answered(ColumnStatistics(minimum, maximum, False, True, 7), data_type)
    assert batch.schema.names == ["min", "max", "has_not_null", "has_null", "distinct_count"]
    assert (batch.schema.field("min").type, batch.schema.field("max").type) == (data_type, data_type)
    assert batch.schema.field("distinct_count").type == pa.uint64()
    assert batch.to_pylist() == [
        {"min": minimum, "max": maximum, "has_not_null": True, "has_null": False, "distinct_count": 7}
    ]


def test_scalars_of_arrow_serve_as_bounds() -> None:
    batch = answered(ColumnStatistics(pa.scalar(1, pa.int32()), pa.scalar(9, pa.int32())), pa.int32())
    assert batch.to_pylist()[0]["max"] == 9


def test_text_says_whether_it_is_more_than_ascii_and_how_long_it_gets() -> None:
    row = answered(ColumnStatistics("a", "z", contains_unicode=False, max_string_length=12), pa.string()).to_pylist()[0]
    assert (row["min"], row["max"], row["contains_unicode"], row["max_string_length"]) == ("a", "z", False, 12)


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.binary(), pa.binary_view()], ids=str)
def test_text_and_blobs_never_have_null_as_bounds(data_type) -> None:
    row = answered(ColumnStatistics(None, None), data_type).to_pylist()[0]
    lowest, highest = row["min"], row["max"]
    assert not lowest
    # DuckDB compares the first eight bytes.
    highest = highest.encode() if isinstance(highest, str) else highest
    assert len(highest) == 8
    assert highest >= (b"\xf4\x8f\xbf\xbf" * 2)
    assert row["contains_unicode"] is True
    assert "max_string_length" not in row


def test_bounds_of_another_type_are_the_catalogs_fault() -> None:
    for statistics in (ColumnStatistics("a", "z"), ColumnStatistics(0, 2**40)):
        with pytest.raises(CatalogFault):
            scan.encode_column_statistics(statistics, pa.int32())
