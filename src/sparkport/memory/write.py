"""INSERT, UPDATE and DELETE in memory: what `engine.statements` needs of a version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import Constraints, Context, DMLOptions, Operation, StagedWrite
from sparkport.engine.gathered import Block, BlockSize
from sparkport.engine.statements import RowChange, RowStore, begin
from sparkport.errors import BadRequest, NotFound
from sparkport.memory.changes import Deleted, Inserted, SegmentChange, Updated
from sparkport.memory.commit import KeyCheck, read_columns
from sparkport.memory.merging import MERGE_BYTES
from sparkport.memory.rows import find_missing, take_rows
from sparkport.memory.segments import SEGMENT_ROWS, LazyColumns, Segment
from sparkport.memory.versions import Version

if TYPE_CHECKING:
    from sparkport.memory.table import MemoryTable

__all__ = ["stage"]


def stage(
    table: MemoryTable, ctx: Context, operation: Operation, options: DMLOptions, base: Version
) -> StagedWrite:
    """Begin a statement that sees `base`."""
    return begin(_Rows(table, ctx, operation, base), operation, options, ctx.check)


class _Rows(RowStore):
    """The rows of a version.

    Rows of an INSERT become segments as they come, so that a commit has little to do.
    """

    def __init__(
        self, table: MemoryTable, ctx: Context, operation: Operation, base: Version
    ) -> None:
        self.table = table.title
        self.definition = base.definition
        self._memory = table
        self._ctx = ctx
        self._operation = operation
        self._base = base
        self._segments: list[Segment] = []
        if operation is Operation.INSERT:
            self.block = BlockSize(SEGMENT_ROWS, MERGE_BYTES)
        # Joining dictionaries may need wider indices. That must be found out before the commit.
        self._may_not_fit = any(_has_dictionary(field.type) for field in self.definition.columns)

    def expect_rows(self, row_ids: pa.Array) -> None:
        missing = find_missing(self._base.segments, row_ids)
        if missing is not None:
            raise NotFound(f"row id {missing} does not exist in table {self.table}")

    def old_values(self, row_ids: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
        schema = self.definition.columns
        if not len(row_ids):
            return [pa.array([], schema.field(name).type) for name in columns]
        positions = [schema.get_field_index(name) for name in columns]
        return take_rows(self._base.segments, row_ids, positions)

    def stage(self, block: Block) -> None:
        columns: Sequence[pa.Array] = (
            block.batches[0].columns
            if len(block.batches) == 1
            else LazyColumns(block.batches, block.bytes)
        )
        if self._may_not_fit:
            columns = list(columns)
        segment = Segment(columns, block.rows, 0)
        if block.rows <= SEGMENT_ROWS:
            self._segments.append(segment)
        else:
            self._segments += [
                segment.slice(start, min(SEGMENT_ROWS, block.rows - start))
                for start in range(0, block.rows, SEGMENT_ROWS)
            ]

    def publish(self, change: RowChange) -> None:
        rows, keys = self._changed(change)
        self._memory.commit(self._ctx, self._base, rows, keys)

    def discard(self, error: BaseException | None) -> None:
        self._segments = []

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            # A dictionary needs wider indices, or there are more than 2 GB of text in one array.
            message = f"the rows do not fit into table {self.table}"
            raise BadRequest(f"{message}: {error}", without_values=message) from error

    def _changed(self, change: RowChange) -> tuple[SegmentChange, KeyCheck | None]:
        columns = self.definition.columns
        match self._operation:
            case Operation.INSERT:
                inserted = Inserted(tuple(self._segments))
                if not change.keys:
                    return inserted, None
                rows = read_columns(self._base.definition, inserted.segments, columns.names)
                return inserted, self._key_check(change.keys, rows, has_row_ids=False)
            case Operation.UPDATE:
                assert change.rows is not None
                (new,) = change.rows.batches
                values = {
                    columns.get_field_index(name): new.column(name) for name in change.columns
                }
                updated = Updated(change.row_ids, values)
                if not change.keys:
                    return updated, None
                rows = pa.Table.from_batches([new])
                return updated, self._key_check(change.keys, rows, has_row_ids=True)
            case Operation.DELETE:
                return Deleted(change.row_ids), None

    def _key_check(self, keys: Constraints, changed: pa.Table, *, has_row_ids: bool) -> KeyCheck:
        return KeyCheck(
            self.table.name, self._base.definition, keys, changed, has_row_ids, self._ctx.check
        )


def _has_dictionary(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_dictionary(data_type.storage_type)
    children = (data_type.field(index).type for index in range(data_type.num_fields))
    return pa.types.is_dictionary(data_type) or any(_has_dictionary(child) for child in children)
