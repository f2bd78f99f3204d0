"""Warnings of tables that have grown far beyond what the care of the lake would leave.

Only the metadata file of each table is read, and no manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkport.errors import SparkportError

if TYPE_CHECKING:
    from sparkport.spark.iceberg.identifiers import Identifier
    from sparkport.spark.lake.directory import CatalogEntry
    from sparkport.spark.lake.settings import LakeSettings
    from sparkport.spark.lake.shared_catalog import SharedCatalog

__all__ = ["table_doubts"]

_MOST_TABLES = 200
_READERS = 8
_FAR = 2
"""So many times more versions than care would leave are worth a word."""
_MANY_FILES = 1_000
_TINY = 1024 * 1024


def table_doubts(
    settings: LakeSettings, catalog: SharedCatalog, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield warnings, of the first tables of a catalog.

    `options` are the properties of its storages. What cannot be read from here is passed over.
    Raises: CatalogFault.
    """
    from sparkport.spark.lake.directory import Kind

    tables = [
        entry
        for namespace in catalog.listing().namespaces.values()
        for entry in namespace.entries.values()
        if entry.kind is Kind.ICEBERG
    ]

    def doubt(entry: CatalogEntry) -> str:
        try:
            text = _text(catalog, options, entry)
            return "" if text is None else _doubt(settings, entry.identifier, text)
        except (SparkportError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""  # whoever reads that table is told

    with ThreadPoolExecutor(_READERS, "sparkport-check") as readers:
        yield from filter(None, readers.map(doubt, islice(tables, _MOST_TABLES)))
    if len(tables) > _MOST_TABLES:
        yield (
            f"only {_MOST_TABLES} of {len(tables)} tables were looked at for too many versions and "
            "small files: care() tells of all"
        )


def _text(catalog: SharedCatalog, options: Mapping[str, str], entry: CatalogEntry) -> str | None:
    from sparkport.spark.iceberg.file_io import StorageIO
    from sparkport.spark.iceberg.locations import reachable
    from sparkport.spark.iceberg.table_state import metadata_text

    given = catalog.metadata_text(entry.identifier, entry.location)
    if given is not None:
        return given
    properties = {**options, **catalog.vended(entry.identifier)}
    if not reachable(entry.location, properties):
        return None
    return metadata_text(StorageIO(lambda: properties), entry.location)


def _doubt(settings: LakeSettings, table: Identifier, text: str) -> str:
    from sparkport.spark.care.exemptions import exemption
    from sparkport.spark.lake.care_settings import care_of

    metadata: Mapping[str, Any] = json.loads(text)
    properties = metadata.get("properties") or {}
    snapshots = metadata.get("snapshots") or []
    found = []
    if len(snapshots) > _FAR * care_of(settings, properties).most_versions:
        found.append(f"{len(snapshots):,} versions")
    total = _total_of(snapshots, metadata.get("current-snapshot-id"))
    files, size = total("total-data-files"), total("total-files-size")
    if files > _MANY_FILES and size < files * _TINY:
        found.append(f"{files:,} files of {_shown(size / files)} on average")
    if not found:
        return ""
    written = f"{_shown(len(text))} of metadata with each change"
    why = exemption(settings, properties, str(table))
    cause = f"care leaves it alone ({why})" if why else "care has not come to it yet"
    return f"table {table} has {' and '.join(found)}, and writes {written}: {cause}"


def _total_of(snapshots: list[dict[str, Any]], current: int | None) -> Callable[[str], int]:
    """The totals in the summary of the current snapshot; 0 where there are none."""
    summary = next(
        (each.get("summary") or {} for each in snapshots if each.get("snapshot-id") == current), {}
    )
    return lambda name: int(summary.get(name, "0"))


def _shown(size: float) -> str:
    kilobytes = size / 1024
    return f"{kilobytes / 1024:,.1f} MB" if kilobytes >= 1024 else f"{kilobytes:,.0f} KB"
