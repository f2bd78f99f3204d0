"""Planning a scan: what is to be read, of which columns, as of when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog.scan import TimePoint
from sparkport.errors import BadRequest
from sparkport.wire.flight import decode_descriptor
from sparkport.wire.ipc import decode_arguments, decode_arrow_schema
from sparkport.wire.packing import Fields, pack, read_fields, unpack_text

__all__ = [
    "EndpointsRequest",
    "FlightInfoRequest",
    "InOutParameters",
    "ObjectName",
    "TableFunctionFlightInfoRequest",
    "decode_endpoints",
    "decode_flight_info",
    "decode_in_out_parameters",
    "decode_table_function_flight_info",
    "decode_time_point",
    "encode_endpoints",
    "encode_progress",
]


@dataclass(frozen=True, slots=True)
class ObjectName:
    """How the contracts' own requests name an object, where the client sends its descriptor.

    `catalog` and `schema` are None where the request does not say.
    """

    catalog: str | None
    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class EndpointsRequest:
    """Plan a scan of a table or of a table function's result."""

    target: flight.FlightDescriptor | ObjectName
    json_filters: str = ""
    """Empty means none."""
    column_ids: tuple[int, ...] | None = None
    """Positions among the columns without the row id; None, in the contracts' form, means all.

    2^63 and above are virtual columns, 2^64-1 is the row id (airport §5.2).
    """
    arguments: pa.RecordBatch | None = None
    """For a table function: one row with a column for each parameter."""
    input_schema: pa.Schema | None = None
    time_point: TimePoint | None = None


@dataclass(frozen=True, slots=True)
class FlightInfoRequest:
    """Describe a table as of a point in time."""

    descriptor: flight.FlightDescriptor
    time_point: TimePoint | None = None


@dataclass(frozen=True, slots=True)
class TableFunctionFlightInfoRequest:
    """Describe the result of a table function for these arguments."""

    target: flight.FlightDescriptor | ObjectName
    arguments: pa.RecordBatch | tuple[Any, ...]
    """One row with a column for each parameter; in the contracts' form the plain values."""
    input_schema: pa.Schema | None = None
    """The columns of the subquery, for an in/out function."""
    time_point: TimePoint | None = None


@dataclass(frozen=True, slots=True)
class InOutParameters:
    """What an in/out exchange begins with (airport §9.3). The filters are on the output."""

    json_filters: str = ""
    column_ids: tuple[int, ...] = ()
    arguments: pa.RecordBatch | None = None
    time_point: TimePoint | None = None


def decode_endpoints(body: bytes) -> EndpointsRequest:
    """Decode the client's form or the contracts', which differ in the descriptor (airport §15.3).

    Raises: BadRequest.
    """
    what = "endpoints"
    fields = read_fields(body, what)
    if "descriptor" not in fields:
        return EndpointsRequest(
            ObjectName(
                fields.optional_text("catalog_name", "catalog"),
                fields.name("schema", "schema_name"),
                fields.name("table", "table_name"),
            ),
            time_point=_nested_time_point(fields),
        )
    parameters = fields.optional_fields("parameters") or Fields({}, what)
    return EndpointsRequest(
        _descriptor(fields, "descriptor"),
        _filters(parameters),
        parameters.unsigned_integers("column_ids") if "column_ids" in parameters else None,
        _arguments(parameters, "table_function_parameters", what),
        _input_schema(parameters, "table_function_input_schema", what),
        _time_point(parameters),
    )


def decode_flight_info(body: bytes) -> FlightInfoRequest:
    fields = read_fields(body, "flight_info")
    return FlightInfoRequest(_descriptor(fields, "descriptor"), _time_point(fields))


def decode_table_function_flight_info(body: bytes) -> TableFunctionFlightInfoRequest:
    """Decode the client's form or the contracts' (airport §15.3). Raises: BadRequest."""
    what = "table_function_flight_info"
    fields = read_fields(body, what)
    if "descriptor" not in fields:
        # Plain values, so text and bytes must be told apart, as they need not be elsewhere.
        values = unpack_text(body, what).get("parameters") or []
        if not isinstance(values, list):
            raise BadRequest(f"{what}: the field 'parameters' must be a list")
        return TableFunctionFlightInfoRequest(
            ObjectName(
                fields.optional_text("catalog_name", "catalog"),
                fields.optional_text("schema", "schema_name"),
                fields.name("name"),
            ),
            tuple(values),
            time_point=_nested_time_point(fields),
        )
    return TableFunctionFlightInfoRequest(
        _descriptor(fields, "descriptor"),
        decode_arguments(fields.blob("parameters"), f"{what}: parameters"),
        _input_schema(fields, "table_input_schema", what),
        _time_point(fields),
    )


def decode_in_out_parameters(app_metadata: bytes) -> InOutParameters:
    what = "table_function_in_out"
    fields = read_fields(app_metadata, what)
    return InOutParameters(
        _filters(fields),
        fields.unsigned_integers("column_ids"),
        _arguments(fields, "parameters", what),
        _time_point(fields),
    )


_UNITS: Mapping[str, Literal["timestamp", "version", "snapshot"]] = {
    "timestamp": "timestamp",
    "version": "version",
    "snapshot": "snapshot",
}


def decode_time_point(unit: str, value: str) -> TimePoint | None:
    """Decode upper case, as the client sends it, or the contracts' lower case (airport §15.3).

    Returns None when both texts are empty, and for the version "latest", which is the present. The
    client asks with AT for what it does not ask without: how many rows there are (airport §19).

    Raises: BadRequest.
    """
    if not unit and not value:
        return None
    known = _UNITS.get(unit.lower())
    if known is None:
        raise BadRequest(f"a point in time is a TIMESTAMP, VERSION or SNAPSHOT, not {unit[:40]!r}")
    if not value:
        raise BadRequest(f"the {known.upper()} to travel to must not be empty")
    point = TimePoint(known, value)
    return None if point.is_latest else point


def encode_endpoints(endpoints: Sequence[bytes]) -> bytes:
    """Encode the answer of `endpoints`, an array of FlightEndpoints (airport §5.3).

    Without any endpoint there are no rows.
    """
    return pack(list(endpoints))


def encode_progress(fraction: float) -> bytes:
    """The only app_metadata that DoGet may carry (airport §5.5)."""
    return pack({"progress": float(fraction)})


def _descriptor(fields: Fields, *keys: str) -> flight.FlightDescriptor:
    return decode_descriptor(fields.blob(*keys))


def _filters(fields: Fields) -> str:
    """Return the filters; unreadable ones count as none, since filters are hints (airport §6.1)."""
    try:
        return (fields.optional_blob("json_filters") or b"").decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _arguments(fields: Fields, key: str, what: str) -> pa.RecordBatch | None:
    stream = fields.optional_blob(key)
    return None if stream is None else decode_arguments(stream, f"{what}: {key}")


def _input_schema(fields: Fields, key: str, what: str) -> pa.Schema | None:
    message = fields.optional_blob(key)
    return None if message is None else decode_arrow_schema(message, f"{what}: {key}")


def _time_point(fields: Fields) -> TimePoint | None:
    return decode_time_point(
        fields.optional_text("at_unit") or "", fields.optional_text("at_value") or ""
    )


def _nested_time_point(fields: Fields) -> TimePoint | None:
    nested = fields.optional_fields("time_point")
    if nested is None:
        return None
    return decode_time_point(
        nested.optional_text("unit") or "", nested.optional_text("value") or ""
    )
