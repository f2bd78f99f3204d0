"""INSERT, UPDATE and DELETE on an Iceberg table: a statement's batches on their way to one commit.

Strategy: rows of an INSERT go to Parquet files as they come. An UPDATE keeps its values until all
are there; then the rows are found by their ids, and written anew as a whole beside a vector that
removes the old ones. A DELETE is the vector alone. What is too large for that, or in files that
only Spark can write, is staged, and Spark does it (spark_way.py).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints, Context, DMLOptions, Operation, StagedWrite
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.enforce import (
    columns_of,
    concerning,
    enforce_not_null,
    enforce_rows,
)
from sparkport.errors import BadRequest, Conflict, PreconditionFailed
from sparkport.spark.iceberg.plan import plan_rows
from sparkport.spark.iceberg.positions import numbers_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Change, WrittenFile
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.write.commit import summary_of, verify_columns
from sparkport.spark.write.data_files import DataFileWriter, can_write, encoded
from sparkport.spark.write.gathered import Gathered
from sparkport.spark.write.locate import Located, locate
from sparkport.spark.write.publish import publish
from sparkport.spark.write.rows import rows_of, take_rows
from sparkport.spark.write.source import SourceWriter
from sparkport.spark.write.spark_writes import SparkWrite, can_change, publish_by_spark

__all__ = ["stage"]

_ROW_ID_BYTES = 8


def stage(
    lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
) -> StagedWrite:
    """Begin a statement that sees `state`."""
    return _STATEMENTS[operation](lake, ctx, state, operation, options)


class _Statement(StagedWrite):
    """Holds no lock and shows nothing to anyone until its commit."""

    def __init__(
        self, lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
    ) -> None:
        self._lake = lake
        self._ctx = ctx
        self._base = state
        self._definition = state.definition
        self._operation = operation
        self._returning = options.returning
        self._table = state.identifier.name
        self._staging = lake.staging.begin(state.identifier, state)
        self._open = True
        self._is_final = True

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        self._expect_open()
        with self._of_the_same_table():
            return self._staged(batch)

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return _ROW_ID_BYTES * int(batch.num_rows)

    def commit(self) -> int:
        self._expect_open()
        self._open = False
        try:
            with self._of_the_same_table():
                rows = self._finished()
        except OutcomeUnknown:
            self._forget()
            self._staging.leave()  # its files are looked at again when a server starts
            raise
        except BaseException:
            self._forget()
            self._staging.discard()
            raise
        if self._is_final:
            self._staging.done()
        return rows

    def abort(self) -> None:
        self._open = False
        self._forget()
        self._staging.discard()

    @abstractmethod
    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None: ...

    @abstractmethod
    def _finished(self) -> int:
        """Commit; how many rows were changed."""

    @abstractmethod
    def _forget(self) -> None:
        """Let go of everything but the files. Must not raise."""

    def _publish(self, change: Change) -> None:
        summary = summary_of(self._ctx, self._operation.value, self._staging)
        self._is_final = publish(self._lake, self._ctx, change, self._staging, summary)

    def _publish_by_spark(
        self, change: Change, columns: Sequence[str], source: Sequence[WrittenFile] | None = None
    ) -> None:
        write = SparkWrite(self._operation, tuple(source or change.files), tuple(columns), change)
        summary = summary_of(self._ctx, self._operation.value, self._staging)
        publish_by_spark(self._lake, self._ctx, write, self._staging, summary)

    @contextmanager
    def _of_the_same_table(self) -> Iterator[None]:
        """Files that are missing are nobody's fault when the table was dropped. Raises: NotFound,
        Conflict.
        """
        try:
            yield
        except PreconditionFailed:
            verify_columns(Change(self._base), self._lake.current(self._base.identifier))
            raise

    def _expect_open(self) -> None:
        if not self._open:
            raise Conflict(f"the statement on table {self._base.identifier} has ended already")

    def _row_ids(self, batch: pa.RecordBatch) -> pa.Array:
        position = batch.schema.get_field_index(ROWID_NAME)
        if position < 0:
            raise BadRequest(
                f"a change of rows of table {self._base.identifier} needs the column {ROWID_NAME}"
            )
        ids = batch.column(position)
        if ids.null_count:
            raise BadRequest(f"NULL is not a row id of table {self._base.identifier}")
        try:
            return ids.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise BadRequest(
                f"row ids of table {self._base.identifier} are of type int64: {error}"
            ) from error

    def _rows(self, ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Columns of rows as the statement sees them, in the order of the ids. Raises: NotFound."""
        return take_rows(
            self._base, ids, columns, properties=self._lake.file_properties, check=self._ctx.check
        )

    def _expect_type(self, field: pa.Field, given: pa.DataType) -> None:
        if given != field.type:
            raise BadRequest(
                f"column {field.name} of table {self._base.identifier} is {field.type}, not {given}"
            )


