"""Tickets: all that a DoGet needs, signed; the client sends nothing else with it (airport §5.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
    "QueryTicket",
    "ResultTicket",
    "ScanTicket",
    "Ticket",
    "decode_ticket",
    "encode_ticket",
]

_PURPOSE = "ticket"
_FORM = 4
"""The version of the fields below: a ticket of another version of Sparkport is recognised."""


@dataclass(frozen=True, slots=True)
class ScanTicket:
    """A scan of a partition of a table, of a function's result, or of a catalog's own flight."""

    catalog: str
    schema: str
    table: str
    """The name of the table or function; of a flight, its serialised descriptor in hexadecimal."""
    fingerprint: str
    """The fingerprint of the bound Arrow schema; the stream must have its columns by position."""
    columns: tuple[int, ...] | None
    """Positions in that Arrow schema of the columns that will be looked at; None means all."""
    filter: str = ""
    time_point: TimePoint | None = None
    partition: bytes | None = None
    transaction_id: str | None = None
    alone: bool = False
    """Whether the stream has these columns alone, in this order; DuckDB wants all of them."""
    kind: Literal["table", "table_function", "flight"] = "table"
    function: str = ""
    """Which overload of a table function."""
    arguments: bytes | None = None
    """Of a table function: the IPC stream with the row of arguments that the client bound."""
    bearer: Identity | None = None
    """The identity that the ticket was made for, where callers authenticate."""


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


@dataclass(frozen=True, slots=True)
class QueryTicket:
    """A query in SQL, to be run by DoGet."""

    catalog: str
    text: str
    fingerprint: str
    """The fingerprint of the Arrow schema that the client was told."""
    trace_id: str
    """The trace id of the call that planned the query; also what cancels it."""
    parameters: bytes | None = None
    """The values of its markers, as an Arrow IPC stream."""
    transaction_id: str | None = None
    """The catalog's own id of the transaction that the query reads in."""
    bearer: Identity | None = None


@dataclass(frozen=True, slots=True)
class ResultTicket:
    """The result of a change in SQL, which was made when the ticket was."""

    changed: int
    bearer: Identity | None = None


Ticket: TypeAlias = ScanTicket | DatabasesTicket | CommandTicket | QueryTicket | ResultTicket


def encode_ticket(ticket: Ticket, signer: Signer) -> bytes:
    """Encode and sign a ticket."""
    payload: bytes = msgpack.packb([_FORM, type(ticket).__name__, _fields(ticket)])
    return signer.signature(_PURPOSE, payload) + payload


def decode_ticket(data: bytes, signer: Signer) -> Ticket:
    """Decode a ticket and verify its signature.

    Raises: BadRequest for a ticket that this server did not make.
    """
    signature, payload = data[:SIGNATURE_LENGTH], data[SIGNATURE_LENGTH:]
    if not signer.verify(signature, _PURPOSE, payload):
        raise BadRequest(
            "this ticket was not made by the running server, or was altered: run the query again, "
            "and if that does not help DETACH the catalog and ATTACH it again"
        )
    form, *content = msgpack.unpackb(payload, use_list=False)
    if form != _FORM:
        raise BadRequest("this ticket is of another version of the server: run the query again")
    kind, (*values, bearer) = content
    if kind == ScanTicket.__name__ and values[_TIME_POINT] is not None:
        values[_TIME_POINT] = TimePoint(*values[_TIME_POINT])
    return _KINDS[kind](*values, bearer_of_fields(bearer))


_CLASSES = (ScanTicket, DatabasesTicket, CommandTicket, QueryTicket, ResultTicket)
_KINDS: dict[str, Callable[..., Ticket]] = {kind.__name__: kind for kind in _CLASSES}
_FIELD_NAMES = {
    kind.__name__: tuple(field.name for field in dataclasses.fields(kind)) for kind in _CLASSES
}


_TIME_POINT = _FIELD_NAMES[ScanTicket.__name__].index("time_point")


def _fields(ticket: Ticket) -> list[Any]:
    """The values of the fields, of which the bearer is the last in every kind of ticket."""
    # Not dataclasses.astuple, which copies deeply: a filter may be large.
    values = [getattr(ticket, name) for name in _FIELD_NAMES[type(ticket).__name__]]
    if isinstance(ticket, ScanTicket) and ticket.time_point is not None:
        values[_TIME_POINT] = (ticket.time_point.unit, ticket.time_point.value)
    values[-1] = bearer_fields(ticket.bearer)
    return values
