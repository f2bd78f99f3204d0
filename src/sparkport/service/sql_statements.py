"""SQL by Flight SQL: queries, changes and prepared statements, run by catalogs that can.

The server keeps nothing between calls. A handle holds a prepared statement, a ticket holds a query,
and both are signed. A query is analysed by GetFlightInfo, so that its errors are known there, and
again by DoGet, which streams its rows. A change is made by GetFlightInfo, since that is how ADBC's
`cursor.execute` runs every statement. The ticket then holds only the result, so DoGet never makes a
change a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import SqlCatalog, SqlStatement
from sparkport.catalog.quotas import StagedBytes, bytes_of
from sparkport.errors import BadRequest, CatalogFault, LimitExceeded, StaleDescriptor, Unsupported
from sparkport.service.bound_columns import slices
from sparkport.service.calls import Call
from sparkport.service.closing import closing_reader
from sparkport.service.plain_statements import PlainRead, plain_statement
from sparkport.service.registry import RegisteredCatalog
from sparkport.service.sql_transactions import Entered, enter
from sparkport.wire.descriptors import fingerprint
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.flight_data import (
    BatchReader,
    BatchWriter,
    decode_flight_data,
    encode_schema,
)
from sparkport.wire.sql_handles import (
    PreparedStatement,
    decode_handle,
    decode_parameters,
    encode_handle,
    encode_parameters,
)
from sparkport.wire.sql_statements import (
    PreparedRequest,
    StatementRequest,
    UpdateRequest,
    encode_prepared,
)
from sparkport.wire.tickets import QueryTicket, ResultTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = [
    "OPERATION",
    "bind",
    "close",
    "flight_info",
    "prepare",
    "read",
    "read_result",
    "schema_of",
    "update",
]

OPERATION = "sql"
"""What views of the server's activity and the audit log call a statement."""

RESULT = pa.schema([pa.field("rows_changed", pa.int64())])
"""The answer to a change: one row. The number is NULL where the catalog does not know it."""

_PARAMETER_BYTES = 1024 * 1024
"""Bytes of parameters in a handle, which travels with each call that uses it."""

_Request: TypeAlias = StatementRequest | PreparedRequest


def flight_info(
    service: Service, call: Call, descriptor: flight.FlightDescriptor, request: _Request
) -> bytes:
    """Analyse a query, or make a change; the answer's FlightInfo.

    For a change, `total_records` is the number of changed rows: ADBC shows it as `rowcount`.
    """
    prepared = _prepared(service, call, request)
    entered = enter(service, call, prepared.catalog, prepared.transaction)
    statement, parameters = _analysed(entered, prepared)
    if statement.arrow_schema is None:
        changed = _execute(entered, statement, parameters)
        ticket = encode_ticket(ResultTicket(changed, call.identity), service.signer)
        return encode_flight_info(RESULT, descriptor, tickets=(ticket,), total_records=changed)
    if isinstance(statement, PlainRead):
        streams = tuple(statement.tickets(service))
        return encode_flight_info(statement.arrow_schema, descriptor, tickets=streams)
    query = QueryTicket(
        entered.registered.name,
        prepared.text,
        fingerprint(statement.arrow_schema),
        entered.ctx.trace_id,
        prepared.parameters,
        entered.ctx.transaction_id,
        call.identity,
    )
    ticket = encode_ticket(query, service.signer)
    return encode_flight_info(statement.arrow_schema, descriptor, tickets=(ticket,))


def schema_of(service: Service, call: Call, request: _Request) -> pa.Schema:
    """The columns of a statement's answer. Nothing is run."""
    prepared = _prepared(service, call, request)
    entered = enter(service, call, prepared.catalog, prepared.transaction)
    statement = _analyse(entered, prepared.text, _parameters_of(prepared))
    return RESULT if statement.arrow_schema is None else statement.arrow_schema


