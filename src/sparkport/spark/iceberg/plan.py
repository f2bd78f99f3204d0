"""Which files a scan of an Iceberg table reads.

Strategy: manifests are skipped by their partition summaries, files by partition values and bounds.
The remaining files get their delete vectors. A plan that this reader cannot read exactly as Iceberg
means it is left to Spark: then `readable` is False.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from sparkport.catalog.filters import ROWID, Filter
from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg.bounds import (
    UNKNOWN,
    Bounds,
    bounds_in_file,
    bounds_of_partitions,
    bounds_of_row_ids,
    bounds_of_value,
)
from sparkport.spark.iceberg.conditions import Condition, OneOf
from sparkport.spark.iceberg.data_format import DATA_FORMAT
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import reachable
from sparkport.spark.iceberg.manifests import (
    DATA,
    ROW_ID_FIELD,
    Manifest,
    ManifestEntry,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.partitions import identity_sources, projected, result_type
from sparkport.spark.iceberg.parts import DeleteVector, FilePart
from sparkport.spark.iceberg.pruning import condition_of, prunable_columns
from sparkport.spark.iceberg.removals import Removals
from sparkport.spark.iceberg.table_state import TableState

__all__ = [
    "DataFile",
    "DeleteVector",
    "FilePart",
    "ScanPlan",
    "plan_files",
    "plan_rows",
    "plan_scan",
]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan reads. Files are immutable, so a plan holds as long as they exist."""

    parts: tuple[FilePart, ...]
    """In the order of their row ids."""
    rows: int
    """An upper limit of the number of rows."""
    bytes: int
    """About how many bytes of files are read."""
    readable: bool
    """False: only Spark can read the table, and `parts` are for estimates."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file to be read, and all that the table's metadata says about it."""

    part: FilePart
    entry: ManifestEntry
    replaced: tuple[ManifestEntry, ...]
    """The delete files that a new delete vector replaces."""


def plan_scan(
    state: TableState, columns: Sequence[str] | None, row_filter: Filter | None
) -> ScanPlan:
    """The files that may hold rows which the filter keeps.

    `columns` None means all; the row id is called `rowid`. Raises: PreconditionFailed when metadata
    files are missing or damaged.
    """
    if state.snapshot is None:
        return ScanPlan((), 0, 0, True)
    selection = _Selection.of(state, columns, row_filter)
    files = _planned(state, selection)
    if files is None:
        return _for_spark(state)
    parts = tuple(
        selection.part(entry, manifest, files.removals) for entry, manifest in files.found
    )
    rows = sum(part.rows - (part.vector.rows if part.vector else 0) for part in parts)
    return ScanPlan(parts, rows, sum(part.bytes for part in parts), files.readable)


def plan_rows(state: TableState, row_ids: Sequence[int]) -> tuple[DataFile, ...] | None:
    """The files that may hold rows with these ascending ids; None where only Spark can read them.

    Raises: PreconditionFailed when metadata files are missing or damaged.
    """
    if state.snapshot is None or not len(row_ids):
        return ()
    condition = OneOf(ROW_ID_FIELD, row_ids)
    return _data_files(state, replace(_Selection.of(state, (), None), condition=condition))


def plan_files(state: TableState, paths: Set[str] | None = None) -> tuple[DataFile, ...] | None:
    """All files that have rows, or those of them with these paths; None where only Spark can read
    them.

    Raises: PreconditionFailed when metadata files are missing or damaged.
    """
    if state.snapshot is None:
        return ()
    return _data_files(state, replace(_Selection.of(state, None, None), paths=paths))


