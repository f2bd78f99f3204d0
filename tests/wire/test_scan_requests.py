"""Planning requests in both forms, and points in time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from sparkport.catalog.scan import TimePoint
from sparkport.errors import BadRequest
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
    return scan.decode_endpoints(
        pack({"descriptor": DESCRIPTOR.serialize(), "parameters": parameters})
    )


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
    body = {
        "schema": "s",
        "table": "t",
        "catalog_name": "c",
        "time_point": {"unit": "Snapshot", "value": "abc"},
    }
    assert scan.decode_endpoints(pack(body)) == scan.EndpointsRequest(
        scan.ObjectName("c", "s", "t"), time_point=TimePoint("snapshot", "abc")
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "endpoints: the field 'schema' is missing"),
        ({"schema": "s"}, "endpoints: the field 'table' is missing"),
        ({"schema": "", "table": "t"}, "'schema' must not be empty"),
        (
            {"schema": "s", "table": "t", "time_point": "now"},
            "'time_point' must be a map, not text",
        ),
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
        (
            {"table_function_parameters": b"x"},
            "table_function_parameters is not a readable Arrow IPC stream",
        ),
        (
            {"table_function_input_schema": b"x"},
            "table_function_input_schema is not a readable Arrow schema",
        ),
        ({"at_unit": "WEEK", "at_value": "1"}, "not 'WEEK'"),
    ],
)
def test_wrong_parameters_of_endpoints_are_refused(parameters, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        endpoints(**parameters)
    assert problem in refusal.value.message


# ---------------------------------------------------------------------------------- points in time


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
    assert scan.decode_flight_info(pack(body)) == scan.FlightInfoRequest(
        DESCRIPTOR, TimePoint("version", "1")
    )
    with pytest.raises(BadRequest, match="flight_info: the field 'descriptor' is missing"):
        scan.decode_flight_info(pack({"at_unit": "VERSION", "at_value": "1"}))


# --------------------------------------------------------------------------------- table functions


def test_the_clients_form_of_table_function_flight_info() -> None:
    body = {
        "descriptor": DESCRIPTOR.serialize(),
        "parameters": stream(ARGUMENTS),
        "table_input_schema": ARGUMENTS.schema.serialize().to_pybytes(),
        "at_unit": "",
        "at_value": "",
    }
    assert scan.decode_table_function_flight_info(
        pack(body)
    ) == scan.TableFunctionFlightInfoRequest(DESCRIPTOR, ARGUMENTS, ARGUMENTS.schema)


def test_the_contracts_form_of_table_function_flight_info_has_plain_values() -> None:
    body = {
        "name": "READ_IT",
        "parameters": ["text", b"bytes", 5, 1.5, None, True, ["x"], {"k": "v"}],
    }
    assert scan.decode_table_function_flight_info(
        pack(body)
    ) == scan.TableFunctionFlightInfoRequest(
        scan.ObjectName(None, None, "READ_IT"),
        ("text", b"bytes", 5, 1.5, None, True, ["x"], {"k": "v"}),
    )
    named = scan.decode_table_function_flight_info(pack({"name": "f", "schema": "s"}))
    assert (named.target, named.arguments) == (scan.ObjectName(None, "s", "f"), ())


@pytest.mark.parametrize(
    "body", [{"parameters": []}, {"name": "f", "parameters": "x"}, {"name": ""}]
)
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
        {
            "json_filters": "",
            "column_ids": [],
            "parameters": stream(ARGUMENTS),
            "at_unit": "",
            "at_value": "",
        }
    )
    assert scan.decode_in_out_parameters(metadata) == scan.InOutParameters("", (), ARGUMENTS, None)
    with pytest.raises(BadRequest):
        scan.decode_in_out_parameters(b"chunk_continues")
