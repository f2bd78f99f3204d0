"""What is known of tables that this server has just changed, so that nothing is read back.

Strategy: after a commit the JVM has the new metadata and the manifests in them, and their text is
what a reader would find in the file. Both are kept under the location of that file. They are used
only while the catalog says that it is the table's present metadata, so they are never old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkport.engine.cache import Cache

if TYPE_CHECKING:
    from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["KeptTable", "KeptTables"]

_MOST_COMMITS = 20
"""After so many commits a table is loaded anew: each keeps the list of its manifests in memory."""
_MOST_ENTRIES = 100_000
"""The limit of snapshots and manifests in the JVM's memory, of all tables together."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptTable:
    """A table as the JVM has it after a commit."""

    location: str
    """Of its metadata file."""
    metadata: Any
    """The org.apache.iceberg.TableMetadata that were written there."""
    operations: Any
    """The org.apache.iceberg.TableOperations it was loaded with, whose own metadata are older."""
    commits: int
    """How many were made since it was loaded."""


class KeptTables:
    """The tables that were changed last. Thread-safe."""

    def __init__(self) -> None:
        self._kept: Cache[Identifier, KeptTable | None] = Cache(_MOST_ENTRIES)

    def find(self, identifier: Identifier) -> KeptTable | None:
        return self._kept.find(identifier, None)

    def keep(self, identifier: Identifier, table: KeptTable) -> None:
        if table.commits > _MOST_COMMITS:
            self._kept.replace(identifier, None)
            return
        metadata = table.metadata
        snapshot = metadata.currentSnapshot()
        manifests = 0 if snapshot is None else snapshot.allManifests(table.operations.io()).size()
        weight = int(metadata.snapshots().size()) + table.commits * int(manifests)
        self._kept.replace(identifier, table, 1 + weight)
