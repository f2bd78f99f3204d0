"""Transactions: which state of each table the scans of one transaction read.

DuckDB begins one for every statement and never says that it has ended (airport §10), so they are forgotten by time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from sparkport.catalog import TransactionState
from sparkport.errors import NotFound
from sparkport.spark.identifiers import Identifier
from sparkport.spark.settings import LakeSettings
from sparkport.spark.state import TableState

__all__ = ["Transactions"]


@dataclass(slots=True, eq=False)
class _Transaction:
    last_used: float
    state: TransactionState = TransactionState.ACTIVE
    seen: dict[Identifier, TableState] = field(default_factory=dict)


class Transactions:
    """All transactions of a lake that are not forgotten yet, in the order of last use. Thread-safe."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Transaction] = OrderedDict()

    def begin(self) -> str:
        transaction_id = secrets.token_urlsafe(16)
        now = time.monotonic()
        with self._lock:
            self._known[transaction_id] = _Transaction(now)
            self._expire(now)
        return transaction_id

    def status(self, transaction_id: str) -> TransactionState | None:
        with self._lock:
            self._expire(time.monotonic())
            transaction = self._known.get(transaction_id)
            return None if transaction is None else transaction.state

    def end(self, transaction_id: str, state: TransactionState) -> None:
        """Raises: NotFound."""
        with self._lock:
            transaction = self._known.get(transaction_id)
            if transaction is None:
                raise NotFound(f"transaction {transaction_id} does not exist, or ended long ago")
            if transaction.state is TransactionState.ACTIVE:
                transaction.state = state
                transaction.seen = {}

    def is_active(self, transaction_id: str | None) -> bool:
        with self._lock:
            transaction = self._known.get(transaction_id or "")
            return transaction is not None and transaction.state is TransactionState.ACTIVE

    def seen(self, transaction_id: str | None, current: TableState) -> TableState:
        """What a transaction reads of a table: what its first scan read, unless the table was altered since.

        DDL of DuckDB bears no transaction id (airport §2.2), and its next statement expects the new columns; a scan that
        has begun keeps its own state by its tickets.
        """
        if transaction_id is None:
            return current
        now = time.monotonic()
        with self._lock:
            transaction = self._known.get(transaction_id)
            if transaction is None or transaction.state is not TransactionState.ACTIVE:
                return current
            transaction.last_used = now
            self._known.move_to_end(transaction_id)
            known = transaction.seen.get(current.identifier)
            if known is None or known.definition is not current.definition:
                transaction.seen[current.identifier] = known = current
            return known

    def show(self, transaction_id: str | None, state: TableState) -> None:
        """Let a transaction read another state, because one of its own statements has made it."""
        with self._lock:
            transaction = self._known.get(transaction_id or "")
            if transaction is not None and transaction.state is TransactionState.ACTIVE:
                transaction.seen[state.identifier] = state

    def _expire(self, now: float) -> None:
        oldest = now - self._settings.transaction_idle_seconds
        while self._known:
            front = next(iter(self._known.values()))
            if len(self._known) <= self._settings.max_transactions and front.last_used >= oldest:
                return
            self._known.popitem(last=False)