def read(service: Service, call: Call, ticket: QueryTicket) -> Iterator[bytes]:
    """Run a query; yield its rows as FlightData messages.

    Closing the iterator closes the catalog's reader. Raises: StaleDescriptor when the query has
    other columns than when it was planned.
    """
    call.work.operation = OPERATION
    call.work.note_object(ticket.catalog)
    registered = service.handed_out(call, ticket.catalog)
    planned = replace(call, trace_id=ticket.trace_id)
    ctx = service.context(planned, registered, ticket.catalog, ticket.transaction_id)
    if ticket.transaction_id is not None:
        service.transactions.expect_readable(call, registered, ctx, ticket.transaction_id)
    parameters = None if ticket.parameters is None else decode_parameters(ticket.parameters)
    with service.queries.running(ticket.trace_id, call):
        statement = _analyse(Entered(ctx, registered), ticket.text, parameters)
        arrow_schema = statement.arrow_schema
        if arrow_schema is None or fingerprint(arrow_schema) != ticket.fingerprint:
            raise StaleDescriptor(
                "a table of this query was altered after it was planned: run the query again"
            )
        yield encode_schema(arrow_schema)
        writer = BatchWriter(arrow_schema)
        with closing_reader(statement.rows(ctx)) as batches:
            for batch in batches:
                ctx.check()
                fitted = _fitted(batch, arrow_schema, registered)
                if fitted.num_rows:
                    for piece in slices(fitted):
                        yield from writer.messages(piece)


def read_result(ticket: ResultTicket) -> Iterator[bytes]:
    """Yield the result of a change that was made before."""
    changed = None if ticket.changed < 0 else ticket.changed
    yield encode_schema(RESULT)
    batch = pa.record_batch([pa.array([changed], pa.int64())], schema=RESULT)
    yield from BatchWriter(RESULT).messages(batch)


def prepare(service: Service, call: Call, request: StatementRequest) -> Iterator[bytes]:
    """Analyse a statement; the answer has its handle, and the columns of its answer and markers."""
    prepared = _prepared(service, call, request)
    entered = enter(service, call, prepared.catalog, prepared.transaction)
    statement = _analyse(entered, prepared.text, None)
    handle = encode_handle(prepared, service.signer)
    yield encode_prepared(handle, statement.arrow_schema, _announced(statement.parameters))


