"""Flight's own discovery calls, for clients other than DuckDB, and the list of catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import Context, Privilege, ScanOptions
from sparkport.errors import BadRequest, NotFound
from sparkport.service import flight_sql, own_flights, scan
from sparkport.service.calls import Call
from sparkport.service.listing import table_info
from sparkport.service.objects import PublishedTable, published_schema_name
from sparkport.service.plan import tickets
from sparkport.wire.flight import encode_flight_info, encode_schema_result
from sparkport.wire.flight_data import BatchWriter, encode_schema
from sparkport.wire.tickets import DatabasesTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["get_flight_info", "get_schema", "list_flights", "read_databases"]

_DATABASES_SCHEMA = pa.schema(
    [pa.field("name", pa.string(), nullable=False), pa.field("description", pa.string())]
)


def list_flights(service: Service, call: Call) -> Iterator[bytes]:
    """Yield the FlightInfo of every object, or of those that the headers choose (airport §3.4)."""
    wanted_catalog, wanted_schema = call.headers.filter_catalog, call.headers.filter_schema
    names = (
        [each.name for each in service.catalogs(call)]
        if wanted_catalog is None
        else [wanted_catalog]
    )
    for name in names:
        ctx, registered = service.enter(call, name)
        for schema in service.listing.schemas(ctx, registered):
            if wanted_schema is None or published_schema_name(schema) == wanted_schema:
                yield from service.listing.flight_infos(ctx, registered, schema)


def get_flight_info(service: Service, call: Call, descriptor: flight.FlightDescriptor) -> bytes:
    """The FlightInfo of a table, or of a command's answer, with tickets that read it.

    The descriptor comes back as it was sent (T42).
    """
    if service.is_databases(descriptor):
        ticket = encode_ticket(DatabasesTicket(call.identity), service.signer)
        return encode_flight_info(_DATABASES_SCHEMA, descriptor, tickets=(ticket,))
    if (command := flight_sql.command_of(descriptor)) is not None:
        return flight_sql.flight_info(service, call, descriptor, command)
    ctx, bound = _bind(service, call, descriptor)
    bound.require(ctx, Privilege.READ)
    rows = bound.table.estimated_rows(ctx, ScanOptions())
    return table_info(ctx, bound, descriptor, tuple(tickets(service, ctx, bound)), rows)


def get_schema(service: Service, call: Call, descriptor: flight.FlightDescriptor) -> bytes:
    """The Arrow schema of a table, or of a command's answer."""
    if service.is_databases(descriptor):
        return encode_schema_result(_DATABASES_SCHEMA)
    if (command := flight_sql.command_of(descriptor)) is not None:
        return encode_schema_result(flight_sql.arrow_schema_of(service, call, command))
    return encode_schema_result(_bind(service, call, descriptor)[1].arrow_schema)


def read_databases(service: Service, call: Call) -> Iterator[bytes]:
    """Yield the names of the catalogs, which is all that a Catalog says about itself."""
    yield encode_schema(_DATABASES_SCHEMA)
    names = [registered.name for registered in service.catalogs(call)]
    columns = [pa.array(names, pa.string()), pa.nulls(len(names), pa.string())]
    batch = pa.RecordBatch.from_arrays(columns, schema=_DATABASES_SCHEMA)
    yield from BatchWriter(_DATABASES_SCHEMA).messages(batch)


def _bind(
    service: Service, call: Call, descriptor: flight.FlightDescriptor
) -> tuple[Context, PublishedTable]:
    """The table that a descriptor names. Raises: BadRequest, NotFound."""
    is_command = descriptor.descriptor_type == flight.DescriptorType.CMD
    if is_command and own_flights.of_descriptor(service, call, descriptor) is None:
        if not descriptor.command:
            raise BadRequest("the descriptor is empty; name a table as [schema, table]")
        raise NotFound("there is no such command; name a table as [schema, table]")
    return scan.bind(service, call, descriptor, None)
