"""Reading tables: planning (`endpoints`, `flight_info`) and streaming (DoGet)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import (
    Context,
    Filter,
    PartitionedTable,
    ScanOptions,
    TimePoint,
)
from sparkport.catalog.filters import Evaluator
from sparkport.errors import BadRequest, CatalogFault, NotFound, StaleDescriptor
from sparkport.service.calls import Call
from sparkport.service.fit import Fit, slices
from sparkport.service.listing import table_info
from sparkport.service.objects import PublishedTable, find_table, table_at
from sparkport.service.readers import closing_reader
from sparkport.wire.descriptors import ObjectPath, decode_path
from sparkport.wire.filters import decode_filter
from sparkport.wire.flight import encode_endpoint
from sparkport.wire.flight_data import BatchWriter, encode_schema
from sparkport.wire.scan import EndpointsRequest, FlightInfoRequest, ObjectName, encode_endpoints
from sparkport.wire.tickets import DatabasesTicket, ScanTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["bind", "endpoints", "flight_info", "read", "tickets"]

ROWID_COLUMN = 2**64 - 1
FIRST_VIRTUAL_COLUMN = 2**63
LARGEST_FILTER = 1024 * 1024
"""Filters are hints (airport §6.1). A larger one is left to the client: every ticket of the scan would carry it."""


def endpoints(service: Service, call: Call, request: EndpointsRequest) -> Iterator[bytes]:
    """Plan a scan; the answer's tickets say all about it."""
    if isinstance(request.target, flight.FlightDescriptor) and service.is_databases(request.target):
        yield encode_endpoints([encode_endpoint(encode_ticket(DatabasesTicket(), service.signer))])
        return
    ctx, bound = bind(service, call, request.target, request.time_point)
    columns = _wanted(bound, request.column_ids)
    made = tickets(service, ctx, bound, columns, request.json_filters, request.time_point)
    yield encode_endpoints([encode_endpoint(ticket) for ticket in made])


def flight_info(service: Service, call: Call, request: FlightInfoRequest) -> Iterator[bytes]:
    """Describe a table as of a point in time; the descriptor must come back as it was sent (airport §4.6, T42)."""
    ctx, bound = bind(service, call, request.descriptor, request.time_point)
    yield table_info(ctx, bound, request.descriptor)


def bind(
    service: Service, call: Call, target: flight.FlightDescriptor | ObjectName, time_point: TimePoint | None
) -> tuple[Context, PublishedTable]:
    """The table a request means, with the Arrow schema that its caller has bound.

    Raises: NotFound, BadRequest, StaleDescriptor, TransactionNotActive.
    """
    if isinstance(target, ObjectName):
        path = ObjectPath(target.catalog, target.schema or "", "table", target.name)
    else:
        path = decode_path(target, service.signer)
    if path.kind != "table":
        raise NotFound(f"{path.schema}.{path.name} is not a table")
    if path.signed:
        service.registry.named(path.catalog or "")
    ctx, registered = service.enter(call, path.catalog)
    if path.attached_as is not None:
        ctx = replace(ctx, catalog_name=path.attached_as)
    found = find_table(ctx, registered, path.schema, path.name)
    if time_point is None:
        found.expect(path.fingerprint)
    # With AT the client has bound what `flight_info` told it, so the fingerprint of its descriptor does not count.
    return ctx, table_at(ctx, found, time_point)


def tickets(
    service: Service,
    ctx: Context,
    bound: PublishedTable,
    columns: tuple[int, ...] | None,
    json_filters: str = "",
    time_point: TimePoint | None = None,
) -> list[bytes]:
    """One ticket for each partition of a scan; none when there are no rows. Raises: BadRequest."""
    if len(json_filters) > LARGEST_FILTER:
        json_filters = ""
    ticket = ScanTicket(
        bound.registered.name,
        bound.schema_name,
        bound.table.name,
        bound.fingerprint,
        columns,
        json_filters,
        time_point,
        transaction_id=ctx.transaction_id,
    )
    row_filter = decode_filter(json_filters)  # by every plan: one that cannot be read is refused before rows flow
    partitions: Sequence[bytes | None] = (None,)
    if isinstance(bound.table, PartitionedTable):
        partitions = bound.table.partitions(ctx, _options(bound, ticket, row_filter))
    return [encode_ticket(replace(ticket, partition=each), service.signer) for each in partitions]


