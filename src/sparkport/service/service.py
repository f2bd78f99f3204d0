"""The Flight service: each RPC as a function from bytes to bytes, for whoever has a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import pyarrow.flight as flight

from sparkport.auth import Policy
from sparkport.catalog import Access, Catalog, Context, Identity
from sparkport.errors import PermissionDenied, SparkportError, Unauthenticated
from sparkport.service import (
    flight_sql,
    flights,
    in_out_functions,
    put,
    read,
    scalar_functions,
    write,
)
from sparkport.service.actions import list_actions, run_action
from sparkport.service.calls import HOW_TO_SIGN_IN, Call
from sparkport.service.first_messages import first_schema, named_descriptor
from sparkport.service.function_guard import Watch
from sparkport.service.limits import ACTIONS, EXCHANGES, SCANS, LimitKeeper, while_holding
from sparkport.service.listing import Listing
from sparkport.service.registry import CatalogRegistry, RegisteredCatalog, no_longer_served
from sparkport.service.settings import ServiceSettings
from sparkport.service.transactions import Transactions
from sparkport.wire.descriptors import DATABASES, bearer_in_header, decode_path
from sparkport.wire.flight import decode_action, decode_criteria, decode_descriptor, decode_ticket
from sparkport.wire.headers import RequestHeaders
from sparkport.wire.signing import Signer
from sparkport.wire.tickets import CommandTicket, DatabasesTicket, ScanTicket, Ticket
from sparkport.wire.tickets import decode_ticket as decode_signed_ticket

__all__ = ["Service"]


class Service:
    """All RPCs of one server. Thread-safe; every method may be called from many threads at once.

    The streaming methods return iterators that must be closed when the client goes away; errors of
    `sparkport.errors` may come at any step of them.
    """

    def __init__(self, registry: CatalogRegistry, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings()
        self.registry = registry
        self.signer = Signer(self.settings.secret)
        self.listing = Listing(self.signer)
        self.transactions = Transactions(self.signer, self.settings.transaction_seconds)
        self.watch = Watch()
        self.keeper = LimitKeeper(self.settings)
        self._policy = self._present_policy()

    def admit(self, call: Call) -> Call:
        """The call with who makes it; asked before anything else is done. Raises:
        Unauthenticated.
        """
        met = self.meet(call)
        self.expect_admitted(met)
        return met

    def is_told(self, headers: RequestHeaders) -> bool:
        """Whether headers say who calls, where that is asked. Whether it is true `meet` finds out,
        which may take long.
        """
        return (
            self.settings.authenticate is None
            or headers.authorization is not None
            or self._bearer_in(headers) is not None
        )

    def may_tell_later(self, headers: RequestHeaders) -> bool:
        """Whether the first message of a call that comes without a token may say who makes it."""
        return headers.action is None or headers.action in _WITH_HANDLES

    def _bearer_in(self, headers: RequestHeaders) -> Identity | None:
        """To whom that was handed out which the client repeats in headers: the descriptor, or the
        transaction's id.
        """
        bearer = bearer_in_header(headers.flight_path or "", self.signer)
        return self.transactions.bearer_in(headers) if bearer is None else bearer

    def meet(self, call: Call) -> Call:
        """The same where a caller without a token may yet show what was handed out to it. Raises:
        Unauthenticated.
        """
        authenticate = self.settings.authenticate
        call = replace(call, keeper=self.keeper)
        if authenticate is None:
            return call
        if call.headers.authorization is None:
            call = replace(call, admitted=False)
            bearer = self._bearer_in(call.headers)
            return (
                call
                if bearer is None
                else replace(call, shown=self.identified(call, bearer).identity)
            )
        kind, _, token = call.headers.authorization.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Unauthenticated(HOW_TO_SIGN_IN)
        found = authenticate(token.strip())
        identity = Identity(found) if isinstance(found, str) else found
        if identity is None or (identity.expires is not None and identity.expires < time.time()):
            raise Unauthenticated("this token is not known here, or no longer valid")
        return replace(call, identity=replace(identity, expires=self._end_of_handles(identity)))

    def _end_of_handles(self, identity: Identity) -> float:
        """When what is handed out to a caller expires. It moves in steps, so that listings can be
        remembered.
        """
        lifetime = self.settings.handle_seconds
        step = lifetime / _STEPS_OF_LIFETIME
        end = (time.time() // step) * step + lifetime
        return end if identity.expires is None else min(end, identity.expires)

    def expect_admitted(self, call: Call) -> None:
        """Raises: Unauthenticated when the caller has not shown who it is."""
        if not call.admitted:
            raise Unauthenticated(HOW_TO_SIGN_IN)

    @contextmanager
    def refusing_strangers(self, call: Call) -> Iterator[None]:
        """For reading what a caller has sent, who may not have said who it is: then that is what is
        wrong.

        Raises: Unauthenticated.
        """
        try:
            yield
        except SparkportError:
            self.expect_admitted(call)
            raise

    def identified(self, call: Call, bearer: Identity | None) -> Call:
        """The call of somebody who shows what was handed out to `bearer`, under our signature
        (airport §2.3).

        Raises: Unauthenticated when that has expired, or its token has been revoked;
        PermissionDenied when it is somebody else's.
        """
        authenticate = self.settings.authenticate
        if authenticate is None:
            return call
        if call.identity is not None:
            if bearer is not None and bearer.name != call.identity.name:
                raise PermissionDenied(
                    "this was handed out to somebody else: DETACH the catalog and ATTACH it again"
                )
            return call
        if bearer is None:
            raise Unauthenticated(HOW_TO_SIGN_IN)
        recognises = getattr(authenticate, "recognises", None)
        if (bearer.expires or 0.0) < time.time() or (
            recognises is not None and not recognises(bearer)
        ):
            raise Unauthenticated(
                "the token that this catalog was attached with is no longer valid here: DETACH it and ATTACH it again"
            )
        return replace(call, identity=bearer, admitted=True)

    @property
    def policy(self) -> Policy | None:
        """Who may do what, as of now. It is asked for with each call: nothing that was allowed
        before is remembered.
        """
        policy = self._present_policy()
        if policy is not self._policy:
            self._policy = policy
            for registered in self.registry.all():
                registered.rules_changed()
        return policy

    @property
    def rules_outdated(self) -> bool:
        """Whether there are newer rules, which cannot be used: if the function that gives them
        tells, as `outdated`.
        """
        return bool(getattr(self.settings.policy, "outdated", False))

    def _present_policy(self) -> Policy | None:
        policy = self.settings.policy
        return policy if policy is None or isinstance(policy, Policy) else policy()

    def access(self, call: Call, registered: RegisteredCatalog) -> Access:
        """What the caller may do in a catalog."""
        policy = self.policy
        return _EVERYTHING if policy is None else policy.access(call.identity, registered.name)

    def context(
        self,
        call: Call,
        registered: RegisteredCatalog,
        shown: str,
        transaction_id: str | None = None,
    ) -> Context:
        """The context for calling a catalog, of which the caller calls it `shown`. Raises:
        Unauthenticated.
        """

        def served() -> list[tuple[Catalog, Access]]:
            return [(each.catalog, self.access(call, each)) for each in self.registry.all()]

        return call.context(shown, transaction_id, self.access(call, registered), served)

    def catalogs(self, call: Call) -> list[RegisteredCatalog]:
        """The catalogs of which the caller may see something. Raises: Unauthenticated."""
        self.expect_admitted(call)
        return [each for each in self.registry.all() if self.access(call, each).sees_catalog()]

    def catalog(self, call: Call, name: str | None) -> RegisteredCatalog:
        """The catalog a caller means, as `CatalogRegistry.resolve` does, among those that it may
        see. Raises: NotFound.
        """
        self.expect_admitted(call)
        registered = self.registry.resolve(name)
        if not self.access(call, registered).sees_catalog():
            others = CatalogRegistry((each.name, each.catalog) for each in self.catalogs(call))
            registered = self.registry.named(others.resolve(name).name)
        return registered

    def handed_out(self, call: Call, name: str) -> RegisteredCatalog:
        """The catalog that a handle or ticket of the caller's is about, while it may see it.
        Raises: NotFound.
        """
        registered = self.registry.named(name)
        if not self.access(call, registered).sees_catalog():
            raise no_longer_served(name)
        return registered

    def do_action(self, call: Call, message: bytes) -> Iterator[bytes]:
        action = decode_action(message)
        call.work.operation = action.type[:100]
        if action.type not in _WITH_HANDLES:
            self.expect_admitted(call)
        return while_holding(call.quotas, ACTIONS, lambda: run_action(self, call, action))

    def list_actions(self, call: Call) -> Iterator[bytes]:
        return while_holding(call.quotas, ACTIONS, lambda: list_actions(self, call))

    def do_get(self, call: Call, message: bytes) -> Iterator[bytes]:
        with self.refusing_strangers(call):
            ticket = decode_signed_ticket(decode_ticket(message), self.signer)
        if isinstance(ticket, ScanTicket) and ticket.kind != "flight":
            call.work.asks(ticket)
        call = self.identified(call, ticket.bearer)
        return while_holding(call.quotas, SCANS, lambda: self._read(call, ticket))

    def _read(self, call: Call, ticket: Ticket) -> Iterator[bytes]:
        match ticket:
            case DatabasesTicket():
                return flights.read_databases(self, call)
            case CommandTicket():
                return flight_sql.read(self, call, ticket)
            case _:
                return read.read(self, call, ticket)

    def do_exchange(self, call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
        exchange = _EXCHANGES.get(call.headers.operation or "", write.exchange)
        if not call.admitted:  # who it is must be known before more than one message is read
            with call.quotas.hold(EXCHANGES):
                first = next(messages, b"")
            with self.refusing_strangers(call):
                call = self.identified(
                    call, decode_path(named_descriptor(first), self.signer).bearer
                )
            messages = chain([first], messages)
        return while_holding(
            call.quotas, EXCHANGES, lambda: exchange(self, call, first_schema(messages), messages)
        )

    def do_put(self, call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
        return while_holding(call.quotas, EXCHANGES, lambda: put.put(self, call, messages))

    def list_flights(self, call: Call, message: bytes) -> Iterator[bytes]:
        decode_criteria(message)  # no criteria are known, but garbage is refused
        return while_holding(call.quotas, ACTIONS, lambda: flights.list_flights(self, call))

    def get_flight_info(self, call: Call, message: bytes) -> Iterator[bytes]:
        with call.quotas.hold(ACTIONS):
            yield flights.get_flight_info(self, call, decode_descriptor(message))

    def get_schema(self, call: Call, message: bytes) -> Iterator[bytes]:
        with call.quotas.hold(ACTIONS):
            yield flights.get_schema(self, call, decode_descriptor(message))

    def enter(
        self, call: Call, catalog_name: str | None, attached_as: str | None = None
    ) -> tuple[Context, RegisteredCatalog]:
        """The catalog a request names, and the context for calling it.

        Where neither body nor descriptor says which catalog is meant, the header does (airport
        §12). `attached_as` is what the client calls it, where that is something else. Raises:
        NotFound, TransactionNotActive.
        """
        name = call.headers.catalog if catalog_name is None else catalog_name
        registered = self.catalog(call, name)
        if catalog_name is None:
            call.work.is_in(registered.name)
        shown = name or "" if attached_as is None else attached_as
        return self.context(
            call, registered, shown, self.transactions.of_reader(call, registered)
        ), registered

    @staticmethod
    def is_databases(descriptor: flight.FlightDescriptor) -> bool:
        """Whether a descriptor asks for the list of catalogs (airport §11)."""
        is_path = descriptor.descriptor_type == flight.DescriptorType.PATH
        return bool(is_path and descriptor.path == [DATABASES.encode()])


_EVERYTHING = Access()
_STEPS_OF_LIFETIME = 24
_WITH_HANDLES = frozenset(
    {"endpoints", "flight_info", "column_statistics", "table_function_flight_info"}
)
"""Actions with which the client does not send the token of ATTACH, but what it was handed out
(airport §2.2).
"""
_EXCHANGES = {
    "scalar_function": scalar_functions.exchange,
    "table_function_in_out": in_out_functions.exchange,
}
"""By the header `airport-operation`; any other is a change of rows."""
