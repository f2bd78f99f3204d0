"""Planning reads of tables: the actions `endpoints` and `flight_info`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow.flight as flight

from sparkport.catalog import Context, Privilege, ScanOptions, TimePoint
from sparkport.errors import BadRequest, NotFound
from sparkport.service import own_flights, table_functions
from sparkport.service.calls import Call
from sparkport.service.listing import table_info
from sparkport.service.objects import PublishedTable, find_table, table_at
from sparkport.service.plan import Wanted, endpoints_of
from sparkport.wire.descriptors import ObjectPath, decode_path
from sparkport.wire.flight import encode_endpoint
from sparkport.wire.scan import EndpointsRequest, FlightInfoRequest, ObjectName, encode_endpoints
from sparkport.wire.tickets import DatabasesTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["bind", "endpoints", "flight_info"]

ROWID_COLUMN = 2**64 - 1
FIRST_VIRTUAL_COLUMN = 2**63


def endpoints(service: Service, call: Call, request: EndpointsRequest) -> Iterator[bytes]:
    """Plan a scan; the answer's tickets say all about it."""
    if isinstance(request.target, flight.FlightDescriptor) and service.is_databases(request.target):
        service.expect_admitted(call)
        yield encode_endpoints(
            [encode_endpoint(encode_ticket(DatabasesTicket(call.identity), service.signer))]
        )
        return
    if isinstance(request.target, flight.FlightDescriptor) and request.arguments is not None:
        ctx, bound = table_functions.bind_call(service, call, request)
    else:
        ctx, bound = bind(service, call, request.target, request.time_point)
    bound.require(ctx, Privilege.READ)
    wanted = Wanted(_positions(bound, request.column_ids), request.json_filters, request.time_point)
    yield encode_endpoints(endpoints_of(service, ctx, bound, wanted))


def flight_info(service: Service, call: Call, request: FlightInfoRequest) -> Iterator[bytes]:
    """Describe a table as of a point in time.

    The descriptor must come back as it was sent (airport §4.6, T42).
    """
    ctx, bound = bind(service, call, request.descriptor, request.time_point)
    readable = bound.reached_by is not None or ctx.access.may(
        Privilege.READ, bound.schema_name, bound.table.name
    )
    rows = (
        bound.table.estimated_rows(ctx, ScanOptions(time_point=request.time_point))
        if readable
        else None
    )
    yield table_info(ctx, bound, request.descriptor, rows=rows)


def bind(
    service: Service,
    call: Call,
    target: flight.FlightDescriptor | ObjectName,
    time_point: TimePoint | None,
) -> tuple[Context, PublishedTable]:
    """Find the table that a request names, with the Arrow schema that its caller has bound.

    Raises: NotFound, BadRequest, StaleDescriptor, TransactionNotActive.
    """
    if isinstance(target, ObjectName):
        path = ObjectPath(target.catalog, target.schema or "", "table", target.name)
    else:
        own = own_flights.of_descriptor(service, call, target)
        if own is not None:
            return own[0], table_at(*own, time_point)
        with service.authentication_first(call):
            path = decode_path(target, service.signer)
    call.work.note_object(path.catalog, path.schema, path.name)
    if path.kind != "table":
        raise NotFound(f"{path.schema}.{path.name} is not a table")
    call = service.identified(call, path.bearer)
    if path.signed:
        service.handed_out(call, path.catalog or "")
    ctx, registered = service.enter(call, path.catalog, path.attached_as)
    found = find_table(ctx, registered, path.schema, path.name)
    if time_point is None:
        found = found.expected(path.fingerprint)
    # With AT the client has bound what `flight_info` told it, so the fingerprint of its descriptor
    # does not count.
    return ctx, table_at(ctx, found, time_point)


def _positions(bound: PublishedTable, column_ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Positions in the bound Arrow schema. Raises: BadRequest.

    The client's ids do not count the row id, which is last (T6, T7).
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
            raise BadRequest(
                f"table {bound.title} has {plain} columns; there is no column with id {column_id}"
            )
    return tuple(sorted(wanted))
