"""INSERT, UPDATE and DELETE as the contracts define them: by DoPut, and by the action `delete`.

Only here can several operations share a transaction that the caller ends
(contracts/dml-transactions): operations with its id in the header become visible together when it
is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import assert_never

from sparkport.catalog import Context, DMLOptions, Operation, TransactionState
from sparkport.catalog.rowid import rowid_field
from sparkport.errors import BadRequest
from sparkport.service import flight_sql, sql_statements
from sparkport.service.calls import Call
from sparkport.service.first_messages import first_schema, with_first_descriptor
from sparkport.service.ingest import ingest
from sparkport.service.objects import PublishedTable, find_table
from sparkport.service.statements import Statement
from sparkport.service.transactions import manager_of, not_active
from sparkport.wire.flight import encode_put_result
from sparkport.wire.flight_data import BatchReader, decode_flight_data
from sparkport.wire.sql_statements import (
    IngestRequest,
    PreparedRequest,
    UpdateRequest,
    encode_prepared_handle,
    encode_update_result,
)
from sparkport.wire.write import (
    DeleteCommand,
    InsertCommand,
    UpdateCommand,
    decode_put_command,
    encode_dml_response,
)

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["delete", "put"]


def put(service: Service, call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
    """Run INSERT or UPDATE by DoPut; return one PutResult with a DMLResponse.

    A command of Flight SQL has a result of its own.
    """
    descriptor, messages = with_first_descriptor(messages)
    request = flight_sql.put_command(descriptor)
    if request is not None:
        yield encode_put_result(_flight_sql(service, call, request, messages))
        return
    opening = first_schema(messages)
    if opening.descriptor is None or opening.descriptor.command is None:
        raise BadRequest(
            'DoPut needs a command as its descriptor: {"operation": "insert" or "update", …}'
        )
    command = decode_put_command(opening.descriptor.command)
    call.work.operation = "insert" if isinstance(command, InsertCommand) else "update"
    call.work.note_request(command)
    with _operation(service, call, command) as (ctx, bound):
        reader = BatchReader(opening.schema_message)
        received = (
            batch
            for message in messages
            if (batch := reader.read(decode_flight_data(message))) is not None
        )
        if isinstance(command, InsertCommand):
            response = _run(
                call, ctx, bound, Operation.INSERT, reader.arrow_schema, received, command.returning
            )
        else:
            arrow_schema = reader.arrow_schema.append(rowid_field())
            rows = _with_row_ids(received, command.row_ids, arrow_schema)
            response = _run(
                call, ctx, bound, Operation.UPDATE, arrow_schema, rows, command.returning
            )
    yield encode_put_result(response)


def _flight_sql(
    service: Service,
    call: Call,
    request: UpdateRequest | PreparedRequest | IngestRequest,
    messages: Iterator[bytes],
) -> bytes:
    match request:
        case UpdateRequest():
            return encode_update_result(sql_statements.update(service, call, request, messages))
        case PreparedRequest():
            return encode_prepared_handle(sql_statements.bind(service, call, request, messages))
        case IngestRequest():
            return encode_update_result(ingest(service, call, request, messages))
        case _:
            assert_never(request)


def delete(service: Service, call: Call, command: DeleteCommand) -> Iterator[bytes]:
    """Run DELETE by the action of that name; return one Result with a DMLResponse."""
    arrow_schema = pa.schema([rowid_field()])
    rows = pa.RecordBatch.from_arrays([pa.array(command.row_ids, pa.int64())], schema=arrow_schema)
    with _operation(service, call, command) as (ctx, bound):
        response = _run(
            call, ctx, bound, Operation.DELETE, arrow_schema, iter([rows]), command.returning
        )
    yield response


@contextmanager
def _operation(
    service: Service, call: Call, command: InsertCommand | UpdateCommand | DeleteCommand
) -> Iterator[tuple[Context, PublishedTable]]:
    """Find the table, in the transaction that the header names.

    When the operation fails, the transaction is rolled back: later operations must not rest on half
    of it.

    Raises: TransactionNotActive, Unsupported, NotFound.
    """
    ctx, registered = service.enter(call, command.catalog)
    wrapped = call.headers.transaction_id
    if wrapped is None:
        yield ctx, find_table(ctx, registered, command.schema, command.table)
        return
    manager, own = manager_of(registered), ctx.transaction_id or ""
    state = manager.transaction_status(ctx, own)
    if state is not TransactionState.ACTIVE:
        raise not_active(wrapped, state)
    try:
        yield ctx, find_table(ctx, registered, command.schema, command.table)
    except BaseException:
        manager.rollback_transaction(ctx, own)
        raise


def _run(
    call: Call,
    ctx: Context,
    bound: PublishedTable,
    operation: Operation,
    arrow_schema: pa.Schema,
    rows: Iterator[pa.RecordBatch],
    returning: bool,
) -> bytes:
    joins = call.headers.transaction_id is not None
    statement = Statement(
        ctx, bound, operation, arrow_schema, DMLOptions(returning), joins_transaction=joins
    )
    rows = (statement.received(batch, is_held=returning) for batch in rows)
    if returning:
        rows = _in_one_piece(rows)
    try:
        returned = [answer for batch in rows if (answer := statement.apply(batch)) is not None]
        data = _ipc_stream(bound, returned) if returning else None
        changed = statement.commit()
    except BaseException:
        statement.abort()
        raise
    return encode_dml_response("success", changed, data)


def _with_row_ids(
    batches: Iterator[pa.RecordBatch], row_ids: tuple[int, ...], arrow_schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Put row ids beside their rows. Raises: BadRequest unless there are as many ids as rows."""
    ids = pa.array(row_ids, pa.int64())
    position = 0
    for batch in batches:
        if position + batch.num_rows > len(ids):
            raise BadRequest(f"there are {len(ids)} row_ids, but more rows")
        columns = [*batch.columns, ids.slice(position, batch.num_rows)]
        position += batch.num_rows
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)
    if position != len(ids):
        raise BadRequest(f"there are {len(ids)} row_ids, but {position} rows")


def _in_one_piece(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the batches: one piece is answered, so the table is called once for all of them."""
    received = list(batches)
    if received:
        yield pa.concat_batches(received)


def _ipc_stream(bound: PublishedTable, batches: list[pa.RecordBatch]) -> bytes:
    """The rows as an Arrow IPC stream; without rows it has a schema still."""
    arrow_schema = batches[0].schema if batches else bound.arrow_schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
