"""Statements that change tables, run one after the other: all of them become visible, or none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkport.catalog import Context, TransactionState
from sparkport.errors import SparkportError
from sparkport.spark.functions.run_statements import RunStatements
from sparkport.spark.functions.statements import Statement
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_log import number_of
from sparkport.spark.scan.create_plans import ParsedCreation
from sparkport.spark.scan.write_plans import ParsedWrite
from sparkport.spark.write.publish import publish_transaction, roll_back
from sparkport.spark.write.spark_changes import Outcome

__all__ = ["Done", "as_statement", "run_all"]


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """A statement that was run, and what it has done."""

    write: ParsedWrite | ParsedCreation
    outcome: Outcome
    seconds: float

    @property
    def target(self) -> Identifier:
        return self.write.target.identifier


def run_all(
    lake: Lake, statements: RunStatements, ctx: Context, given: Sequence[Statement]
) -> list[Done]:
    """Run statements, all or none: in the transaction of the context if it collects changes.

    Otherwise a single change of a table is published by itself, and all else by a transaction of
    its own.
    Each sees what those before it have changed. A transaction of DuckDB is not one that collects:
    pass `as_statement` of its context.

    Raises: what a statement raises, when nothing of any of them is left, and nothing has changed.
    """
    is_single = len(given) == 1 and not statements.makes_objects(given[0])
    with lake.transactions.running(ctx):
        if is_single or lake.transactions.collecting(ctx) is not None:
            return [_done(statements, ctx, each) for each in given]
        return _all_or_none(lake, statements, ctx, given)


def as_statement(lake: Lake, ctx: Context) -> Context:
    """The context of a single statement, which waits only for a block that `lake_begin()` began."""
    return ctx.with_transaction(lake.transactions.begin(statement_of=ctx))


def _all_or_none(
    lake: Lake, statements: RunStatements, ctx: Context, given: Sequence[Statement]
) -> list[Done]:
    """Run statements in a transaction of their own."""
    transactions = lake.transactions
    transaction = transactions.find(transactions.begin())
    assert transaction is not None
    within = replace(ctx.with_transaction(transaction.id), parent_transaction_id=None)
    ended = TransactionState.ABORTED
    try:
        with transactions.running(within):
            done = [_done(statements, within, each) for each in given]
        changed = transaction.changed
        publish_transaction(lake, within, transaction)
        ended = TransactionState.COMMITTED
    finally:
        roll_back(lake, transaction)
        transactions.end(transaction.id, ended)
    versions: dict[Identifier, int | None] = {}
    for each in changed:
        # It is published, whatever happens now: somebody may have dropped it already.
        with suppress(SparkportError):
            versions[each] = _published(lake, ctx, each)
    return [
        replace(each, outcome=replace(each.outcome, version=versions.get(each.target)))
        for each in done
    ]


def _published(lake: Lake, ctx: Context, identifier: Identifier) -> int | None:
    """The version of a table that was just published; None for a view."""
    entry = lake.entry(identifier)
    if entry is None or entry.kind is not Kind.ICEBERG:
        return None
    state = lake.current(identifier)
    lake.transactions.show(ctx.parent_transaction_id, state)
    return number_of(lake, state)


def _done(statements: RunStatements, ctx: Context, statement: Statement) -> Done:
    begun = time.monotonic()
    write, outcome = statements.run(ctx, statement)
    target = write.target.identifier
    ctx.report_write(f"spark_run {write.operation}", f"{target.catalog}.{target}", outcome.changed)
    return Done(write, outcome, time.monotonic() - begun)
