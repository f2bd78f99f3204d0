"""Rows on their way to files: gathered by the caller, written by a thread.

Strategy: one thread writes what was gathered last while the caller gathers more. There is never
more than that, so memory stays flat, and a storage that is slow slows the client down. What is
small is written without a thread.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake.changes import WrittenFile

__all__ = ["GatheringWriter", "Sink"]


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


class GatheringWriter:
    """Writes rows of one statement. For one thread at a time; whoever begins it calls `finish` or
    `abort`.
    """

    def __init__(
        self, identifier: Identifier, sink: Sink, *, block_rows: int, block_bytes: int
    ) -> None:
        self._identifier = identifier
        self._sink = sink
        self._block_rows = block_rows
        self._block_bytes = block_bytes
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows: stored columns by name, and `_row_id` where that was asked for. A column that
        is missing is NULL.

        Raises: ConstraintViolation for NULL where there must be none; LimitExceeded when the
        storage is full; PermissionDenied, PreconditionFailed.
        """
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            if not batch.num_rows:
                continue
            self._gathered.append(self._sink.fitted(batch))
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            if self._rows >= self._block_rows or self._bytes >= self._block_bytes:
                self._hand_over()

    def finish(self) -> list[WrittenFile]:
        """Write what is left; then the files are complete, and survive a power cut. Raises: as
        `write`.
        """
        with writing(self._identifier):
            self._wait()
            if self._gathered:
                self._sink.add(self._taken())
            files = self._sink.finish()
        self._stop()
        return files

    def abort(self) -> None:
        """Let go of everything; the files are left for the staging to discard. Never raises."""
        with suppress(Exception):
            self._wait()
        self._taken()
        self._sink.abandon()
        self._stop()

    def _hand_over(self) -> None:
        with writing(self._identifier):
            self._wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparkport-writer")
        self._last = self._thread.submit(self._sink.add, self._taken())

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _taken(self) -> pa.Table | None:
        gathered, self._gathered = self._gathered, []
        self._rows = self._bytes = 0
        return pa.Table.from_batches(gathered) if gathered else None

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
