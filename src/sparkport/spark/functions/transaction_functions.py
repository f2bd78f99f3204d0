"""`lake_begin()`, `lake_commit()` and `lake_rollback()`: transactions for DuckDB's users.

DuckDB never tells a server that a block has ended (airport §10), so each of its statements is
committed by itself. But all statements of a `BEGIN … COMMIT` block bear the same transaction id,
these functions, too (airport §2.2). After `lake_begin()` the statements that follow in the block
wait for `lake_commit()`, and are published together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    ScalarFunction,
    Stability,
    TransactionState,
)
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transaction import Transaction
from sparkport.spark.write.publish import publish_transaction, roll_back

__all__ = ["transaction_functions"]


def transaction_functions(lake: Lake) -> Sequence[ScalarFunction]:
    return (LakeBegin(lake), LakeCommit(lake), LakeRollback(lake))


class _TransactionFunction(ScalarFunction):
    stability = Stability.VOLATILE
    time_limit = None
    interruptible = False

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((), pa.string())

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Scalar:
        transaction = self._lake.transactions.find(ctx.transaction_id)
        if transaction is None:
            raise BadRequest(f"{self.name}() belongs into a block: BEGIN; SELECT {self.name}(); …")
        with transaction.lock:
            transaction.expect_active()
            return pa.scalar(self._done(ctx, transaction))

    @abstractmethod
    def _done(self, ctx: Context, transaction: Transaction) -> str: ...

    def _expect_begun(self, transaction: Transaction) -> None:
        if not transaction.collects:
            raise PreconditionFailed(
                f"{self.name}() has nothing to end: begin with BEGIN; SELECT lake_begin(); in the "
                "same block"
            )


class LakeBegin(_TransactionFunction):
    """Makes the statements that follow in the block wait."""

    @property
    def name(self) -> str:
        return "lake_begin"

    @property
    def comment(self) -> str:
        return "Let the changes that follow in this BEGIN … COMMIT block wait for lake_commit()."

    def _done(self, ctx: Context, transaction: Transaction) -> str:
        if transaction.collects:
            raise PreconditionFailed(
                "lake_begin() was called in this block already: end it with lake_commit() first"
            )
        transaction.collects, transaction.process = True, (ctx.principal, ctx.session_id)
        return "begun"


class LakeCommit(_TransactionFunction):
    """Publishes the statements that have waited."""

    @property
    def name(self) -> str:
        return "lake_commit"

    @property
    def comment(self) -> str:
        return (
            "Publish all changes since lake_begin(), of each table at once; "
            "or none of them, and say why."
        )

    def _done(self, ctx: Context, transaction: Transaction) -> str:
        with transaction.lock:
            self._expect_begun(transaction)
            transaction.collects = False
            tables = ", ".join(map(str, transaction.changed))
            publish_transaction(self._lake, ctx, transaction)
        ctx.report_write(self.name, tables)
        return f"committed: {tables or 'nothing was changed'}"


class LakeRollback(_TransactionFunction):
    """Discards the statements that have waited."""

    @property
    def name(self) -> str:
        return "lake_rollback"

    @property
    def comment(self) -> str:
        return (
            "Forget all changes since lake_begin(). Outside of a block it ends those that this "
            "process has left open, for example after an error."
        )

    def _done(self, ctx: Context, transaction: Transaction) -> str:
        if transaction.collects:
            transaction.collects = False
            changed = self._rolled_back(transaction)
        else:
            left = self._lake.transactions.blocks(ctx)
            if not left:
                self._expect_begun(transaction)
            changed = []
            for each in left:
                changed += self._rolled_back(each)
                # A statement that still comes in it must not be published by itself.
                self._lake.transactions.end(each.id, TransactionState.ABORTED)
        tables = ", ".join(map(str, changed))
        ctx.report_write(self.name, tables)
        return f"rolled back: {tables or 'nothing was changed'}"

    def _rolled_back(self, transaction: Transaction) -> list[Identifier]:
        with transaction.lock:
            changed = transaction.changed
            roll_back(self._lake, transaction)
            return changed
