"""Rows on their way to files: gathered by the caller, written by a thread.

Strategy: one thread writes the last block of rows while the caller gathers the next. There are
never more than two blocks, so memory stays flat, and a slow storage slows the client down. A
statement with less than a block is written without a thread.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from sparkport.engine.gathered import Block, BlockSize, Gathered
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake.changes import WrittenFile

__all__ = ["BackgroundWriter", "Sink"]

_FEW = BlockSize(2048, 256 * 1024)
"""Rows that can wait in memory for the commit, even of many statements."""


class Sink(Protocol):
    """Where gathered rows go. Only one thread uses it at a time."""

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as they are written. Called while another thread may be in `add`. Raises:
        ConstraintViolation.
        """

    def add(self, rows: pa.Table) -> None:
        """Raises: OSError, pa.ArrowException."""

    def finish(self) -> list[WrittenFile]:
        """Raises: OSError, pa.ArrowException."""

    def abandon(self) -> None:
        """Never raises."""


class BackgroundWriter:
    """Writes the rows of one statement. For one thread at a time; ended by `finish` or `abort`."""

    def __init__(self, identifier: Identifier, sink: Sink, block: BlockSize) -> None:
        self._identifier = identifier
        self._sink = sink
        self._gathered = Gathered(block)
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows: stored columns by name, and `_row_id` where that was asked for. A column that
        is missing is NULL.

        Raises: ConstraintViolation for NULL where there must be none; LimitExceeded when the
        storage is full; PermissionDenied, PreconditionFailed.
        """
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            if batch.num_rows:
                for block in self._gathered.add(self._sink.fitted(batch)):
                    self._hand_over(block)

    def take_few(self) -> pa.Table | None:
        """Take the rows out, if they are few and none of them was written; else None."""
        if self._thread is not None or not self._gathered.is_within(_FEW):
            return None
        return pa.Table.from_batches(self._gathered.take().batches)

    def finish(self) -> list[WrittenFile]:
        """Write what is left; then the files are complete, and survive a power cut. Raises: as
        `write`.
        """
        with writing(self._identifier):
            self._wait()
            rest = self._gathered.take()
            if rest.rows:
                self._sink.add(pa.Table.from_batches(rest.batches))
            files = self._sink.finish()
        self._stop()
        return files

    def abort(self) -> None:
        """Let go of everything; the files are left for the staging to discard. Never raises."""
        with suppress(Exception):
            self._wait()
        self._gathered.take()
        self._sink.abandon()
        self._stop()

    def _hand_over(self, block: Block) -> None:
        with writing(self._identifier):
            self._wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparkport-writer")
        self._last = self._thread.submit(self._sink.add, pa.Table.from_batches(block.batches))

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
