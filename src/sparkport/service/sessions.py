"""Flight's actions for sessions, of which the server keeps none, and for cancelling queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sparkport.errors import NotFound
from sparkport.service.calls import Call
from sparkport.wire.sessions import (
    CancelStatus,
    OptionError,
    encode_cancel_result,
    encode_closed,
    encode_option_errors,
    encode_options,
    tickets_of,
)
from sparkport.wire.sql_statements import encode_cancel_query_result
from sparkport.wire.tickets import QueryTicket, decode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["cancel_flight_info", "cancel_query", "close", "get_options", "set_options"]

_CATALOG = "catalog"


def cancel_flight_info(service: Service, call: Call, info: bytes) -> Iterator[bytes]:
    """Cancel a query whose rows are being sent by this server."""
    yield encode_cancel_result(_cancel(service, call, info))


def cancel_query(service: Service, call: Call, info: bytes) -> Iterator[bytes]:
    """Cancel a query, by the action that older clients of Flight SQL send."""
    yield encode_cancel_query_result(_cancel(service, call, info).value)


def get_options(service: Service, call: Call, _request: None) -> Iterator[bytes]:
    """The options of the session: the catalog that statements run in."""
    present = _present_catalog(service, call)
    yield encode_options([] if present is None else [(_CATALOG, present)])


def set_options(service: Service, call: Call, options: Mapping[str, str | None]) -> Iterator[bytes]:
    """Say of each option that it cannot be set, except to what it is.

    Each call is complete in itself. A header names its catalog, and statements name their schemas.
    """
    present = _present_catalog(service, call)
    errors: list[tuple[str, OptionError]] = []
    for name, chosen in options.items():
        if name != _CATALOG:
            errors.append((name, OptionError.INVALID_NAME))
        elif chosen is None or chosen != present:
            errors.append((name, OptionError.ERROR))
    yield encode_option_errors(errors)


def close(_service: Service, _call: Call, _request: None) -> Iterator[bytes]:
    """Close the session. There is nothing to close."""
    yield encode_closed()


def _cancel(service: Service, call: Call, info: bytes) -> CancelStatus:
    """Raises: BadRequest for tickets that are not ours; PermissionDenied for those of others."""
    cancelled = False
    for encoded in tickets_of(info):
        ticket = decode_ticket(encoded, service.signer)
        service.identified(call, ticket.bearer)
        if isinstance(ticket, QueryTicket):
            cancelled = service.queries.cancel(ticket.trace_id) or cancelled
    return CancelStatus.CANCELLED if cancelled else CancelStatus.NOT_CANCELLABLE


def _present_catalog(service: Service, call: Call) -> str | None:
    try:
        return service.catalog(call, call.headers.catalog).name
    except NotFound:
        return None
