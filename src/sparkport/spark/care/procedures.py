"""Iceberg's own procedures, which Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = ["call_procedure", "replaced_by_bytes"]


def call_procedure(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    call: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    in_background: bool = False,
) -> Row:
    """Call a procedure of Iceberg and return its only row; `call` names the table `:table`.

    `in_background`: its jobs get what those of others leave of the cluster. Raises: what Spark's
    errors are translated to; Cancelled when the caller leaves.
    """
    text = f"CALL {quoted(identifier.catalog)}.system.{call}"
    values = {"table": identifier.sql, **(arguments or {})}
    session = lake.spark
    job = start_job(
        session.sparkContext,
        ctx,
        f"table {identifier}",
        lambda: session.sql(text, args=values).collect(),
        in_background=in_background,
    )
    ctx.on_cancel(job.cancel)
    try:
        return job.result(meanwhile=lake.relay.make_room)[0]
    finally:
        lake.changed()


def replaced_by_bytes(before: TableState, after: TableState) -> int:
    """The size of the files that were rewritten, from the summaries of the snapshots in between."""
    known = None if before.snapshot is None else before.snapshot.snapshot_id
    total, snapshot = 0, after.snapshot
    while snapshot is not None and snapshot.snapshot_id != known:
        if snapshot.summary is not None and snapshot.summary.operation.value == "replace":
            total += int(snapshot.summary.additional_properties.get("added-files-size", "0"))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else after.metadata.snapshot_by_id(parent)
    return total