def read(service: Service, call: Call, ticket: ScanTicket) -> Iterator[bytes]:
    """Stream the rows of a ticket as FlightData messages. Closing the iterator closes the table's reader."""
    registered = service.registry.named(ticket.catalog)
    ctx = call.context(ticket.catalog, ticket.transaction_id)
    bound = table_at(ctx, find_table(ctx, registered, ticket.schema, ticket.table), ticket.time_point)
    if bound.fingerprint != ticket.fingerprint:
        raise StaleDescriptor(f"table {bound.title} was altered while it was being read: run the query again")
    fit = Fit(bound.arrow_schema, ticket.columns, bound.title)
    row_filter = decode_filter(ticket.filter)
    options = _options(bound, ticket, row_filter)
    keep = _Keep(bound, row_filter)
    yield encode_schema(fit.arrow_schema)
    writer = BatchWriter(fit.arrow_schema)
    reader = bound.table.scan(ctx, options)
    if not isinstance(reader, Iterable):
        raise CatalogFault(f"table {bound.title}: its scan returns {type(reader).__name__}, which yields no batches")
    with closing_reader(reader) as batches:
        for batch in batches:
            ctx.check()
            if not isinstance(batch, pa.RecordBatch):
                raise CatalogFault(f"table {bound.title}: its scan yields {type(batch).__name__}, not record batches")
            batch = keep(batch)
            if batch.num_rows:
                for piece in slices(fit(batch)):
                    yield from writer.messages(piece)


class _Keep:
    """Keeps the rows that match, for a table that does not look after that itself. Not thread-safe."""

    def __init__(self, bound: PublishedTable, row_filter: Filter | None) -> None:
        self._filter = None if bound.table.applies_filters else row_filter
        self._rowid_name = bound.rowid_name
        self._evaluator: tuple[pa.Schema, Evaluator] | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._filter is None:
            return batch
        # A table may yield its columns in any order, so what the evaluator needs to know comes with the first batch.
        if self._evaluator is None or not batch.schema.equals(self._evaluator[0]):
            self._evaluator = (batch.schema, Evaluator(self._filter, batch.schema, self._rowid_name))
        return self._evaluator[1].apply(batch)


def _options(bound: PublishedTable, ticket: ScanTicket, row_filter: Filter | None) -> ScanOptions:
    names: tuple[str, ...] | None = None
    if ticket.columns is not None:
        wanted = set(ticket.columns)
        if row_filter is not None and not bound.table.applies_filters:
            wanted |= _filter_columns(bound, row_filter)
        # Without any column a batch could not say how many rows it has.
        names = tuple(bound.arrow_schema.field(index).name for index in sorted(wanted or {0}))
    return ScanOptions(columns=names, filter=row_filter, time_point=ticket.time_point, partition=ticket.partition)


def _filter_columns(bound: PublishedTable, row_filter: Filter) -> set[int]:
    """Positions of the columns a filter reads; the client says `rowid` whatever the field is called (airport §6.2)."""
    positions = {field.name: index for index, field in enumerate(bound.arrow_schema)}
    if bound.rowid_index is not None:
        positions["rowid"] = bound.rowid_index
    return {positions[name] for name in row_filter.columns if name in positions}


def _wanted(bound: PublishedTable, column_ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Positions in the bound Arrow schema; the client's ids do not count the row id, which is last (T6, T7).

    Raises: BadRequest.
    """
    if column_ids is None:
        return None
    plain = len(bound.arrow_schema) - (0 if bound.rowid_index is None else 1)
    wanted: set[int] = set()
    for column_id in column_ids:
        if column_id < plain:
            wanted.add(column_id)
        elif column_id == ROWID_COLUMN and bound.rowid_index is not None:
            wanted.add(bound.rowid_index)
        elif column_id < FIRST_VIRTUAL_COLUMN:
            raise BadRequest(f"table {bound.title} has {plain} columns; there is no column with id {column_id}")
    return tuple(sorted(wanted))
