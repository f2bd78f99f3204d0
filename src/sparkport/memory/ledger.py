"""What the tables of a catalog share: the lock for commits, the numbers of commits, the
transactions.
"""

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
    """One for each catalog; a table or schema that stands alone has its own until it is added to
    one.

    Readers do not wait for commits. A commit makes its versions with the number `sequence + 1`, and
    raises `sequence` when they are all in place: a transaction that begins to read meanwhile sees
    none of them.
    """

    def __init__(self, settings: MemorySettings, *, has_transactions: bool = False) -> None:
        self.settings = settings
        self.has_transactions = has_transactions
        """Without, ids of transactions are of another catalog, and every statement commits by
        itself.
        """
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
        """Have DuckDB plan its prepared statements again: objects or rows are no longer as they
        were.

        A plan holds the statistics of its columns and the id of the transaction in which it was
        made, so without this it would go on reading that snapshot. Called after a change is
        visible: a plan with too old a number is only made once too often.
        """
        with self._numbering:
            self.catalog_version += 1

    def oldest_pin(self) -> int:
        """The oldest snapshot that is still read. Costly; asked for only where history is
        bounded.
        """
        return self.transactions.oldest_pin(self.sequence)

    def version_for(self, ctx: Context, table: MemoryTable) -> Version:
        """What a request sees of a table: the snapshot of its transaction with that transaction's
        own changes.

        A write that commits by itself inside a transaction of DuckDB sees what that one sees, since
        it changes rows that were found there. Raises: NotFound, TransactionNotActive.
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
        """As `version_for`; None when the next request of the same transaction may see another."""
        version = self.version_for(ctx, table)
        return None if self._active(ctx.transaction_id) is None else version

    def show(self, transaction_id: str | None, versions: Mapping[MemoryTable, Version]) -> None:
        """Let a transaction see other versions of tables, because its own statements have made
        them.
        """
        transaction = self._active(transaction_id)
        if transaction is not None and transaction.pin is not None:
            transaction.seen.update(versions)

    def expect_no_pending(self, ctx: Context, table: MemoryTable) -> None:
        """Raises: PreconditionFailed when the request's transaction has changed rows of the
        table.
        """
        transaction = self._active(ctx.transaction_id)
        if transaction is not None and table in transaction.pending:
            raise PreconditionFailed(
                f"table {table.title} has uncommitted changes of this transaction: commit it before altering the table"
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
            # Younger than the snapshot, or altered since. DDL of DuckDB bears no transaction id
            # (airport §2.2), and its next statement expects the new columns; whoever still expects
            # the old ones has been refused by the service. So it is seen as it is now, and from
            # then on always so.
            transaction.seen[table] = version = current
        if version is not current:
            # DuckDB may keep a plan made of this, also when the transaction has ended.
            self.catalog_changed()
        return version
