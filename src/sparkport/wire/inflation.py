"""The size of a compressed Arrow message once unpacked, computed before it is unpacked.

A few bytes may claim gigabytes. Arrow allocates what each compressed buffer claims to hold, and
refuses a buffer that holds anything else. So the sum of the claims is the memory it takes.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from sparkport.errors import BadRequest, LimitExceeded

__all__ = ["MOST_INFLATED", "Dictionary", "dictionary_of", "inflated_size", "refuse_inflated"]

MOST_INFLATED = 1 << 30
"""Bytes of a batch, once it is unpacked."""

_DICTIONARY, _RECORD_BATCH = 2, 3  # of Arrow's union MessageHeader
# Offsets of fields in the vtables:
_SLOT_KIND, _SLOT_HEADER = 6, 8  # of Message: header_type, header
_SLOT_ID, _SLOT_DATA, _SLOT_IS_DELTA = 4, 6, 8  # of DictionaryBatch
_SLOT_BUFFERS, _SLOT_COMPRESSION = 8, 10  # of RecordBatch
_MOST_BUFFERS = 1 << 20
_EXPERIMENTAL = b"ARROW:experimental_compression"
"""The mark of a compressed message in old versions of Arrow, which Arrow still understands."""

_offset = Struct("<I").unpack_from
_back = Struct("<i").unpack_from
_slot = Struct("<H").unpack_from
_buffer = Struct("<qq").unpack_from
_claim = Struct("<q").unpack_from


def refuse_inflated(size: int, limit: int = MOST_INFLATED) -> None:
    """Refuse a batch that is too large once unpacked. Raises: LimitExceeded."""
    if size > limit:
        raise LimitExceeded(
            f"a batch becomes {size / 1e6:.0f} MB when it is unpacked: send at most "
            f"{limit / 1e6:.0f} MB at once"
        )


def inflated_size(header: bytes | memoryview, body: bytes | memoryview) -> int:
    """Return the bytes that an Arrow message takes once unpacked; 0 when it is not compressed.

    Raises: BadRequest for a header that cannot be parsed.
    """
    try:
        return _inflated(header, body)
    except (error, IndexError) as problem:
        raise BadRequest("the stream holds an invalid Arrow batch") from problem


class Dictionary(NamedTuple):
    """The id of the dictionary that a message brings, and whether it extends the previous one."""

    id: int
    is_delta: bool


def dictionary_of(header: bytes | memoryview) -> Dictionary | None:
    """Return the dictionary that an Arrow message brings; None when it brings none.

    Raises: BadRequest.
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
    """Return the kind of a message, and the position of its content."""
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
            size += max(_claim(body, start)[0], 0)  # -1: this buffer is not compressed
    return size


def _place(flatbuffer: bytes | memoryview, table: int, slot: int) -> int | None:
    """Find a field of a flatbuffer table: the table points back to a vtable, which has offsets."""
    vtable = table - _back(flatbuffer, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    if slot + 2 > _slot(flatbuffer, vtable)[0]:
        return None
    place: int = _slot(flatbuffer, vtable + slot)[0]
    return table + place if place else None
