"""INSERT, UPDATE and DELETE on an Iceberg table: the row stores for engine/statements.py.

Strategy: rows of an INSERT go to Parquet files as they come. An UPDATE keeps its values until all
are there; then the rows are found by their ids, and written anew as a whole beside a vector that
removes the old ones. A DELETE is the vector alone. Few rows wait in memory, and are written by the
commit. What is too large for that, or in files that only Spark can write, is staged, and Spark does
it (spark_writes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Context, DMLOptions, Operation, StagedWrite
from sparkport.catalog.quotas import bytes_of
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.gathered import Block, BlockSize
from sparkport.engine.statements import RowChange, RowStore, begin
from sparkport.errors import NotWritable, PreconditionFailed, Unsupported
from sparkport.spark.iceberg.table_state import TableState, has_row_lineage
from sparkport.spark.lake.changes import HeldRows, TableChange, WrittenFile
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.write.commit import summary_of
from sparkport.spark.write.data_files import DataFileWriter, can_write, encoded
from sparkport.spark.write.publish import publish
from sparkport.spark.write.rows import RowLookup
from sparkport.spark.write.source import SourceWriter, expect_written_types
from sparkport.spark.write.spark_writes import SparkWrite, can_change, publish_by_spark
from sparkport.spark.write.verify import verify_columns

__all__ = ["stage"]

_ROW_ID_BYTES = 8
_LOCATED_BYTES = 3 * _ROW_ID_BYTES
"""Of a row that was looked for: its id, and where it is."""
_FILE_BLOCK = BlockSize(122_880, 32 * 1024 * 1024)


def stage(
    lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
) -> StagedWrite:
    """Begin a statement that sees `state`.

    Raises: NotWritable for rows that have no ids, and for columns that cannot be written here.
    """
    if operation is not Operation.INSERT and not state.has_row_ids:
        raise NotWritable(f"rows of table {state.identifier} cannot be changed: {_reason(state)}")
    if operation is not Operation.DELETE:
        expect_written_types(state)
    store = _STORES[operation](lake, ctx, state, operation)
    if options.returning:
        store.row_bytes = _LOCATED_BYTES
    return begin(store, operation, options, ctx.check)


def _reason(state: TableState) -> str:
    """Why rows have no ids."""
    version = state.metadata.format_version
    if has_row_lineage(version):
        return (
            "it was upgraded, and its rows get their ids with the next commit; insert a row, or "
            "rewrite its files in Spark, and try again"
        )
    return (
        f"it has version {version} of Iceberg's format, in which rows have no ids; set its "
        "property format-version to 3 in Spark"
    )


class _Rows(RowStore):
    """Rows of one state, and the files that a statement adds to them."""

    row_bytes = _ROW_ID_BYTES
    """What is held of a row that is changed."""

    def __init__(self, lake: Lake, ctx: Context, state: TableState, operation: Operation) -> None:
        self.table = state.identifier
        self.definition = state.definition
        self._lake = lake
        self._ctx = ctx
        self._base = state
        self._operation = operation
        self._lookup = RowLookup(state, state.file_properties, ctx.check)
        self._writer: DataFileWriter | SourceWriter | None = None
        self._is_final = True
        self._staging = lake.staging.begin(state.identifier, state)

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return self.row_bytes * int(batch.num_rows)

    def old_values(self, row_ids: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
        rows = self._lookup.take(row_ids, columns)
        return [_array(rows.column(name)) for name in columns]

    def done(self) -> None:
        if self._is_final:
            self._staging.done()

    def discard(self, error: BaseException | None) -> None:
        if self._writer is not None:
            self._writer.abort()
        if isinstance(error, OutcomeUnknown):
            self._staging.leave()  # its files are looked at again when a server starts
        else:
            self._staging.discard()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Files that are missing are nobody's fault when the table was dropped. Raises: NotFound,
        Conflict.
        """
        try:
            yield
        except PreconditionFailed:
            verify_columns(TableChange(self._base), self._lake.current(self._base.identifier))
            raise

    def _publish(self, change: TableChange) -> None:
        summary = summary_of(self._ctx, self._operation.value, self._staging)
        self._is_final = publish(self._lake, self._ctx, change, self._staging, summary)

    def _publish_by_spark(
        self,
        change: TableChange,
        columns: Sequence[str],
        source: Sequence[WrittenFile] | None = None,
    ) -> None:
        write = SparkWrite(self._operation, tuple(source or change.files), tuple(columns), change)
        summary = summary_of(self._ctx, self._operation.value, self._staging)
        publish_by_spark(self._lake, self._ctx, write, self._staging, summary)


