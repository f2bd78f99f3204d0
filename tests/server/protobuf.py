"""Protobuf messages of Flight SQL, encoded by hand and independently of the server."""

from __future__ import annotations

from collections.abc import Iterator

PACKAGE = "type.googleapis.com/arrow.flight.protocol.sql."


def varint(value: int) -> bytes:
    head, low = value >> 7, value & 0x7F
    return bytes([low | 0x80]) + varint(head) if head else bytes([low])


def message(*fields: tuple[int, str | bytes | int]) -> bytes:
    """A protobuf message."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value % 2**64)
        else:
            data = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(data)) + data
    return encoded


def command(name: str, *fields: tuple[int, str | bytes | int]) -> bytes:
    """A message of Flight SQL in a `google.protobuf.Any`."""
    return message((1, PACKAGE + name), (2, message(*fields)))


def decoded(encoded: bytes) -> dict[int, bytes | int]:
    """The fields of a message, by number; of a repeated field the last."""
    return dict(_fields(encoded))


def unwrapped(encoded: bytes, name: str) -> dict[int, bytes | int]:
    """The fields of a message in a `google.protobuf.Any`."""
    outer = decoded(encoded)
    assert outer[1] == (PACKAGE + name).encode()
    inner = outer.get(2, b"")
    assert isinstance(inner, bytes)
    return decoded(inner)


def _fields(encoded: bytes) -> Iterator[tuple[int, bytes | int]]:
    position = 0

    def integer() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = encoded[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(encoded):
        tag = integer()
        if tag & 7 == 2:
            length = integer()
            yield tag >> 3, encoded[position : position + length]
            position += length
        else:
            yield tag >> 3, integer()
