"""Streaming rows: DoGet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from sparkport.catalog import Context, Filter, FramedTable, PartitionedTable, Privilege
from sparkport.engine.filters import Evaluator
from sparkport.errors import CatalogFault, StaleDescriptor
from sparkport.service import own_flights, table_functions
from sparkport.service.bound_columns import Fit, slices
from sparkport.service.calls import Call
from sparkport.service.closing import closing_reader
from sparkport.service.framing import ScanFraming
from sparkport.service.objects import PublishedTable, Reached, find_table, publish_table, table_at
from sparkport.service.plan import scan_options
from sparkport.service.registry import RegisteredCatalog
from sparkport.service.table_functions import FunctionResult
from sparkport.wire.filters import decode_filter
from sparkport.wire.flight_data import with_metadata
from sparkport.wire.scan import encode_progress
from sparkport.wire.tickets import ScanTicket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["read"]


def read(service: Service, call: Call, ticket: ScanTicket) -> Iterator[bytes]:
    """Yield the rows of a ticket as FlightData messages.

    Closing the iterator closes the table's reader.
    """
    registered = service.handed_out(call, ticket.catalog)
    ctx = service.context(call, registered, ticket.catalog, ticket.transaction_id)
    found = _find(service, call, ctx, registered, ticket)
    found.require(ctx, Privilege.READ)
    bound = found.in_form(ticket.fingerprint)
    if bound is None:
        raise StaleDescriptor(
            f"table {found.title} was altered while it was being read: run the query again"
        )
    if ticket.alone:
        bound = bound.only(ticket.columns or ())
        ticket = replace(ticket, columns=tuple(range(len(bound.arrow_schema))))
    fit = Fit(bound.arrow_schema, ticket.columns, bound.title)
    row_filter = decode_filter(ticket.filter, bound.arrow_schema.names)
    keep = _Keep(ctx, bound, row_filter)
    progress = _Progress(ctx)
    framed = isinstance(bound.table, FramedTable)
    yield fit.schema_message
    writer = fit.writer()
    with ExitStack() as resources:
        for batch in _batches(ctx, bound, ticket, row_filter, resources):
            ctx.check()
            if isinstance(batch, bytes) and framed:
                news = progress.news()
                yield with_metadata(batch, news) if news else batch
                continue
            if not isinstance(batch, pa.RecordBatch):
                raise CatalogFault(
                    f"table {bound.title}: its scan yields {type(batch).__name__}, not record "
                    f"batches"
                )
            batch = keep(batch)
            if not batch.num_rows:
                # A function that computes for long before its first row says how far it is.
                is_function = isinstance(bound.table, FunctionResult)
                news = progress.news() if is_function else b""
                if news:
                    yield from writer.messages(fit(batch), news)
                continue
            message = fit.small_message(batch)
            if message is not None:
                news = progress.news()
                yield with_metadata(message, news) if news else message
                continue
            for piece in slices(fit(batch)):
                yield from writer.messages(piece, progress.news())


def _find(
    service: Service, call: Call, ctx: Context, registered: RegisteredCatalog, ticket: ScanTicket
) -> PublishedTable:
    """Find the table that a ticket was made for. Raises: NotFound, StaleDescriptor."""
    reached = Reached(ticket.kind, ticket.table, ticket.function, ticket.arguments)
    match ticket.kind:
        case "table_function":
            return table_functions.result_of_ticket(
                service, call, ctx, registered, reached, ticket.schema
            )
        case "flight":
            found = own_flights.of_ticket(ctx, registered, reached)
        case _:
            found = find_table(ctx, registered, ticket.schema, ticket.table)
    if ticket.partition is not None and isinstance(found.table, PartitionedTable):
        planned = found.table.as_planned(ctx, ticket.partition)
        if planned is not found.table:
            found = publish_table(
                ctx, registered, found.schema_name, planned, None, found.reached_by
            )
    return table_at(ctx, found, ticket.time_point)


def _batches(
    ctx: Context,
    bound: PublishedTable,
    ticket: ScanTicket,
    row_filter: Filter | None,
    resources: ExitStack,
) -> Iterator[pa.RecordBatch | bytes]:
    """The batches, or messages, that the table yields; `resources` closes what must be closed."""
    table, options = bound.table, scan_options(bound, ticket, row_filter)
    if isinstance(table, FunctionResult):
        guard = resources.enter_context(table.watched())
        reader = _reader(guard.call(table.scan, ctx, options), bound)
        return guard.iterate(resources.enter_context(closing_reader(reader, guard.call)))
    if isinstance(table, FramedTable):
        if not table.applies_filters:
            raise CatalogFault(
                f"table {bound.title} yields finished messages, so it must apply filters itself"
            )
        framing = ScanFraming(bound.arrow_schema, ticket.columns, bound.title)
        return resources.enter_context(
            closing_reader(_reader(table.scan_framed(ctx, options, framing), bound))
        )
    return resources.enter_context(closing_reader(_reader(table.scan(ctx, options), bound)))


_Yielded = TypeVar("_Yielded")


def _reader(result: Iterable[_Yielded], bound: PublishedTable) -> Iterable[_Yielded]:
    """Ask the table for its reader. Raises: CatalogFault."""
    if not isinstance(result, Iterable):
        raise CatalogFault(
            f"table {bound.title}: its scan returns {type(result).__name__}, which yields no "
            f"batches"
        )
    return result


class _Keep:
    """Keeps the rows that match, where the table leaves filters to the service. Not thread-safe."""

    def __init__(self, ctx: Context, bound: PublishedTable, row_filter: Filter | None) -> None:
        self._check = ctx.check
        self._filter = None if bound.table.applies_filters else row_filter
        self._rowid_name = bound.rowid_name
        self._evaluator: tuple[pa.Schema, Evaluator] | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._filter is None:
            return batch
        # A table may yield its columns in any order, which the first batch tells.
        if self._evaluator is None or not batch.schema.equals(self._evaluator[0]):
            self._evaluator = (
                batch.schema,
                Evaluator(self._filter, batch.schema, self._rowid_name, self._check),
            )
        return self._evaluator[1].apply(batch)


class _Progress:
    """How far the table says it is, sent with messages that go out anyway (airport §5.5)."""

    _STEP = 0.01

    def __init__(self, ctx: Context) -> None:
        # Other clients do not expect metadata.
        self._source = ctx.progress if ctx.from_duckdb else None
        self._sent = 0.0

    def news(self) -> bytes:
        """The app_metadata of the next message; empty when there is nothing new to say."""
        fraction = None if self._source is None else self._source.fraction
        if fraction is None or fraction - self._sent < self._STEP:
            return b""
        self._sent = fraction
        return encode_progress(fraction)
