"""Transactions: what each of them sees, and its uncommitted changes."""

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
    from sparkport.memory.changes import SegmentChange
    from sparkport.memory.table import MemoryTable
    from sparkport.memory.versions import Version

__all__ = ["Pending", "Transaction", "Transactions"]


_IDLE_SECONDS = 60.0


@dataclass(slots=True)
class Pending:
    """What a transaction has changed in a table."""

    base: Version
    """The version that the changes were made to."""
    changes: list[SegmentChange]
    view: Version
    """What the transaction sees: `base` with the changes."""


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction: its snapshot and its changes.

    Changed under the ledger's lock, or by the one thread that uses it.
    """

    id: str
    last_used: float
    state: TransactionState = TransactionState.ACTIVE
    pin: int | None = None
    """The commit number whose snapshot is read.

    The first read sets it, so that BEGIN costs nothing.
    """
    seen: dict[MemoryTable, Version] = field(default_factory=dict)
    """Versions that differ from the snapshot: changed by own statements, or younger than `pin`."""
    pending: dict[MemoryTable, Pending] = field(default_factory=dict)
    held: ExitStack | None = None
    """The transaction's share of its principal's quota, held while it has uncommitted changes."""
    parent: str | None = None
    """The transaction whose later reads see what this transaction commits."""

    def release(self, state: TransactionState) -> None:
        """End the transaction, and let go of all versions it holds."""
        self.state = state
        self.pin = None
        self.seen = {}
        self.pending = {}
        if self.held is not None:
            self.held.close()
            self.held = None


class Transactions:
    """All transactions of a catalog that are not forgotten yet. Thread-safe.

    Transactions with uncommitted changes are kept apart: the many that DuckDB begins and never ends
    cannot push them out. Both sets are in the order of last use, so what has expired is always in
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
        """Find a transaction without counting this as use; None when it is unknown or forgotten."""
        if transaction_id is None:
            return None
        with self._lock:
            self._expire(self._settings.monotonic())
            return self._reading.get(transaction_id) or self._writing.get(transaction_id)

    def use(self, transaction_id: str) -> Transaction:
        """Find a transaction and count this as use. Raises: NotFound."""
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
        """Find an active transaction and count this as use.

        Raises: NotFound; TransactionNotActive.
        """
        transaction = self.use(transaction_id)
        if transaction.state is not TransactionState.ACTIVE:
            raise TransactionNotActive(
                f"transaction {transaction_id} is not active (state: {transaction.state.value})"
            )
        return transaction

    def pin(self, transaction: Transaction, sequence: Callable[[], int]) -> int:
        """The commit number whose snapshot a transaction reads; its first read decides."""
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
        """Note that a transaction has uncommitted changes. Raises: LimitExceeded."""
        with self._lock:
            if transaction.id in self._writing:
                return
            if len(self._writing) >= self._settings.max_writing_transactions:
                raise LimitExceeded(
                    f"{len(self._writing)} transactions have uncommitted changes: commit or roll "
                    "back some of them"
                )
            held = ExitStack()
            held.enter_context(quotas.hold("transactions"))
            transaction.held = held
            self._reading.pop(transaction.id, None)
            self._writing[transaction.id] = transaction

    def end(self, transaction: Transaction, state: TransactionState) -> None:
        """Commit or roll back. The state can be asked for until the transaction is forgotten."""
        with self._lock:
            self._end(transaction, state)

    def open_pins(self) -> set[int]:
        """The commit numbers whose snapshots are read.

        DuckDB does not say that a transaction has ended. So of those that only read, and were not
        used for a minute, no more stay open than there are versions to travel to.
        """
        with self._lock:
            now = self._settings.monotonic()
            self._expire(now)
            pinned = [each for each in self._reading.values() if each.pin is not None]
            for each in pinned[: -(self._settings.max_versions or len(pinned)) or None]:
                if each.last_used < now - _IDLE_SECONDS:
                    self._end(each, TransactionState.ABORTED)
            everyone = (*self._reading.values(), *self._writing.values())
        return {pin for transaction in everyone if (pin := transaction.pin) is not None}

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