def _announced(markers: pa.Schema) -> pa.Schema:
    """The columns of markers, with all times in milliseconds.

    JDBC's driver writes milliseconds into whatever unit is announced. Clients may send other units.
    """

    def announced(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ms", kind.tz)
        return pa.time32("ms") if pa.types.is_time(kind) else kind

    return pa.schema([field.with_type(announced(field.type)) for field in markers])


def close(service: Service, call: Call, request: PreparedRequest) -> Iterator[bytes]:
    """Forget a prepared statement, of which the server knows nothing; there is no result."""
    _prepared(service, call, request)
    yield from ()


def bind(
    service: Service, call: Call, request: PreparedRequest, messages: Iterator[bytes]
) -> bytes:
    """Return a new handle, which holds the parameters too. Raises: LimitExceeded."""
    prepared = _prepared(service, call, request)
    entered = enter(service, call, prepared.catalog, prepared.transaction)
    with closing(StagedBytes(entered.ctx.quotas)) as held:
        parameters = _received(messages, held, most=_PARAMETER_BYTES)
        encoded = None if parameters is None else encode_parameters(parameters)
    if encoded is not None and len(encoded) > _PARAMETER_BYTES:
        raise _too_large()
    return encode_handle(replace(prepared, parameters=encoded), service.signer)


def update(service: Service, call: Call, request: UpdateRequest, messages: Iterator[bytes]) -> int:
    """Make a change, with the parameters that follow, if any; return how many rows it changed.

    All rows of parameters are in memory until the change is made, and count against the caller's
    limits. Raises: BadRequest for a query; LimitExceeded.
    """
    prepared = _prepared(service, call, request.statement)
    entered = enter(service, call, prepared.catalog, prepared.transaction)
    with closing(StagedBytes(entered.ctx.quotas)) as held:
        parameters = _received(messages, held)
        if parameters is None:
            parameters = _parameters_of(prepared)
        statement = _analyse(entered, prepared.text, parameters)
        _expect_all_bound(statement, parameters)
        if statement.arrow_schema is not None:
            raise BadRequest("this statement returns rows: run it as a query, not as an update")
        return _execute(entered, statement, parameters)


def _prepared(service: Service, call: Call, request: _Request) -> PreparedStatement:
    """The statement of a request. Raises: BadRequest, PermissionDenied, NotFound."""
    call.work.operation = OPERATION
    if isinstance(request, StatementRequest):
        catalog = service.catalog(call, call.headers.catalog).name
        call.work.note_object(catalog)
        return PreparedStatement(catalog, request.text, request.transaction, bearer=call.identity)
    service.expect_admitted(call)
    prepared = decode_handle(request.handle, service.signer)
    call.work.note_object(prepared.catalog)
    service.handed_out(service.identified(call, prepared.bearer), prepared.catalog)
    return prepared


def _analysed(
    entered: Entered, prepared: PreparedStatement
) -> tuple[SqlStatement, pa.RecordBatch | None]:
    """A statement that is about to be run, with its parameters. Raises: BadRequest, and more."""
    parameters = _parameters_of(prepared)
    statement = _analyse(entered, prepared.text, parameters)
    _expect_all_bound(statement, parameters)
    return statement, parameters


def _parameters_of(prepared: PreparedStatement) -> pa.RecordBatch | None:
    return None if prepared.parameters is None else decode_parameters(prepared.parameters)


def _analyse(entered: Entered, text: str, parameters: pa.RecordBatch | None) -> SqlStatement:
    catalog = entered.registered.catalog
    if not isinstance(catalog, SqlCatalog):
        raise Unsupported(  # decision 0046
            f"catalog {entered.registered.name!r} does not run SQL: ATTACH it in DuckDB, which "
            "runs SQL on its tables; without SQL, rows can be stored here by a bulk ingest"
        )
    entered.ctx.report_query(text)
    statement = catalog.analyse_sql(entered.ctx, text, parameters)
    if not isinstance(statement, SqlStatement):
        raise CatalogFault(
            f"catalog {entered.registered.name!r} gave {type(statement).__name__}, not a statement"
        )
    if statement.plain is not None:
        return plain_statement(entered, statement.plain, parameters)
    return statement


def _expect_all_bound(statement: SqlStatement, parameters: pa.RecordBatch | None) -> None:
    markers = len(statement.parameters)
    values = 0 if parameters is None else parameters.num_columns
    if values != markers:
        raise BadRequest(f"the statement has {markers} parameters, and {values} values were given")


def _execute(entered: Entered, statement: SqlStatement, parameters: pa.RecordBatch | None) -> int:
    ctx = entered.ctx
    if parameters is not None and not parameters.num_rows:
        return 0
    reported = len(ctx.progress.writes)
    with entered.change():
        ctx.check()  # a caller who has gone away must not find the change made
        changed = statement.execute(ctx)
    if len(ctx.progress.writes) == reported:
        ctx.report_write(OPERATION, entered.registered.name, None if changed < 0 else changed)
    entered.registered.changed()
    return max(changed, -1)


def _fitted(
    batch: pa.RecordBatch, arrow_schema: pa.Schema, registered: RegisteredCatalog
) -> pa.RecordBatch:
    """A batch with the columns that were announced. Two may have the same name."""
    if not isinstance(batch, pa.RecordBatch) or batch.schema.types != arrow_schema.types:
        raise CatalogFault(
            f"catalog {registered.name!r}: the rows of a query have other columns than announced"
        )
    return pa.RecordBatch.from_arrays(batch.columns, schema=arrow_schema)


def _received(
    messages: Iterator[bytes], held: StagedBytes, most: int | None = None
) -> pa.RecordBatch | None:
    """All rows of parameters that a client sends, as one batch.

    None if it sends no columns: some clients send not even a schema. Raises: BadRequest,
    LimitExceeded.
    """
    reader: BatchReader | None = None
    batches: list[pa.RecordBatch] = []
    size = 0
    for message in messages:
        data = decode_flight_data(message)
        if reader is None:
            reader = BatchReader(data) if data.header else None
            continue
        batch = reader.read(data)
        if batch is not None:
            size += batch.nbytes
            if most is not None and size > most:
                raise _too_large()
            held.add(bytes_of(batch))
            held.hold(bytes_of(batch))
            batches.append(batch)
    if reader is None or not len(reader.arrow_schema):
        return None
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=reader.arrow_schema)
    try:
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    except pa.ArrowException as error:
        raise BadRequest("the batches of parameters do not fit together") from error


def _too_large() -> LimitExceeded:
    return LimitExceeded(
        f"the parameters of a query have more than {_PARAMETER_BYTES >> 20} MiB: ingest them into "
        f"a table, and join that"
    )
