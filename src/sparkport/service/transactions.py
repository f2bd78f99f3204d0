"""Transaction ids on their way to and from clients.

A catalog's own id is wrapped before a client gets it. The wrapped id is signed, so that it can be
neither guessed nor altered. It is bound to the catalog, the caller and the client's session, and
has a date after which it is refused (airport §2.3, §10). Where callers show who they are, the id
says who began the transaction: after ATTACH with a token, nothing else in the headers of
`column_statistics` says who calls (airport §2.2).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from sparkport.catalog import Context, Identity, TransactionManager, TransactionState
from sparkport.engine.discretion import discreet
from sparkport.errors import Conflict, TransactionNotActive, Unsupported
from sparkport.service.calls import Call
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.bearers import bearer_of_text, bearer_text
from sparkport.wire.headers import RequestHeaders
from sparkport.wire.signing import Signer
from sparkport.wire.transactions import (
    CreateTransaction,
    TransactionRequest,
    encode_transaction,
    encode_transaction_status,
)

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = [
    "Transactions",
    "commit",
    "create_transaction",
    "manager_of",
    "not_active",
    "rollback",
    "status",
]

_PURPOSE = "transaction"
_BEARER_PURPOSE = "bearer of a transaction"
_BEARER = "@"
"""Begins an id that names the transaction's owner; in a catalog's own id `@` is percent-encoded."""


def manager_of(registered: RegisteredCatalog) -> TransactionManager:
    """The catalog as a TransactionManager. Raises: Unsupported when it has no transactions."""
    if not isinstance(registered.catalog, TransactionManager):
        raise Unsupported("transaction manager not configured")
    return registered.catalog


class Transactions:
    """Wraps and unwraps transaction ids. Keeps no state."""

    def __init__(
        self, signer: Signer, lifetime: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._signer = signer
        self._lifetime = lifetime
        self._clock = clock

    def begin(self, call: Call, registered: RegisteredCatalog, ctx: Context) -> str | None:
        """Begin a transaction; return its wrapped id, or None if there are none (airport §4.5).

        DuckDB accepts that a catalog has no transactions.
        """
        own = ""
        if isinstance(registered.catalog, TransactionManager):
            own = quote(registered.catalog.begin_transaction(ctx), safe="")
        elif call.identity is None or not call.headers.from_duckdb:
            return None
        if call.identity is not None:
            own = f"{self._bearer(bearer_text(call.identity), call.headers)}.{own}"
        expires = f"{int(self._clock() + self._lifetime):x}"
        return f"{own}.{expires}.{self._signature(call, registered, own, expires)}"

    def bearer_in(self, headers: RequestHeaders) -> Identity | None:
        """Who began the transaction that a header names, in the same session; None if unknown."""
        shown = (headers.transaction_id or "").partition(".")[0]
        text = shown[1:].partition("~")[0]
        known = shown[:1] == _BEARER and hmac.compare_digest(
            shown.encode(), self._bearer(text, headers).encode()
        )
        return bearer_of_text(text) if known else None

    def _bearer(self, text: str, headers: RequestHeaders) -> str:
        signature = self._signer.signature(
            _BEARER_PURPOSE, text.encode(), (headers.session_id or "").encode()
        )
        return f"{_BEARER}{text}~{signature.hex()}"

    def unwrap(self, call: Call, registered: RegisteredCatalog, wrapped: str) -> str:
        """The catalog's own id.

        Raises: TransactionNotActive for an id that is forged, foreign or expired.
        """
        own, expires, signature = (
            wrapped.rsplit(".", 2) if wrapped.count(".") >= 2 else ("", "", "")
        )
        expected = self._signature(call, registered, own, expires)
        # The date is read only after the signature has shown that this server wrote it.
        if (
            not hmac.compare_digest(signature.encode(), expected.encode())
            or int(expires, 16) < self._clock()
        ):
            raise not_active(wrapped, None)
        return unquote(_without_bearer(own))

    def of_reader(self, call: Call, registered: RegisteredCatalog) -> str | None:
        """The catalog's own id of the transaction that a read belongs to, by its header.

        Whether it can still be read is for `expect_readable` to say. Raises: TransactionNotActive.
        """
        wrapped = call.headers.transaction_id
        if wrapped is None or not isinstance(registered.catalog, TransactionManager):
            return None
        return self.unwrap(call, registered, wrapped)

    def expect_readable(
        self, call: Call, registered: RegisteredCatalog, ctx: Context, own: str
    ) -> None:
        """Refuse a read in a transaction that was rolled back, or is forgotten.

        DuckDB uses one id for all statements of a transaction and never says COMMIT, so the id of a
        committed transaction is still good (airport §15.2). Raises: TransactionNotActive.
        """
        state = manager_of(registered).transaction_status(ctx, own)
        if state is None or state is TransactionState.ABORTED:
            raise not_active(call.headers.transaction_id or "", state)

    def _signature(self, call: Call, registered: RegisteredCatalog, own: str, expires: str) -> str:
        return self._signer.signature(
            _PURPOSE,
            registered.name.encode(),
            own.encode(),
            expires.encode(),
            (call.headers.session_id or "").encode(),
            (call.principal or "").encode(),
        ).hex()


def _without_bearer(wrapped: str) -> str:
    return wrapped.partition(".")[2] if wrapped.startswith(_BEARER) else wrapped


def not_active(wrapped: str, state: TransactionState | None) -> TransactionNotActive:
    """The contract's message for a transaction that cannot be used."""
    shown = _without_bearer(wrapped)
    shown = shown if len(shown) <= 100 else shown[:100] + "…"
    return TransactionNotActive(
        f"transaction {shown} is not active (state: {state.value if state else 'unknown'})"
    )


