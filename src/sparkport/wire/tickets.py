"""Tickets: all that a DoGet needs, signed, since the client sends nothing else with it (airport
§5.3).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgpack

from sparkport.catalog import Identity, TimePoint
from sparkport.errors import BadRequest
from sparkport.wire.bearers import bearer_fields, bearer_of_fields
from sparkport.wire.signing import SIGNATURE_LENGTH, Signer

__all__ = [
    "CommandTicket",
    "DatabasesTicket",
    "ScanTicket",
    "Ticket",
    "decode_ticket",
    "encode_ticket",
]

_PURPOSE = "ticket"
_FORM = 3
"""Changes with the fields below, so that a ticket of another version of the program is recognised
as such.
"""


@dataclass(frozen=True, slots=True)
class ScanTicket:
    """A scan of one partition of a table, or of what a table function or a flight of a catalog's
    own gives.
    """

    catalog: str
    schema: str
    table: str
    """The name of the table or function; of a flight, its serialised descriptor in hexadecimal
    digits.
    """
    fingerprint: str
    """Of the Arrow schema that the client has bound, whose columns the stream must have by
    position.
    """
    columns: tuple[int, ...] | None
    """Positions in that Arrow schema of the columns that will be looked at; None means all."""
    filter: str = ""
    time_point: TimePoint | None = None
    partition: bytes | None = None
    transaction_id: str | None = None
    kind: Literal["table", "table_function", "flight"] = "table"
    function: str = ""
    """Which overload of a table function."""
    arguments: bytes | None = None
    """Of a table function: the IPC stream with one row that the client has bound it with."""
    bearer: Identity | None = None
    """Whom the ticket was made for, where callers show who they are; of the others too."""


@dataclass(frozen=True, slots=True)
class DatabasesTicket:
    """The list of catalogs (airport §11)."""

    bearer: Identity | None = None


@dataclass(frozen=True, slots=True)
class CommandTicket:
    """A Flight SQL command, to be carried out by DoGet."""

    command: bytes
    catalog: str | None = None
    """The catalog that the header named when the ticket was asked for."""
    bearer: Identity | None = None


Ticket: TypeAlias = ScanTicket | DatabasesTicket | CommandTicket


def encode_ticket(ticket: Ticket, signer: Signer) -> bytes:
    """The signed bytes."""
    payload: bytes = msgpack.packb([_FORM, type(ticket).__name__, _fields(ticket)])
    return signer.signature(_PURPOSE, payload) + payload


def decode_ticket(data: bytes, signer: Signer) -> Ticket:
    """Raises: BadRequest for a ticket that this server did not make."""
    signature, payload = data[:SIGNATURE_LENGTH], data[SIGNATURE_LENGTH:]
    if not signer.verify(signature, _PURPOSE, payload):
        raise BadRequest(
            "this ticket was not made by the running server, or was altered: run the query again, and if that does not "
            "help DETACH the catalog and ATTACH it again"
        )
    form, *content = msgpack.unpackb(payload, use_list=False)
    if form != _FORM:
        raise BadRequest("this ticket is of another version of the server: run the query again")
    kind, fields = content
    values = dict(zip(_FIELD_NAMES[kind], fields, strict=True))
    if values.get("time_point") is not None:
        values["time_point"] = TimePoint(*values["time_point"])
    values["bearer"] = bearer_of_fields(values["bearer"])
    ticket: Ticket = _KINDS[kind](**values)
    return ticket


_KINDS = {kind.__name__: kind for kind in (ScanTicket, DatabasesTicket, CommandTicket)}
_FIELD_NAMES = {
    name: tuple(field.name for field in dataclasses.fields(kind)) for name, kind in _KINDS.items()
}


def _fields(ticket: Ticket) -> list[Any]:
    # Not dataclasses.astuple, which copies deeply: a filter may be large.
    values = {name: getattr(ticket, name) for name in _FIELD_NAMES[type(ticket).__name__]}
    if isinstance(ticket, ScanTicket) and ticket.time_point is not None:
        values["time_point"] = (ticket.time_point.unit, ticket.time_point.value)
    values["bearer"] = bearer_fields(ticket.bearer)
    return list(values.values())
