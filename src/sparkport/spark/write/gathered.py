"""Batches of a statement that wait for others."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["Gathered"]

_FULL_ROWS = 122_880
_FULL_BYTES = 32 * 1024 * 1024


class Gathered:
    """DuckDB sends 2048 rows at a time, and files want more of them together. For one thread."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            self.rows += batch.num_rows
            self.bytes += batch.nbytes

    @property
    def is_full(self) -> bool:
        return self.rows >= _FULL_ROWS or self.bytes >= _FULL_BYTES

    def take(self) -> list[pa.RecordBatch]:
        batches = self._batches
        self._batches, self.rows, self.bytes = [], 0, 0
        if len(batches) < 2:
            return batches
        try:
            return [pa.concat_batches(batches)]
        except pa.ArrowException:
            return batches  # Arrow cannot do it for every type, nor for more than 2 GB of text
