"""Flight's actions for sessions and for cancelling (Flight.proto); plain messages, not wrapped."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.errors import BadRequest
from sparkport.wire.protobuf import encode_field, fields, text, view

__all__ = [
    "CancelStatus",
    "OptionError",
    "decode_cancel_flight_info",
    "decode_nothing",
    "decode_set_options",
    "encode_cancel_result",
    "encode_closed",
    "encode_option_errors",
    "encode_options",
    "tickets_of",
]


class CancelStatus(int, Enum):
    """What became of a query that was to be cancelled. The numbers are the protocol's."""

    CANCELLED = 1
    NOT_CANCELLABLE = 3


class OptionError(int, Enum):
    """Why an option of a session was not set. The numbers are the protocol's."""

    INVALID_NAME = 1
    INVALID_VALUE = 2
    ERROR = 3


def decode_nothing(body: bytes) -> None:
    """Decode GetSessionOptionsRequest or CloseSessionRequest: no fields. Raises: BadRequest."""
    for _ in fields(memoryview(body)):
        pass


def decode_set_options(body: bytes) -> dict[str, str | None]:
    """Decode SetSessionOptionsRequest; None stands for a value that is no text. Raises: BadRequest.

    An entry of protobuf's map is a message with a key and a value.
    """
    options: dict[str, str | None] = {}
    for number, entry in fields(memoryview(body)):
        if number != 1:
            continue
        name: str = ""
        chosen: str | None = None
        for part, content in fields(view(entry)):
            if part == 1:
                name = text(content)
            elif part == 2:
                chosen = next(
                    (text(each) for kind, each in fields(view(content)) if kind == 1), None
                )
        options[name] = chosen
    return options


def decode_cancel_flight_info(body: bytes) -> bytes:
    """Decode CancelFlightInfoRequest: the FlightInfo of the query. Raises: BadRequest."""
    info = b""
    for number, value in fields(memoryview(body)):
        if number == 1:
            info = bytes(view(value))
    return info


def tickets_of(info: bytes) -> list[bytes]:
    """The tickets of a FlightInfo. Raises: BadRequest."""
    try:
        endpoints = flight.FlightInfo.deserialize(info).endpoints
        return [endpoint.ticket.ticket for endpoint in endpoints]
    except (pa.ArrowException, ValueError) as error:
        raise BadRequest("the request holds no valid FlightInfo") from error


def encode_cancel_result(status: CancelStatus) -> bytes:
    """Encode CancelFlightInfoResult."""
    return encode_field(1, status.value)


def encode_closed() -> bytes:
    """Encode CloseSessionResult: closed."""
    return encode_field(1, 1)


def encode_options(options: Iterable[tuple[str, str]]) -> bytes:
    """Encode GetSessionOptionsResult, with options that are texts."""
    return b"".join(
        encode_field(1, encode_field(1, name) + encode_field(2, encode_field(1, chosen)))
        for name, chosen in options
    )


def encode_option_errors(errors: Iterable[tuple[str, OptionError]]) -> bytes:
    """Encode SetSessionOptionsResult."""
    return b"".join(
        encode_field(1, encode_field(1, name) + encode_field(2, encode_field(1, error.value)))
        for name, error in errors
    )
