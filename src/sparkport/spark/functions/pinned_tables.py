"""The tables of a statement as its transaction reads them, for Spark, which knows none of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkport.catalog import Context
from sparkport.errors import Unsupported
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.query_plans import NamedRelation

__all__ = ["pinned"]


def pinned(lake: Lake, ctx: Context, sources: Sequence[NamedRelation]) -> list[tuple[Any, str]]:
    """Other SQL for the tables of which the caller's transaction reads another state.

    Each comes with its node in the parsed statement. Raises: Unsupported, TransactionNotActive.
    """
    collecting = lake.transactions.collecting(ctx)
    reader = ctx.parent_transaction_id if collecting is None else collecting.id
    if reader is None:
        return []
    found = []
    for each in sources:
        identifier = each.identifier
        entry = lake.entry(identifier) if identifier.catalog == lake.catalog.name else None
        if each.is_dated or entry is None or entry.kind is not Kind.ICEBERG:
            continue
        current = lake.current(identifier)
        seen = lake.transactions.seen(reader, current)
        if seen.snapshot is not None and seen.snapshot != current.snapshot:
            sql = f"{identifier.sql} VERSION AS OF {seen.snapshot.snapshot_id}"
            found.append((each.node, sql))
        elif seen.snapshot is None and current.snapshot is not None:
            raise Unsupported(
                f"the transaction has read table {identifier} when it had no rows, which Spark "
                "cannot read any more: begin another one"
            )
    return found
