"""How large a compressed Arrow message becomes, read off it before it is read: a few bytes may
claim gigabytes.

Arrow allocates what each compressed buffer claims to hold, and refuses it if it holds anything
else; so the sum of those claims is what it costs.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from sparkport.errors import BadRequest, LimitExceeded

__all__ = ["MOST_INFLATED", "Dictionary", "dictionary_of", "inflated_size", "refuse_inflated"]

MOST_INFLATED = 1 << 30
"""Bytes of one batch, once it is unpacked."""

_DICTIONARY, _RECORD_BATCH = 2, 3  # of Arrow's union MessageHeader
_SLOT_KIND, _SLOT_HEADER = (
    6,
    8,
)  # places of fields in the vtables: Message.header_type, Message.header
_SLOT_ID, _SLOT_DATA, _SLOT_IS_DELTA = 4, 6, 8  # of DictionaryBatch
_SLOT_BUFFERS, _SLOT_COMPRESSION = 8, 10  # RecordBatch.buffers, RecordBatch.compression
_MOST_BUFFERS = 1 << 20
_EXPERIMENTAL = b"ARROW:experimental_compression"
"""How messages of old versions say so, which Arrow still understands."""

_offset = Struct("<I").unpack_from
_back = Struct("<i").unpack_from
_slot = Struct("<H").unpack_from
_buffer = Struct("<qq").unpack_from
_claim = Struct("<q").unpack_from


def refuse_inflated(size: int, limit: int = MOST_INFLATED) -> None:
    """Raises: LimitExceeded when what a batch becomes is too much."""
    if size > limit:
        raise LimitExceeded(
            f"a batch becomes {size / 1e6:.0f} MB when it is unpacked: send at most {limit / 1e6:.0f} MB at once"
        )


def inflated_size(header: bytes | memoryview, body: bytes | memoryview) -> int:
    """Bytes that unpacking a message takes, whose header is Arrow's; 0 when it is not compressed.

    Raises: BadRequest for a header that cannot be followed.
    """
    try:
        return _inflated(header, body)
    except (error, IndexError) as problem:
        raise BadRequest("the stream holds an invalid Arrow batch") from problem


class Dictionary(NamedTuple):
    """Which dictionary a message brings, and whether it goes on with the one before."""

    id: int
    is_delta: bool


def dictionary_of(header: bytes | memoryview) -> Dictionary | None:
    """What an Arrow message says about its dictionary; None when it brings none. Raises:
    BadRequest.
    """
    try:
        kind, place = _content(header)
        if kind != _DICTIONARY:
            return None
        number, is_delta = _place(header, place, _SLOT_ID), _place(header, place, _SLOT_IS_DELTA)
        return Dictionary(
            0 if number is None else _claim(header, number)[0], bool(is_delta and header[is_delta])
        )
    except (error, IndexError) as problem:
        raise BadRequest("the stream holds an invalid Arrow batch") from problem


def _content(header: bytes | memoryview) -> tuple[int, int]:
    """Of which kind a message is, and where its content is."""
    message = _offset(header, 0)[0]
    kind, place = _place(header, message, _SLOT_KIND), _place(header, message, _SLOT_HEADER)
    if kind is None or place is None:
        return 0, 0
    return header[kind], place + _offset(header, place)[0]


def _inflated(header: bytes | memoryview, body: bytes | memoryview) -> int:
    kind, batch = _content(header)
    if kind not in (_DICTIONARY, _RECORD_BATCH):
        return 0
    if kind == _DICTIONARY:
        data = _place(header, batch, _SLOT_DATA)
        if data is None:
            return 0
        batch = data + _offset(header, data)[0]
    buffers = _place(header, batch, _SLOT_BUFFERS)
    if buffers is None:
        return 0
    if _place(header, batch, _SLOT_COMPRESSION) is None and _EXPERIMENTAL not in bytes(header):
        return 0
    buffers += _offset(header, buffers)[0]
    count = _offset(header, buffers)[0]
    if count > _MOST_BUFFERS:
        raise IndexError(count)
    size = 0
    for index in range(count):
        start, length = _buffer(header, buffers + 4 + 16 * index)
        if length >= 8:
            if not 0 <= start <= len(body) - 8:
                raise IndexError(start)
            size += max(_claim(body, start)[0], 0)  # -1: this one is not compressed
    return size


def _place(flatbuffer: bytes | memoryview, table: int, slot: int) -> int | None:
    """Where a field of a table is: tables refer to their vtables backwards, and those say so."""
    vtable = table - _back(flatbuffer, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    if slot + 2 > _slot(flatbuffer, vtable)[0]:
        return None
    place: int = _slot(flatbuffer, vtable + slot)[0]
    return table + place if place else None
