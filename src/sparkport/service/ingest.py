"""Flight SQL's bulk ingestion: rows for a table, which the ingest may create or replace.

The rows are inserted as by any INSERT, batch by batch: converted to the table's types, and held to
its constraints. All of them are stored, or none.

DDL takes no part in transactions. A table that an ingest creates inside a transaction is there at
once, and has its rows when the transaction is committed. If the transaction is rolled back, the
table stays, without rows. A table cannot be replaced inside a transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    Access,
    Cancellation,
    ConstrainedTable,
    Constraints,
    Context,
    DMLOptions,
    DropTableOptions,
    DynamicSchema,
    Operation,
    Privilege,
    ReplacingSchema,
    Schema,
)
from sparkport.catalog.names import MAIN, folded, own_spellings
from sparkport.engine.columns import default_of
from sparkport.engine.constraints.compute import default_values
from sparkport.engine.types import publishable_schema
from sparkport.errors import AlreadyExists, BadRequest, NotFound, SparkportError, Unsupported
from sparkport.service import ddl
from sparkport.service.calls import Call
from sparkport.service.first_messages import first_schema
from sparkport.service.objects import (
    PublishedTable,
    find_schema,
    publish_table,
    published_schema_name,
    table_named,
)
from sparkport.service.sql_transactions import Entered, enter
from sparkport.service.statements import Statement
from sparkport.wire.ddl import CreateTable
from sparkport.wire.flight_data import BatchReader, decode_flight_data
from sparkport.wire.sql_statements import IfExists, IngestRequest

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["ingest", "insert_rows"]

_DEFAULT_SCHEMAS = (b"default", MAIN.encode())


def ingest(service: Service, call: Call, request: IngestRequest, messages: Iterator[bytes]) -> int:
    """Store the rows that follow; return how many there are.

    Raises: AlreadyExists and NotFound, as the request wants it; PermissionDenied; BadRequest for
    columns that the table does not have; ConstraintViolation; what else an INSERT raises.
    """
    call.work.operation = Operation.INSERT.value
    call.work.note_request(request)
    if request.temporary:
        raise Unsupported("this server has no temporary tables: ingest into a table to keep")
    entered = enter(service, call, request.catalog, request.transaction)
    with entered.change():
        schema = _schema(entered, request.schema)
        call.work.note_object(entered.registered.name, schema.name, request.table)
        reader = BatchReader(first_schema(messages).schema_message)
        received = (
            batch
            for message in messages
            if (batch := reader.read(decode_flight_data(message))) is not None
        )
        return _Ingest(entered, schema, request, reader.arrow_schema, received).run()


def _schema(entered: Entered, name: str | None) -> Schema:
    """The schema of that name; without a name the only one, or else `default` or `main`.

    Raises: NotFound, BadRequest.
    """
    ctx, registered = entered.ctx, entered.registered
    if name:
        return find_schema(ctx, registered, name)
    seen = [each for each in registered.catalog.schemas(ctx) if ctx.access.sees_schema(each.name)]
    if len(seen) != 1:
        seen = [each for each in seen if folded(each.name) in _DEFAULT_SCHEMAS][:1]
    if not seen:
        raise BadRequest("the ingest names no schema: choose one (db_schema_name in ADBC)")
    return seen[0]


@dataclass(frozen=True, slots=True)
class _Ingest:
    entered: Entered
    schema: Schema
    request: IngestRequest
    arrow_schema: pa.Schema
    rows: Iterator[pa.RecordBatch]

    @property
    def ctx(self) -> Context:
        return self.entered.ctx

    @property
    def title(self) -> str:
        return f"table {published_schema_name(self.schema)}.{self.request.table}"

    def run(self) -> int:
        table = table_named(self.ctx, self.schema, self.request.table)
        if table is not None:
            match self.request.if_exists:
                case IfExists.FAIL:
                    raise AlreadyExists(
                        f"{self.title} exists already: ingest with the mode append or replace"
                    )
                case IfExists.REPLACE:
                    return self._replace(table.name)
                case IfExists.APPEND:
                    return self._insert(self._published(self.ctx, table.name))
        if not self.request.creates:
            raise NotFound(f"{self.title} not found: ingest with the mode create_append")
        return self._create()

    def _create(self) -> int:
        """Create the table and fill it; if that fails, drop it again."""
        try:
            created = self._new(self.ctx, self.request.table)
        except AlreadyExists:
            if self.request.if_exists is not IfExists.APPEND:
                raise
            return self._insert(self._published(self.ctx, self.request.table))  # another was first
        try:
            return self._insert(created)
        except BaseException:
            self._drop(created.table.name)
            raise

    def _replace(self, name: str) -> int:
        """Fill a new table beside the old one, and let them change places when it is complete.

        Until then the old table is as it was, and readers see it.
        """
        if self.entered.manager is not None:
            raise Unsupported(
                f"{self.title} cannot be replaced inside a transaction: commit it first"
            )
        schema = ddl.dynamic_schema(self.ctx, self.entered.registered, self.schema.name)
        ddl.require_alter(self.ctx, schema.name, name)
        ddl.require_whole(self.ctx, schema.name, name)
        self.ctx.access.require(Privilege.WRITE, schema.name, name)
        # The caller's rules may say nothing about the name of the new table, which is ours.
        inside = replace(self.ctx, access=Access())
        fresh = f"{name}__new_{secrets.token_hex(8)}"
        created = self._new(inside, fresh)
        try:
            count = self._insert(created, inside)
            self.ctx.check()
            self._exchange(inside, schema, name, fresh)
        except BaseException as error:
            self._drop(fresh)
            if isinstance(error, SparkportError):
                error.replace(fresh, name)
            raise
        self.ctx.report_write("replace_table", f"{self.entered.registered.name}.{self.title}")
        return count

    def _exchange(self, ctx: Context, schema: DynamicSchema, name: str, fresh: str) -> None:
        lasting = replace(ctx, cancellation=Cancellation())  # not to be left halfway
        try:
            if isinstance(schema, ReplacingSchema):
                with suppress(Unsupported):
                    return schema.replace_table(lasting, name, fresh)
            self._rename_both(lasting, schema, name, fresh)
        finally:
            self.entered.registered.changed()

    def _rename_both(self, ctx: Context, schema: DynamicSchema, name: str, fresh: str) -> None:
        """Rename the old table, give the new one its name, and drop the old table.

        Between the two renames there is no table of that name. If the second fails, the first is
        undone.
        """
        old = f"{name}__old_{secrets.token_hex(8)}"
        schema.rename_table(ctx, name, old)
        try:
            schema.rename_table(ctx, fresh, name)
        except BaseException:
            schema.rename_table(ctx, old, name)
            raise
        self._drop(old)

    def _new(self, ctx: Context, name: str) -> PublishedTable:
        columns = pa.schema(list(publishable_schema(self.arrow_schema)))
        required = tuple(field.name for field in columns if not field.nullable)
        request = CreateTable(
            self.entered.registered.name,
            self.schema.name,
            name,
            columns,
            constraints=Constraints(not_null=required),
        )
        created = ddl.new_table(ctx, self.entered.registered, request)
        ctx.report_write("create_table", f"{self.entered.registered.name}.{created.title}")
        return created

    def _drop(self, name: str) -> None:
        """Drop a table of ours, though the caller may have gone away."""
        ctx = replace(self.ctx, access=Access(), cancellation=Cancellation())
        schema = ddl.dynamic_schema(ctx, self.entered.registered, self.schema.name)
        schema.drop_table(ctx, name, DropTableOptions(ignore_not_found=True))
        ctx.report_write("drop_table", f"{self.entered.registered.name}.{self.schema.name}.{name}")
        self.entered.registered.changed()

    def _published(self, ctx: Context, name: str) -> PublishedTable:
        table = table_named(ctx, self.schema, name)
        if table is None:
            raise NotFound(f"{self.title} not found")
        return publish_table(ctx, self.entered.registered, self.schema.name, table)

    def _insert(self, bound: PublishedTable, ctx: Context | None = None) -> int:
        ctx = self.ctx if ctx is None else ctx
        return insert_rows(self.entered, bound, self.arrow_schema, self.rows, ctx)


def insert_rows(
    entered: Entered,
    bound: PublishedTable,
    arrow_schema: pa.Schema,
    rows: Iterable[pa.RecordBatch],
    ctx: Context,
) -> int:
    """Insert rows as any INSERT does, all or none; return how many there are.

    Columns that the rows lack get their defaults. Raises: BadRequest for columns that the table
    does not have, or that need a value; PermissionDenied; ConstraintViolation.
    """
    completion = _Completion(bound, arrow_schema, ctx)
    statement = Statement(
        ctx,
        bound,
        Operation.INSERT,
        completion.arrow_schema,
        DMLOptions(),
        joins_transaction=entered.manager is not None,
    )
    try:
        for batch in rows:
            statement.apply(completion.complete(statement.received(batch)))
        return statement.commit()
    except BaseException:
        statement.abort()
        raise


class _Completion:
    """Adds the columns that the client left out, with their defaults."""

    def __init__(self, bound: PublishedTable, received: pa.Schema, ctx: Context) -> None:
        """Raises: BadRequest for columns that are unknown, or missing and required."""
        own = own_spellings(bound.column_names)
        sent = [own(name) for name in received.names]
        known = frozenset(bound.column_names)
        _refuse(bound, [name for name in sent if name not in known], "has no column")
        missing = [
            field for field in bound.arrow_schema if field.name in known and field.name not in sent
        ]
        table = bound.table
        required = table.constraints.not_null if isinstance(table, ConstrainedTable) else ()
        without = [
            field.name
            for field in missing
            if (not field.nullable or field.name in required) and not default_of(field)
        ]
        _refuse(bound, without, "needs a value for column")
        self._check = ctx.check
        self._missing = missing
        self.arrow_schema = pa.schema([*received, *missing])

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._missing:
            return batch
        added = [
            array
            for field in self._missing
            for array in default_values(field, [batch.num_rows], self._check)
        ]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self.arrow_schema)


def _refuse(bound: PublishedTable, names: Sequence[str], problem: str) -> None:
    if names:
        raise BadRequest(f"schema mismatch: table {bound.title} {problem} {', '.join(names)}")
