"""Have Spark join the files of tables that this process cannot rewrite.

These are tables of format version 2, with other formats than Parquet, with an order or filters of
their own, with deletes that only Spark understands, or in a storage that only Spark reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import Context
from sparkport.spark.care.compaction import Compacted, is_for_this_process, order_of
from sparkport.spark.care.procedures import call_procedure, replaced_by_bytes
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.manifests import (
    DATA,
    Manifest,
    ManifestEntry,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.removals import Removals
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.lake import Lake

__all__ = ["compact_with_spark", "spark_compaction_need"]

_SMALL = 8
"""A file is small if the wanted size is so many times its own."""
_DELETE_FILES = 10
"""A file is written anew if so many delete files have to be read with it."""
_DELETE_RATIO = 0.2


def spark_compaction_need(state: TableState, settings: CareSettings) -> str | None:
    """Why Spark should rewrite files of a table; None if that would not help, or if the table is
    for this process.

    Raises: PreconditionFailed when metadata files are missing or damaged.
    """
    if state.snapshot is None or is_for_this_process(state):
        return None
    with translated(f"table {state.identifier}"):
        files = _Files.of(state)
        return _by_summaries(state, settings) if files is None else files.need(settings)


def compact_with_spark(
    lake: Lake, identifier: Identifier, settings: CareSettings, ctx: Context
) -> Compacted:
    """Have Spark join small files, and write files anew of which many rows are deleted.

    Its jobs get what others leave of the cluster. What it has done so far is committed now and
    then, so that a conflict with writers loses little. `ctx` may cancel it. The result does not
    tell the rows. Raises: Cancelled; PreconditionFailed when the table has lost a column that it is
    sorted by; what Spark's errors are translated to.
    """
    size = settings.file_bytes
    options = {
        "target-file-size-bytes": size,
        "min-file-size-bytes": size // 2,
        "max-file-size-bytes": 2 * size,
        "min-input-files": max(2, min(settings.small_files, _SMALL)),
        "delete-file-threshold": _DELETE_FILES,
        "delete-ratio-threshold": _DELETE_RATIO,
        "remove-dangling-deletes": "true",
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": 10,
        "max-concurrent-file-group-rewrites": 1,
    }
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    before = lake.current(identifier)
    order, values = "", {}
    if settings.sort.strip():
        order, values = (
            "strategy => 'sort', sort_order => :sort, ",
            {"sort": _sort(before, settings)},
        )
    found = call_procedure(
        lake,
        ctx,
        identifier,
        f"rewrite_data_files(table => :table, {order}options => map({pairs}))",
        values,
        in_background=True,
    )
    return Compacted(
        found.rewritten_data_files_count,
        found.added_data_files_count,
        found.rewritten_bytes_count,
        replaced_by_bytes(before, lake.current(identifier)),
        0,
    )


def _sort(state: TableState, settings: CareSettings) -> str:
    """The order as Spark writes it. Raises: PreconditionFailed."""
    keys = order_of(state, settings).keys
    directions = {True: "ASC", False: "DESC"}
    return ", ".join(f"{quoted(name)} {directions[ascends]} NULLS LAST" for name, ascends in keys)


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """The files of a table, as far as this process can read what the metadata say of them."""

    entries: list[tuple[ManifestEntry, Manifest]]
    removals: Removals

    @classmethod
    def of(cls, state: TableState) -> _Files | None:
        """None where only Spark can read the manifests. Raises: OSError, ValueError."""
        snapshot, io = state.snapshot, state.io
        if io is None or snapshot is None or not snapshot.manifest_list:
            return None
        manifests = read_manifest_list(io, snapshot.manifest_list)
        if any(each.encrypted for each in manifests):
            return None
        entries = [
            (entry, manifest)
            for manifest in manifests
            if not manifest.holds_deletes
            for entry in read_manifest(io, manifest)
            if entry.content == DATA
        ]
        return cls(entries, Removals.of(io, [each for each in manifests if each.holds_deletes]))

    def need(self, settings: CareSettings) -> str | None:
        bound = settings.file_bytes / _SMALL
        groups: Counter[object] = Counter()
        many = 0
        for entry, manifest in self.entries:
            if entry.size < bound:
                groups[manifest.spec_id, repr(entry.partition)] += 1
            many += self._deletes(entry, manifest) >= _DELETE_FILES
        small = sum(count for count in groups.values() if count >= settings.small_files)
        if small:
            return f"{small:,} small files"
        return f"{many:,} files with many delete files" if many else None

    def _deletes(self, entry: ManifestEntry, manifest: Manifest) -> int:
        """How many delete files are read with a data file."""
        removals = self.removals
        if removals.vector(entry) is not None:
            return 1
        found = len(removals.position_files(entry, manifest.spec_id))
        partition = (manifest.spec_id, tuple(sorted(entry.partition.items())))
        for key in (None, partition) if removals.others else ():
            numbers = [each.sequence_number for each in removals.others.get(key, ())]
            found += sum(number > entry.sequence_number for number in numbers)
        return found


def _by_summaries(state: TableState, settings: CareSettings) -> str | None:
    """What the summaries of snapshots tell: how many files came since files were last joined."""
    added = size = 0
    for snapshot in _snapshots(state):
        summary = snapshot.summary
        if summary is None or summary.operation.value == "replace":
            break
        told = summary.additional_properties
        added += int(told.get("added-data-files", 0)) + int(told.get("added-delete-files", 0))
        size += int(told.get("added-files-size", 0))
    is_small = added and size / added < settings.file_bytes / _SMALL
    return f"{added:,} small files" if is_small and added >= settings.small_files else None


def _snapshots(state: TableState) -> Iterator[Snapshot]:
    """The present snapshot and those before it, as far as they are kept."""
    snapshot = state.snapshot
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else state.metadata.snapshot_by_id(parent)