class _Insert(_Statement):
    """Gathers the client's batches of 2048 rows, so that constraints and files see large ones."""

    def __init__(
        self, lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
    ) -> None:
        super().__init__(lake, ctx, state, operation, options)
        self._gathered = Gathered()
        names = [field.name for field in state.schema.fields]
        self._writer: DataFileWriter | SourceWriter = (
            DataFileWriter(state, self._staging)
            if can_write(state)
            else SourceWriter(state, self._staging, names, with_row_ids=False)
        )
        self._rows_written = 0

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return 0  # there is never more than a block of them

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        columns = self._definition.columns
        if batch.num_columns != len(columns):
            raise BadRequest(
                f"table {self._base.identifier} has {len(columns)} columns, but {batch.num_columns} were given"
            )
        for field, given in zip(columns, batch.schema, strict=True):
            self._expect_type(field, given.type)
        enforce_not_null(self._table, self._definition.constraints, batch)
        self._gathered.add(batch)
        if self._gathered.is_full:
            self._write()
        return batch if self._returning else None

    def _write(self) -> None:
        for batch in self._gathered.take():
            self._ctx.check()
            if self._definition.constraints.checks:
                enforce_rows(self._table, self._definition.constraints, batch, self._ctx.check)
            self._writer.write(encoded(self._base, batch))
            self._rows_written += batch.num_rows

    def _finished(self) -> int:
        self._write()
        files = tuple(self._writer.finish())
        if files:
            change = Change(self._base, files, keys=_keys(self._definition.constraints))
            if isinstance(self._writer, SourceWriter):
                self._publish_by_spark(change, self._writer.columns)
            else:
                self._publish(change)
        return self._rows_written

    def _forget(self) -> None:
        self._gathered = Gathered()
        self._writer.abort()


