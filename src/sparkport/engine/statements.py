"""INSERT, UPDATE and DELETE for every backend: from a statement's batches to one commit.

This module decides what a statement may do: it gathers the batches, checks ids, columns and
constraints, and answers RETURNING. A backend implements `RowStore`, which finds rows, stages new
rows, and publishes. When it publishes, the backend compares keys with other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints, DMLOptions, Operation, StagedWrite
from sparkport.catalog.quotas import bytes_of
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine import alterations
from sparkport.engine.arrays import is_ascending, take_values
from sparkport.engine.columns import expect_column, find_column
from sparkport.engine.constraints.enforce import (
    columns_of,
    concerning,
    enforce_not_null,
    enforce_rows,
    keys_of,
)
from sparkport.engine.databases import Check
from sparkport.engine.gathered import POOL, Block, BlockSize, Gathered
from sparkport.errors import BadRequest, Conflict

__all__ = ["Definition", "RowChange", "RowStore", "Statement", "begin"]

_NO_ROWS = pa.array([], pa.int64())


class Definition(alterations.Definition, Protocol):
    """Columns and constraints of a table."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns with the row id."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RowChange:
    """What a statement does, in addition to what was staged."""

    keys: Constraints
    """The UNIQUE and PRIMARY KEY constraints that the statement can violate."""
    row_ids: pa.Array
    """Ids of the rows to be updated or deleted, ascending and distinct; empty for an INSERT."""
    columns: tuple[str, ...] = ()
    """The columns that an UPDATE changes."""
    rows: Block | None = None
    """New values of an UPDATE that were not staged.

    When nothing was staged, they are one batch in the order of `row_ids`.
    """


class RowStore(ABC):
    """What a backend implements for a statement on a state of a table. For one thread."""

    table: alterations.NamedTable
    definition: Definition
    block: BlockSize = BlockSize()
    """How many rows are gathered before they are staged."""

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        """The bytes that a batch takes until the commit: see `StagedWrite.held_bytes`."""
        return bytes_of(batch)

    def expect_rows(self, row_ids: pa.Array) -> None:
        """Check early, where that is cheap, that rows exist; `publish` checks it in any case.

        Raises: NotFound.
        """

    @abstractmethod
    def old_values(self, row_ids: pa.Array, columns: Sequence[str]) -> Sequence[pa.Array]:
        """Columns of rows as the statement sees them, in the order of the ids.

        The ids may be in any order, and may be repeated. Raises: NotFound.
        """

    @abstractmethod
    def stage(self, block: Block) -> None:
        """Take rows that fulfil the constraints.

        Rows of an INSERT have the table's columns. Rows of an UPDATE have the changed columns,
        those that keys need, and the row id.
        """

    @abstractmethod
    def publish(self, change: RowChange) -> None:
        """Make the statement visible at once. Raises: Conflict, ConstraintViolation, NotFound."""

    def translated(self) -> AbstractContextManager[None]:
        """A context that translates the backend's errors. Everything that may fail runs in it."""
        return nullcontext()

    def done(self) -> None:
        """Called after the commit, even if there were no rows."""

    def discard(self, error: BaseException | None) -> None:
        """Forget what was staged. Must not raise.

        Called with the `error` of a failed commit, or with None when the statement is aborted.
        """


def begin(store: RowStore, operation: Operation, options: DMLOptions, check: Check) -> StagedWrite:
    """Begin a statement."""
    return _STATEMENTS[operation](store, options, check)


