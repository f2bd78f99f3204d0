"""Protobuf messages, read and written field by field, for the small messages of Flight SQL."""

from __future__ import annotations

from collections.abc import Iterator

from sparkport.errors import BadRequest
from sparkport.wire.flight import protobuf_fields, varint

__all__ = ["encode_field", "fields", "integer", "malformed", "text", "view"]

_LENGTH_DELIMITED = 2


def fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the numbers and values of a message's fields, in order. Raises: BadRequest."""
    try:
        yield from protobuf_fields(message)
    except BadRequest as error:
        raise malformed() from error


def text(value: memoryview | int) -> str:
    """Return a field's value as text. Raises: BadRequest."""
    try:
        return str(view(value), "utf-8")
    except UnicodeDecodeError as error:
        raise malformed() from error


def view(value: memoryview | int) -> memoryview:
    """Return a field's value as bytes. Raises: BadRequest."""
    if isinstance(value, int):
        raise malformed()
    return value


def integer(value: memoryview | int) -> int:
    """Return a field's value as an integer. Raises: BadRequest."""
    if not isinstance(value, int):
        raise malformed()
    return value


def malformed() -> BadRequest:
    """The error for bytes that are not the message that they should be."""
    return BadRequest("the Flight SQL command is not a valid protobuf message")


def encode_field(number: int, value: bytes | str | int) -> bytes:
    """Encode a field; a negative integer takes 64 bits, of which the upper are set."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(data)) + data
