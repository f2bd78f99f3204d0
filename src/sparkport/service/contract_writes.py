"""The contracts' forms of writing, adapted to the staged form; nothing else knows them.

The batch form wins over the form with row ids (contracts/batch-tables). Without RETURNING the table
is called once, with all rows, when the statement is complete. With RETURNING the protocol wants an
answer to every batch before the next (airport §7.4), so the table is called for each; a failure
halfway is then undone only by a TransactionManager.

The caller owns the rows and closes their reader when the table has returned. Rows that the table
returns are closed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
from typing_extensions import assert_never

from sparkport.catalog import (
    Context,
    DeletableBatchTable,
    DeletableTable,
    DMLOptions,
    DMLResult,
    InsertableTable,
    Operation,
    RecordReader,
    StagedTable,
    StagedWrite,
    Table,
    UpdatableBatchTable,
    UpdatableTable,
)
from sparkport.errors import BadRequest, CatalogFault, NotWritable
from sparkport.service.closing import closing_reader
from sparkport.service.constraints import ConstraintChecks
from sparkport.service.objects import PublishedTable
from sparkport.service.spool import Spool

__all__ = ["stage"]

_Write: TypeAlias = Callable[[RecordReader], DMLResult]


def stage(
    ctx: Context, bound: PublishedTable, operation: Operation, options: DMLOptions
) -> StagedWrite:
    """Begin a statement on a table by the form of writing that it offers. Raises: NotWritable."""
    table = bound.table
    if operation is not Operation.INSERT and bound.rowid_name is None:
        raise _not_writable(bound, operation)
    if isinstance(table, StagedTable):
        return table.stage(ctx, operation, options)
    write = _write_of(ctx, table, operation, options, bound.rowid_name or "")
    if write is None:
        raise _not_writable(bound, operation)
    checks = ConstraintChecks(ctx, bound, operation)
    if options.returning:
        return _BatchByBatch(write, checks, bound)
    return _AllAtOnce(write, checks, takes_row_ids=_takes_row_ids(table, operation))


def _not_writable(bound: PublishedTable, operation: Operation) -> NotWritable:
    reason = "" if operation is Operation.INSERT else " (no rowid)"
    return NotWritable(
        f"table {bound.table.name} does not support {operation.value.upper()} operations{reason}"
    )


def _write_of(
    ctx: Context, table: Table, operation: Operation, options: DMLOptions, rowid: str
) -> _Write | None:
    """The table's method for the operation, as a function of the rows alone."""
    match operation:
        case Operation.INSERT:
            if isinstance(table, InsertableTable):
                return lambda rows: table.insert(ctx, rows, options)
        case Operation.UPDATE:
            if isinstance(table, UpdatableBatchTable):
                return lambda rows: table.update_batch(ctx, rows, options)
            if isinstance(table, UpdatableTable):
                return lambda rows: table.update(ctx, *_without_row_ids(rows, rowid), options)
        case Operation.DELETE:
            if isinstance(table, DeletableBatchTable):
                return lambda rows: table.delete_batch(ctx, rows, options)
            if isinstance(table, DeletableTable):
                return lambda rows: table.delete(ctx, _without_row_ids(rows, rowid)[0], options)
        case _:
            assert_never(operation)
    return None


def _takes_row_ids(table: Table, operation: Operation) -> bool:
    """Whether the table takes row ids apart from their rows: all of both are then in memory."""
    batch_form = UpdatableBatchTable if operation is Operation.UPDATE else DeletableBatchTable
    return operation is not Operation.INSERT and not isinstance(table, batch_form)


def _without_row_ids(rows: RecordReader, rowid: str) -> tuple[list[int], RecordReader]:
    """Divide rows into ids and other columns. Raises: BadRequest unless ids are integers."""
    row_ids: list[int] = []
    rest: list[pa.RecordBatch] = []
    for batch in rows:
        column = batch.column(rowid)
        if not pa.types.is_integer(column.type):
            raise BadRequest("rowid must be integer type")
        row_ids.extend(column.to_pylist())
        rest.append(batch.drop_columns([rowid]))
    return row_ids, rest


class _AllAtOnce(StagedWrite):
    """Calls the table once, with all rows, at the end."""

    def __init__(self, write: _Write, checks: ConstraintChecks, *, takes_row_ids: bool) -> None:
        self._write = write
        self._checks = checks
        self._takes_row_ids = takes_row_ids
        self._spool = Spool()

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return super().held_bytes(batch) if self._takes_row_ids else self._checks.held_bytes(batch)

    def apply(self, batch: pa.RecordBatch) -> None:
        self._checks.add(batch)
        self._spool.add(batch)

    def commit(self) -> int:
        try:
            if not self._spool.num_rows:
                return 0
            self._checks.check()
            with closing_reader(self._spool.read()) as rows:
                result = self._write(rows)
            with closing_reader(result.returning_data or ()):  # they were not asked for
                return result.affected_rows
        finally:
            self._spool.close()

    def abort(self) -> None:
        self._spool.close()


class _BatchByBatch(StagedWrite):
    """Calls the table for every batch, because RETURNING wants its rows at once."""

    def __init__(self, write: _Write, checks: ConstraintChecks, bound: PublishedTable) -> None:
        self._write = write
        self._checks = checks
        self._bound = bound
        self._affected = 0

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return self._checks.held_bytes(batch)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.num_rows:  # tables are never called without rows
            return pa.RecordBatch.from_pylist([], self._bound.arrow_schema)
        self._checks.add(batch)
        self._checks.check()
        result = self._write([batch])
        self._affected += result.affected_rows
        if result.returning_data is None:
            raise CatalogFault(
                f"table {self._bound.title} returned no rows although RETURNING asked for them"
            )
        with closing_reader(result.returning_data) as batches:
            returned = list(batches)
        if not returned:
            raise CatalogFault(
                f"table {self._bound.title} returned no batch although RETURNING asked for rows"
            )
        return pa.concat_batches(returned)

    def commit(self) -> int:
        return self._affected

    def abort(self) -> None:
        """Do nothing: the table's transaction, if it has one, undoes what the table has done."""
