"""A catalog with two tables, and its transactions."""

from __future__ import annotations

import pyarrow as pa
from tests.memory.statements import CTX, rows_of

from sparkport.catalog import Context, TransactionState
from sparkport.memory import MemoryCatalog, MemorySchema, MemorySettings, MemoryTable


class Bank:
    """A catalog with two tables of accounts."""

    def __init__(self, settings: MemorySettings | None = None) -> None:
        settings = settings or MemorySettings(statistics_rows=0)
        self.catalog = MemoryCatalog("bank", settings=settings)
        schema = self.catalog.add_schema("s")
        self.schema: MemorySchema = schema
        self.giro = MemoryTable("giro", pa.table({"id": [1, 2], "amount": [100, 200]}))
        self.savings = MemoryTable("savings", pa.table({"id": [1, 2], "amount": [1000, 2000]}))
        schema.add_table(self.giro)
        schema.add_table(self.savings)

    def begin(self) -> Context:
        return Context(transaction_id=self.catalog.begin_transaction(CTX))

    def commit(self, ctx: Context) -> None:
        assert ctx.transaction_id is not None
        self.catalog.commit_transaction(ctx, ctx.transaction_id)

    def rollback(self, ctx: Context) -> None:
        assert ctx.transaction_id is not None
        self.catalog.rollback_transaction(ctx, ctx.transaction_id)

    def state(self, ctx: Context) -> TransactionState | None:
        assert ctx.transaction_id is not None
        return self.catalog.transaction_status(CTX, ctx.transaction_id)

    def amounts(self, ctx: Context = CTX) -> tuple[list[int], list[int]]:
        giro, savings = (
            [row["amount"] for row in rows_of(table, ctx)] for table in (self.giro, self.savings)
        )
        return giro, savings
