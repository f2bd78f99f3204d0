"""A catalog's own flights: tables in no schema, named by a path or command of its choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.flight as flight

from sparkport.catalog import Context, FlightCatalog, FlightName, Privilege
from sparkport.errors import NotFound
from sparkport.service.calls import Call
from sparkport.service.objects import PublishedTable, Reached, publish_table
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.descriptors import is_handle
from sparkport.wire.flight import decode_descriptor

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["of_descriptor", "of_ticket"]


def of_descriptor(
    service: Service, call: Call, descriptor: flight.FlightDescriptor
) -> tuple[Context, PublishedTable] | None:
    """The table of the first catalog that knows this descriptor; None if no catalog does."""
    if is_handle(descriptor):
        return None
    wanted = call.headers.catalog
    for registered in (
        service.catalogs(call) if wanted is None else (service.catalog(call, wanted),)
    ):
        if isinstance(registered.catalog, FlightCatalog):
            ctx, _ = service.enter(call, registered.name)
            found = _find(ctx, registered, registered.catalog, descriptor)
            if found is not None:
                return ctx, found
    return None


def of_ticket(ctx: Context, registered: RegisteredCatalog, reached: Reached) -> PublishedTable:
    """The table of a ticket. Raises: NotFound when the catalog no longer knows it."""
    descriptor = decode_descriptor(bytes.fromhex(reached.name))
    if isinstance(registered.catalog, FlightCatalog):
        found = _find(ctx, registered, registered.catalog, descriptor)
        if found is not None:
            return found
    raise NotFound("this flight is not there any more")


def _find(
    ctx: Context,
    registered: RegisteredCatalog,
    catalog: FlightCatalog,
    descriptor: flight.FlightDescriptor,
) -> PublishedTable | None:
    name = _name(descriptor)
    seen = (
        ctx.access.may(Privilege.READ) and not ctx.access.restricted
    )  # only the catalog knows what they hold
    table = catalog.flight(ctx, name) if seen and name is not None else None
    if table is None:
        return None
    reached = Reached("flight", descriptor.serialize().hex())
    return publish_table(ctx, registered, "", table, reached=reached)


def _name(descriptor: flight.FlightDescriptor) -> FlightName | None:
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return bytes(descriptor.command or b"")
    try:
        return tuple(element.decode() for element in descriptor.path or ())
    except UnicodeDecodeError:
        return None
