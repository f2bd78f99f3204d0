"""The rows of small scans that were read a moment ago.

A state of a table and all files that it names are immutable, so the same columns of the same files
are the same rows. Opening a Parquet file of 25 rows takes longer than all else about such a query.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import pyarrow as pa

from sparkport.engine.cache import Cache

__all__ = ["recent_rows"]

_LARGEST = 256 * 1024
"""Bytes of the rows of one scan."""
_MOST = 32 * 1024 * 1024
_FIXED = 4 * 1024
"""What an entry takes besides its rows, about."""

_remembered: Cache[Hashable, tuple[pa.RecordBatch, ...]] = Cache(_MOST, unused_seconds=60.0)


def recent_rows(
    key: Hashable, read: Callable[[], Iterable[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that `read` gives, or has given under this key before.

    The key names the state, the columns and the files. Rows are remembered when all of them have
    been read, and are few.
    """
    known = _remembered.find(key, None)
    if known is not None:
        yield from known
        return
    rows: list[pa.RecordBatch] = []
    size = _FIXED
    for batch in read():
        size += batch.get_total_buffer_size()
        if size <= _LARGEST:
            rows.append(batch)
        else:
            rows.clear()
        yield batch
    if size <= _LARGEST:
        _remembered.add(key, tuple(rows), size)
