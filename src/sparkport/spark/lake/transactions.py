"""Transactions: which state of each table they read, and their unpublished changes.

DuckDB begins a transaction for every statement and never says that it has ended (airport §10), so
transactions are forgotten by time. Most are never used again: soon only the ids of what they have
read are kept, so that they hold no memory. Transactions that collect changes, because a caller of
the contracts' actions or of `lake_begin()` wants it, are kept apart from those many.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sparkport.catalog import Context, Quotas, TransactionState
from sparkport.errors import Conflict, LimitExceeded, NotFound
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.transaction import Note, Transaction

__all__ = ["Transactions"]

_AT_HAND_SECONDS = 60.0
"""Seconds after its last use for which a transaction holds the states that it has read."""


class Transactions:
    """All transactions of a lake that are not forgotten yet, in the order of last use.

    Thread-safe.
    """

    def __init__(
        self, settings: LakeSettings, states: States, prefix: Callable[[], str] = str
    ) -> None:
        """`prefix` is what ids begin with, and so the rest of the names of branches."""
        self._prefix = prefix
        self._settings = settings
        self._states = states
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Transaction] = OrderedDict()
        self._noted: OrderedDict[str, Transaction] = OrderedDict()
        """Transactions that keep only the ids of what they have read."""
        self._writing: OrderedDict[str, Transaction] = OrderedDict()
        self._running: dict[str, Transaction] = {}
        """Those of which a statement runs: it is not forgotten, however long that takes."""
        self._scanned: Counter[tuple[Identifier, int]] = Counter()
        """Snapshots of tables that streams are reading now."""

    def begin(self, *, statement_of: Context | None = None) -> str:
        """Begin a transaction and return its id.

        With `statement_of`, it is for a single statement, in the transaction of that request.
        """
        now = time.monotonic()
        own_id = f"{self._prefix()}{secrets.token_hex(16)}"
        transaction = Transaction(own_id, now, is_statement=statement_of is not None)
        with self._lock:
            if statement_of is not None:
                transaction.parent = statement_of.transaction_id
            self._known[transaction.id] = transaction
            self._expire(now)
        return transaction.id

    def status(self, transaction_id: str) -> TransactionState | None:
        with self._lock:
            self._expire(time.monotonic())
            transaction = self._find(transaction_id)
            return None if transaction is None else transaction.state

    def find(self, transaction_id: str | None) -> Transaction | None:
        with self._lock:
            return self._find(transaction_id)

    def end(self, transaction_id: str, state: TransactionState) -> None:
        """Commit or roll back. Raises: NotFound."""
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is None:
                raise NotFound(f"transaction {transaction_id} does not exist, or ended long ago")
            if transaction.state is TransactionState.ACTIVE:
                transaction.state = state
                transaction.seen, transaction.pending, transaction.made = {}, {}, {}
            self._move(transaction, self._known)

    def is_active(self, transaction_id: str | None) -> bool:
        with self._lock:
            transaction = self._find(transaction_id)
            return transaction is not None and transaction.state is TransactionState.ACTIVE

    def collecting(self, ctx: Context) -> Transaction | None:
        """The transaction that a statement's change waits in; None when it is published at once.

        Raises: TransactionNotActive.
        """
        transaction = self.find(ctx.transaction_id)
        if transaction is not None and transaction.is_statement:
            parent = self.find(transaction.parent)
            transaction = parent if parent is not None and parent.collects else None
        if transaction is not None:
            transaction.expect_active()
        return transaction

    @contextmanager
    def running(self, ctx: Context) -> Iterator[None]:
        """Keep the transactions of a statement while it runs; else it would lose its block."""
        with self._lock:
            own = self._find(ctx.transaction_id)
            both = [own, None if own is None else self._find(own.parent)]
            kept = [each for each in both if each is not None]
            for each in kept:
                each.running += 1
                self._running[each.id] = each
        try:
            yield
        finally:
            with self._lock:
                for each in kept:
                    each.running -= 1
                    each.last_used = time.monotonic()
                    self._move(each, self._writing if each.id in self._writing else self._known)

    def blocks(self, ctx: Context) -> list[Transaction]:
        """The blocks that `lake_begin()` has begun in the caller's process, in any connection."""
        process = (ctx.principal, ctx.session_id)
        with self._lock:
            return [
                each
                for each in self._all()
                if each.collects
                and each.process == process
                and each.state is TransactionState.ACTIVE
                and ctx.session_id
            ]

    def writes(self, transaction: Transaction, quotas: Quotas) -> None:
        """Keep a transaction with uncommitted changes until it ends. Raises: LimitExceeded."""
        with self._lock:
            if transaction.id not in self._writing:
                if len(self._writing) >= self._settings.max_open_transactions:
                    raise LimitExceeded(
                        f"{len(self._writing)} transactions have changes that wait for a commit, "
                        "and more are not allowed"
                    )
                held = ExitStack()
                held.enter_context(quotas.hold("transactions"))
                transaction.held = held
                self._move(transaction, self._writing)

    def settled(self, transaction: Transaction) -> None:
        """Note that a transaction has no uncommitted changes any more."""
        with self._lock:
            self._move(transaction, self._known)

    def seen(self, transaction_id: str | None, current: TableState) -> TableState:
        """The state of a table that a transaction reads.

        That is what its first scan read, unless the table was altered since: DuckDB's DDL bears no
        transaction id (airport §2.2), and its next statement expects the new columns. A scan that
        has begun keeps its own state by its tickets. Raises: Conflict when what it has read was
        removed; Unsupported for a table that it replaces.
        """
        if transaction_id is None:
            return current
        now = time.monotonic()
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is None or transaction.state is not TransactionState.ACTIVE:
                return current
            transaction.last_used = now
            transaction.expect_published(current.identifier)
            self._move(
                transaction, self._writing if transaction.id in self._writing else self._known
            )
            known = transaction.seen.get(current.identifier)
            if known is None or (
                known.definition is not current.definition
                and current.identifier not in transaction.pending
            ):
                known = current
            elif isinstance(known, Note):
                known = self._found_again(known, current)
            transaction.seen[current.identifier] = known
            return known

    def show(self, transaction_id: str | None, state: TableState) -> None:
        """Let a transaction read a state that one of its own statements has made."""
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is not None and transaction.state is TransactionState.ACTIVE:
                transaction.seen[state.identifier] = state

    def travels(self, transaction_id: str | None, state: TableState) -> None:
        """Note that a transaction reads an older state of a table, too."""
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is not None and state.snapshot is not None:
                transaction.travelled |= {(state.identifier, state.snapshot.snapshot_id)}

    def plans(self, transaction_id: str | None, streams: int) -> None:
        """Note that streams were planned, which a client may ask for much later."""
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is not None:
                transaction.planned += streams

    @contextmanager
    def scanning(self, transaction_id: str | None, state: TableState) -> Iterator[None]:
        """Keep what a stream reads for as long as it reads."""
        key = (state.identifier, -1 if state.snapshot is None else state.snapshot.snapshot_id)
        with self._lock:
            self._scanned[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._scanned[key] -= 1
                if not self._scanned[key]:
                    del self._scanned[key]
                transaction = self._find(transaction_id)
                if transaction is not None:
                    transaction.planned = max(0, transaction.planned - 1)

    def snapshots_read(self, identifier: Identifier, used_within: float | None = None) -> set[int]:
        """The snapshots of a table that are being read, or that transactions may read again.

        With `used_within`, only of transactions that were used in the last so many seconds, that
        have planned streams which nobody has read yet, or that have uncommitted changes.
        """
        with self._lock:
            found = {each for table, each in self._scanned if table == identifier}
            active = self._active(used_within)
            return found.union(*(each.snapshots_of(identifier) for each in active))

    def all_snapshots_read(self, used_within: float) -> dict[Identifier, set[int]]:
        """As `snapshots_read`, of all tables that were read."""
        found: dict[Identifier, set[int]] = {}
        with self._lock:
            for table, snapshot_id in self._scanned:
                found.setdefault(table, set()).add(snapshot_id)
            for each in self._active(used_within):
                travelled = {identifier for identifier, _ in each.travelled}
                for identifier in {*each.seen, *each.pending, *travelled}:
                    found.setdefault(identifier, set()).update(each.snapshots_of(identifier))
        return found

    def _active(self, used_within: float | None) -> list[Transaction]:
        now = time.monotonic()
        self._expire(now)
        active = [each for each in self._all() if each.state is TransactionState.ACTIVE]
        if used_within is None:
            return active
        since = now - used_within
        return [
            each
            for each in active
            if each.last_used >= since or each.planned or each.id in self._writing
        ]

    def abandoned(self, *, all_of_them: bool = False) -> list[Transaction]:
        """Transactions with uncommitted changes that were not used for long, or all of them.

        The caller rolls them back.
        """
        oldest = time.monotonic() - self._settings.transaction_idle_seconds
        with self._lock:
            return [
                each
                for each in self._writing.values()
                if all_of_them or (each.last_used < oldest and not each.running)
            ]

    def _found_again(self, note: Note, current: TableState) -> TableState:
        now = Note.of(current)
        if (note.snapshot_id, note.schema_id, note.definition) == (
            now.snapshot_id,
            now.schema_id,
            now.definition,
        ):
            return current
        schema = current.metadata.schema_by_id(note.schema_id)
        snapshot = (
            None if note.snapshot_id is None else current.metadata.snapshot_by_id(note.snapshot_id)
        )
        if schema is None or (snapshot is None and note.snapshot_id is not None):
            raise Conflict(
                f"what this transaction has read of table {current.identifier} was removed "
                "meanwhile: begin another one"
            )
        return self._states.at(current, snapshot, schema)

    def _all(self) -> set[Transaction]:
        dictionaries = (self._known, self._noted, self._writing, self._running)
        return {each for transactions in dictionaries for each in transactions.values()}

    def _find(self, transaction_id: str | None) -> Transaction | None:
        for transactions in (self._known, self._noted, self._writing, self._running):
            if (found := transactions.get(transaction_id or "")) is not None:
                return found
        return None

    def _move(self, transaction: Transaction, where: OrderedDict[str, Transaction]) -> None:
        for transactions in (self._known, self._noted, self._writing):
            transactions.pop(transaction.id, None)
        if not transaction.running:
            self._running.pop(transaction.id, None)
        where[transaction.id] = transaction
        if where is not self._writing and transaction.held is not None:
            transaction.held.close()
            transaction.held = None

    def _expire(self, now: float) -> None:
        for transaction in _take_unused(self._known, now - _AT_HAND_SECONDS):
            transaction.note_down()
            self._noted[transaction.id] = transaction
        _take_unused(self._noted, now - self._settings.transaction_idle_seconds)
        while len(self._known) + len(self._noted) > self._settings.max_transactions:
            (self._noted or self._known).popitem(last=False)


def _take_unused(transactions: OrderedDict[str, Transaction], since: float) -> list[Transaction]:
    taken = []
    while transactions and next(iter(transactions.values())).last_used < since:
        taken.append(transactions.popitem(last=False)[1])
    return taken
