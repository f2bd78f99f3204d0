"""The Flight service: each RPC as a function from bytes to bytes, for whoever has a socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow.flight as flight

from sparkport.auth import Authenticator
from sparkport.catalog import Context
from sparkport.errors import Unauthenticated
from sparkport.service import flight_sql, flights, in_out_functions, put, read, scalar_functions, write
from sparkport.service.actions import list_actions, run_action
from sparkport.service.calls import Call
from sparkport.service.listing import Listing
from sparkport.service.openings import first_schema
from sparkport.service.registry import CatalogRegistry, RegisteredCatalog
from sparkport.service.transactions import Transactions
from sparkport.service.watch import Watch
from sparkport.wire.descriptors import DATABASES
from sparkport.wire.flight import decode_action, decode_criteria, decode_descriptor, decode_ticket
from sparkport.wire.signing import Signer
from sparkport.wire.tickets import CommandTicket, DatabasesTicket
from sparkport.wire.tickets import decode_ticket as decode_signed_ticket

__all__ = ["Service", "ServiceSettings"]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What an operator may decide about the service."""

    authenticate: Authenticator | None = None
    """Tells who a bearer token belongs to. Every call then needs one that it knows; None serves everybody."""
    secret: bytes | None = None
    """Signs descriptors, tickets and transaction ids; None draws one, and clients attach again after a restart."""
    transaction_lifetime: float = 24 * 3600.0
    """Seconds after which a transaction id that was handed out is refused."""
    strict_create_schema: bool = False
    """True answers ALREADY_EXISTS also to DuckDB, whose CREATE SCHEMA IF NOT EXISTS then fails (airport §4.10)."""


class Service:
    """All RPCs of one server. Thread-safe; every method may be called from many threads at once.

    The streaming methods return iterators that must be closed when the client goes away; errors of `sparkport.errors` may
    come at any step of them.
    """

    def __init__(self, registry: CatalogRegistry, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings()
        self.registry = registry
        self.signer = Signer(self.settings.secret)
        self.listing = Listing(self.signer)
        self.transactions = Transactions(self.signer, self.settings.transaction_lifetime)
        self.watch = Watch()

    def admit(self, call: Call) -> Call:
        """The call with the name of who makes it; asked before anything else is done. Raises: Unauthenticated."""
        authenticate = self.settings.authenticate
        if authenticate is None:
            return call
        kind, _, token = (call.headers.authorization or "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Unauthenticated(
                "this server wants a token: CREATE SECRET (TYPE airport, auth_token '…', SCOPE 'grpc://…') with its address"
            )
        principal = authenticate(token.strip())
        if principal is None:
            raise Unauthenticated("this token is not known here, or no longer valid")
        return replace(call, principal=principal)

    def do_action(self, call: Call, message: bytes) -> Iterator[bytes]:
        return run_action(self, call, decode_action(message))

    def list_actions(self, call: Call) -> Iterator[bytes]:
        return list_actions(self, call)

    def do_get(self, call: Call, message: bytes) -> Iterator[bytes]:
        ticket = decode_signed_ticket(decode_ticket(message), self.signer)
        match ticket:
            case DatabasesTicket():
                return flights.read_databases(self)
            case CommandTicket():
                return flight_sql.read(self, call, ticket)
            case _:
                return read.read(self, call, ticket)

    def do_exchange(self, call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
        exchange = _EXCHANGES.get(call.headers.operation or "", write.exchange)
        return exchange(self, call, first_schema(messages), messages)

    def do_put(self, call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
        return put.put(self, call, messages)

    def list_flights(self, call: Call, message: bytes) -> Iterator[bytes]:
        decode_criteria(message)  # no criteria are known, but garbage is refused
        return flights.list_flights(self, call)

    def get_flight_info(self, call: Call, message: bytes) -> bytes:
        return flights.get_flight_info(self, call, decode_descriptor(message))

    def get_schema(self, call: Call, message: bytes) -> bytes:
        return flights.get_schema(self, call, decode_descriptor(message))

    def enter(
        self, call: Call, catalog_name: str | None, attached_as: str | None = None
    ) -> tuple[Context, RegisteredCatalog]:
        """The catalog a request names, and the context for calling it.

        Where neither body nor descriptor says which catalog is meant, the header does (airport §12). `attached_as` is what
        the client calls it, where that is something else. Raises: NotFound, TransactionNotActive.
        """
        name = call.headers.catalog if catalog_name is None else catalog_name
        registered = self.registry.resolve(name)
        shown = name or "" if attached_as is None else attached_as
        return call.context(shown, self.transactions.of_reader(call, registered)), registered

    @staticmethod
    def is_databases(descriptor: flight.FlightDescriptor) -> bool:
        """Whether a descriptor asks for the list of catalogs (airport §11)."""
        is_path = descriptor.descriptor_type == flight.DescriptorType.PATH
        return bool(is_path and descriptor.path == [DATABASES.encode()])


_EXCHANGES = {"scalar_function": scalar_functions.exchange, "table_function_in_out": in_out_functions.exchange}
"""By the header `airport-operation`; any other is a change of rows."""
