"""Flight's protobuf messages, except FlightData.

pyarrow serialises most of them; the two small ones that it does not expose are written here by hand
(airport §1.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.errors import BadRequest

__all__ = [
    "REUSE_CONNECTION",
    "Action",
    "decode_action",
    "decode_criteria",
    "decode_descriptor",
    "decode_ticket",
    "encode_action_type",
    "encode_endpoint",
    "encode_flight_info",
    "encode_put_result",
    "encode_result",
    "encode_schema_result",
    "protobuf_fields",
    "short_varint",
    "varint",
]

REUSE_CONNECTION = "arrow-flight-reuse-connection://?"
"""The location that means "DoGet on this very connection" (airport §5.3)."""

_LENGTH_DELIMITED = 2


class Action(NamedTuple):
    """An action's name and body."""

    type: str
    body: bytes


def decode_action(message: bytes) -> Action:
    """Decode an Action message. Raises: BadRequest."""
    try:
        action = flight.Action.deserialize(message)
        return Action(action.type, action.body.to_pybytes())
    except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise BadRequest("the request is not a Flight Action message") from error


def decode_ticket(message: bytes) -> bytes:
    """Decode a Ticket message. Raises: BadRequest."""
    try:
        ticket: bytes = flight.Ticket.deserialize(message).ticket
    except (pa.ArrowException, ValueError) as error:
        raise BadRequest("the request is not a Flight Ticket message") from error
    return ticket


def decode_descriptor(message: bytes) -> flight.FlightDescriptor:
    """Decode a FlightDescriptor message. Raises: BadRequest."""
    try:
        return flight.FlightDescriptor.deserialize(message)
    except (pa.ArrowException, ValueError) as error:
        raise BadRequest("the request has no valid Flight descriptor") from error


def decode_criteria(message: bytes) -> bytes:
    """Decode a Criteria message, which pyarrow does not expose. Raises: BadRequest."""
    expression = b""
    for number, value in protobuf_fields(memoryview(message)):
        if number == 1 and isinstance(value, memoryview):
            expression = bytes(value)
    return expression


def encode_result(body: bytes) -> bytes:
    """Encode a Result message of DoAction. By hand: every call of a statement needs one."""
    return _field(1, body)


def encode_action_type(name: str, description: str) -> bytes:
    """Encode an ActionType message, which pyarrow does not serialise."""
    return _field(1, name.encode()) + _field(2, description.encode())


def encode_put_result(app_metadata: bytes) -> bytes:
    """Encode a PutResult message, which pyarrow does not expose."""
    return _field(1, app_metadata)


def encode_schema_result(arrow_schema: pa.Schema) -> bytes:
    """Encode the answer of GetSchema."""
    encoded: bytes = flight.SchemaResult(arrow_schema).serialize()
    return encoded


def encode_endpoint(ticket: bytes, location: str = REUSE_CONNECTION) -> bytes:
    """Encode an endpoint, read on the caller's connection unless a location says otherwise.

    Without any location the client fails (T48).
    """
    encoded: bytes = flight.FlightEndpoint(ticket, [location]).serialize()
    return encoded


def encode_flight_info(
    arrow_schema: pa.Schema,
    descriptor: flight.FlightDescriptor,
    *,
    app_metadata: bytes = b"",
    tickets: tuple[bytes, ...] = (),
    total_records: int = -1,
) -> bytes:
    """Encode a FlightInfo.

    In catalog listings the tickets are left out, since the client ignores them there (airport
    §3.5).
    """
    endpoints = [flight.FlightEndpoint(ticket, [REUSE_CONNECTION]) for ticket in tickets]
    info = flight.FlightInfo(
        arrow_schema, descriptor, endpoints, total_records, -1, False, app_metadata
    )
    encoded: bytes = info.serialize()
    return encoded


def protobuf_fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield a protobuf message's fields in order: views where length-delimited, otherwise integers.

    Raises: BadRequest when the bytes are no protobuf message.
    """
    position, end = 0, len(message)
    while position < end:
        tag, position = _read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _LENGTH_DELIMITED:
            length, position = _read_varint(message, position)
            if length > end - position:
                raise BadRequest("the request is cut off: a field is longer than the message")
            yield number, message[position : position + length]
            position += length
        elif wire_type == 0:
            integer, position = _read_varint(message, position)
            yield number, integer
        elif wire_type in (1, 5):
            width = 8 if wire_type == 1 else 4
            if width > end - position:
                raise BadRequest("the request is cut off: a field is longer than the message")
            yield number, int.from_bytes(message[position : position + width], "little")
            position += width
        else:
            raise BadRequest("the request is not a protobuf message")


def varint(value: int) -> bytes:
    """Encode an integer in protobuf's variable length."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def short_varint(message: bytes, position: int) -> tuple[int, int]:
    """Read an integer of at most four bytes; returns it and its end, which is 0 if it is longer."""
    value = shift = 0
    for byte in message[position : position + 4]:
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, 0


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise BadRequest("the request is not a protobuf message")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(value)) + value
