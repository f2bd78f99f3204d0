"""Flight SQL's transactions: begun and ended by actions, and named by commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sparkport.catalog import Context, TransactionManager, TransactionState
from sparkport.service import transactions
from sparkport.service.calls import Call
from sparkport.service.registry import RegisteredCatalog
from sparkport.service.transactions import manager_of, not_active
from sparkport.wire.sql_statements import EndTransaction, encode_transaction
from sparkport.wire.transactions import TransactionRequest

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["Entered", "begin", "end", "enter"]


@dataclass(frozen=True, slots=True)
class Entered:
    """A catalog, and the context for calling it, perhaps in a transaction."""

    ctx: Context
    registered: RegisteredCatalog
    manager: TransactionManager | None = None
    """Of the transaction that the caller ends; None outside of such a transaction."""
    under_way: Callable[[], AbstractContextManager[None]] = nullcontext
    """Notes during a block that a change of the transaction is being made."""

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make a change. When it fails, the transaction is rolled back.

        Later statements must not rest on half of it.
        """
        with self.under_way():
            try:
                yield
            except BaseException:
                if self.manager is not None:
                    self.manager.rollback_transaction(self.ctx, self.ctx.transaction_id or "")
                raise


def enter(
    service: Service, call: Call, catalog: str | None, transaction: str | None = None
) -> Entered:
    """Enter a catalog in the transaction that a command names, or else a header.

    Raises: NotFound; Unsupported when the catalog has no transactions; TransactionNotActive.
    """
    wrapped = transaction or call.headers.transaction_id
    if wrapped is None:
        return Entered(*service.enter(call, catalog))
    registered = service.catalog(call, call.headers.catalog if catalog is None else catalog)
    manager = manager_of(registered)
    call = replace(call, headers=replace(call.headers, transaction_id=wrapped))
    ctx, registered = service.enter(call, catalog)
    state = manager.transaction_status(ctx, ctx.transaction_id or "")
    if state is not TransactionState.ACTIVE:
        raise not_active(wrapped, state)
    return Entered(ctx, registered, manager, partial(service.queries.running, wrapped, call))


def begin(service: Service, call: Call, _request: None) -> Iterator[bytes]:
    """Begin a transaction. Raises: Unsupported when the catalog has none."""
    ctx, registered = service.enter(call, None)
    manager_of(registered)
    yield encode_transaction(service.transactions.begin(call, registered, ctx) or "")


def end(service: Service, call: Call, request: EndTransaction) -> Iterator[bytes]:
    """Commit or roll back; there is no result.

    Raises: TransactionNotActive, Conflict, ConstraintViolation.
    """
    ending = transactions.commit if request.commits else transactions.rollback
    for _ in ending(service, call, TransactionRequest(request.transaction)):
        pass
    yield from ()
