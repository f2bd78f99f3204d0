"""Reads one part of a data file: which row groups, which columns, which rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import LongType, NestedField

from sparkport.catalog.rowid import NO_ROW_ID, rowid_field
from sparkport.engine.filters import Evaluator
from sparkport.spark.iceberg.bounds import UNKNOWN, Bounds, bounds_in_row_group
from sparkport.spark.iceberg.deletes import DeletedPositions
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.positional_read import MOST_ROWS, rows_at, rows_between
from sparkport.spark.iceberg.positions import between
from sparkport.spark.iceberg.projection import (
    ColumnSource,
    FileField,
    file_fields,
    sources_of,
    values_of,
)
from sparkport.spark.iceberg.types.declared import decode

if TYPE_CHECKING:
    from sparkport.spark.iceberg.part_reader import PartReader

__all__ = ["FileReader", "ReadColumn", "Lot", "without_columns"]

_LARGE_GROUP = 65_536
"""From so many rows in a row group on, it pays to read a few of them by position."""
_NEAR = 5
"""Rows are close together if the row group has this many times the rows of the span they cover."""
_MOST_AHEAD = 64 * 1024 * 1024
"""Bytes of a file in a store that are asked for at a time."""
_ROW_ID = NestedField(ROW_ID_FIELD, "_row_id", LongType(), required=False)


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read: its Iceberg field, and the type in which its values are shown."""

    stored: NestedField
    declared: pa.Field
    decodes: bool


@dataclass(frozen=True, slots=True)
class Lot:
    """Columns that are read together; the row id is the last of them, if there is one."""

    columns: tuple[ReadColumn, ...]
    has_row_id: bool

    def __bool__(self) -> bool:
        return bool(self.columns) or self.has_row_id

    @property
    def arrow_schema(self) -> pa.Schema:
        fields = [column.declared for column in self.columns]
        return pa.schema([*fields, rowid_field()] if self.has_row_id else fields)


@dataclass(frozen=True, slots=True)
class _LotInFile:
    """Where the columns of a lot are in one file."""

    lot: Lot
    sources: tuple[ColumnSource, ...]
    row_ids: ColumnSource | None
    """The file's own column of row ids, if it has one."""
    fields: tuple[int, ...]
    """Top-level fields of the file that are read, in order."""
    leaves: tuple[int, ...]

    @classmethod
    def of(cls, lot: Lot, part: FilePart, fields: Sequence[FileField]) -> _LotInFile:
        sources = sources_of(
            [column.stored for column in lot.columns], fields, dict(part.partition)
        )
        row_ids = None
        if lot.has_row_id and any(each.field_id == ROW_ID_FIELD for each in fields):
            (row_ids,) = sources_of([_ROW_ID], fields, {})
        used = [*sources, row_ids] if row_ids is not None else sources
        positions = sorted({source.position for source in used if source.position is not None})
        leaves = tuple(leaf for position in positions for leaf in fields[position].leaves)
        return cls(lot, tuple(sources), row_ids, tuple(positions), leaves)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    index: int
    start: int
    rows: int


