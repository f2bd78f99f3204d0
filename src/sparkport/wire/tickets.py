"""Tickets: all that a DoGet needs, signed, since the client sends nothing else with it (airport §5.3)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgpack

from sparkport.catalog import TimePoint
from sparkport.errors import BadRequest
from sparkport.wire.signing import SIGNATURE_LENGTH, Signer

__all__ = ["DatabasesTicket", "ScanTicket", "decode_ticket", "encode_ticket"]

_PURPOSE = "ticket"
_FORM = 1
"""Changes with the fields below, so that a ticket of another version of the program is recognised as such."""


@dataclass(frozen=True, slots=True)
class ScanTicket:
    """A scan of one partition of a table."""

    catalog: str
    schema: str
    table: str
    fingerprint: str
    """Of the Arrow schema that the client has bound, whose columns the stream must have by position."""
    columns: tuple[int, ...] | None
    """Positions in that Arrow schema of the columns that will be looked at; None means all."""
    filter: str = ""
    time_point: TimePoint | None = None
    partition: bytes | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class DatabasesTicket:
    """The list of catalogs (airport §11)."""


def encode_ticket(ticket: ScanTicket | DatabasesTicket, signer: Signer) -> bytes:
    """The signed bytes."""
    fields = None if isinstance(ticket, DatabasesTicket) else _fields(ticket)
    payload: bytes = msgpack.packb([_FORM, fields])
    return signer.signature(_PURPOSE, payload) + payload


def decode_ticket(data: bytes, signer: Signer) -> ScanTicket | DatabasesTicket:
    """Raises: BadRequest for a ticket that this server did not make."""
    signature, payload = data[:SIGNATURE_LENGTH], data[SIGNATURE_LENGTH:]
    if not signer.verify(signature, _PURPOSE, payload):
        raise BadRequest(
            "this ticket was not made by the running server, or was altered: run the query again, and if that does not "
            "help DETACH the catalog and ATTACH it again"
        )
    form, fields = msgpack.unpackb(payload, use_list=False)
    if form != _FORM:
        raise BadRequest("this ticket is of another version of the server: run the query again")
    if fields is None:
        return DatabasesTicket()
    values = dict(zip(_FIELD_NAMES, fields, strict=True))
    if values["time_point"] is not None:
        values["time_point"] = TimePoint(*values["time_point"])
    return ScanTicket(**values)


_FIELD_NAMES = tuple(field.name for field in dataclasses.fields(ScanTicket))


def _fields(ticket: ScanTicket) -> list[Any]:
    # Not dataclasses.astuple, which copies deeply: a filter may be large.
    values = {name: getattr(ticket, name) for name in _FIELD_NAMES}
    if ticket.time_point is not None:
        values["time_point"] = (ticket.time_point.unit, ticket.time_point.value)
    return list(values.values())
