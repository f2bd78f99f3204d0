"""A catalog with transactions that only notes what it is told."""

from __future__ import annotations

from tests.server.catalogs import ListedCatalog, ListedSchema

from sparkport.catalog import Context, Table, TransactionManager, TransactionState


class NotingManager(ListedCatalog, TransactionManager):
    """Its ids are `tx/1`, `tx/2` and so on."""

    def __init__(self, *tables: Table) -> None:
        super().__init__("lake", [ListedSchema("s", tables)])
        self.told: list[tuple[str, str]] = []
        self.states: dict[str, TransactionState] = {}

    def begin_transaction(self, ctx: Context) -> str:
        own = f"tx/{len(self.states) + 1}"
        self.states[own] = TransactionState.ACTIVE
        self.told.append(("begin", own))
        return own

    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        self.states[transaction_id] = TransactionState.COMMITTED
        self.told.append(("commit", transaction_id))

    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        if self.states[transaction_id] is TransactionState.ACTIVE:
            self.states[transaction_id] = TransactionState.ABORTED
        self.told.append(("rollback", transaction_id))

    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        return self.states.get(transaction_id)
