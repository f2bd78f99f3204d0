"""Join the manifests of a table, which list its files: each is read before a scan."""

from __future__ import annotations

import math

from sparkport.catalog import Context
from sparkport.spark.care.procedures import call_procedure
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.manifests import read_manifest_list
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.lake import Lake

__all__ = ["MANIFEST_BYTES", "join_manifests", "manifest_sizes", "manifests_need"]

MANIFEST_BYTES = 8 * 1024 * 1024
"""The size of the manifests that Iceberg writes."""
_MANY = 100
_TIMES = 4


def manifests_need(state: TableState) -> str | None:
    """Why a table's manifests should be joined; None if that would not help.

    Raises: what errors of the storage are translated to.
    """
    sizes = manifest_sizes(state, with_deletes=False)  # those of deletes are not joined
    if sizes is None or len(sizes) <= _MANY:
        return None
    needed = max(1, math.ceil(sum(sizes) / MANIFEST_BYTES))
    return f"{len(sizes):,} manifests" if len(sizes) > _TIMES * needed else None


def join_manifests(lake: Lake, identifier: Identifier, ctx: Context) -> tuple[int, int]:
    """Have Spark join manifests. Returns how many there were, and are instead.

    Rows and files stay as they are. `ctx` may cancel it. Raises: Cancelled; what Spark's errors are
    translated to.
    """
    call = "rewrite_manifests(table => :table)"
    found = call_procedure(lake, ctx, identifier, call, in_background=True)
    return found.rewritten_manifests_count, found.added_manifests_count


def manifest_sizes(state: TableState, *, with_deletes: bool = True) -> list[int] | None:
    """The sizes of the manifests; None where only Spark can read them.

    Raises: what errors of the storage are translated to.
    """
    if state.snapshot is None:
        return []
    if state.io is None or not state.snapshot.manifest_list:
        return None
    with translated(f"table {state.identifier}"):
        return [
            manifest.length
            for manifest in read_manifest_list(state.io, state.snapshot.manifest_list)
            if with_deletes or not manifest.holds_deletes
        ]
