"""Changes of rows: the contracts' forms, and the staged form to which all are adapted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Table
from sparkport.catalog.quotas import bytes_of
from sparkport.catalog.scan import RecordReader

__all__ = [
    "DMLOptions",
    "DMLResult",
    "DeletableBatchTable",
    "DeletableTable",
    "InsertableTable",
    "Operation",
    "StagedTable",
    "StagedWrite",
    "UpdatableBatchTable",
    "UpdatableTable",
]


class Operation(str, Enum):
    """The three ways to change rows."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class DMLOptions:
    """Whether the statement returns rows, and which of their columns; None means all."""

    returning: bool = False
    returning_columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DMLResult:
    """The outcome of a change. The caller owns `returning_data`, iterates it once and closes it."""

    affected_rows: int
    returning_data: RecordReader | None = None


class InsertableTable(Table):
    """A table that accepts new rows."""

    @abstractmethod
    def insert(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        """Add rows: all of them or, when it raises, none.

        `rows` are batches of all columns but the row id, in table order, with the table's types;
        the caller owns them. With `options.returning`, the result has the rows as stored, in the
        same order.

        Raises: ConstraintViolation, Conflict.
        """


class UpdatableTable(Table):
    """A table whose rows can be changed, given their row ids."""

    @abstractmethod
    def update(
        self, ctx: Context, row_ids: Sequence[int], rows: RecordReader, options: DMLOptions
    ) -> DMLResult:
        """Give the rows of `row_ids` new values: all of them or, when it raises, none.

        `rows` are batches of the changed columns, as many rows as there are ids, in the same order.
        `row_ids` is never empty. With `options.returning`, the result has the new rows, in the same
        order.

        Raises: NotFound when a row id does not exist; ConstraintViolation, Conflict.
        """


class UpdatableBatchTable(Table):
    """A table whose rows can be changed, with the row id as a column of the new rows.

    A table that is also an `UpdatableTable` is used in this form.
    """

    @abstractmethod
    def update_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        """Update rows as `UpdatableTable.update` does.

        The row id column (`find_rowid_column`) may stand anywhere in `rows`.
        """


class DeletableTable(Table):
    """A table whose rows can be removed, given their row ids."""

    @abstractmethod
    def delete(self, ctx: Context, row_ids: Sequence[int], options: DMLOptions) -> DMLResult:
        """Remove the rows of `row_ids`: all of them or, when it raises, none.

        Row ids that do not exist may be ignored, or raise NotFound. `row_ids` is never empty. With
        `options.returning`, the result has the rows as they were, in the same order.
        """


class DeletableBatchTable(Table):
    """A table whose rows can be removed, with the row ids as a column.

    A table that is also a `DeletableTable` is used in this form.
    """

    @abstractmethod
    def delete_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        """Remove rows as `DeletableTable.delete` does.

        `rows` has the row id column (`find_rowid_column`), perhaps among others.
        """


class StagedWrite(ABC):
    """A statement in progress. Used by a single thread at a time; `commit` or `abort` ends it.

    Batches hold what the statement sends, converted to the table's types: for INSERT all columns
    but the row id, for UPDATE the changed columns and the row id, for DELETE the row id. The row id
    has its name in the table.
    """

    @abstractmethod
    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Stage a batch, without making it visible to any reader.

        With RETURNING, the answer has a row for each row of `batch`, in its order, and every column
        of the table (the row id may be missing after INSERT): the rows as inserted, as updated, or
        as they were before the deletion. Without RETURNING it is None.

        Raises: ConstraintViolation, NotFound, Conflict; then the caller aborts.
        """

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        """Return how many bytes of a batch stay in memory until the statement ends.

        Without an override, all of them. They count against `max_held_mb`.
        """
        return bytes_of(batch)

    @abstractmethod
    def commit(self) -> int:
        """Make everything visible at once and durable; returns how many rows were changed.

        Inside a transaction (`Context.transaction_id`), others see the changes when that is
        committed. When it raises, nothing has changed and `abort` is not called.
        """

    @abstractmethod
    def abort(self) -> None:
        """Discard everything. Must not raise."""


class StagedTable(Table):
    """A table that takes a statement batch by batch and makes it visible at once.

    This is the strongest form. The service prefers it to all others.
    """

    @abstractmethod
    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        """Begin a statement. Must not block readers: its scan may start later (airport §16 T24).

        Raises: NotWritable when the table does not support the operation.
        """
