"""Batches of a statement that wait for others."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["POOL", "Block", "BlockSize", "Gathered"]

POOL = pa.system_memory_pool()
"""Where rows are put together. Arrow's own pool gives memory back to the system at once and takes
it again at once, which made this three times as slow (1 M rows of 7 columns: 175 ms against 60
ms)."""


_SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BlockSize:
    """How many rows, or bytes, are enough to go on with; by default there are never enough."""

    rows: int = sys.maxsize
    bytes: int = sys.maxsize


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Batches with the same columns."""

    batches: Sequence[pa.RecordBatch]
    rows: int
    bytes: int

    def joined(self) -> Block:
        """The rows as one batch, where Arrow can join them: it cannot for every type, nor for more
        than 2 GB of text.
        """
        if len(self.batches) < 2:
            return self
        try:
            return Block([pa.concat_batches(self.batches, memory_pool=POOL)], self.rows, self.bytes)
        except pa.ArrowException:
            return self


class Gathered:
    """DuckDB sends 2048 rows at a time; files, segments and constraints want more of them together.
    For one thread.
    """

    def __init__(self, size: BlockSize) -> None:
        self._size = size
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[Block]:
        """Keep a batch; the blocks that are full then, of which the batch may be part."""
        full = []
        if self._rows and self._rows + batch.num_rows > self._size.rows:
            full.append(self.take())
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            # The exact size takes forty times as long to find out, and matters only for parts of
            # something large.
            size = batch.get_total_buffer_size()
            self._bytes += size if size < _SMALL_BYTES else batch.nbytes
        if self._rows >= self._size.rows or self._bytes >= self._size.bytes:
            full.append(self.take())
        return full

    def is_within(self, size: BlockSize) -> bool:
        """Whether what waits has at most this size."""
        return self._rows <= size.rows and self._bytes <= size.bytes

    def take(self) -> Block:
        """Everything that waits; then nothing does."""
        block = Block(self._batches, self._rows, self._bytes)
        self._batches, self._rows, self._bytes = [], 0, 0
        return block