def create_transaction(service: Service, call: Call, request: CreateTransaction) -> Iterator[bytes]:
    """Begin a transaction. For DuckDB it must succeed even where there are none (airport §4.1)."""
    ctx, registered = service.enter(call, request.catalog)
    yield encode_transaction(service.transactions.begin(call, registered, ctx))


def status(service: Service, call: Call, request: TransactionRequest) -> Iterator[bytes]:
    """The state of a transaction; an unknown transaction has none."""
    ctx, registered, own = _find(service, call, request)
    manager = manager_of(registered)
    yield encode_transaction_status(
        request.transaction_id, None if own is None else manager.transaction_status(ctx, own)
    )


def commit(service: Service, call: Call, request: TransactionRequest) -> Iterator[bytes]:
    """Commit; a second commit changes nothing.

    Raises: TransactionNotActive, Conflict, ConstraintViolation.
    """
    ctx, registered, own = _find(service, call, request)
    manager = manager_of(registered)
    state = None if own is None else manager.transaction_status(ctx, own)
    if own is None or state is None or state is TransactionState.ABORTED:
        raise not_active(request.transaction_id, state)
    if service.queries.is_running(request.transaction_id):
        # It may have been cancelled, and will roll back: what came before it must not be published.
        raise Conflict(
            "a statement of this transaction is still running, or being cancelled: wait for its end"
        )
    with discreet(not ctx.access.restricted, "a table of the transaction"):
        manager.commit_transaction(ctx, own)
    registered.changed()  # plans of prepared statements hold statistics of the rows (decision 0007)
    yield encode_transaction_status(request.transaction_id, TransactionState.COMMITTED)


def rollback(service: Service, call: Call, request: TransactionRequest) -> Iterator[bytes]:
    """Roll back; a second rollback changes nothing.

    Raises: TransactionNotActive when the transaction was committed, or is unknown.
    """
    ctx, registered, own = _find(service, call, request)
    manager = manager_of(registered)
    state = None if own is None else manager.transaction_status(ctx, own)
    if own is None or state is None or state is TransactionState.COMMITTED:
        raise not_active(request.transaction_id, state)
    manager.rollback_transaction(ctx, own)
    yield encode_transaction_status(request.transaction_id, TransactionState.ABORTED)


def _find(
    service: Service, call: Call, request: TransactionRequest
) -> tuple[Context, RegisteredCatalog, str | None]:
    """The catalog, and its manager's own id of the transaction; None when the id is not ours.

    Raises: Unsupported.
    """
    name = call.headers.catalog if request.catalog is None else request.catalog
    registered = service.catalog(call, name)
    manager_of(registered)
    try:
        own: str | None = service.transactions.unwrap(call, registered, request.transaction_id)
    except TransactionNotActive:
        own = None
    return service.context(call, registered, name or ""), registered, own