class Statement(StagedWrite):
    """A statement. It holds no lock, and nothing of it is visible until its commit."""

    def __init__(self, store: RowStore, options: DMLOptions, check: Check) -> None:
        self._store = store
        self._table = store.table
        self._definition = store.definition
        self._returning = options.returning
        self._check = check
        self._gathered = Gathered(store.block)
        self._open = True

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        self._expect_open()
        with self._store.translated():
            return self._applied(batch)

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return self._store.held_bytes(batch)

    def commit(self) -> int:
        self._expect_open()
        self._open = False
        try:
            with self._store.translated():
                rows = self._committed()
        except BaseException as error:
            self._store.discard(error)
            raise
        self._store.done()
        return rows

    def abort(self) -> None:
        self._open = False
        self._gathered.take()
        self._store.discard(None)

    @abstractmethod
    def _applied(self, batch: pa.RecordBatch) -> pa.RecordBatch | None: ...

    @abstractmethod
    def _committed(self) -> int:
        """Publish, and return the number of changed rows."""

    def _expect_open(self) -> None:
        if not self._open:
            raise Conflict(f"the statement on table {self._table} has ended already")

    def _expect_type(self, field: pa.Field, given: pa.DataType) -> None:
        if given != field.type:
            raise BadRequest(
                f"column {field.name} of table {self._table} is {field.type}, not {given}"
            )

    def _row_ids(self, batch: pa.RecordBatch) -> pa.Array:
        position = batch.schema.get_field_index(ROWID_NAME)
        if position < 0:
            raise BadRequest(
                f"a change of rows of table {self._table} needs the column {ROWID_NAME}"
            )
        ids = batch.column(position)
        if ids.null_count:
            raise BadRequest(f"NULL is not a row id of table {self._table}")
        if ids.type != pa.int64():
            try:
                ids = ids.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise BadRequest(
                    f"row ids of table {self._table} are of type int64: {error}"
                ) from error
        self._store.expect_rows(ids)
        return ids

    def _whole(self, new: dict[str, pa.Array], ids: pa.Array) -> pa.RecordBatch:
        """Rows with all columns, for RETURNING: new values, present ones for the rest."""
        rest = [name for name in self._definition.columns.names if name not in new]
        values = dict(new, **{ROWID_NAME: ids})
        if rest:
            values |= zip(rest, self._store.old_values(ids, rest), strict=True)
        arrow_schema = self._definition.arrow_schema
        return pa.RecordBatch.from_arrays(
            [values[name] for name in arrow_schema.names], schema=arrow_schema
        )


