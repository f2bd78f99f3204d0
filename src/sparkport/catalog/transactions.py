"""Transactions: optional, and coordinated by the catalog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from sparkport.catalog.context import Context

__all__ = ["TransactionManager", "TransactionState"]


class TransactionState(str, Enum):
    """The life of a transaction: active, then one of the other two."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionManager(ABC):
    """A Catalog that is also a TransactionManager has transactions; every other works without.

    Each write runs in a transaction, which its tables find in `Context.transaction_id`. The service
    begins and ends one for each operation, unless a caller of the contracts' own actions says which
    one it belongs to and when it ends. DuckDB never says COMMIT (airport §10): its transaction
    identifies a snapshot for reads, and each of its writes is committed by itself, with that
    transaction as `Context.parent_transaction_id`. Called from many threads at once.
    """

    @abstractmethod
    def begin_transaction(self, ctx: Context) -> str:
        """Begin a transaction; the id is unique for ever. The service makes it unguessable before
        it hands it out.
        """

    def begin_statement(self, ctx: Context) -> str:
        """Begin the transaction of one write, which commits by itself; `ctx` may be in a
        transaction of DuckDB's.

        Override it where a transaction that holds a single statement can be made cheaper than one
        that may hold many.
        """
        return self.begin_transaction(ctx)

    @abstractmethod
    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        """Make all its changes visible at once. Committing a committed transaction does nothing.

        Raises: TransactionNotActive when it was rolled back; Conflict when it cannot be committed
        any more, which also rolls it back; NotFound when there never was one, or it has been
        forgotten.
        """

    @abstractmethod
    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        """Undo all its changes. Rolling back what is not active does nothing."""

    @abstractmethod
    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        """Its state; None when there never was one, or it has been forgotten. Changes nothing."""