class _Inserted(_Rows):
    block = _FILE_BLOCK

    def __init__(self, lake: Lake, ctx: Context, state: TableState, operation: Operation) -> None:
        super().__init__(lake, ctx, state, operation)
        names = [field.name for field in state.schema.fields]
        self._new: DataFileWriter | SourceWriter = (
            DataFileWriter(state, self._staging)
            if can_write(state)
            else SourceWriter(state, self._staging, names, with_row_ids=False)
        )
        self._writer = self._new

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return 0  # there is never more than a block of them

    def stage(self, block: Block) -> None:
        for batch in block.joined().batches:
            self._ctx.check()
            self._new.write(encoded(self._base, batch))

    def publish(self, change: RowChange) -> None:
        if isinstance(self._new, SourceWriter):
            made = TableChange(self._base, tuple(self._new.finish()), keys=change.keys)
            self._publish_by_spark(made, self._new.columns)
        else:
            held, files = self._new.held_or_files()
            self._publish(TableChange(self._base, files, keys=change.keys, held=held))


class _Updated(_Rows):
    """Writes the rows anew when it has all of them, or stages them for Spark when they become
    many.
    """

    def __init__(self, lake: Lake, ctx: Context, state: TableState, operation: Operation) -> None:
        super().__init__(lake, ctx, state, operation)
        self._is_own = can_write(state)
        self._must_be_own = self._is_own and (
            lake.transactions.collecting(ctx) is not None or not can_change(state, operation)
        )
        self._source: SourceWriter | None = None
        if not self._must_be_own:
            settings = lake.settings
            self.block = BlockSize(
                settings.update_rows_in_place + 1, settings.update_bytes_in_place + 1
            )

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return bytes_of(batch) if self._must_be_own else super().held_bytes(batch)

    def stage(self, block: Block) -> None:
        """Let Spark do it."""
        for rows in block.batches:
            stored = encoded(self._base, rows.drop_columns([ROWID_NAME]))
            if self._source is None:
                names = stored.schema.names
                self._source = SourceWriter(self._base, self._staging, names, with_row_ids=True)
                self._writer = self._source
            self._source.write(stored.append_column("_row_id", rows.column(ROWID_NAME)))

    def publish(self, change: RowChange) -> None:
        assert change.rows is not None
        if self._source is None and self._is_own and self._can_locate(change):
            held, files = self._replaced(change, change.rows)
            self._publish(self._change(change, files, held))
        else:
            self.stage(change.rows)
            assert self._source is not None
            self._publish_by_spark(self._change(change, self._source.finish()), change.columns)

    def _can_locate(self, change: RowChange) -> bool:
        """Whether this process can read the rows: in ORC, for instance, only Spark can."""
        try:
            self._lookup.locate(change.row_ids)
        except Unsupported:
            return False
        return True

    def _change(
        self, change: RowChange, files: Sequence[WrittenFile], held: tuple[HeldRows, ...] = ()
    ) -> TableChange:
        location = self._lookup.located(change.row_ids)
        removed, keys = change.row_ids, change.keys
        return TableChange(self._base, tuple(files), removed, location, keys=keys, held=held)

    def _replaced(
        self, change: RowChange, block: Block
    ) -> tuple[tuple[HeldRows, ...], tuple[WrittenFile, ...]]:
        """Write the rows anew, as a whole."""
        (new,) = block.batches
        stored = encoded(self._base, new.select(change.columns))
        kept = [name for name in self.definition.columns.names if name not in stored.schema.names]
        writer = DataFileWriter(self._base, self._staging, with_row_ids=True)
        self._writer = writer
        for old in self._lookup.stored_rows(change.row_ids, kept):
            order = pc.index_in(old.column(ROWID_NAME), value_set=change.row_ids)
            columns = {name: old.column(name) for name in kept}
            columns |= {name: stored.column(name).take(order) for name in stored.schema.names}
            writer.write(pa.RecordBatch.from_pydict({**columns, "_row_id": old.column(ROWID_NAME)}))
        return writer.held_or_files()


class _Deleted(_Rows):
    def stage(self, block: Block) -> None:
        raise AssertionError("a DELETE has no new rows")

    def publish(self, change: RowChange) -> None:
        try:
            location = self._lookup.locate(change.row_ids)
        except Unsupported:
            source = SourceWriter(self._base, self._staging, (), with_row_ids=True)
            self._writer = source
            source.write(pa.RecordBatch.from_arrays([change.row_ids], names=["_row_id"]))
            made = TableChange(self._base, removed=change.row_ids)
            self._publish_by_spark(made, (), tuple(source.finish()))
        else:
            self._publish(TableChange(self._base, removed=change.row_ids, location=location))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


_STORES: dict[Operation, type[_Rows]] = {
    Operation.INSERT: _Inserted,
    Operation.UPDATE: _Updated,
    Operation.DELETE: _Deleted,
}