def _data_files(state: TableState, selection: _Selection) -> tuple[DataFile, ...] | None:
    files = _planned(state, selection)
    if files is None or not files.readable:
        return None
    return tuple(
        DataFile(
            selection.part(entry, manifest, files.removals),
            entry,
            files.removals.replaced(entry, manifest.spec_id),
        )
        for entry, manifest in files.found
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """The files of a plan, and the deletes that apply to them."""

    found: Sequence[tuple[ManifestEntry, Manifest]]
    removals: Removals
    readable: bool


def _planned(state: TableState, selection: _Selection) -> _Files | None:
    """The selected files; None where only Spark reads the metadata. Raises: PreconditionFailed."""
    assert state.snapshot is not None
    if state.io is None or not state.snapshot.manifest_list:
        return None
    try:
        return _selected(state.io, state.snapshot.manifest_list, selection)
    except FileNotFoundError as error:
        raise _damaged(state.identifier, "is missing") from error
    except (OSError, ValueError, EOFError, KeyError, ResolveError, zlib.error) as error:
        raise _damaged(state.identifier, "cannot be read") from error


def _selected(io: FileIO, manifest_list: str, selection: _Selection) -> _Files | None:
    manifests = read_manifest_list(io, manifest_list)
    found: list[tuple[ManifestEntry, Manifest]] = []
    for manifest in manifests:
        if manifest.holds_deletes or not selection.keeps_manifest(manifest):
            continue
        if manifest.encrypted:
            return None
        found += (
            (entry, manifest)
            for entry in read_manifest(io, manifest)
            if selection.keeps(entry, manifest)
        )
    removals = Removals.of(
        io, [manifest for manifest in manifests if manifest.holds_deletes] if found else ()
    )
    readable = not removals.encrypted and all(
        entry.format == DATA_FORMAT
        and not entry.encrypted
        and reachable(entry.path, io.properties)
        and removals.understood(entry, manifest.spec_id)
        for entry, manifest in found
    )
    return _Files(sorted(found, key=_order), removals, readable)


def _order(found: tuple[ManifestEntry, Manifest]) -> tuple[int, int, str]:
    entry, _ = found
    return (
        -1 if entry.first_row_id is None else entry.first_row_id,
        entry.sequence_number,
        entry.path,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Selection:
    """Which files a scan needs, and what it reads of each."""

    condition: Condition | None
    specs: Mapping[int, PartitionSpec]
    kinds: Mapping[int, IcebergType]
    sized: frozenset[int] | None
    """Ids of the leaf columns that are read for every row; None for all of them."""
    rarely: frozenset[int]
    """Ids of the columns that are read only where the filter matched."""
    appended: frozenset[int]
    """Snapshots whose files cannot hold row ids, because all their rows were new."""
    paths: Set[str] | None = None
    """The files that are wanted; None for all."""
    _on_partitions: dict[int, Condition | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, state: TableState, columns: Sequence[str] | None, row_filter: Filter | None
    ) -> _Selection:
        definition, metadata = state.definition, state.metadata
        kinds = {each.field_id: each.field_type for each in state.schema.fields}
        condition = None
        if row_filter is not None:
            named = prunable_columns(
                definition.columns, definition.field_ids, kinds, has_row_ids=definition.shows_row_id
            )
            condition = condition_of(row_filter, named)
        return cls(
            condition,
            metadata.specs(),
            kinds,
            *_sized(state, columns, row_filter),
            frozenset(
                snapshot.snapshot_id
                for snapshot in metadata.snapshots
                if snapshot.summary is not None and snapshot.summary.operation.value == "append"
            ),
        )

    def keeps_manifest(self, manifest: Manifest) -> bool:
        condition = self._on_partition(manifest.spec_id)
        summaries = manifest.summaries
        spec = self.specs.get(manifest.spec_id)
        if (
            condition is None
            or summaries is None
            or spec is None
            or len(summaries) != len(spec.fields)
        ):
            return True
        by_id = {
            field.field_id: bounds_of_partitions(summary, kind)
            for field, summary in zip(spec.fields, summaries, strict=True)
            if (kind := result_type(field, self.kinds.get(field.source_id))) is not None
        }
        return condition.may_match(lambda field_id: by_id.get(field_id, UNKNOWN))

    def keeps(self, entry: ManifestEntry, manifest: Manifest) -> bool:
        if entry.content != DATA or entry.rows == 0:
            return False
        if self.paths is not None and entry.path not in self.paths:
            return False
        if self.condition is None:
            return True
        on_partition = self._on_partition(manifest.spec_id)
        if on_partition is not None:
            partition = entry.partition

            def of_partition(field_id: int) -> Bounds:
                return bounds_of_value(partition[field_id]) if field_id in partition else UNKNOWN

            if not on_partition.may_match(of_partition):
                return False

        def of_column(field_id: int) -> Bounds:
            if field_id == ROW_ID_FIELD:
                return bounds_of_row_ids(entry, self._may_hold_row_ids(entry))
            return bounds_in_file(entry, field_id, self.kinds[field_id])

        return self.condition.may_match(of_column)

    def part(self, entry: ManifestEntry, manifest: Manifest, removals: Removals) -> FilePart:
        vector = removals.vector(entry)
        spec = self.specs.get(manifest.spec_id)
        sources = {} if spec is None or not entry.partition else identity_sources(spec)
        return FilePart(
            path=entry.path,
            rows=entry.rows,
            size=entry.size,
            first_row_id=entry.first_row_id,
            may_hold_row_ids=self._may_hold_row_ids(entry),
            vector=vector,
            position_deletes=()
            if vector is not None
            else removals.position_files(entry, manifest.spec_id),
            partition=tuple(
                (sources[each], value) for each, value in entry.partition.items() if each in sources
            ),
            split_offsets=entry.split_offsets,
            bytes=self._bytes(entry),
        )

    def _on_partition(self, spec_id: int) -> Condition | None:
        if spec_id not in self._on_partitions:
            spec, condition = self.specs.get(spec_id), self.condition
            known = (
                None
                if spec is None or condition is None
                else projected(condition, spec, self.kinds)
            )
            self._on_partitions[spec_id] = known
        return self._on_partitions[spec_id]

    def _may_hold_row_ids(self, entry: ManifestEntry) -> bool:
        """Whether the file may have a column of row ids: rewritten rows keep theirs."""
        return ROW_ID_FIELD in entry.value_counts or entry.snapshot_id not in self.appended

    def _bytes(self, entry: ManifestEntry) -> int:
        if self.sized is None:
            return entry.size
        if self.sized <= {ROW_ID_FIELD} and not self._may_hold_row_ids(entry):
            return 0
        sizes = entry.column_sizes
        if not sizes:
            return entry.size
        rarely = sum(sizes.get(field_id, 0) for field_id in self.rarely) // _RARELY
        return min(entry.size, sum(sizes.get(field_id, 0) for field_id in self.sized) + rarely)


def _sized(
    state: TableState, columns: Sequence[str] | None, row_filter: Filter | None
) -> tuple[frozenset[int] | None, frozenset[int]]:
    """The leaf columns read for every row, and those read only where a filter matched."""
    if columns is None:
        return None, frozenset()
    wanted = _leaf_ids(state, set(columns))
    if row_filter is None or not row_filter.columns:
        return wanted, frozenset()
    filtered = _leaf_ids(state, set(row_filter.columns))
    return filtered, wanted - filtered


def _leaf_ids(state: TableState, names: set[str]) -> frozenset[int]:
    wanted = {state.definition.position(name) for name in names}
    row_id = {ROW_ID_FIELD} if state.definition.shows_row_id and ROWID in names else ()
    return frozenset(row_id).union(
        field_id
        for position, each in enumerate(state.schema.fields)
        if position in wanted
        for field_id in Schema(each).field_ids  # the column itself and all inside it
    )


def _for_spark(state: TableState) -> ScanPlan:
    assert state.snapshot is not None
    summary = state.snapshot.summary
    totals = summary.additional_properties if summary is not None else {}
    return ScanPlan(
        (), int(totals.get("total-records", 0)), int(totals.get("total-files-size", 0)), False
    )


def _damaged(table: Identifier, problem: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"a metadata file of table {table} {problem}; restore it, or roll the table back to an "
        f"older snapshot"
    )


_RARELY = 10
"""One row in so many is expected to match a filter. It only decides where a scan runs."""
