"""BOOLEANs inside nested types, as DuckDB sends them under `arrow_lossless_conversion` (airport §13.1, T31).

Their type says one byte for each value, and since DuckDB 1.5.4 that is true. Earlier ones put one bit for each into the same
buffer, and what lies behind it in their memory is sent as the rest. No header tells which of them is calling, so the bytes
have to.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.errors import BadRequest

__all__ = ["plain_booleans"]


def plain_booleans(array: pa.Array, path: str) -> pa.Array:
    """The values of an `arrow.bool8` array, `path` being its column, as `bool`.

    Raises: BadRequest when the bytes could mean either, and not the same.
    """
    storage = array.storage
    whole = pc.not_equal(storage, 0)
    bits = pa.Array.from_buffers(pa.bool_(), len(storage), storage.buffers(), offset=storage.offset)
    if not len(storage) or whole.equals(bits):
        return whole
    # All that was sent counts, whatever part of it this array is.
    validity, data = storage.buffers()
    count = data.size
    used = -(-count // 8)
    content = pa.Array.from_buffers(pa.uint8(), count, [None, data])
    valid = pa.Array.from_buffers(pa.uint8(), count, [validity if validity and validity.size >= used else None, data])
    if (pc.max(valid).as_py() or 0) > 1:
        return bits  # whole bytes are 0 or 1
    if count % 8:
        # The bits of the last byte that are not used are ones. At a NULL a whole byte may be anything, but hardly that.
        unused = 0xFF << count % 8 & 0xFF
        return bits if content[used - 1].as_py() & unused == unused else whole
    if pc.any(pc.equal(content.slice(used), 1)).as_py():
        return whole  # memory that happens to follow is hardly made of zeros and ones alone
    raise BadRequest(
        f"column {path} holds BOOLEANs inside another type, which DuckDB before 1.5.4 encodes in a way that cannot be told "
        "apart here: SET arrow_lossless_conversion = false, and try again"
    )
