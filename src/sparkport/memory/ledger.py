"""What the tables of a catalog share: the commit lock, the commit numbers, the transactions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkport.catalog import Context, TransactionState
from sparkport.errors import PreconditionFailed, TransactionNotActive
from sparkport.memory.settings import MemorySettings
from sparkport.memory.transactions import Transaction, Transactions

if TYPE_CHECKING:
    from sparkport.memory.table import MemoryTable
    from sparkport.memory.versions import Version

__all__ = ["Ledger"]


class Ledger:
    """The commits and transactions of a catalog.

    A table or schema outside of a catalog has a ledger of its own until it is added to one. Readers
    do not wait for commits. A commit makes its versions with the number `sequence + 1`, and raises
    `sequence` when they are all in place: a transaction that begins to read meanwhile sees none of
    them.
    """

    def __init__(self, settings: MemorySettings, *, has_transactions: bool = False) -> None:
        self.settings = settings
        self.has_transactions = has_transactions
        """Whether transactions begin here. If not, every statement commits by itself."""
        self.lock = threading.RLock()
        self._sequence = 0
        self.catalog_version = 1
        self._numbering = threading.Lock()
        self.transactions = Transactions(settings)

    @property
    def sequence(self) -> int:
        """The number of the latest commit."""
        return self._sequence

    @sequence.setter
    def sequence(self, number: int) -> None:
        self._sequence = number
        self.catalog_changed()

    def catalog_changed(self) -> None:
        """Raise the catalog version, so that DuckDB plans its prepared statements again.

        A plan holds the statistics of its columns and the id of the transaction in which it was
        made. Without a new number DuckDB would go on reading that snapshot. Called after a change
        is visible: a plan made too early is then only made again.
        """
        with self._numbering:
            self.catalog_version += 1

    def open_pins(self) -> set[int]:
        """The snapshots that are still read. Takes long when there are many transactions."""
        return self.transactions.open_pins()

    def version_for(self, ctx: Context, table: MemoryTable) -> Version:
        """The version of a table that a request sees.

        That is the snapshot of its transaction with that transaction's own changes. A write that
        commits by itself inside a DuckDB transaction sees what that transaction sees, since it
        changes rows that were found there. Raises: NotFound, TransactionNotActive.
        """
        if not self.has_transactions:
            return table.current
        parent = self._active(ctx.parent_transaction_id)
        if ctx.transaction_id is None:
            return table.current if parent is None else self._seen(parent, table)
        transaction = self.transactions.use(ctx.transaction_id)
        if transaction.state is TransactionState.COMMITTED:
            return table.current
        if transaction.state is TransactionState.ABORTED:
            raise TransactionNotActive(
                f"transaction {transaction.id} is not active (state: aborted)"
            )
        if parent is not None and transaction.pin is None:
            self._seen(parent, table)
            self.transactions.inherit(transaction, parent)
        return self._seen(transaction, table)

    def lasting_version_for(self, ctx: Context, table: MemoryTable) -> Version | None:
        """The version that an open transaction sees throughout; None outside of a transaction."""
        version = self.version_for(ctx, table)
        return None if self._active(ctx.transaction_id) is None else version

    def show(self, transaction_id: str | None, versions: Mapping[MemoryTable, Version]) -> None:
        """Let a transaction see versions that its own statements have made."""
        transaction = self._active(transaction_id)
        if transaction is not None and transaction.pin is not None:
            transaction.seen.update(versions)

    def expect_no_pending(self, ctx: Context, table: MemoryTable) -> None:
        """Refuse DDL on a table with uncommitted changes of the request's transaction.

        Raises: PreconditionFailed.
        """
        transaction = self._active(ctx.transaction_id)
        if transaction is not None and table in transaction.pending:
            raise PreconditionFailed(
                f"table {table.title} has uncommitted changes of this transaction: commit it "
                "before altering the table"
            )

    def _active(self, transaction_id: str | None) -> Transaction | None:
        transaction = self.transactions.find(transaction_id) if self.has_transactions else None
        return (
            transaction
            if transaction is not None and transaction.state is TransactionState.ACTIVE
            else None
        )

    def _seen(self, transaction: Transaction, table: MemoryTable) -> Version:
        pin = self.transactions.pin(transaction, lambda: self.sequence)
        pending = transaction.pending.get(table)
        if pending is not None:
            return pending.view
        version = transaction.seen.get(table) or table.history.at_sequence(pin)
        current = table.current
        if version is None or version.definition is not current.definition:
            # The table is younger than the snapshot, or was altered since. DuckDB's DDL bears no
            # transaction id (airport §2.2), and its next statement expects the new columns; the
            # service has refused a request that expects the old ones. So the transaction sees the
            # table as it is now, from now on.
            transaction.seen[table] = version = current
        if version is not current:
            # DuckDB may keep a plan made from this version, even after the transaction has ended.
            self.catalog_changed()
        return version
