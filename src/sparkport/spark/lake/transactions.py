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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkport.catalog import Context, Quotas, TransactionState
from sparkport.errors import Conflict, LimitExceeded, NotFound, TransactionNotActive
from sparkport.spark.iceberg.definition import Definition
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.lake.settings import LakeSettings

if TYPE_CHECKING:
    from sparkport.spark.lake.changes import TableChange
    from sparkport.spark.lake.staging import Staging
    from sparkport.spark.lake.unpublished import Unpublished

__all__ = ["BRANCH_PREFIX", "Note", "Pending", "Transaction", "Transactions"]

BRANCH_PREFIX = "sparkport_"
"""The prefix of the branches of transactions."""
_AT_HAND_SECONDS = 60.0
"""Seconds after its last use for which a transaction holds the states that it has read."""


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """A state of a table by its ids, which find it again in a later state."""

    snapshot_id: int | None
    schema_id: int
    definition: Definition

    @classmethod
    def of(cls, state: TableState) -> Note:
        snapshot_id = None if state.snapshot is None else state.snapshot.snapshot_id
        return cls(snapshot_id, state.schema.schema_id, state.definition)


@dataclass(slots=True)
class Pending:
    """What a transaction has changed in a table, all statements together."""

    change: TableChange
    stagings: list[Staging]
    """The stagings of its statements: they know the files."""


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction.

    Its lock is held for its changes; all else is under the lock of `Transactions`.
    """

    id: str
    last_used: float
    parent: str | None = None
    """For a single statement: the DuckDB transaction that it belongs to."""
    is_statement: bool = False
    collects: bool = False
    """Whether DuckDB statements in this transaction wait for `lake_commit()`."""
    session: str = ""
    """The process that collects, as it calls itself."""
    state: TransactionState = TransactionState.ACTIVE
    seen: dict[Identifier, TableState | Note] = field(default_factory=dict)
    travelled: frozenset[tuple[Identifier, int]] = frozenset()
    """Older snapshots of tables that were read."""
    pending: dict[Identifier, Pending] = field(default_factory=dict)
    made: dict[Identifier, Unpublished] = field(default_factory=dict)
    """Tables and views that it makes, replaces or drops."""
    planned: int = 0
    """How many streams were planned and not read to their end yet."""
    held: ExitStack | None = None
    """The transaction's share of its principal's quota, held while it has uncommitted changes."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def branch(self) -> str:
        """The branch that has its changes until they are published."""
        return f"{BRANCH_PREFIX}{self.id}"

    @property
    def changed(self) -> list[Identifier]:
        """What it has changed, and not published yet."""
        return sorted({*self.pending, *self.made}, key=str)

    def expect_active(self) -> None:
        if self.state is not TransactionState.ACTIVE:
            raise TransactionNotActive(
                f"transaction {self.id} is not active (state: {self.state.value})"
            )

    def snapshots_of(self, identifier: Identifier) -> set[int]:
        """The snapshots of a table that were read, and may be read again."""
        states = [self.seen.get(identifier)]
        if (pending := self.pending.get(identifier)) is not None:
            states.append(pending.change.base)
        notes = [Note.of(each) if isinstance(each, TableState) else each for each in states]
        found = {
            each.snapshot_id for each in notes if each is not None and each.snapshot_id is not None
        }
        return found | {snapshot_id for table, snapshot_id in self.travelled if table == identifier}

    def note_down(self) -> None:
        """Keep only the ids of the states that were read."""
        self.seen = {
            identifier: Note.of(each) if isinstance(each, TableState) else each
            for identifier, each in self.seen.items()
        }


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

    def is_collecting(self, session: str) -> bool:
        """Whether a process is in a block that `lake_begin()` has begun, in any connection."""
        with self._lock:
            known = (*self._known.values(), *self._noted.values(), *self._writing.values())
            return bool(session) and any(
                each.collects and each.session == session and each.state is TransactionState.ACTIVE
                for each in known
            )

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
        removed.
        """
        if transaction_id is None:
            return current
        now = time.monotonic()
        with self._lock:
            transaction = self._find(transaction_id)
            if transaction is None or transaction.state is not TransactionState.ACTIVE:
                return current
            transaction.last_used = now
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
        known = (*self._known.values(), *self._noted.values(), *self._writing.values())
        active = [each for each in known if each.state is TransactionState.ACTIVE]
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
                each for each in self._writing.values() if all_of_them or each.last_used < oldest
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

    def _find(self, transaction_id: str | None) -> Transaction | None:
        for transactions in (self._known, self._noted, self._writing):
            if (found := transactions.get(transaction_id or "")) is not None:
                return found
        return None

    def _move(self, transaction: Transaction, where: OrderedDict[str, Transaction]) -> None:
        for transactions in (self._known, self._noted, self._writing):
            transactions.pop(transaction.id, None)
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
