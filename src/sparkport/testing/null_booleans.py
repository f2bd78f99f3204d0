"""A defect of DuckDB 1.5.0: BOOLEANs that are all NULL, sent losslessly (airport §13.3)."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["as_duckdb_1_5_0_sends"]

_GARBAGE = b"\x5a\xba\x0d\xf0"
"""Bytes that uninitialised memory may hold."""


def as_duckdb_1_5_0_sends(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Mark only the first row of a BOOLEAN column as NULL where all of its rows are.

    DuckDB has a single value for all rows of such a column, but takes it for a value per row, and
    reads beyond it. Any column whose values are all NULL is treated so here.
    """
    columns = [_garbled(column) if _is_null_boolean(column) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_null_boolean(column: pa.Array) -> bool:
    return bool(column.type == pa.bool8() and len(column) == column.null_count)


def _garbled(column: pa.Array) -> pa.Array:
    count = len(column)
    octets = (_GARBAGE * (count // len(_GARBAGE) + 1))[:count]
    validity = b"\xfe" + b"\xff" * (count // 8)
    storage = pa.Array.from_buffers(
        pa.int8(), count, [pa.py_buffer(validity), pa.py_buffer(octets)]
    )
    return pa.ExtensionArray.from_storage(column.type, storage)
