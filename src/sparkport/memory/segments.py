"""Immutable runs of rows, shared by all versions of a table that contain them.

The segments of a version are in ascending order of row id and do not overlap, so that a row is
found by bisection. An INSERT adds segments at the end (`merging.py`); an UPDATE or DELETE replaces
the segments it touches (`rows.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, overload

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.engine.gathered import POOL

if TYPE_CHECKING:
    from sparkport.memory.statistics import Summary

__all__ = [
    "LazyColumns",
    "SEGMENT_ROWS",
    "Segment",
    "bytes_of",
    "count_rows",
    "joined",
    "ramp",
    "segments_of",
    "shifted",
    "with_ids",
]

SEGMENT_ROWS = 131_072
"""The most rows of a segment: enough to stream well, few enough for an UPDATE to copy."""

_RAMP: pa.Array = pa.arange(0, SEGMENT_ROWS)
_ROWS_OF = attrgetter("rows")


def ramp(first: int, rows: int) -> pa.Array:
    """`rows` consecutive integers from `first`.

    Adding to an existing array is ten times faster than `pa.arange`.
    """
    if rows > SEGMENT_ROWS:
        return pa.arange(first, first + rows)
    return shifted(_RAMP.slice(0, rows), first) if first else _RAMP.slice(0, rows)


def shifted(values: pa.Array, by: int) -> pa.Array:
    """int64 values plus a number.

    With a plain Python number Arrow looks for pandas first, which takes 0.2 ms every time.
    """
    return pc.add(values, pa.scalar(by, pa.int64()))


def bytes_of(values: pa.Array) -> int:
    """About as many bytes as an array has, of its buffers only what it shows.

    `nbytes` is exact, and takes thirty times as long for the plain types.
    """
    if isinstance(values, pa.DictionaryArray):
        return int(values.nbytes)
    try:
        return int(values.type.bit_width * len(values) + 7) // 8
    except ValueError:  # values of no fixed size
        return int(values.nbytes)


class LazyColumns(Sequence[pa.Array]):
    """The columns of many small batches, joined when they are first read.

    An INSERT of a million rows comes in batches of 2048. Joining them takes as long as receiving
    them, and need not keep the statement waiting. Thread-safe.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], nbytes: int) -> None:
        self._batches = list(batches)
        self._width = int(batches[0].num_columns)
        self._columns: tuple[pa.Array, ...] | None = None
        self._lock = threading.Lock()
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self._width

    @property
    def is_read(self) -> bool:
        """Whether anybody can have an array of these columns."""
        return self._columns is not None

    @overload
    def __getitem__(self, index: int) -> pa.Array: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[pa.Array]: ...
    def __getitem__(self, index: int | slice) -> pa.Array | Sequence[pa.Array]:
        with self._lock:
            if self._columns is None:
                self._columns = tuple(pa.concat_batches(self._batches, memory_pool=POOL).columns)
                self._batches = []
            columns = self._columns
        return columns[index]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A run of rows: an array for each column, in the order of the definition, and the row ids."""

    columns: Sequence[pa.Array]
    rows: int
    first_id: int
    ids: pa.Array | None = None
    """Ascending int64; None when the ids are consecutive."""
    summaries: dict[int, Summary] = field(default_factory=dict, repr=False)
    """Summaries by position of the column, computed when first asked for by `statistics.py`."""
    sizes: dict[int, int] = field(default_factory=dict, repr=False)
    """Bytes by position of the column, computed when first asked for."""
    shares: bool = False
    """Whether its columns may be parts of another segment's. False is a promise."""

    @property
    def last_id(self) -> int:
        return self.first_id + self.rows - 1 if self.ids is None else int(self.ids[-1].as_py())

    @property
    def nbytes(self) -> int:
        if isinstance(self.columns, LazyColumns):
            return int(self.columns.nbytes)
        return sum([self.column_bytes(position) for position in range(len(self.columns))])

    def column_bytes(self, position: int) -> int:
        """Bytes of a column; of the row ids for the position after the last column."""
        if position == len(self.columns):
            return 8 * self.rows
        size = self.sizes.get(position)
        if size is None:
            size = self.sizes[position] = bytes_of(self.columns[position])
        return size

    def row_ids(self, start: int = 0, rows: int | None = None) -> pa.Array:
        rows = self.rows - start if rows is None else rows
        return (
            ramp(self.first_id + start, rows) if self.ids is None else self.ids.slice(start, rows)
        )

    def slice(self, start: int, rows: int) -> Segment:
        """Some of the rows, without copying them."""
        if rows == self.rows:
            return self
        columns = tuple(column.slice(start, rows) for column in self.columns)
        if self.ids is None:
            return Segment(columns, rows, self.first_id + start, shares=True)
        return with_ids(columns, self.ids.slice(start, rows), shares=True)

    def with_columns(self, columns: Iterable[pa.Array]) -> Segment:
        """The same rows with other columns, among which may be those that it has."""
        return Segment(tuple(columns), self.rows, self.first_id, self.ids, shares=True)


def with_ids(columns: tuple[pa.Array, ...], ids: pa.Array, *, shares: bool = False) -> Segment:
    """Make a segment of rows with these ids; there must be at least one row."""
    first, last = int(ids[0].as_py()), int(ids[-1].as_py())
    gaps = None if last - first + 1 == len(ids) else ids
    return Segment(columns, len(ids), first, gaps, shares=shares)


def segments_of(batches: Iterable[pa.RecordBatch], first_id: int) -> list[Segment]:
    """Cut batches into segments without copying, with row ids from `first_id`."""
    segments = []
    for batch in batches:
        columns = tuple(batch.columns)
        for start in range(0, batch.num_rows, SEGMENT_ROWS):
            rows = min(SEGMENT_ROWS, batch.num_rows - start)
            part = (
                columns if rows == batch.num_rows else tuple(c.slice(start, rows) for c in columns)
            )
            segments.append(Segment(part, rows, first_id))
            first_id += rows
    return segments


def count_rows(segments: Iterable[Segment]) -> int:
    return sum(map(_ROWS_OF, segments))  # in C: a table may have thousands of segments


def joined(segments: Sequence[Segment]) -> Segment:
    """Copy segments, which are in ascending order, into one."""
    if len(segments) == 1:
        return segments[0]
    columns = tuple(
        pa.concat_arrays(parts, POOL) for parts in zip(*(s.columns for s in segments), strict=True)
    )
    rows, first, last = count_rows(segments), segments[0].first_id, segments[-1].last_id
    ids = None if last - first + 1 == rows else pa.concat_arrays([s.row_ids() for s in segments])
    return Segment(columns, rows, first, ids)
