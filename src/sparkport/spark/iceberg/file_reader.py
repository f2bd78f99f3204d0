"""Reads one part of a data file: which row groups, which columns, which rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.engine.filters import Evaluator
from sparkport.spark.iceberg.bounds import UNKNOWN, Bounds, bounds_in_row_group
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.deletes import DeletedPositions
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.lots import LotInFile
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.page_pruning import spans_that_may_match
from sparkport.spark.iceberg.pages import MOST_ROWS, Span, read_pages, windows
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.positions import between
from sparkport.spark.iceberg.projection import file_fields

if TYPE_CHECKING:
    from sparkport.spark.iceberg.part_reader import PartReader

__all__ = ["FileReader", "without_columns"]

_LARGE_GROUP = 65_536
"""From so many rows in a row group on, it pays to look for the pages that are wanted."""
_SMALL_SHARE = 4
"""Pages are read by themselves where the row group has this many times their rows."""
_NEAR = 5
"""Rows are close together if the row group has this many times the rows of the span they cover."""
_MOST_AHEAD = 64 * 1024 * 1024
"""Bytes of a file in a store that are asked for at a time."""


@dataclass(frozen=True, slots=True)
class _RowGroup:
    index: int
    start: int
    rows: int


_Step: TypeAlias = "tuple[int, int, pa.RecordBatch | None]"
"""Rows that are read at a time: position, row count, the file's own columns."""


