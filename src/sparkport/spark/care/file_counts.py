"""What files a table has now, counted from its manifests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkport.spark.iceberg.manifests import (
    DATA,
    POSITION_DELETES,
    ManifestEntry,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.care_settings import CareSettings

__all__ = ["FileCounts", "counted_files", "is_small"]

_WELL_FILLED = 0.5
"""The part of the wanted size from which on a file is large."""


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The files of a table, in numbers."""

    data_files: int = 0
    small_files: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    """Rows that delete vectors and position deletes hide."""
    size: int = 0
    """Bytes of the data files."""


def is_small(entry: ManifestEntry, settings: CareSettings) -> bool:
    """Whether a data file is worth joining with others."""
    return entry.content == DATA and entry.size < settings.file_bytes * _WELL_FILLED


def counted_files(
    state: TableState, settings: CareSettings, check: Callable[[], None]
) -> FileCounts:
    """Count the files of a table that this process can reach.

    `check` is called now and then. Raises: what it raises; CatalogFault, PreconditionFailed.
    """
    if state.snapshot is None or state.io is None:
        return FileCounts()
    data_files = small_files = delete_files = deleted_rows = size = 0
    with translated(f"table {state.identifier}"):
        for manifest in read_manifest_list(state.io, state.snapshot.manifest_list):
            check()
            for entry in read_manifest(state.io, manifest):
                if entry.content == DATA:
                    data_files += 1
                    small_files += is_small(entry, settings)
                    size += entry.size
                else:
                    delete_files += 1
                    deleted_rows += entry.rows if entry.content == POSITION_DELETES else 0
    return FileCounts(data_files, small_files, delete_files, deleted_rows, size)
