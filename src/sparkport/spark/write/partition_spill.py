"""Rows of partitions that are too small for a file yet, on disk until all rows have come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sparkport.spark.iceberg.storage import Storage

__all__ = ["Spill"]


class Spill:
    """Rows by key, in a file of Arrow's format, which the caller removes.

    First all rows are put there, then they are taken.
    """

    def __init__(self, storage: Storage, location: str, columns: pa.Schema) -> None:
        """Create the file. Raises: OSError."""
        self._storage = storage
        self._location = location
        self._sink = storage.create(location)
        self._writer = pa.ipc.new_file(
            self._sink, columns, options=pa.ipc.IpcWriteOptions(compression="lz4")
        )
        self._reader: Any = None
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        """For each key, the numbers of its batches."""
        self._batches = 0

    def put(self, pieces: Iterable[tuple[str, pa.Table]]) -> None:
        """Write rows of a key. Raises: OSError."""
        for key, rows in pieces:
            self._writer.write_batch(rows.combine_chunks().to_batches()[0])
            self._places[key].append(self._batches)
            self._batches += 1

    def take(self, key: str) -> Iterator[pa.RecordBatch]:
        """The rows of a key, in the order in which they came. Raises: OSError."""
        if self._reader is None:
            self.close()
            self._reader = pa.ipc.open_file(self._storage.open_once(self._location))
        for number in self._places.pop(key, ()):
            yield self._reader.get_batch(number)

    def close(self) -> None:
        """Close the file. Raises: OSError when not all of it was written."""
        self._writer.close()
        self._sink.close()

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self.close()
