"""The Flight service: each RPC as a function from bytes to bytes, independent of sockets."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain

import pyarrow.flight as flight

from sparkport.auth import Policy
from sparkport.catalog import Access, Catalog, Context, Identity
from sparkport.errors import BadRequest, PermissionDenied, SparkportError, Unauthenticated
from sparkport.service import (
    flight_sql,
    flights,
    in_out_functions,
    put,
    read,
    scalar_functions,
    sql_statements,
    write,
)
from sparkport.service.actions import ONE_RESULT, list_actions, run_action
from sparkport.service.calls import HOW_TO_SIGN_IN, Call
from sparkport.service.first_messages import first_schema, named_descriptor
from sparkport.service.function_guard import FunctionWatch
from sparkport.service.limits import ACTIONS, EXCHANGES, SCANS, LimitKeeper, while_holding
from sparkport.service.listing import Listing
from sparkport.service.registry import CatalogRegistry, RegisteredCatalog, no_longer_served
from sparkport.service.running_queries import RunningQueries
from sparkport.service.settings import ServiceSettings
from sparkport.service.transactions import Transactions
from sparkport.wire.descriptors import DATABASES, bearer_in_header, decode_path
from sparkport.wire.flight import decode_action, decode_criteria, decode_descriptor, decode_ticket
from sparkport.wire.headers import RequestHeaders
from sparkport.wire.signing import Signer
from sparkport.wire.tickets import (
    CommandTicket,
    DatabasesTicket,
    QueryTicket,
    ResultTicket,
    ScanTicket,
    Ticket,
)
from sparkport.wire.tickets import decode_ticket as decode_signed_ticket

__all__ = ["Service"]


class Service:
    """All RPCs of one server. Thread-safe; every method may be called from many threads at once.

    The streaming methods return iterators that must be closed when the client goes away. Any step
    of them may raise errors of `sparkport.errors`.
    """

    def __init__(self, registry: CatalogRegistry, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings()
        self.registry = registry
        self.signer = Signer(self.settings.secret)
        self.listing = Listing(self.signer)
        self.transactions = Transactions(self.signer, self.settings.transaction_seconds)
        self.watch = FunctionWatch()
        self.queries = RunningQueries()
        self.keeper = LimitKeeper(self.settings)
        self._policy = self._present_policy()

    def admit(self, call: Call) -> Call:
        """Return the call with its caller, before any work is done. Raises: Unauthenticated."""
        authenticated = self.authenticate(call)
        self.expect_admitted(authenticated)
        return authenticated

    def says_who_calls(self, headers: RequestHeaders) -> bool:
        """Whether the headers say who calls, or need not. `authenticate` checks it, slowly."""
        return (
            self.settings.authenticate is None
            or headers.authorization is not None
            or self._bearer_in(headers) is not None
        )

    def may_identify_later(self, headers: RequestHeaders) -> bool:
        """Whether the first message may say who calls, for a call without a token."""
        return headers.action is None or headers.action in _WITH_HANDLES

    def _bearer_in(self, headers: RequestHeaders) -> Identity | None:
        """Whose handle the client repeats in headers: the descriptor's, or the transaction id's."""
        bearer = bearer_in_header(headers.flight_path or "", self.signer)
        return self.transactions.bearer_in(headers) if bearer is None else bearer

    def authenticate(self, call: Call) -> Call:
        """Return the call with its caller, not admitted if it is without token.

        A caller without a token may still send a handle that this server gave to it. Raises:
        Unauthenticated.
        """
        authenticate = self.settings.authenticate
        if call.keeper is not self.keeper:
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
        """When handles given to a caller expire; in steps, so that listings can be remembered."""
        lifetime = self.settings.handle_seconds
        step = lifetime / _STEPS_OF_LIFETIME
        end = (time.time() // step) * step + lifetime
        return end if identity.expires is None else min(end, identity.expires)

    def expect_admitted(self, call: Call) -> None:
        """Raises: Unauthenticated when the caller has not shown who it is."""
        if not call.admitted:
            raise Unauthenticated(HOW_TO_SIGN_IN)

    def authentication_first(self, call: Call) -> AbstractContextManager[None]:
        """While reading a message: report a missing token before any other error in it.

        Raises: Unauthenticated.
        """
        return _ALREADY_ADMITTED if call.admitted else self._authentication_first(call)

    @contextmanager
    def _authentication_first(self, call: Call) -> Iterator[None]:
        try:
            yield
        except SparkportError:
            self.expect_admitted(call)
            raise

    def identified(self, call: Call, bearer: Identity | None) -> Call:
        """The call of a caller who sends a handle that was given to `bearer` (airport §2.3).

        This server has signed the handle. Raises: Unauthenticated when the handle has expired, or
        its token has been revoked; PermissionDenied when the handle was given to another caller.
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
                "the token that this catalog was attached with is no longer valid here: DETACH it "
                "and ATTACH it again"
            )
        return replace(call, identity=bearer, admitted=True)

    @property
    def policy(self) -> Policy | None:
        """Who may do what, as of now. Every call asks anew: no earlier permission is remembered."""
        policy = self._present_policy()
        if policy is not self._policy:
            self._policy = policy
            for registered in self.registry.all():
                registered.rules_changed()
        return policy

    @property
    def rules_outdated(self) -> bool:
        """Whether newer rules exist that cannot be used, if the policy function has `outdated`."""
        return bool(getattr(self.settings.policy, "outdated", False))

    def _present_policy(self) -> Policy | None:
        policy = self.settings.policy
        return policy if policy is None or isinstance(policy, Policy) else policy()

    def access(self, call: Call, registered: RegisteredCatalog) -> Access:
        """What the caller may do in a catalog."""
        if self.settings.policy is None:
            return _EVERYTHING
        policy = self.policy
        return _EVERYTHING if policy is None else policy.access(call.identity, registered.name)

    def context(
        self,
        call: Call,
        registered: RegisteredCatalog,
        shown: str,
        transaction_id: str | None = None,
    ) -> Context:
        """The context for calling a catalog, which the caller knows as `shown`.

        Raises: Unauthenticated.
        """

        def served() -> list[tuple[Catalog, Access]]:
            return [(each.catalog, self.access(call, each)) for each in self.registry.all()]

        return call.context(shown, transaction_id, self.access(call, registered), served)

    def catalogs(self, call: Call) -> list[RegisteredCatalog]:
        """The catalogs in which the caller may see something. Raises: Unauthenticated."""
        self.expect_admitted(call)
        return [each for each in self.registry.all() if self.access(call, each).sees_catalog()]

    def catalog(self, call: Call, name: str | None) -> RegisteredCatalog:
        """The catalog that a caller means, among those that it may see. Raises: NotFound.

        The name is resolved as in `CatalogRegistry.resolve`.
        """
        self.expect_admitted(call)
        registered = self.registry.resolve(name)
        if not self.access(call, registered).sees_catalog():
            others = CatalogRegistry((each.name, each.catalog) for each in self.catalogs(call))
            registered = self.registry.named(others.resolve(name).name)
        return registered

    def handed_out(self, call: Call, name: str) -> RegisteredCatalog:
        """The catalog of a caller's handle or ticket, if the caller sees it. Raises: NotFound."""
        registered = self.registry.named(name)
        if not self.access(call, registered).sees_catalog():
            raise no_longer_served(name)
        return registered

    def do_action(self, call: Call, message: bytes) -> Generator[bytes, None, None]:
        action = decode_action(message)
        call.work.operation = action.type[:100]
        if self.answers_once(call.headers) and action.type != call.headers.action:
            self.expect_admitted(call)
            raise BadRequest("the header airport-action-name names another action than the message")
        if action.type not in _WITH_HANDLES:
            self.expect_admitted(call)
        return while_holding(call.quotas, ACTIONS, lambda: run_action(self, call, action))

    @staticmethod
    def answers_once(headers: RequestHeaders) -> bool:
        """Whether the action that the headers name has exactly one result. Its message must agree.

        DuckDB names the action of every call (airport §2.1).
        """
        return headers.action in ONE_RESULT

    def list_actions(self, call: Call) -> Generator[bytes, None, None]:
        return while_holding(call.quotas, ACTIONS, lambda: list_actions(self, call))

    def do_get(self, call: Call, message: bytes) -> Generator[bytes, None, None]:
        with self.authentication_first(call):
            ticket = decode_signed_ticket(decode_ticket(message), self.signer)
        if isinstance(ticket, ScanTicket) and ticket.kind != "flight":
            call.work.note_request(ticket)
        call = self.identified(call, ticket.bearer)
        return while_holding(call.quotas, SCANS, lambda: self._read(call, ticket))

    def _read(self, call: Call, ticket: Ticket) -> Iterator[bytes]:
        match ticket:
            case DatabasesTicket():
                return flights.read_databases(self, call)
            case CommandTicket():
                return flight_sql.read(self, call, ticket)
            case QueryTicket():
                return sql_statements.read(self, call, ticket)
            case ResultTicket():
                return sql_statements.read_result(ticket)
            case _:
                return read.read(self, call, ticket)

    def do_exchange(self, call: Call, messages: Iterator[bytes]) -> Generator[bytes, None, None]:
        exchange = _EXCHANGES.get(call.headers.operation or "", write.exchange)
        if not call.admitted:  # the caller must be known before a second message is read
            with call.quotas.hold(EXCHANGES):
                first = next(messages, b"")
            with self.authentication_first(call):
                call = self.identified(
                    call, decode_path(named_descriptor(first), self.signer).bearer
                )
            messages = chain([first], messages)
        return while_holding(
            call.quotas, EXCHANGES, lambda: exchange(self, call, first_schema(messages), messages)
        )

    def do_put(self, call: Call, messages: Iterator[bytes]) -> Generator[bytes, None, None]:
        return while_holding(call.quotas, EXCHANGES, lambda: put.put(self, call, messages))

    def list_flights(self, call: Call, message: bytes) -> Generator[bytes, None, None]:
        decode_criteria(message)  # no criteria are known, but garbage is refused
        return while_holding(call.quotas, ACTIONS, lambda: flights.list_flights(self, call))

    def get_flight_info(self, call: Call, message: bytes) -> Generator[bytes, None, None]:
        with call.quotas.hold(ACTIONS):
            yield flights.get_flight_info(self, call, decode_descriptor(message))

    def get_schema(self, call: Call, message: bytes) -> Generator[bytes, None, None]:
        with call.quotas.hold(ACTIONS):
            yield flights.get_schema(self, call, decode_descriptor(message))

    def enter(
        self, call: Call, catalog_name: str | None, attached_as: str | None = None
    ) -> tuple[Context, RegisteredCatalog]:
        """The catalog that a request names, and the context for calling it.

        Where neither body nor descriptor names a catalog, the header does (airport §12).
        `attached_as` is the client's name for it, if that differs. Raises: NotFound,
        TransactionNotActive.
        """
        name = call.headers.catalog if catalog_name is None else catalog_name
        registered = self.catalog(call, name)
        if catalog_name is None:
            call.work.note_catalog(registered.name)
        shown = name or "" if attached_as is None else attached_as
        own = self.transactions.of_reader(call, registered)
        ctx = self.context(call, registered, shown, own)
        if own is not None:
            self.transactions.expect_readable(call, registered, ctx, own)
        return ctx, registered

    @staticmethod
    def is_databases(descriptor: flight.FlightDescriptor) -> bool:
        """Whether a descriptor asks for the list of catalogs (airport §11)."""
        is_path = descriptor.descriptor_type == flight.DescriptorType.PATH
        return bool(is_path and descriptor.path == [DATABASES.encode()])


_EVERYTHING = Access()
_ALREADY_ADMITTED = nullcontext()
_STEPS_OF_LIFETIME = 24
_WITH_HANDLES = frozenset(
    {"endpoints", "flight_info", "column_statistics", "table_function_flight_info"}
)
"""Actions for which the client sends a handle, not the token of ATTACH (airport §2.2)."""
_EXCHANGES = {
    "scalar_function": scalar_functions.exchange,
    "table_function_in_out": in_out_functions.exchange,
}
"""By the header `airport-operation`; any other value is a change of rows."""
