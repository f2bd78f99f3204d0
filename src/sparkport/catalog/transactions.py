"""Transactions: optional, and coordinated by the catalog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from sparkport.catalog.context import Context

__all__ = ["TransactionManager", "TransactionState"]


class TransactionState(str, Enum):
    """The state of a transaction: first active, then committed or rolled back."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionManager(ABC):
    """A Catalog that is also a TransactionManager has transactions; other catalogs have none.

    Each write runs in a transaction, whose id its tables find in `Context.transaction_id`. The
    service begins and ends a transaction for each operation, unless the contracts' own actions name
    a transaction and end it. DuckDB never sends COMMIT (airport §10). Its transaction identifies a
    snapshot for reads. Each of its writes commits by itself, with that transaction as
    `Context.parent_transaction_id`. Called from many threads at once.
    """

    @abstractmethod
    def begin_transaction(self, ctx: Context) -> str:
        """Begin a transaction and return its id, which is never used again.

        The service makes the id unguessable before it hands it out.
        """

    def begin_statement(self, ctx: Context) -> str:
        """Begin the transaction of a single write, perhaps inside a DuckDB transaction in `ctx`.

        Override it where a transaction with a single statement can be made cheaper than others.
        """
        return self.begin_transaction(ctx)

    @abstractmethod
    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        """Make all changes of a transaction visible at once; nothing if it is committed already."""

    @abstractmethod
    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        """Undo all changes of a transaction. Does nothing if it is not active."""

    @abstractmethod
    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        """Return a transaction's state, or None when it never existed or has been forgotten."""
