"""A data file that is being read. It is opened only where that is needed: asking a store for bytes
at known places takes no more than the footer, and that is remembered.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkport.spark.iceberg.locations import open_parquet, remembered_footer, storage_at
from sparkport.spark.iceberg.storage import Storage

__all__ = ["ByteRange", "DataFile"]

ByteRange = tuple[int, int]
"""Where bytes begin in a file, and how many they are."""

_AT_ONCE = 8
_NEAR = 256 * 1024
"""Bytes between two ranges of a store that cost less than another request."""
_MOST_TOGETHER = 8 * 1024 * 1024


class DataFile:
    """A Parquet file of a table, for a `with` statement and one thread."""

    def __init__(self, location: str, properties: Mapping[str, str], size: int) -> None:
        self.location = location
        self.size = size
        self._properties = properties
        self._closing = ExitStack()

    def __enter__(self) -> DataFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.__exit__(kind, error, traceback)

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._footer[0]

    @property
    def schema_arrow(self) -> pa.Schema:
        return self._footer[1]

    @property
    def reader(self) -> Any:
        """Arrow's reader of the file."""
        return self._opened.reader

    @cached_property
    def _footer(self) -> tuple[pq.FileMetaData, pa.Schema]:
        remembered = remembered_footer(self.location, self.size)
        return remembered or (self._opened.metadata, self._opened.schema_arrow)

    @cached_property
    def _opened(self) -> pq.ParquetFile:
        return self._closing.enter_context(open_parquet(self.location, self._properties, self.size))

    @property
    def is_local(self) -> bool:
        return self._storage.is_local

    @cached_property
    def _storage(self) -> Storage:
        return storage_at(self.location, self._properties)

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Bytes of the file, range by range. A store is asked for neighbours together, and for all
        at once.

        Raises: OSError; ValueError if the file ends before.
        """
        if self.is_local:
            with self._storage.open(self.location) as file:
                return [_mapped(file, *each) for each in ranges]
        if not ranges:
            return []
        runs = _runs(sorted(set(ranges)))
        starts = [start for start, _ in runs]
        first, *others = runs
        with ThreadPoolExecutor(min(_AT_ONCE, len(others)) or 1, "sparkport-pages") as threads:
            rest = threads.map(lambda run: self._storage.read(self.location, *run), others)
            contents = [self._storage.read(self.location, *first), *rest]
        found = []
        for start, length in ranges:
            run = bisect.bisect_right(starts, start) - 1
            offset = start - starts[run]
            found.append(memoryview(contents[run])[offset : offset + length])
        return found


def _mapped(file: pa.NativeFile, start: int, length: int) -> memoryview:
    file.seek(start)
    content = memoryview(file.read_buffer(length))
    if len(content) < length:
        raise ValueError("the file is too short")
    return content


def _runs(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Sorted ranges, joined where they are near each other."""
    runs: list[ByteRange] = []
    for start, length in ranges:
        if runs:
            first, size = runs[-1]
            end = max(first + size, start + length)
            if start - (first + size) <= _NEAR and end - first <= _MOST_TOGETHER:
                runs[-1] = first, end - first
                continue
        runs.append((start, length))
    return runs
