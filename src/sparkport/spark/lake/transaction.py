"""A transaction: which state of each table it reads, and its unpublished changes."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkport.catalog import TransactionState
from sparkport.errors import TransactionNotActive, Unsupported
from sparkport.spark.iceberg.definition import Definition
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState

if TYPE_CHECKING:
    from sparkport.spark.lake.changes import TableChange
    from sparkport.spark.lake.staging import Staging
    from sparkport.spark.lake.unpublished import Unpublished

__all__ = ["BRANCH_PREFIX", "Note", "Pending", "Transaction"]

BRANCH_PREFIX = "sparkport_"
"""The prefix of the branches of transactions."""


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
    process: tuple[str | None, str] = (None, "")
    """Who collects, and in which process, as that calls itself."""
    state: TransactionState = TransactionState.ACTIVE
    seen: dict[Identifier, TableState | Note] = field(default_factory=dict)
    travelled: frozenset[tuple[Identifier, int]] = frozenset()
    """Older snapshots of tables that were read."""
    pending: dict[Identifier, Pending] = field(default_factory=dict)
    made: dict[Identifier, Unpublished] = field(default_factory=dict)
    """Tables and views that it makes, replaces or drops."""
    running: int = 0
    """How many of its statements run now."""
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

    def expect_published(self, identifier: Identifier) -> None:
        """Raises: Unsupported for what it has made, of which only Spark knows so far."""
        made = self.made.get(identifier)
        if made is not None:
            what = "view" if made.is_view else "table"
            raise Unsupported(
                f"{what} {identifier} was made, replaced or dropped in this transaction, which "
                "only statements of spark_run see before it is committed"
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
