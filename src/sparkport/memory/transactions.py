"""Transactions: what each of them sees, and what it has changed but not committed."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkport.catalog import Quotas, TransactionState
from sparkport.errors import LimitExceeded, NotFound, TransactionNotActive
from sparkport.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sparkport.memory.changes import Change
    from sparkport.memory.table import MemoryTable
    from sparkport.memory.versions import Version

__all__ = ["Pending", "Transaction", "Transactions"]


@dataclass(slots=True)
class Pending:
    """What a transaction has changed in one table."""

    base: Version
    """The version that the changes were made to."""
    changes: list[Change]
    view: Version
    """What the transaction sees: the changes applied to `base`."""


@dataclass(slots=True, eq=False)
class Transaction:
    """Changed under the ledger's lock, or by the one thread that uses it."""

    id: str
    last_used: float
    state: TransactionState = TransactionState.ACTIVE
    pin: int | None = None
    """The sequence of the catalog that it sees; set by its first read, so that beginning one costs
    nothing.
    """
    seen: dict[MemoryTable, Version] = field(default_factory=dict)
    """Tables that it sees otherwise than `pin` says: its own statements have changed them, or they
    are younger.
    """
    pending: dict[MemoryTable, Pending] = field(default_factory=dict)
    held: ExitStack | None = None
    """What it takes of its principal's quota while it has pending changes."""
    parent: str | None = None
    """The transaction whose later reads shall see what this one commits."""

    def release(self, state: TransactionState) -> None:
        """End it, and let go of all versions it holds."""
        self.state = state
        self.pin = None
        self.seen = {}
        self.pending = {}
        if self.held is not None:
            self.held.close()
            self.held = None


class Transactions:
    """All transactions of a catalog that are not forgotten yet. Thread-safe.

    Those with pending changes are kept apart, so that the many that DuckDB begins and never ends
    cannot push them out. Both sets are in the order of last use: what has expired is always in
    front.
    """

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._reading: OrderedDict[str, Transaction] = OrderedDict()
        self._writing: OrderedDict[str, Transaction] = OrderedDict()

    def begin(self) -> Transaction:
        now = self._settings.monotonic()
        transaction = Transaction(secrets.token_urlsafe(16), now)
        with self._lock:
            self._reading[transaction.id] = transaction
            self._expire(now)
        return transaction

    def find(self, transaction_id: str | None) -> Transaction | None:
        """Look without touching; None when there never was one, or it is forgotten."""
        if transaction_id is None:
            return None
        with self._lock:
            self._expire(self._settings.monotonic())
            return self._reading.get(transaction_id) or self._writing.get(transaction_id)

    def use(self, transaction_id: str) -> Transaction:
        """The transaction, which is thereby in use. Raises: NotFound."""
        now = self._settings.monotonic()
        with self._lock:
            self._expire(now)
            for transactions in (self._reading, self._writing):
                transaction = transactions.get(transaction_id)
                if transaction is not None:
                    transaction.last_used = now
                    transactions.move_to_end(transaction_id)
                    return transaction
        raise NotFound(f"transaction {transaction_id} does not exist, or ended long ago")

    def use_active(self, transaction_id: str) -> Transaction:
        """As `use`. Raises: NotFound; TransactionNotActive."""
        transaction = self.use(transaction_id)
        if transaction.state is not TransactionState.ACTIVE:
            raise TransactionNotActive(
                f"transaction {transaction_id} is not active (state: {transaction.state.value})"
            )
        return transaction

    def pin(self, transaction: Transaction, sequence: Callable[[], int]) -> int:
        """The snapshot that a transaction sees; its first read decides."""
        with self._lock:
            if transaction.pin is None:
                transaction.pin = sequence()
            return transaction.pin

    def inherit(self, transaction: Transaction, parent: Transaction) -> None:
        """Let a transaction see what its parent sees."""
        with self._lock:
            transaction.pin = parent.pin
            transaction.seen = dict(parent.seen)
            transaction.parent = parent.id

    def writes(self, transaction: Transaction, quotas: Quotas) -> None:
        """Keep it as one that has pending changes. Raises: LimitExceeded."""
        with self._lock:
            if transaction.id in self._writing:
                return
            if len(self._writing) >= self._settings.max_writing_transactions:
                raise LimitExceeded(
                    f"{len(self._writing)} transactions have uncommitted changes: commit or roll back some of them"
                )
            held = ExitStack()
            held.enter_context(quotas.hold("transactions"))
            transaction.held = held
            self._reading.pop(transaction.id, None)
            self._writing[transaction.id] = transaction

    def end(self, transaction: Transaction, state: TransactionState) -> None:
        """Commit or roll back; its state can be asked for until it is forgotten."""
        with self._lock:
            self._end(transaction, state)

    def oldest_pin(self, default: int) -> int:
        with self._lock:
            everyone = (*self._reading.values(), *self._writing.values())
        return min((t.pin for t in everyone if t.pin is not None), default=default)

    def _end(self, transaction: Transaction, state: TransactionState) -> None:
        transaction.release(state)
        transaction.last_used = self._settings.monotonic()
        self._writing.pop(transaction.id, None)
        self._reading[transaction.id] = transaction
        self._reading.move_to_end(transaction.id)

    def _expire(self, now: float) -> None:
        oldest = now - self._settings.transaction_idle_seconds
        while self._writing and (front := next(iter(self._writing.values()))).last_used < oldest:
            self._end(front, TransactionState.ABORTED)
        while self._reading:
            front = next(iter(self._reading.values()))
            if len(self._reading) > self._settings.max_transactions:
                front.release(TransactionState.ABORTED)
                del self._reading[front.id]
            elif front.last_used >= oldest:
                return
            elif front.state is TransactionState.ACTIVE:
                self._end(front, TransactionState.ABORTED)
            else:
                del self._reading[front.id]
