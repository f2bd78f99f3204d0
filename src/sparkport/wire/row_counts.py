"""The number of rows in a FlightData message, read from its header without decoding the rest.

The server counts rows at its edge, so that every route is counted, also rows that another process
framed and that are only passed on.
"""

from __future__ import annotations

from struct import Struct, error

from sparkport.wire.flight import short_varint

__all__ = ["count_rows"]

_HEADER = 0x12  # field 2, length-delimited
_BEFORE_HEADER = (0x0A, 0x1A)  # the descriptor and the metadata, which may come first
_RECORD_BATCH = 3  # of Arrow's union MessageHeader
_MOST_ROWS = 1 << 31
"""Counts that a client sends are not validated yet, and must not spoil the sums."""

_offset = Struct("<I").unpack_from
_back = Struct("<i").unpack_from
# Sizes of the vtable and the table; version, header's type, header.
_message = Struct("<HHHHH").unpack_from
_field = Struct("<H").unpack_from
_length = Struct("<q").unpack_from


def count_rows(message: bytes) -> int:
    """Return the rows of a record batch; 0 for other messages and for malformed ones."""
    try:
        position = 0
        while message[position] in _BEFORE_HEADER:
            length, start = short_varint(message, position + 1)
            if not start:
                return 0
            position = start + length
        if message[position] != _HEADER:
            return 0
        # Arrow's header is a flatbuffer: tables point back to their vtables, which say where the
        # fields are.
        root = position + 2
        while message[root - 1] >= 0x80:  # the header's length
            root += 1
        table = root + _offset(message, root)[0]
        _, _, _, kind, header = _message(message, table - _back(message, table)[0])
        if message[table + kind] != _RECORD_BATCH:
            return 0
        batch = table + header + _offset(message, table + header)[0]
        rows = _field(message, batch - _back(message, batch)[0] + 4)[0]
        count: int = _length(message, batch + rows)[0] if rows else 0
    except (IndexError, error):
        return 0
    return count if 0 <= count <= _MOST_ROWS else 0