class FileReader:
    """Reads one part. `file` is None where everything wanted follows from positions."""

    def __init__(
        self,
        reader: PartReader,
        part: FilePart,
        deleted: DeletedPositions | None,
        file: pq.ParquetFile | None,
    ) -> None:
        self._reader = reader
        self._part = part
        self._deleted = deleted
        self._file = file
        self._fields = () if file is None else file_fields(file.schema_arrow, reader.name_mapping)
        self._filtered = _LotInFile.of(reader.filtered, part, self._fields)
        self._rest = _LotInFile.of(reader.rest, part, self._fields)

    def read(self) -> Iterator[pa.RecordBatch | None]:
        if self._reader.evaluator is not None:
            for group in self._row_groups():
                yield from self._read_matching(self._reader.evaluator, group)
            return
        for groups in _runs(self._row_groups()):
            for start, rows, raw in self._raw(self._rest, groups):
                mask = None if self._deleted is None else self._deleted.kept(start, rows)
                arrays = self._values(self._rest, raw, start, rows, mask)
                yield self._batch(arrays, rows if mask is None else mask.true_count)

    def read_at(self, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        for group in self._row_groups():
            wanted = between(positions, group.start, group.start + group.rows - 1)
            raw = self._positional_read(group, wanted) if len(wanted) else None
            if raw is not None:
                yield self._batch(self._arrays(self._rest, raw, wanted), len(wanted))
            elif len(wanted):
                yield from self._read_group_at(group, wanted)

    def _positional_read(self, group: _RowGroup, positions: pa.Array) -> pa.RecordBatch | None:
        """The file's columns at some positions; None where reading the row group is quicker."""
        if len(positions) <= MOST_ROWS:
            return self._read_few(group, positions)
        first, last = positions[0].as_py(), positions[-1].as_py()
        if (
            self._file is None
            or not self._rest.fields
            or group.rows < max(_LARGE_GROUP, _NEAR * (last - first))
        ):
            return None
        rows = rows_between(
            self._part.path, self._file.schema_arrow, self._rest.fields, first, last
        )
        return None if rows is None else rows.take(pc.subtract(positions, first))

    def _read_group_at(self, group: _RowGroup, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        passed = 0
        for start, rows, raw in self._raw(self._rest, [group]):
            own = between(positions, start, start + rows - 1)
            if len(own):
                if raw is not None and len(own) < rows:
                    raw = raw.take(pc.subtract(own, start))
                yield self._batch(self._arrays(self._rest, raw, own), len(own))
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
        masks, batches = [], []
        for start, rows, raw in self._raw(self._filtered, [group]):
            arrays = self._values(self._filtered, raw, start, rows, None)
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._filtered.lot.arrow_schema)
            mask = _both(
                evaluator.mask(batch),
                None if self._deleted is None else self._deleted.kept(start, rows),
            )
            masks.append(pa.repeat(True, rows) if mask is None else mask)
            batches.append(batch if mask is None else batch.filter(mask))
            if not self._reader.rest:
                yield self._assembled(batches.pop(), None)
        if not self._reader.rest or not batches:
            return
        matches = pa.Table.from_batches(batches)
        if not len(matches):
            yield None
            return
        yield from self._read_rest(group, pa.concat_arrays(masks), matches)

    def _read_rest(
        self, group: _RowGroup, mask: pa.BooleanArray, matches: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """The other columns of the matching rows; `matches` holds the columns of the filter."""
        if len(matches) <= MOST_ROWS:
            positions = pc.add(pc.indices_nonzero(mask).cast(pa.int64()), group.start)
            raw = self._read_few(group, positions)
            if raw is not None:
                (batch,) = matches.combine_chunks().to_batches()
                yield self._assembled(batch, self._arrays(self._rest, raw, positions))
                return
        passed = 0
        for start, rows, raw in self._raw(self._rest, [group]):
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

    def _read_few(self, group: _RowGroup, positions: pa.Array) -> pa.RecordBatch | None:
        """The file's columns at a few positions; None where reading the row group is quicker."""
        if self._file is None or not self._rest.fields or group.rows < _LARGE_GROUP:
            return None
        return rows_at(
            self._part.path, self._file.schema_arrow, self._rest.fields, positions.to_pylist()
        )

    def _raw(
        self, found: _LotInFile, groups: Sequence[_RowGroup]
    ) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
        """Read neighbouring row groups in steps: position, row count, the file's own columns."""
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

    def _at_once(self, found: _LotInFile, groups: list[int]) -> Iterator[list[int]]:
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
        found: _LotInFile,
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
        return self._arrays(found, raw, positions)

    def _arrays(
        self, found: _LotInFile, raw: pa.RecordBatch | None, positions: pa.Array | range
    ) -> list[pa.Array]:
        """A lot's columns in their declared types; `raw` has the file's own at these positions."""
        columns = {} if raw is None else dict(zip(found.fields, raw.columns, strict=True))
        arrays = []
        for column, source in zip(found.lot.columns, found.sources, strict=True):
            array = values_of(source, len(positions), columns.__getitem__)
            arrays.append(
                decode(array, column.stored.field_type, column.declared)
                if column.decodes
                else array
            )
        if found.lot.has_row_id:
            arrays.append(self._row_ids(found, columns.__getitem__, positions))
        return arrays

    def _row_ids(
        self, found: _LotInFile, columns: Callable[[int], pa.Array], positions: pa.Array | range
    ) -> pa.Array:
        own = None if found.row_ids is None else values_of(found.row_ids, len(positions), columns)
        if own is not None and not own.null_count:
            return own
        first = self._part.first_row_id
        if first is None:
            by_position = pa.repeat(pa.scalar(NO_ROW_ID, pa.int64()), len(positions))
        elif isinstance(positions, range):
            by_position = pa.arange(first + positions.start, first + positions.stop)
        else:
            by_position = pc.add(positions, first)
        return by_position if own is None else pc.coalesce(own, by_position)

    def _assembled(self, filtered: pa.RecordBatch, rest: list[pa.Array] | None) -> pa.RecordBatch:
        """The columns of both lots, in the order of the request."""
        columns = dict(zip(filtered.schema.names, filtered.columns, strict=True))
        if rest is not None:
            columns.update(zip(self._rest.lot.arrow_schema.names, rest, strict=True))
        return self._batch(
            [columns[name] for name in self._reader.arrow_schema.names], filtered.num_rows
        )

    def _batch(self, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
        if not arrays:
            return without_columns(rows)  # no column is wanted, only the number of rows
        return pa.RecordBatch.from_arrays(arrays, schema=self._reader.arrow_schema)


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


def without_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], names=[""]).select([])


def _both(left: pa.BooleanArray | None, right: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if left is None or right is None:
        return right if left is None else left
    return pc.and_(left, right)
