"""Batches of one statement, kept until the statement is complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

__all__ = ["Spool"]

_IN_MEMORY = 64 * 1024 * 1024


class Spool:
    """Keeps batches of one Arrow schema in memory, and past 64 MiB in an unnamed temporary file.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self.num_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.num_rows += batch.num_rows
        self._bytes += batch.nbytes
        self._batches.append(batch)
        if self._bytes > _IN_MEMORY:
            self._flush()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches, in order. Nothing can be added afterwards."""
        if self._file is not None and self._writer is not None:
            self._flush()
            self._writer.close()
            self._file.seek(0)
            with pa.ipc.open_stream(self._file) as reader:
                yield from reader
        yield from self._batches

    def close(self) -> None:
        """Release memory and file."""
        self._batches = []
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="sparkport-")  # noqa: SIM115 - closed by close()
            # Each batch brings its own dictionaries; a stream may replace them, a file may not.
            self._writer = pa.ipc.new_stream(self._file, self._batches[0].schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches, self._bytes = [], 0
