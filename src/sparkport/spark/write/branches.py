"""Working branches of tables: what was made on them, and how they are removed."""

from __future__ import annotations

from typing import Any

from sparkport.spark.lake.iceberg_commit import Draft, remove_files
from sparkport.spark.lake.lake import Lake

__all__ = ["BRANCH", "remove_branch_files", "without_branch"]

BRANCH = "sparkport.branch"
"""Key in the summary of a snapshot: the working branch it was made on, and is removed with."""


def without_branch(lake: Lake, metadata: Any, branch: str) -> Any:
    """The org.apache.iceberg.TableMetadata without a branch and its snapshots."""
    if not metadata.refs().containsKey(branch):
        return metadata
    builder = lake.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata).removeRef(
        branch
    )
    own = _snapshots_of(metadata, branch)
    return builder.removeSnapshots(own).build() if own else builder.build()


def _snapshots_of(metadata: Any, branch: str) -> list[Any]:
    """The snapshots that were made on a working branch.

    The snapshot that it began with is not among them: it stays for time travel, even if main has
    left it.
    """
    ref, found = metadata.refs().get(branch), []
    snapshot = None if ref is None else metadata.snapshot(ref.snapshotId())
    while snapshot is not None and snapshot.summary().get(BRANCH) == branch:
        found.append(snapshot)
        snapshot = None if snapshot.parentId() is None else metadata.snapshot(snapshot.parentId())
    return found


def remove_branch_files(draft: Draft, branch: str, *, with_rows: bool) -> None:
    """Remove the files that only a branch's snapshots had.

    These are metadata and delete vectors, and the rows, unless they are published.
    """
    remove_files(draft, (), _snapshots_of(draft.base, branch), with_rows=with_rows)
