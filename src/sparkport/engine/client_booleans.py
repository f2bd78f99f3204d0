"""BOOLEANs that DuckDB sends under `arrow_lossless_conversion`, whose bytes may be wrong.

Inside nested types the declared type has one byte for each value, and since DuckDB 1.5.4 that is
true. Earlier versions put one bit for each value into the same buffer, and send whatever follows in
their memory as the rest (airport §13.1, T31). No header tells which version is calling, so the
bytes have to.

For a column that is one NULL for all rows, DuckDB 1.5.0 marks only the first row as NULL, and sends
whatever follows in its memory as the others (§13.3). A byte that is neither 0 nor 1 proves it;
bytes that happen to be 0 or 1 cannot be told from values. Bytes at a NULL may be anything.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.errors import BadRequest

__all__ = ["known_booleans", "plain_booleans"]


def known_booleans(array: pa.Array, path: str) -> pa.Array:
    """The array of the column `path`, unchanged. Raises: BadRequest for bytes that mean nothing."""
    if _has_garbage(array.storage):
        raise _garbage(path)
    return array


def plain_booleans(array: pa.Array, path: str) -> pa.Array:
    """The values of an `arrow.bool8` array inside the column `path`, as `bool`.

    Raises: BadRequest when the bytes have two different readings, or none.
    """
    storage = array.storage
    whole = pc.not_equal(storage, 0)
    if not len(storage):
        return whole
    # All bytes that were sent count, whatever part of them this array is.
    validity, data = storage.buffers()
    count = data.size
    used = -(-count // 8)
    content = pa.Array.from_buffers(pa.uint8(), count, [None, data])
    valid = pa.Array.from_buffers(
        pa.uint8(), count, [validity if validity and validity.size >= used else None, data]
    )
    # Unused bits of the last byte are ones. At a NULL a whole byte may be anything, but hardly
    # that.
    unused = 0xFF << count % 8 & 0xFF if count % 8 else 0
    may_be_bits = content[used - 1].as_py() & unused == unused
    may_be_whole = not _has_garbage(valid)
    if not (may_be_bits or may_be_whole):
        raise _garbage(path)
    bits = pa.Array.from_buffers(pa.bool_(), len(storage), storage.buffers(), offset=storage.offset)
    if not may_be_whole:
        return bits
    if not may_be_bits or whole.equals(bits):
        return whole
    if unused:
        return bits
    if pc.any(pc.equal(content.slice(used), 1)).as_py():
        return whole  # memory that happens to follow hardly consists of zeros and ones alone
    raise BadRequest(
        f"column {path} holds BOOLEANs inside another type, which DuckDB before 1.5.4 encodes in a "
        "way that cannot be told apart here: SET arrow_lossless_conversion = false, and try again"
    )


def _has_garbage(octets: pa.Array) -> bool:
    bounds = pc.min_max(octets)
    return bool(
        len(octets) != octets.null_count
        and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() <= 1
    )


def _garbage(path: str) -> BadRequest:
    return BadRequest(
        f"column {path} holds BOOLEANs that are neither true nor false: under "
        "arrow_lossless_conversion DuckDB 1.5.0 sends such for a column that is NULL in all rows, "
        "as one that an INSERT leaves out is: SET arrow_lossless_conversion = false, or name the "
        "column, with values that are not all NULL"
    )
