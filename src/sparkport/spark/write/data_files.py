"""New data files of a table, written by this process.

Strategy: rows are kept by partition until there are enough for row groups, which go to the files of
their partitions. Small partitions wait on disk when they are too many to keep, and get one file
each at the end.
"""

from __future__ import annotations

import itertools
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sparkport.engine.gathered import BlockSize
from sparkport.errors import Conflict, NotWritable
from sparkport.spark.iceberg.metrics import columns_without_bounds
from sparkport.spark.iceberg.parquet_output import ParquetOutput, relabelled
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import decode, encode, natural_type
from sparkport.spark.lake.changes import HeldRows, TableChange, WrittenFile
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.background_writer import BackgroundWriter
from sparkport.spark.write.java_files import java_content_files, java_file, java_partition
from sparkport.spark.write.layout import FileLayout, layout_of
from sparkport.spark.write.partition_spill import Spill
from sparkport.spark.write.partitioning import Values

__all__ = [
    "DataFileWriter",
    "can_write",
    "declared",
    "encoded",
    "java_data_file",
    "java_data_files",
    "write_held",
]

_GROUP_ROWS = 1024 * 1024
_PARTS_OF_A_GROUP = 8
"""What is at least such a part of a row group is worth one of its own."""
_MOST_OPEN = 64
"""Files of different partitions that are written to by turns."""


def can_write(state: TableState) -> bool:
    """Whether this process can write data files as the table wants them; else Spark must."""
    return layout_of(state) is not None