class _Update(_Statement):
    """Holds the new values until all are there, or stages them for Spark when they become many."""

    def __init__(
        self, lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
    ) -> None:
        super().__init__(lake, ctx, state, operation, options)
        self._names: list[str] | None = None
        self._constraints = Constraints()
        self._ids: list[pa.Array] = []
        self._held = Gathered()
        self._is_own = can_write(state)
        self._must_be_own = self._is_own and (
            lake.transactions.collecting(ctx) is not None or not can_change(state, operation)
        )
        self._source: SourceWriter | None = None
        self._writer: DataFileWriter | None = None

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return (
            StagedWrite.held_bytes(self, batch) if self._must_be_own else super().held_bytes(batch)
        )

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        names = [name for name in batch.schema.names if name != ROWID_NAME]
        if self._names is None:
            self._begin(names)
        if names != self._names:
            raise BadRequest(
                f"an UPDATE of table {self._base.identifier} must give the same columns in every batch"
            )
        for name in names:
            self._expect_type(self._definition.columns.field(name), batch.schema.field(name).type)
        arrays = [batch.column(name) for name in names]
        rows = pa.RecordBatch.from_arrays([*arrays, ids], names=[*names, ROWID_NAME])
        enforce_not_null(self._table, self._constraints, rows)
        self._held.add(rows)
        if len(ids):
            self._ids.append(ids)
        settings = self._lake.settings
        if not self._must_be_own and (
            self._held.rows > settings.update_rows_in_place
            or self._held.bytes > settings.update_bytes_in_place
        ):
            self._stage_for_spark()
        return self._returned(rows) if self._returning else None

    def _begin(self, names: list[str]) -> None:
        unknown = [name for name in names if self._definition.columns.get_field_index(name) < 0]
        if unknown or not names:
            raise BadRequest(
                f"table {self._base.identifier} has no column {unknown[0] if unknown else 'to change'}"
            )
        self._names = names
        self._constraints = concerning(self._definition.constraints, names)

    def _returned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rest = [name for name in self._definition.columns.names if name not in rows.schema.names]
        old = self._rows(rows.column(ROWID_NAME), rest)
        arrays = [
            _array(old.column(name)) if name in rest else rows.column(name)
            for name in self._definition.arrow_schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._definition.arrow_schema)

    def _finished(self) -> int:
        if not self._ids:
            return 0
        ids = pa.concat_arrays(self._ids).sort()
        self._expect_distinct(ids)
        if self._source is None and self._is_own:
            self._replace(ids)
        else:
            self._stage_for_spark()
            assert self._source is not None
            assert self._names is not None
            change = Change(
                self._base, tuple(self._source.finish()), ids, keys=_keys(self._constraints)
            )
            self._publish_by_spark(change, self._names)
        return len(ids)

    def _expect_distinct(self, ids: pa.Array) -> None:
        same = pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1))
        if pc.any(same).as_py():
            twice = ids.slice(1).filter(same)[0].as_py()
            raise BadRequest(
                f"row {twice} of table {self._base.identifier} is updated twice by one statement"
            )

    def _replace(self, ids: pa.Array) -> None:
        """Write the rows anew, as a whole."""
        new = pa.concat_batches(self._held.take())
        new = new.take(pc.array_sort_indices(new.column(ROWID_NAME)))
        self._completed(new)  # for its checks
        located = locate(self._base, ids, self._lake.file_properties)
        self._writer = DataFileWriter(self._base, self._staging, with_row_ids=True)
        for rows in self._replaced(new, ids, located.found):
            self._writer.write(rows)
        files = tuple(self._writer.finish())
        self._publish(Change(self._base, files, ids, keys=_keys(self._constraints)))

    def _replaced(
        self, new: pa.RecordBatch, ids: pa.Array, located: Sequence[Located]
    ) -> Iterator[pa.RecordBatch]:
        """The rows as they will be stored, with their ids."""
        stored = encoded(self._base, new.select(self._names))
        kept = [name for name in self._definition.columns.names if name not in stored.schema.names]
        properties, check = self._lake.file_properties, self._ctx.check
        for old in rows_of(
            self._base, located, kept, stored=True, properties=properties, check=check
        ):
            order = pc.index_in(old.column(ROWID_NAME), value_set=ids)
            columns = {name: old.column(name) for name in kept}
            columns |= {name: stored.column(name).take(order) for name in stored.schema.names}
            yield pa.RecordBatch.from_pydict({**columns, "_row_id": old.column(ROWID_NAME)})

    def _stage_for_spark(self) -> None:
        for batch in self._held.take():
            rows = self._completed(batch)
            stored = encoded(self._base, rows)
            if self._source is None:
                self._source = SourceWriter(
                    self._base, self._staging, stored.schema.names, with_row_ids=True
                )
            self._source.write(stored.append_column("_row_id", rows.column(ROWID_NAME)))

    def _completed(self, new: pa.RecordBatch) -> pa.RecordBatch:
        """The new values, with the present ones of other columns that constraints need. Raises:
        ConstraintViolation.
        """
        needed = columns_of(self._constraints, self._definition.columns.names)
        rest = [name for name in needed if name not in new.schema.names]
        if rest:
            old = self._rows(new.column(ROWID_NAME), rest)
            for name in rest:
                new = new.append_column(name, _array(old.column(name)))
        enforce_rows(self._table, self._constraints, new, self._ctx.check)
        return new

    def _forget(self) -> None:
        self._held, self._ids = Gathered(), []
        for writer in (self._writer, self._source):
            if writer is not None:
                writer.abort()


class _Delete(_Statement):
    """A row that is named twice is deleted once, and counts once."""

    def __init__(
        self, lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
    ) -> None:
        super().__init__(lake, ctx, state, operation, options)
        self._ids: list[pa.Array] = []

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        if len(ids):
            self._ids.append(ids)
        if not self._returning:
            return None
        rows = self._rows(ids, self._definition.columns.names)
        arrays = [_array(rows.column(name)) for name in self._definition.columns.names]
        return pa.RecordBatch.from_arrays([*arrays, ids], schema=self._definition.arrow_schema)

    def _finished(self) -> int:
        if not self._ids:
            return 0
        ids = pc.unique(pa.concat_arrays(self._ids))
        ids = ids.take(pc.array_sort_indices(ids))
        self._ids = []
        if plan_rows(self._base, numbers_of(ids)) is not None:
            self._publish(Change(self._base, removed=ids))
        else:
            source = SourceWriter(self._base, self._staging, (), with_row_ids=True)
            source.write(pa.RecordBatch.from_arrays([ids], names=["_row_id"]))
            files = tuple(source.finish())
            self._publish_by_spark(Change(self._base, removed=ids), (), files)
        return len(ids)

    def _forget(self) -> None:
        self._ids = []


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _keys(constraints: Constraints) -> Constraints:
    return Constraints(unique=constraints.unique, primary_key=constraints.primary_key)


_STATEMENTS: dict[Operation, type[_Insert] | type[_Update] | type[_Delete]] = {
    Operation.INSERT: _Insert,
    Operation.UPDATE: _Update,
    Operation.DELETE: _Delete,
}
