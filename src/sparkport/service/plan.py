"""Planning a scan of a table that has been found: options, tickets, endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkport.catalog import (
    Context,
    DirectTable,
    Filter,
    PartitionedTable,
    ScanOptions,
    TableRef,
    TimePoint,
)
from sparkport.errors import CatalogFault
from sparkport.service.objects import PublishedTable
from sparkport.wire.data_uris import encode_data_uri
from sparkport.wire.filters import decode_filter
from sparkport.wire.flight import encode_endpoint
from sparkport.wire.tickets import ScanTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["Wanted", "endpoints_of", "scan_options", "tickets"]

LARGEST_FILTER = 1024 * 1024
"""The largest filter that is used.

Filters are hints (airport §6.1). A larger filter is left to the client: every ticket of the scan
would carry it.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client wants of a table; by default all of it, as it is now."""

    columns: tuple[int, ...] | None = None
    """Positions in the bound Arrow schema; None means all."""
    json_filters: str = ""
    time_point: TimePoint | None = None
    alone: bool = False
    """Whether the streams have these columns alone, in this order."""


def endpoints_of(
    service: Service, ctx: Context, bound: PublishedTable, wanted: Wanted
) -> list[bytes]:
    """Serialised endpoints, none when there are no rows. Raises: BadRequest."""
    ticket, row_filter = _ticket(ctx, bound, wanted)
    options = scan_options(bound, ticket, row_filter)
    if isinstance(bound.table, TableRef) and ctx.from_duckdb:
        references = bound.table.references(ctx, options)
        return [encode_endpoint(b"", encode_data_uri(each)) for each in references]
    if (
        isinstance(bound.table, DirectTable)
        and ctx.from_duckdb
        and not _wants_row_id(bound, wanted)
    ):
        directly = bound.table.directly(ctx, options)
        if directly is not None:
            referred = [encode_endpoint(b"", encode_data_uri(each)) for each in directly.references]
            rest = _signed(service, ticket, directly.partitions)
            return [*referred, *map(encode_endpoint, rest)]
    return [encode_endpoint(each) for each in _tickets(service, ctx, bound, ticket, options)]


def tickets(
    service: Service, ctx: Context, bound: PublishedTable, wanted: Wanted | None = None
) -> list[bytes]:
    """One ticket for each partition of a scan; none when there are no rows. Raises: BadRequest."""
    ticket, row_filter = _ticket(ctx, bound, wanted or Wanted())
    return _tickets(service, ctx, bound, ticket, scan_options(bound, ticket, row_filter))


def _tickets(
    service: Service, ctx: Context, bound: PublishedTable, ticket: ScanTicket, options: ScanOptions
) -> list[bytes]:
    partitions: Sequence[bytes | None] = (None,)
    if isinstance(bound.table, PartitionedTable):
        partitions = bound.table.partitions(ctx, options) or ((None,) if ticket.alone else ())
        if not all(isinstance(each, bytes | None) for each in partitions):
            raise CatalogFault(f"{bound.title} is divided into parts that are not named by bytes")
    return _signed(service, ticket, partitions)


def _signed(
    service: Service, ticket: ScanTicket, partitions: Sequence[bytes | None]
) -> list[bytes]:
    return [encode_ticket(replace(ticket, partition=each), service.signer) for each in partitions]


def _wants_row_id(bound: PublishedTable, wanted: Wanted) -> bool:
    """Whether the row id is wanted.

    Then DuckDB must not read files by itself: it would ask a file for the row id, and end in an
    internal error (T40).
    """
    return bound.rowid_index is not None and (
        wanted.columns is None or bound.rowid_index in wanted.columns
    )


def _ticket(
    ctx: Context, bound: PublishedTable, wanted: Wanted
) -> tuple[ScanTicket, Filter | None]:
    json_filters = wanted.json_filters if len(wanted.json_filters) <= LARGEST_FILTER else ""
    # At every plan: a filter that cannot be read is refused before rows flow.
    row_filter = decode_filter(json_filters, bound.arrow_schema.names)
    reached = bound.reached
    ticket = ScanTicket(
        bound.registered.name,
        bound.schema_name,
        reached.name,
        bound.fingerprint,
        wanted.columns,
        "" if row_filter is None else json_filters,
        wanted.time_point,
        transaction_id=ctx.transaction_id,
        alone=wanted.alone,
        kind=reached.kind,
        function=reached.function,
        arguments=reached.arguments,
        bearer=ctx.identity,
    )
    return ticket, row_filter


def scan_options(
    bound: PublishedTable, ticket: ScanTicket, row_filter: Filter | None
) -> ScanOptions:
    """What the table is asked for: the columns that the client or the filter needs."""
    names: tuple[str, ...] | None = None
    if ticket.columns is not None:
        wanted = set(ticket.columns)
        if row_filter is not None and not bound.table.applies_filters:
            wanted |= _filter_columns(bound, row_filter)
        # Without any column a batch could not say how many rows it has.
        own = bound.arrow_schema.names
        names = tuple([own[index] for index in sorted(wanted or {0})])
    return ScanOptions(
        columns=names, filter=row_filter, time_point=ticket.time_point, partition=ticket.partition
    )


def _filter_columns(bound: PublishedTable, row_filter: Filter) -> set[int]:
    """Positions of the columns that a filter reads.

    The client always calls the row id `rowid` (airport §6.2).
    """
    positions = {field.name: index for index, field in enumerate(bound.arrow_schema)}
    if bound.rowid_index is not None:
        positions["rowid"] = bound.rowid_index
    return {positions[name] for name in row_filter.columns if name in positions}