def encoded(state: TableState, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Declared columns as they are stored, by their stored names; columns that the table does not
    have are left out.

    Raises: BadRequest for a value that cannot be stored.
    """
    definition, arrays, names = state.definition, [], []
    for position, name in enumerate(rows.schema.names):
        place = definition.position(name)
        if place is not None:
            stored = state.schema.fields[place]
            arrays.append(
                encode(rows.column(position), definition.columns.field(place), stored.field_type)
            )
            names.append(stored.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def declared(state: TableState, rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Declared columns of rows that are as files have them: what `encoded` has made of them."""
    definition, fields, arrays = state.definition, [], []
    for name in columns:
        place = definition.expect(name, state.identifier)
        stored, field = state.schema.fields[place], definition.columns.field(place)
        fields.append(field.remove_metadata())
        position = rows.schema.get_field_index(stored.name)
        if position < 0:  # files have no column of an unknown type: all its values are NULL
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            array = relabelled(rows.column(position), natural_type(stored.field_type))
            arrays.append(decode(array, stored.field_type, field))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class DataFileWriter(BackgroundWriter):
    """New data files of one statement. `with_row_ids`: rows that have been there before, and bring
    along their `_row_id`.
    """

    def __init__(self, state: TableState, staging: Staging, *, with_row_ids: bool = False) -> None:
        """Raises: NotWritable for a table that `can_write` refuses."""
        layout = layout_of(state, with_row_ids=with_row_ids)
        if layout is None:
            raise NotWritable(
                f"files of table {state.identifier} cannot be written here: change it in Spark"
            )
        block_bytes = layout.group_bytes // 4 if layout.partitioning.fields else layout.group_bytes
        block = BlockSize(_GROUP_ROWS, block_bytes)
        super().__init__(state.identifier, _Partitions(layout, staging), block)
        self._layout = layout
        self._with_row_ids = with_row_ids

    def held_or_files(self) -> tuple[tuple[HeldRows, ...], tuple[WrittenFile, ...]]:
        """End: few rows are given back, to be written together with those of other statements.

        Raises: as `finish`.
        """
        rows = self.take_few() if self._layout.is_described else None
        if rows is None:
            return (), tuple(self.finish())
        return (HeldRows(rows, self._with_row_ids),), ()


def write_held(change: TableChange, now: TableState, staging: Staging) -> TableChange:
    """The change with all its rows in files, as the table wants files now.

    Raises: Conflict when it wants other files than when the rows came; LimitExceeded when the
    storage is full; PermissionDenied, PreconditionFailed.
    """
    files = list(change.files)
    for with_row_ids in (False, True):
        rows = [each.rows for each in change.held if each.with_row_ids is with_row_ids]
        if not rows:
            continue
        layout = layout_of(now, with_row_ids=with_row_ids)
        if layout is None or not layout.is_described:
            raise Conflict(
                f"table {now.identifier} was altered while the statement ran; nothing was changed: "
                "run it again"
            )
        writer = DataFileWriter(now, staging, with_row_ids=with_row_ids)
        try:
            writer.write(pa.concat_tables(rows).combine_chunks())
            files += writer.finish()
        except BaseException:
            writer.abort()
            raise
    return replace(change, files=tuple(files), held=())


def java_data_files(lake: Lake, table: Any, written: Sequence[WrittenFile]) -> list[Any]:
    """org.apache.iceberg.DataFile of an org.apache.iceberg.Table, with what Iceberg keeps of each
    file's columns.
    """
    if all(file.described for file in written):
        return java_content_files(lake, table, [file.described for file in written])
    return [_java_data_file(lake, table, file) for file in written]


def java_data_file(lake: Lake, table: Any, written: WrittenFile) -> Any:
    """As `java_data_files`, which is quicker for several."""
    (file,) = java_data_files(lake, table, [written])
    return file


def _java_data_file(lake: Lake, table: Any, written: WrittenFile) -> Any:
    spec = table.specs().get(written.spec_id)
    partition = None
    if written.partition is not None:
        ids = [field.fieldId() for field in spec.fields()]
        partition = java_partition(lake, spec, dict(zip(ids, written.partition, strict=True)))
    return java_file(
        lake, table, spec, written.path, written.size, partition, written.without_bounds
    )


class _Partitions:
    """The rows of all partitions; a table without has a single one."""

    def __init__(self, layout: FileLayout, staging: Staging) -> None:
        self._layout = layout
        self._staging = staging
        self._files = _Files(layout, staging)
        self._kept: dict[str, _Kept] = {}
        """By the text of the values: as numbers -0.0 and 0.0 would be one, and NaN never the
        same.
        """
        self._held = 0
        """Bytes of the rows that were added since all were let go; a small slice holds as much as
        what it was cut from.
        """
        self._spill: Spill | None = None

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._layout.fitted(rows)

    def add(self, rows: pa.Table) -> None:
        self._held += rows.nbytes
        for values, piece in self._layout.partitioning.split(rows):
            self._kept.setdefault(repr(values), _Kept(values)).add(piece)
        if self._held >= self._layout.group_bytes or not self._layout.partitioning.fields:
            self._let_go()

    def _let_go(self) -> None:
        """Write what is worth a row group; put the rest aside."""
        enough = (
            self._layout.group_bytes // _PARTS_OF_A_GROUP if self._layout.partitioning.fields else 0
        )
        small = []
        for key, kept in self._kept.items():
            if kept.bytes < enough:
                small.append(key)
            else:
                self._files.write(key, kept.values, kept.taken())
        pieces = [(key, self._kept[key].taken()) for key in small if self._kept[key].pieces]
        if pieces:
            if self._spill is None:
                location = self._staging.location(f"waiting-{uuid.uuid4().hex}.arrow")
                self._spill = Spill(self._staging.storage, location, self._layout.columns)
            self._spill.put(pieces)
        self._held = 0

    def finish(self) -> list[WrittenFile]:
        self._files.announce({key: kept.values for key, kept in self._kept.items()})
        for key, kept in self._kept.items():
            for rows in self._groups(key, kept):
                self._files.write(key, kept.values, rows)
            self._files.close(key)
        return self._files.finish()

    def _groups(self, key: str, kept: _Kept) -> Iterator[pa.Table]:
        """What is left of a partition, put together as far as memory allows."""
        group = _Kept(kept.values)
        put_aside = self._spill.take(key) if self._spill is not None else ()
        pieces, kept.pieces = kept.pieces, []
        for piece in itertools.chain(
            (pa.Table.from_batches([batch]) for batch in put_aside), pieces
        ):
            group.add(piece)
            if group.bytes >= self._layout.group_bytes:
                yield group.taken()
        if group.pieces:
            yield group.taken()

    def abandon(self) -> None:
        self._kept = {}
        if self._spill is not None:
            self._spill.abandon()
        self._files.abandon()


@dataclass(slots=True, eq=False)
class _Kept:
    """Rows of a partition that are not written yet."""

    values: Values
    pieces: list[pa.Table] = field(default_factory=list)
    bytes: int = 0

    def add(self, piece: pa.Table) -> None:
        self.pieces.append(piece)
        self.bytes += piece.nbytes

    def taken(self) -> pa.Table:
        rows = pa.concat_tables(self.pieces)
        self.pieces, self.bytes = [], 0
        return rows


class _Files:
    """The files that are open, the longest unused first, and those that are complete."""

    def __init__(self, layout: FileLayout, staging: Staging) -> None:
        self._layout = layout
        self._staging = staging
        self._announced: dict[str, str] = {}
        self._open: OrderedDict[str, tuple[ParquetOutput, Values]] = OrderedDict()
        self._written: list[WrittenFile] = []

    def announce(self, partitions: Mapping[str, Values]) -> None:
        """Note files of all these at once, unless they have one: a journal entry takes its time."""
        new = {
            key: self._layout.new_location(self._staging.id, values)
            for key, values in partitions.items()
            if key not in self._open
        }
        if new:
            self._staging.will_write(*new.values())
            self._announced |= new

    def write(self, key: str, values: Values, rows: pa.Table) -> None:
        if key not in self._open:
            if key not in self._announced:
                self.announce({key: values})
            while len(self._open) >= _MOST_OPEN:
                self.close(next(iter(self._open)))
            self._open[key] = self._layout.new_file(self._announced.pop(key)), values
        self._open.move_to_end(key)
        file, _ = self._open[key]
        file.write(rows)
        if file.bytes_written >= self._layout.file_bytes:
            self.close(key)

    def close(self, key: str) -> None:
        """Complete a file, if there is one."""
        if key in self._open:
            file, values = self._open[key]
            size = file.finish()
            del self._open[key]
            partition = values if self._layout.partitioning.fields else None
            described = self._layout.described(file, size, values)
            unknown = (
                () if described else columns_without_bounds(file.metadata, self._layout.fields)
            )
            place = (file.location, size, file.rows, self._layout.spec_id)
            self._written.append(WrittenFile(*place, partition, described, unknown))

    def finish(self) -> list[WrittenFile]:
        for key in list(self._open):
            self.close(key)
        return self._written

    def abandon(self) -> None:
        for file, _ in self._open.values():
            file.abandon()
        self._open.clear()
