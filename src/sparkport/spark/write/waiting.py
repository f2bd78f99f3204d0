"""Rows that wait until all of a statement have come, and are then read more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from sparkport.spark.files.parquet_output import writing
from sparkport.spark.write.staging import Staging

__all__ = ["Waiting"]

_PIECE_BYTES = 64 * 1024 * 1024


class Waiting:
    """Rows in pieces of some 64 MiB, of which all but the last are in the statement's folder. For one thread."""

    def __init__(self, staging: Staging, columns: pa.Schema) -> None:
        self._staging = staging
        self._columns = columns
        self._written: list[Path] = []
        self._last: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed."""
        if batch.num_rows:
            self._last.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= _PIECE_BYTES:
                self._put_aside()

    def pieces(self) -> Iterator[Sequence[pa.RecordBatch]]:
        """All rows, in the order in which they came; each piece has some. Raises: as `add`."""
        for path in self._written:
            with writing(self._staging.identifier), pa.memory_map(str(path)) as source:
                piece = pa.ipc.open_stream(source).read_all().to_batches()
            yield piece
        if self._last:
            yield self._last

    def _put_aside(self) -> None:
        path = self._staging.folder / f"waiting-{len(self._written)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            writing(self._staging.identifier),
            pa.OSFile(str(path), "wb") as sink,
            # A stream: of a file, all batches would have to share their dictionaries.
            pa.ipc.new_stream(sink, self._columns, options=options) as writer,
        ):
            for batch in self._last:
                writer.write_batch(batch)
        self._written.append(path)
        self._last, self._bytes = [], 0