class FileReader:
    """Reads one part. `file` is None where everything wanted follows from positions."""

    def __init__(
        self,
        reader: PartReader,
        part: FilePart,
        deleted: DeletedPositions | None,
        file: DataFile | None,
        done: int = 0,
    ) -> None:
        """`done`: a filter has been applied to so many rows before; they are left out."""
        self._reader = reader
        self._part = part
        self._deleted = deleted
        self._done = done
        self._file = file
        self._fields = () if file is None else file_fields(file.schema_arrow, reader.name_mapping)
        self._filtered = LotInFile.of(reader.filtered, part, self._fields)
        self._rest = LotInFile.of(reader.rest, part, self._fields)

    def read(self) -> Iterator[pa.RecordBatch | None]:
        if self._reader.evaluator is not None:
            for group in self._row_groups():
                yield from self._read_matching(self._reader.evaluator, group)
            return
        for groups in _runs(self._row_groups()):
            for start, rows, raw in self._raw(self._rest, groups):
                mask = None if self._deleted is None else self._deleted.kept(start, rows)
                arrays = self._values(self._rest, raw, start, rows, mask)
                yield self._reader.batch(arrays, rows if mask is None else mask.true_count)

    def reads_few_pages(self) -> bool:
        """Whether the index of the file's pages rules out most rows of all row groups."""
        return all(self._spans(group) is not None for group in self._row_groups())

    def read_at(self, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        for group in self._row_groups():
            wanted = between(positions, group.start, group.start + group.rows - 1)
            raw = self._positional_read(group, wanted) if len(wanted) else None
            if raw is not None:
                yield self._reader.batch(self._rest.arrays(self._part, raw, wanted), len(wanted))
            elif len(wanted):
                yield from self._read_group_at(group, wanted)

    def _positional_read(self, group: _RowGroup, positions: pa.Array) -> pa.RecordBatch | None:
        """The file's columns at some positions; None where reading the row group is quicker."""
        rows = pc.subtract(positions, group.start)
        if len(rows) <= MOST_ROWS:
            return self._pages(self._rest, group, [(row, row + 1) for row in rows.to_pylist()])
        first, last = rows[0].as_py(), rows[-1].as_py()
        if group.rows < _NEAR * (last - first):
            return None
        raw = self._pages(self._rest, group, [(first, last + 1)])
        return None if raw is None else raw.take(pc.subtract(rows, first))

    def _pages(
        self, found: LotInFile, group: _RowGroup, spans: Sequence[Span]
    ) -> pa.RecordBatch | None:
        """The file's columns of a lot in the pages of some rows; None where Arrow must read them
        all.
        """
        if self._file is None or not found.is_flat or group.rows < _LARGE_GROUP:
            return None
        return read_pages(self._file, group.index, found.leaves, spans)

    def _read_group_at(self, group: _RowGroup, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        passed = 0
        for start, rows, raw in self._raw(self._rest, [group]):
            own = between(positions, start, start + rows - 1)
            if len(own):
                if raw is not None and len(own) < rows:
                    raw = raw.take(pc.subtract(own, start))
                yield self._reader.batch(self._rest.arrays(self._part, raw, own), len(own))
                passed += len(own)
            if passed == len(positions):
                return

    def _row_groups(self) -> list[_RowGroup]:
        """The row groups of the part that may hold a row which the filter keeps."""
        if self._file is None:
            return [_RowGroup(0, 0, self._part.rows)]
        metadata = self._file.metadata
        groups, start = [], 0
        for index in range(metadata.num_row_groups):
            rows = metadata.row_group(index).num_rows
            groups.append(_RowGroup(index, start, rows))
            start += rows
        first, end = self._part.row_groups or (0, None)
        groups = groups[first:end]
        if self._reader.condition is None:
            return groups
        return [
            group for group in groups if self._reader.condition.may_match(self._bounds_in(group))
        ]

    def _bounds_in(self, group: _RowGroup) -> Callable[[int], Bounds]:
        assert self._file is not None
        metadata = self._file.metadata.row_group(group.index)
        kinds = {
            column.stored.field_id: column.stored.field_type
            for column in self._reader.filtered.columns
        }
        leaves = {field.field_id: field.leaves[0] for field in self._fields if not field.children}

        def bounds_of(field_id: int) -> Bounds:
            if (
                field_id == ROW_ID_FIELD
                and field_id not in leaves
                and self._part.first_row_id is not None
            ):
                first = self._part.first_row_id + group.start
                return Bounds(first, first + group.rows - 1)
            if field_id not in leaves or field_id not in kinds:
                return UNKNOWN
            return bounds_in_row_group(
                metadata.column(leaves[field_id]).statistics, kinds[field_id]
            )

        return bounds_of

    def _read_matching(
        self, evaluator: Evaluator, group: _RowGroup
    ) -> Iterator[pa.RecordBatch | None]:
        spans = self._spans(group)
        masks, batches, end = [], [], group.start
        for start, rows, raw in self._raw_in(self._filtered, group, spans):
            arrays = self._values(self._filtered, raw, start, rows, None)
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._filtered.lot.arrow_schema)
            mask = _both(
                evaluator.mask(batch),
                None if self._deleted is None else self._deleted.kept(start, rows),
            )
            if start < self._done:
                mask = _both(mask, pc.greater_equal(pa.arange(start, start + rows), self._done))
            masks += [
                pa.repeat(False, start - end),
                pa.repeat(True, rows) if mask is None else mask,
            ]
            end = start + rows
            batches.append(batch if mask is None else batch.filter(mask))
            if not self._reader.rest:
                yield self._assembled(batches.pop(), None)
        if not self._reader.rest or not batches:
            return
        masks.append(pa.repeat(False, group.start + group.rows - end))
        matches = pa.Table.from_batches(batches)
        if not len(matches):
            yield None
            return
        yield from self._read_rest(group, spans, pa.concat_arrays(masks), matches)

    def _spans(self, group: _RowGroup) -> list[Span] | None:
        """The rows of a group that may match, if they are few; None: read all of them."""
        place = self._part.path, group.index
        if place not in self._reader.spans:
            self._reader.spans[place] = self._found_spans(group)
        return self._reader.spans[place]

    def _found_spans(self, group: _RowGroup) -> list[Span] | None:
        condition = self._reader.condition
        if self._file is None or condition is None or not self._filtered.is_flat:
            return None
        if group.rows < _LARGE_GROUP:
            return None
        leaves = {field.field_id: field.leaves[0] for field in self._fields}
        columns = {
            each.stored.field_id: (leaves[each.stored.field_id], each.stored.field_type)
            for each in self._reader.filtered.columns
            if each.stored.field_id in leaves
        }
        spans = spans_that_may_match(
            self._file, group.index, condition, columns, self._bounds_in(group)
        )
        if spans is None or _SMALL_SHARE * sum(end - first for first, end in spans) > group.rows:
            return None
        return spans

    def _read_rest(
        self, group: _RowGroup, spans: list[Span] | None, mask: pa.BooleanArray, matches: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """The other columns of the matching rows; `matches` holds the columns of the filter."""
        if len(matches) <= MOST_ROWS:
            positions = pc.add(pc.indices_nonzero(mask).cast(pa.int64()), group.start)
            raw = self._positional_read(group, positions)
            if raw is not None:
                (batch,) = matches.combine_chunks().to_batches()
                yield self._assembled(batch, self._rest.arrays(self._part, raw, positions))
                return
        passed = 0
        for start, rows, raw in self._raw_in(self._rest, group, spans):
            own = mask.slice(start - group.start, rows)
            count = own.true_count
            if not count:
                continue
            arrays = self._values(self._rest, raw, start, rows, own if count < rows else None)
            # Usually one chunk, because both lots are read in the same steps; then nothing is
            # copied.
            (batch,) = matches.slice(passed, count).combine_chunks().to_batches()
            yield self._assembled(batch, arrays)
            passed += count
            if passed == len(matches):
                return

    def _raw_in(
        self, found: LotInFile, group: _RowGroup, spans: Sequence[Span] | None
    ) -> Iterator[_Step]:
        """Like `_raw`, without rows outside of the spans where these can be left out."""
        if spans is None:
            yield from self._raw(found, [group])
            return
        for window in windows(spans, self._reader.batch_rows):
            raw = self._pages(found, group, window)
            start = group.start + window[0][0]
            if raw is None and found.leaves:
                yield from _from(start, self._raw(found, [group]))
                return
            passed = 0
            for first, end in window:
                rows = end - first
                yield group.start + first, rows, None if raw is None else raw.slice(passed, rows)
                passed += rows

    def _raw(self, found: LotInFile, groups: Sequence[_RowGroup]) -> Iterator[_Step]:
        """Read neighbouring row groups."""
        start, end = groups[0].start, groups[-1].start + groups[-1].rows
        if not found.leaves or self._file is None:
            for position in range(start, end, self._reader.batch_rows):
                yield position, min(self._reader.batch_rows, end - position), None
            return
        for indexes in self._at_once(found, [group.index for group in groups]):
            batches = self._file.reader.iter_batches(
                self._reader.batch_rows,
                row_groups=indexes,
                column_indices=list(found.leaves),
                use_threads=self._reader.use_threads,
            )
            for batch in batches:
                yield start, batch.num_rows, batch
                start += batch.num_rows

    def _at_once(self, found: LotInFile, groups: list[int]) -> Iterator[list[int]]:
        """Row groups that are read at a time. Of a store, Arrow asks for all of them at the
        beginning, and keeps their bytes until the end.
        """
        if len(groups) < 2 or self._file is None or local_path(self._part.path) is not None:
            yield groups
            return
        taken: list[int] = []
        size = 0
        for index in groups:
            group = self._file.metadata.row_group(index)
            more = sum(group.column(leaf).total_compressed_size for leaf in found.leaves)
            if taken and size + more > _MOST_AHEAD:
                yield taken
                taken, size = [], 0
            taken.append(index)
            size += more
        yield taken

    def _values(
        self,
        found: LotInFile,
        raw: pa.RecordBatch | None,
        start: int,
        rows: int,
        mask: pa.BooleanArray | None,
    ) -> list[pa.Array]:
        """The columns of a lot in their declared types, for the rows in the mask."""
        positions: pa.Array | range = range(start, start + rows)
        if mask is not None:
            raw = raw if raw is None else raw.filter(mask)
            if found.lot.has_row_id:
                positions = pa.arange(start, start + rows).filter(mask)
            else:
                positions = range(mask.true_count)
        return found.arrays(self._part, raw, positions)

    def _assembled(self, filtered: pa.RecordBatch, rest: list[pa.Array] | None) -> pa.RecordBatch:
        """The columns of both lots, in the order of the request."""
        columns = dict(zip(filtered.schema.names, filtered.columns, strict=True))
        if rest is not None:
            columns.update(zip(self._rest.lot.arrow_schema.names, rest, strict=True))
        return self._reader.batch(
            [columns[name] for name in self._reader.arrow_schema.names], filtered.num_rows
        )


def _runs(groups: Sequence[_RowGroup]) -> Iterator[list[_RowGroup]]:
    """Split row groups into runs without a gap."""
    run: list[_RowGroup] = []
    for group in groups:
        if run and group.index != run[-1].index + 1:
            yield run
            run = []
        run.append(group)
    if run:
        yield run


def _from(start: int, steps: Iterator[_Step]) -> Iterator[_Step]:
    """Steps without the rows before a position."""
    for first, rows, raw in steps:
        before = max(0, start - first)
        if before < rows:
            rest = rows - before
            yield first + before, rest, None if raw is None else raw.slice(before, rest)


def without_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], names=[""]).select([])


def _both(left: pa.BooleanArray | None, right: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if left is None or right is None:
        return right if left is None else left
    return pc.and_(left, right)