class _Insert(Statement):
    def __init__(self, store: RowStore, options: DMLOptions, check: Check) -> None:
        super().__init__(store, options, check)
        self._constraints = self._definition.constraints
        self._rows = 0

    def _applied(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        columns = self._definition.columns
        if not batch.schema.equals(columns):
            batch = self._arranged(batch, columns)
        enforce_not_null(self._table.name, self._constraints, batch)
        for block in self._gathered.add(batch):
            self._stage(block)
        return batch if self._returning else None

    def _arranged(self, batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
        """The batch with the table's columns in their order. Raises: BadRequest."""
        if batch.num_columns != len(columns):
            raise BadRequest(
                f"table {self._table} has {len(columns)} columns, "
                f"but {batch.num_columns} were given"
            )
        arrays = []
        for field in columns:
            position = find_column(batch.schema, field.name)
            if position is None:
                raise BadRequest(f"column {field.name} of table {self._table} was not given")
            self._expect_type(field, batch.schema.field(position).type)
            arrays.append(batch.column(position))
        return pa.RecordBatch.from_arrays(arrays, schema=columns)

    def _stage(self, block: Block) -> None:
        if self._constraints.checks:
            block = block.joined()
            for batch in block.batches:
                enforce_rows(self._table.name, self._constraints, batch, self._check)
        self._store.stage(block)
        self._rows += block.rows

    def _committed(self) -> int:
        last = self._gathered.take()
        if last.rows:
            self._stage(last)
        if self._rows:
            self._store.publish(RowChange(keys_of(self._constraints), _NO_ROWS))
        return self._rows


class _Update(Statement):
    """An UPDATE.

    It keeps the new values until the commit, unless the store has them staged earlier.
    """

    def __init__(self, store: RowStore, options: DMLOptions, check: Check) -> None:
        super().__init__(store, options, check)
        self._given: pa.Schema | None = None
        self._names: tuple[str, ...] = ()
        self._constraints = Constraints()
        self._ids: list[pa.Array] = []
        self._has_staged = False

    def _applied(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        if self._given is None or not batch.schema.equals(self._given):
            self._expect_columns(batch.schema)
        arrays = [
            column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name != ROWID_NAME
        ]
        rows = pa.RecordBatch.from_arrays([*arrays, ids], names=[*self._names, ROWID_NAME])
        enforce_not_null(self._table.name, self._constraints, rows)
        if len(ids):
            self._ids.append(ids)
        for block in self._gathered.add(rows):
            self._store.stage(self._completed(block.joined()))
            self._has_staged = True
        return (
            self._whole(dict(zip(self._names, arrays, strict=True)), ids)
            if self._returning
            else None
        )

    def _expect_columns(self, given: pa.Schema) -> None:
        """Check the columns of a batch. All batches of a statement must have the same columns."""
        columns, names = self._definition.columns, []
        for field in given:
            if field.name != ROWID_NAME:
                own = columns.field(expect_column(columns, field.name, self._table))
                self._expect_type(own, field.type)
                names.append(own.name)
        if not names or (self._names and tuple(names) != self._names):
            raise BadRequest(
                f"an UPDATE of table {self._table} must give the same columns in every batch"
            )
        self._names, self._given = tuple(names), given
        self._constraints = concerning(self._definition.constraints, names)

    def _committed(self) -> int:
        if not self._ids:
            return 0
        ids = pa.concat_arrays(self._ids)
        self._ids = []
        last, order = self._gathered.take(), None
        if not is_ascending(ids, distinct=True):
            order = pc.array_sort_indices(ids)
            ids = ids.take(order)
            self._expect_distinct(ids)
        if not self._has_staged:
            last = _in_order(last, order)
        if last.rows:
            last = self._completed(last)
        self._store.publish(RowChange(keys_of(self._constraints), ids, self._names, last))
        return len(ids)

    def _expect_distinct(self, ids: pa.Array) -> None:
        same = pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1))
        if same.true_count:
            twice = ids.slice(1).filter(same)[0].as_py()
            raise BadRequest(
                f"row {twice} of table {self._table} is updated twice by one statement"
            )

    def _completed(self, block: Block) -> Block:
        """Add present values of the columns that constraints need, and check the constraints.

        Raises: ConstraintViolation.
        """
        needed = columns_of(self._constraints, self._definition.columns.names)
        rest = [name for name in needed if name not in self._names]
        completed = []
        for rows in block.batches:
            if rest:
                old = self._store.old_values(rows.column(ROWID_NAME), rest)
                rows = pa.RecordBatch.from_arrays(
                    [*rows.columns, *old], names=[*rows.schema.names, *rest]
                )
            enforce_rows(self._table.name, self._constraints, rows, self._check)
            completed.append(rows)
        return Block(completed, block.rows, block.bytes)


class _Delete(Statement):
    """A DELETE. A row that is named twice is deleted once, and counts once."""

    def __init__(self, store: RowStore, options: DMLOptions, check: Check) -> None:
        super().__init__(store, options, check)
        self._ids: list[pa.Array] = []

    def _applied(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        ids = self._row_ids(batch)
        if len(ids):
            self._ids.append(ids)
        return self._whole({}, ids) if self._returning else None

    def _committed(self) -> int:
        if not self._ids:
            return 0
        ids = pc.unique(pa.concat_arrays(self._ids))
        ids = ids if is_ascending(ids) else ids.take(pc.array_sort_indices(ids))
        self._ids = []
        self._store.publish(RowChange(Constraints(), ids))
        return len(ids)


def _in_order(block: Block, order: pa.Array | None) -> Block:
    """Join rows into one batch, in another order.

    Raises: pa.ArrowInvalid when they do not fit into one batch.
    """
    rows = pa.concat_batches(block.batches, memory_pool=POOL)
    if order is not None:
        columns = [take_values(column, order) for column in rows.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    return Block([rows], block.rows, block.bytes)


_STATEMENTS: dict[Operation, type[Statement]] = {
    Operation.INSERT: _Insert,
    Operation.UPDATE: _Update,
    Operation.DELETE: _Delete,
}
