"""An INSERT, UPDATE or DELETE, from whichever call: conversion, transaction, all or nothing."""

from __future__ import annotations

import pyarrow as pa

from sparkport.catalog import (
    Context,
    DMLOptions,
    Operation,
    Privilege,
    StagedWrite,
    TransactionManager,
    find_rowid_column,
)
from sparkport.catalog.names import own_spellings
from sparkport.catalog.quotas import StagedBytes, bytes_of
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.discretion import discreet
from sparkport.engine.encodings import Converter
from sparkport.errors import BadRequest, CatalogFault
from sparkport.service.contract_writes import stage
from sparkport.service.objects import PublishedTable

__all__ = ["Statement"]


class Statement:
    """An INSERT, UPDATE or DELETE under way. Used by one thread.

    It ends with `commit` or `abort`; after a failed commit, `abort` must follow. It runs in a
    transaction of its own that is committed or rolled back with it, unless it joins a transaction,
    which its caller ends.
    """

    def __init__(
        self,
        ctx: Context,
        bound: PublishedTable,
        operation: Operation,
        received: pa.Schema,
        options: DMLOptions,
        *,
        joins_transaction: bool = False,
    ) -> None:
        """Raises: PermissionDenied; NotWritable; BadRequest unless the columns fit the table."""
        bound.require(ctx, Privilege.WRITE)
        if operation is not Operation.INSERT or options.returning:
            bound.require(ctx, Privilege.READ)
        self._bound = bound
        self._operation = operation
        self._returning = options.returning
        self._shows = ctx.access.shows(bound.schema_name, bound.table.name)
        self._incoming = _Incoming(bound, operation, received, from_duckdb=ctx.from_duckdb)
        catalog = bound.registered.catalog
        self._manager: TransactionManager | None = None
        if isinstance(catalog, TransactionManager) and not joins_transaction:
            self._manager = catalog
            ctx = ctx.with_transaction(catalog.begin_statement(ctx))
        self._ctx = ctx
        self._bytes = StagedBytes(ctx.quotas)
        self._staged: StagedWrite | None = None
        try:
            self._staged = stage(ctx, bound, operation, options)
        except BaseException:
            self.abort()
            raise

    def received(self, batch: pa.RecordBatch, *, is_held: bool = False) -> pa.RecordBatch:
        """Count a batch as staged by the caller, and as held in memory. Raises: LimitExceeded."""
        size = bytes_of(batch)
        self._bytes.add(size)
        if is_held:
            self._bytes.hold(size)
        return batch

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Stage a batch as received; with RETURNING, return its rows in the table's columns."""
        self._ctx.check()
        assert self._staged is not None
        with discreet(self._shows, f"table {self._bound.title}"):
            rows = self._incoming.convert(batch)
            self._bytes.hold(self._staged.held_bytes(rows))
            returned = self._staged.apply(rows)
        if not self._returning:
            return None
        if returned is None or returned.num_rows > batch.num_rows:
            raise CatalogFault(
                f"table {self._bound.title} returned no rows, or too many, for RETURNING"
            )
        return returned

    def commit(self) -> int:
        """Make the changes durable, before the client is told (airport §7.1, T21).

        Raises: Conflict, ConstraintViolation.
        """
        self._ctx.check()  # a caller who has gone away must not find the change made
        assert self._staged is not None
        staged, self._staged = (
            self._staged,
            None,
        )  # `abort` is not called on what has failed to commit
        with discreet(self._shows, f"table {self._bound.title}"):
            changed = staged.commit()
            if self._manager is not None and self._ctx.transaction_id is not None:
                self._manager.commit_transaction(self._ctx, self._ctx.transaction_id)
        self._bytes.close()
        self._ctx.report_write(
            self._operation.value, f"{self._bound.registered.name}.{self._bound.title}", changed
        )
        # plans of prepared statements hold statistics of the rows (decision 0007)
        self._bound.registered.changed()
        return changed

    def abort(self) -> None:
        """Undo everything; harmless after a commit, whose transaction is no longer active."""
        self._bytes.close()
        if self._staged is not None:
            self._staged.abort()
            self._staged = None
        if self._manager is not None and self._ctx.transaction_id is not None:
            self._manager.rollback_transaction(self._ctx, self._ctx.transaction_id)


class _Incoming:
    """Converts received batches to the table's own columns, in the table's order."""

    def __init__(
        self, bound: PublishedTable, operation: Operation, received: pa.Schema, *, from_duckdb: bool
    ) -> None:
        """Raises: BadRequest, with the contracts' wording, when the columns do not match."""
        # From here on columns have the table's spelling of their names, whatever the client typed.
        self._names = list(map(own_spellings(bound.column_names), received.names))
        self._selected: list[int] | None = None
        self._rowid: str | None = None
        self._converter: Converter | None = None
        own = _with_own_types(bound)
        columns = [field for index, field in enumerate(own) if index != bound.rowid_index]
        if operation is not Operation.INSERT:
            rowid = find_rowid_column(received)
            if rowid is None:
                raise BadRequest(f"{operation.value.upper()} requires rowid column")
            if bound.rowid_index is None:
                return  # `stage` refuses it with the contract's message
            rowid_field = own.field(bound.rowid_index)
            if pa.types.is_integer(rowid_field.type) and not pa.types.is_integer(
                received.field(rowid).type
            ):
                raise BadRequest("rowid must be integer type")
            self._rowid = rowid_field.name
            self._names[rowid] = rowid_field.name
            if operation is Operation.DELETE:  # more columns do no harm
                self._selected = [rowid]
                columns = [rowid_field]
            else:
                sent = {name for index, name in enumerate(self._names) if index != rowid}
                if not sent:
                    raise BadRequest(
                        "schema mismatch: UPDATE needs a column to change beside the row id"
                    )
                columns = [*(field for field in columns if field.name in sent), rowid_field]
        source = pa.schema(
            [field.with_name(name) for field, name in zip(received, self._names, strict=True)]
        )
        if self._selected is not None:
            source = pa.schema([source.field(index) for index in self._selected])
        converter = Converter(source, pa.schema(columns), from_duckdb=from_duckdb)
        # An UPDATE may bring its columns in any order where the table finds them by name, row id
        # included.
        as_they_are = (
            operation is Operation.UPDATE and self._rowid == ROWID_NAME and converter.keeps_columns
        )
        self._converter = None if as_they_are else converter

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises: BadRequest for values that do not fit the table's types, and NULL row ids."""
        if batch.schema.names != self._names:
            batch = batch.rename_columns(self._names)
        if self._selected is not None:
            batch = batch.select(self._selected)
        converted = batch if self._converter is None else self._converter.convert(batch)
        if self._rowid is not None and converted.column(self._rowid).null_count:
            raise BadRequest("a row id must not be NULL")
        return converted


def _with_own_types(bound: PublishedTable) -> pa.Schema:
    """The published columns with the table's own types: dictionaries are published plain (T33)."""
    own = bound.table.arrow_schema
    if own is None:
        return bound.arrow_schema
    known = {field.name: field.type for field in own}
    return pa.schema(
        [field.with_type(known.get(field.name, field.type)) for field in bound.arrow_schema]
    )
