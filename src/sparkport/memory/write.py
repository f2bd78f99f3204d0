"""INSERT, UPDATE and DELETE: a statement's batches on their way to a commit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
from sparkport.errors import BadRequest, Conflict, NotFound
from sparkport.memory.changes import Change, Deleted, Inserted, Updated
from sparkport.memory.commit import KeyCheck, read_columns
from sparkport.memory.rows import find_missing, is_ascending, take_rows, take_values
from sparkport.memory.segments import MERGE_BYTES, POOL, SEGMENT_ROWS, Gathered, Segment
from sparkport.memory.versions import Version

if TYPE_CHECKING:
    from sparkport.memory.table import MemoryTable

__all__ = ["stage"]


def stage(
    table: MemoryTable, ctx: Context, operation: Operation, options: DMLOptions, base: Version
) -> StagedWrite:
    """Begin a statement that sees `base`."""
    return _STATEMENTS[operation](table, ctx, options, base)


class _Statement(StagedWrite):
    """Holds no lock and shows nothing to anyone until its commit."""

    def __init__(
        self, table: MemoryTable, ctx: Context, options: DMLOptions, base: Version
    ) -> None:
        self._table = table
        self._ctx = ctx
        self._returning = options.returning
        self._base = base
        self._definition = base.definition
        self._open = True

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        self._expect_open()
        with self._fitting():
            return self._staged(batch)

    def commit(self) -> int:
        self._expect_open()
        self._open = False
        with self._fitting():
            change, keys, rows = self._finished()
            if change is not None:
                self._table.commit(self._ctx, self._base, change, keys)
        return rows

    def abort(self) -> None:
        self._open = False
        self._forget()

    @abstractmethod
    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None: ...

    @abstractmethod
    def _finished(self) -> tuple[Change | None, KeyCheck | None, int]: ...

    @abstractmethod
    def _forget(self) -> None: ...

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            # A dictionary that needs wider indices, or more than 2 GB of text in one place.
            message = f"the rows do not fit into table {self._table.title}"
            raise BadRequest(f"{message}: {error}", without_values=message) from error

    def _expect_open(self) -> None:
        if not self._open:
            raise Conflict(f"the statement on table {self._table.title} has ended already")

    def _key_check(
        self, keys: Constraints, changed: pa.Table, *, has_row_ids: bool
    ) -> KeyCheck | None:
        keys = Constraints(unique=keys.unique, primary_key=keys.primary_key)
        check = self._ctx.check
        return (
            KeyCheck(self._table.name, self._definition, keys, changed, has_row_ids, check)
            if keys
            else None
        )

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        position = self._definition.expect(name, self._table.title)
        expected = self._definition.columns.field(position)
        column = batch.column(name)
        if column.type != expected.type:
            raise BadRequest(
                f"column {expected.name} of table {self._table.title} is {expected.type}, not {column.type}"
            )
        return column

    def _row_ids(self, batch: pa.RecordBatch) -> pa.Array:
        position = batch.schema.get_field_index(ROWID_NAME)
        if position < 0:
            raise BadRequest(
                f"a change of rows of table {self._table.title} needs the column {ROWID_NAME}"
            )
        ids = batch.column(position)
        if ids.null_count:
            raise BadRequest(f"NULL is not a row id of table {self._table.title}")
        if ids.type != pa.int64():
            try:
                ids = ids.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise BadRequest(
                    f"row ids of table {self._table.title} are of type int64: {error}"
                ) from error
        missing = find_missing(self._base.segments, ids)
        if missing is not None:
            raise NotFound(f"row id {missing} does not exist in table {self._table.title}")
        return ids

    def _rows(self, ids: pa.Array, columns: Sequence[str]) -> list[pa.Array]:
        if not len(ids):
            return [pa.array([], self._definition.columns.field(name).type) for name in columns]
        positions = [self._definition.columns.get_field_index(name) for name in columns]
        return take_rows(self._base.segments, ids, positions)

    def _full(self, columns: Sequence[pa.Array], ids: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, ids], schema=self._definition.arrow_schema)


class _Insert(_Statement):
    """Gathers the client's batches of 2048 rows into segments as they come, so that a commit has
    little to do.
    """

    def __init__(
        self, table: MemoryTable, ctx: Context, options: DMLOptions, base: Version
    ) -> None:
        super().__init__(table, ctx, options, base)
        self._segments: list[Segment] = []
        self._gathered: list[pa.RecordBatch] = []
        self._rows_gathered = 0
        self._bytes_gathered = 0
        # Putting dictionaries together may need wider indices; that must be known before the
        # commit.
        self._may_not_fit = any(_has_dictionary(field.type) for field in self._definition.columns)

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        columns = self._definition.columns
        if not batch.schema.equals(columns):
            if batch.num_columns != len(columns):
                raise BadRequest(
                    f"table {self._table.title} has {len(columns)} columns, but {batch.num_columns} were given"
                )
            arrays = [self._column(batch, name) for name in columns.names]
            batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
        enforce_not_null(self._table.name, self._definition.constraints, batch)
        if self._rows_gathered + batch.num_rows > SEGMENT_ROWS:
            self._make_segments()
        if batch.num_rows:
            self._gathered.append(batch)
            self._rows_gathered += batch.num_rows
            # The exact size takes forty times as long to find out, and matters only for parts of
            # something large.
            size = batch.get_total_buffer_size()
            self._bytes_gathered += size if size < MERGE_BYTES // 64 else batch.nbytes
        if self._rows_gathered >= SEGMENT_ROWS or self._bytes_gathered >= MERGE_BYTES:
            self._make_segments()
        return batch if self._returning else None

    def _make_segments(self) -> None:
        if not self._gathered:
            return
        batches, rows, nbytes = self._gathered, self._rows_gathered, self._bytes_gathered
        self._gathered, self._rows_gathered, self._bytes_gathered = [], 0, 0
        columns: Sequence[pa.Array] = (
            batches[0].columns if len(batches) == 1 else Gathered(batches, nbytes)
        )
        if self._may_not_fit:
            with self._fitting():
                columns = list(columns)
        if self._definition.constraints.checks:
            changed = pa.RecordBatch.from_arrays(list(columns), schema=self._definition.columns)
            enforce_rows(self._table.name, self._definition.constraints, changed, self._ctx.check)
        segment = Segment(columns, rows, 0)
        if rows <= SEGMENT_ROWS:
            self._segments.append(segment)
        else:
            self._segments += [
                segment.slice(start, min(SEGMENT_ROWS, rows - start))
                for start in range(0, rows, SEGMENT_ROWS)
            ]

    def _finished(self) -> tuple[Change | None, KeyCheck | None, int]:
        self._make_segments()
        change = Inserted(tuple(self._segments))
        if not change.segments:
            return None, None, 0
        constraints = self._definition.constraints
        if not (constraints.unique or constraints.primary_key):
            return change, None, change.rows
        changed = read_columns(self._definition, change.segments, self._definition.columns.names)
        return change, self._key_check(constraints, changed, has_row_ids=False), change.rows

    def _forget(self) -> None:
        self._segments, self._gathered = [], []


class _Update(_Statement):
    """When one row is updated twice, the later values win, and the row counts once."""

    def __init__(
        self, table: MemoryTable, ctx: Context, options: DMLOptions, base: Version
    ) -> None:
        super().__init__(table, ctx, options, base)
        self._names: list[str] = []
        self._checked: pa.Schema | None = None
        self._constraints = Constraints()
        self._batches: list[pa.RecordBatch] = []

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        if self._checked is None or not batch.schema.equals(self._checked):
            self._check(batch)
        own = self._definition.columns.names
        given = [
            batch.column(index)
            for index, name in enumerate(batch.schema.names)
            if name != ROWID_NAME
        ]
        complete = self._names == own
        rows = self._full(given, ids) if complete else self._partial(given, ids)
        enforce_not_null(self._table.name, self._constraints, rows)
        if len(ids):
            self._batches.append(rows)
        if not self._returning:
            return None
        if complete:
            return rows
        new = dict(zip(self._names, given, strict=True))
        rest = [name for name in own if name not in new]
        values = {**new, **dict(zip(rest, self._rows(ids, rest), strict=True))}
        return self._full([values[name] for name in own], ids)

    def _partial(self, columns: Sequence[pa.Array], ids: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, ids], names=[*self._names, ROWID_NAME])

    def _check(self, batch: pa.RecordBatch) -> None:
        """Look at the columns once: all batches of a statement have the same."""
        own = self._definition.columns.names
        names = []
        for name in batch.schema.names:
            if name != ROWID_NAME:
                self._column(batch, name)
                names.append(own[self._definition.expect(name, self._table.title)])
        if not names or (self._names and names != self._names):
            raise BadRequest(
                f"an UPDATE of table {self._table.title} must give the same columns in every batch"
            )
        self._names, self._checked = names, batch.schema
        self._constraints = concerning(self._definition.constraints, names)

    def _finished(self) -> tuple[Change | None, KeyCheck | None, int]:
        if not self._batches:
            return None, None, 0
        rows = _last_of_each(pa.concat_batches(self._batches, memory_pool=POOL))
        self._batches = []
        ids = rows.column(ROWID_NAME)
        new = {name: rows.column(name) for name in self._names}
        keys = self._enforced(new, ids)
        positions = {
            self._definition.columns.get_field_index(name): values for name, values in new.items()
        }
        return Updated(ids, positions), keys, len(ids)

    def _enforced(self, new: dict[str, pa.Array], ids: pa.Array) -> KeyCheck | None:
        constraints = concerning(self._definition.constraints, new)
        if not constraints:
            return None
        needed = columns_of(constraints, self._definition.columns.names)
        rest = [name for name in needed if name not in new]
        values = {**new, **dict(zip(rest, self._rows(ids, rest), strict=True))}
        changed = pa.table([*(values[name] for name in needed), ids], names=[*needed, ROWID_NAME])
        enforce_rows(self._table.name, constraints, changed, self._ctx.check)
        return self._key_check(constraints, changed, has_row_ids=True)

    def _forget(self) -> None:
        self._batches = []


class _Delete(_Statement):
    """A row that is named twice is deleted once, and counts once."""

    def __init__(
        self, table: MemoryTable, ctx: Context, options: DMLOptions, base: Version
    ) -> None:
        super().__init__(table, ctx, options, base)
        self._ids: list[pa.Array] = []

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        if len(ids):
            self._ids.append(ids)
        if not self._returning:
            return None
        return self._full(self._rows(ids, self._definition.columns.names), ids)

    def _finished(self) -> tuple[Change | None, KeyCheck | None, int]:
        if not self._ids:
            return None, None, 0
        ids = pc.unique(pa.concat_arrays(self._ids))
        ids = ids.take(pc.sort_indices(ids))
        self._ids = []
        return Deleted(ids), None, len(ids)

    def _forget(self) -> None:
        self._ids = []


_STATEMENTS: dict[Operation, type[_Insert] | type[_Update] | type[_Delete]] = {
    Operation.INSERT: _Insert,
    Operation.UPDATE: _Update,
    Operation.DELETE: _Delete,
}


def _last_of_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in ascending order of row id, of equal ids only the last."""
    ids = rows.column(ROWID_NAME)
    if is_ascending(ids, distinct=True):
        return rows
    order = pc.array_sort_indices(ids)  # stable: equal ids stay in the order in which they came
    ids = ids.take(order)
    last = pc.not_equal(ids.slice(0, len(ids) - 1), ids.slice(1))
    order = order.filter(pa.concat_arrays([last, pa.array([True])]))
    return pa.RecordBatch.from_arrays(
        [take_values(column, order) for column in rows.columns], schema=rows.schema
    )


def _has_dictionary(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_dictionary(data_type.storage_type)
    children = (data_type.field(index).type for index in range(data_type.num_fields))
    return pa.types.is_dictionary(data_type) or any(_has_dictionary(child) for child in children)
