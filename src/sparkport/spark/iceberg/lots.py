"""Columns that are read together, and where they are in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField

from sparkport.catalog.rowid import NO_ROW_ID, rowid_field
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.projection import ColumnSource, FileField, sources_of, values_of
from sparkport.spark.iceberg.types.declared import decode

__all__ = ["Lot", "LotInFile", "ReadColumn"]

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
class LotInFile:
    """Where the columns of a lot are in one file."""

    lot: Lot
    sources: tuple[ColumnSource, ...]
    row_ids: ColumnSource | None
    """The file's own column of row ids, if it has one."""
    fields: tuple[int, ...]
    """Top-level fields of the file that are read, in order."""
    leaves: tuple[int, ...]

    @property
    def is_flat(self) -> bool:
        """Whether there are columns to read, and none has others inside."""
        return 0 < len(self.fields) == len(self.leaves)

    @classmethod
    def of(cls, lot: Lot, part: FilePart, fields: Sequence[FileField]) -> LotInFile:
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

    def arrays(
        self, part: FilePart, raw: pa.RecordBatch | None, positions: pa.Array | range
    ) -> list[pa.Array]:
        """The columns in their declared types; `raw` has the file's own at these positions."""
        columns = {} if raw is None else dict(zip(self.fields, raw.columns, strict=True))
        arrays = []
        for column, source in zip(self.lot.columns, self.sources, strict=True):
            array = values_of(source, len(positions), columns.__getitem__)
            arrays.append(
                decode(array, column.stored.field_type, column.declared)
                if column.decodes
                else array
            )
        if self.lot.has_row_id:
            arrays.append(self._row_ids(part, columns.__getitem__, positions))
        return arrays

    def _row_ids(
        self, part: FilePart, columns: Callable[[int], pa.Array], positions: pa.Array | range
    ) -> pa.Array:
        own = None if self.row_ids is None else values_of(self.row_ids, len(positions), columns)
        if own is not None and not own.null_count:
            return own
        first = part.first_row_id
        if first is None:
            by_position = pa.repeat(pa.scalar(NO_ROW_ID, pa.int64()), len(positions))
        elif isinstance(positions, range):
            by_position = pa.arange(first + positions.start, first + positions.stop)
        else:
            by_position = pc.add(positions, first)
        return by_position if own is None else pc.coalesce(own, by_position)
