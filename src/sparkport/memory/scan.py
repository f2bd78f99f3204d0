"""Read a version: slices of its segments, in order, without copying."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from sparkport.catalog import Context, ScanOptions
from sparkport.catalog.names import folded
from sparkport.engine.cache import Cache
from sparkport.errors import BadRequest, Conflict, NotFound
from sparkport.memory.definition import TableName
from sparkport.memory.segments import SEGMENT_ROWS, Segment
from sparkport.memory.settings import MemorySettings
from sparkport.memory.versions import History, Version

__all__ = ["divide", "read_partition", "scan_version"]

_BATCH_BYTES = 8 * 1024 * 1024
_ALIGNMENT = 1024
"""Slices begin at multiples of this within a segment. Sending them then shifts no bitmap."""

_SMALL_BYTES = 16 * 1024
"""Bytes of a batch that is remembered."""

_PARTITION = struct.Struct("<8sQQQ")
"""Content of a partition: the table's key, the version's serial, first row, row after the last."""


def scan_version(
    ctx: Context, version: Version, options: ScanOptions, start: int = 0, stop: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from position `start` to before `stop`.

    Raises: NotFound for an unknown column.
    """
    projection = _projection(version.definition.arrow_schema, options.columns)
    return _batches(ctx, version, options, projection, start, stop)


class _Projection:
    """Some columns of a table. Thread-safe."""

    __slots__ = ("arrow_schema", "own", "positions", "small")

    def __init__(self, own: pa.Schema, columns: Sequence[str] | None) -> None:
        """`own` is the Arrow schema of the table. Raises: NotFound for an unknown column."""
        self.own = own
        self.positions = _positions(own.names, columns)
        self.arrow_schema: pa.Schema = pa.schema([own.field(each) for each in self.positions])
        self.small: tuple[Segment, pa.RecordBatch] | None = None
        """The last small segment that was read as a whole, and its batch; replaced as a whole."""

    def batch(self, segment: Segment, start: int, rows: int) -> pa.RecordBatch:
        """Some rows of a segment."""
        known = self.small
        if known is not None and known[0] is segment and rows == segment.rows:
            return known[1]
        columns = [_column(segment, position, start, rows) for position in self.positions]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
        if rows == segment.rows and batch.get_total_buffer_size() <= _SMALL_BYTES:
            self.small = segment, batch
        return batch


_projections: Cache[tuple[int, tuple[str, ...] | None], _Projection] = Cache(2_000)


def _projection(own: pa.Schema, columns: Sequence[str] | None) -> _Projection:
    """Arrow schemas are immutable, and the cache keeps them alive, so identity will do."""
    key = (id(own), None if columns is None else tuple(columns))
    known = _projections.find(key, None)
    if known is None or known.own is not own:
        known = _Projection(own, columns)
        _projections.replace(key, known)
    return known


def _positions(names: Sequence[str], columns: Sequence[str] | None) -> list[int]:
    if columns is None:
        return list(range(len(names)))
    if not columns:
        return [0]  # any column will do: only the number of rows matters
    wanted = {folded(name) for name in columns}
    found = [position for position, name in enumerate(names) if folded(name) in wanted]
    if len(found) < len(wanted):
        missing = wanted - {folded(name) for name in names}
        raise NotFound(f"there is no column {', '.join(sorted(name.decode() for name in missing))}")
    return found


def _batches(
    ctx: Context,
    version: Version,
    options: ScanOptions,
    projection: _Projection,
    start: int,
    stop: int | None,
) -> Iterator[pa.RecordBatch]:
    # With a filter, the service leaves rows out later: more than `limit` rows may be needed here.
    left = options.limit if options.limit > 0 and options.filter is None else None
    done, total = 0, (version.rows if stop is None else stop) - start
    for segment, first, last in _parts(version.segments, start, stop):
        step = _slice_rows(segment, projection.positions, options.batch_size)
        at = first
        while at < last:
            ctx.check()
            rows = min(step - at % step, last - at)
            if left is not None:
                rows = min(rows, left)
                left -= rows
            done += rows
            ctx.report_progress(done / total)
            yield projection.batch(segment, at, rows)
            if left == 0:
                return
            at += rows


def _parts(
    segments: Sequence[Segment], start: int, stop: int | None
) -> Iterator[tuple[Segment, int, int]]:
    offset = 0
    for segment in segments:
        first = max(0, start - offset)
        last = segment.rows if stop is None else min(segment.rows, stop - offset)
        if first < last:
            yield segment, first, last
        offset += segment.rows
        if stop is not None and offset >= stop:
            return


def _column(segment: Segment, position: int, start: int, rows: int) -> pa.Array:
    if position == len(segment.columns):
        return segment.row_ids(start, rows)
    column = segment.columns[position]
    return column if rows == segment.rows else column.slice(start, rows)


def _slice_rows(segment: Segment, positions: Sequence[int], batch_size: int) -> int:
    if batch_size > 0:
        return batch_size
    size = sum([segment.column_bytes(position) for position in positions])
    rows = _BATCH_BYTES * segment.rows // max(size, 1)
    if rows >= min(segment.rows, SEGMENT_ROWS):
        return SEGMENT_ROWS
    return max(8, rows - rows % (_ALIGNMENT if rows >= _ALIGNMENT else 8))


def divide(version: Version, key: bytes, settings: MemorySettings) -> list[bytes]:
    """Divide a version into contiguous parts of about equal size; none when it has no rows."""
    rows = version.rows
    parts = max(1, min(settings.partitions, rows // settings.partition_rows))
    bounds = [
        0,
        *(_aligned(version.segments, rows * part // parts) for part in range(1, parts)),
        rows,
    ]
    return [
        _PARTITION.pack(key, version.serial, start, stop)
        for start, stop in pairwise(bounds)
        if start < stop
    ]


def _aligned(segments: Sequence[Segment], row: int) -> int:
    offset = 0
    for segment in segments:
        if row < offset + segment.rows:
            return row - (row - offset) % _ALIGNMENT
        offset += segment.rows
    return offset


def read_partition(
    ctx: Context, history: History, key: bytes, options: ScanOptions, table: TableName
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition. Raises: Conflict when its version is gone."""
    assert options.partition is not None
    if len(options.partition) != _PARTITION.size:
        raise BadRequest(f"the partition is not one of table {table}")
    own, serial, start, stop = _PARTITION.unpack(options.partition)
    version = history.pinned(serial) if own == key else None
    if version is None:
        raise Conflict(f"table {table} has changed since the query was planned: run it again")
    return scan_version(ctx, version, options, start, stop)
