"""What Iceberg's metadata tell of a table, as table functions: snapshots, files and history.

No Spark job is run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import Context, ScanOptions
from sparkport.errors import Unsupported
from sparkport.spark.care.file_counts import is_small
from sparkport.spark.functions.table_argument import FunctionOfTable
from sparkport.spark.iceberg.definition import (
    COMMENT_PROPERTY,
    CONSTRAINTS_PROPERTY,
    DEFAULTS_PROPERTY,
)
from sparkport.spark.iceberg.manifests import (
    DATA,
    Manifest,
    ManifestEntry,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.metadata_heads import MetadataHead
from sparkport.spark.iceberg.table_state import SHAPING, TableState
from sparkport.spark.iceberg.types.declared import TYPES_PROPERTY
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.care_settings import care_of
from sparkport.spark.lake.history import WORKING_BRANCH, ancestors_of
from sparkport.spark.lake.version_log import changes_of, heads_of, versions_of
from sparkport.spark.lake.version_timeline import NumberedChange

__all__ = ["Files", "History", "Snapshots"]

_MOMENT = pa.timestamp("us", "UTC")
_MICROSECONDS = 1_000
_BATCH_ROWS = 10_000


class _MetadataFunction(FunctionOfTable):
    """A table function whose rows are made one by one from a table's metadata."""

    def estimated_rows(self, ctx: Context, parameters: Sequence[Any]) -> int | None:
        return self._count(ctx, self._state(ctx, parameters))

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        state = self._state(ctx, parameters)
        rows: list[Mapping[str, Any]] = []
        for row in self._rows(ctx, state):
            rows.append(row)
            if len(rows) == _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, self.columns)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, self.columns)

    @abstractmethod
    def _count(self, ctx: Context, state: TableState) -> int | None: ...

    @abstractmethod
    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]: ...

    def _metadata_files(self, state: TableState) -> FileIO:
        if state.io is None:
            raise Unsupported(
                f"only Spark can reach the metadata of {state.identifier}: "
                f"ask spark_sql('SELECT * FROM {state.identifier}.{self.name}')"
            )
        return state.io


class Snapshots(_MetadataFunction):
    """All snapshots that a table still has."""

    columns = pa.schema(
        [
            ("version", pa.int64()),
            ("snapshot_id", pa.int64()),
            ("parent_id", pa.int64()),
            ("committed_at", _MOMENT),
            ("operation", pa.string()),
            ("is_current", pa.bool_()),
            ("schema_id", pa.int32()),
            ("tags", pa.list_(pa.string())),
            ("branches", pa.list_(pa.string())),
            ("summary", pa.map_(pa.string(), pa.string())),
        ]
    )

    @property
    def name(self) -> str:
        return "snapshots"

    @property
    def comment(self) -> str:
        return (
            "The snapshots of a table, the oldest first; version is what AT (VERSION => …) takes."
        )

    def _count(self, ctx: Context, state: TableState) -> int:
        return len(_seen(state.metadata))

    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]:
        metadata = state.metadata
        versions = versions_of(self._lake, state, ctx.check)
        for snapshot in sorted(
            _seen(metadata), key=lambda each: (each.timestamp_ms, each.sequence_number or 0)
        ):
            yield {
                "version": versions.get(snapshot.snapshot_id),
                "snapshot_id": snapshot.snapshot_id,
                "parent_id": snapshot.parent_snapshot_id,
                "committed_at": snapshot.timestamp_ms * _MICROSECONDS,
                "operation": None if snapshot.summary is None else snapshot.summary.operation.value,
                "is_current": snapshot.snapshot_id == metadata.current_snapshot_id,
                "schema_id": snapshot.schema_id,
                "tags": _references(metadata, snapshot, SnapshotRefType.TAG),
                "branches": _references(metadata, snapshot, SnapshotRefType.BRANCH),
                "summary": []
                if snapshot.summary is None
                else list(snapshot.summary.additional_properties.items()),
            }


def _seen(metadata: TableMetadata) -> list[Snapshot]:
    """All snapshots but those that unfinished transactions and statements have made."""
    heads = {name: each.snapshot_id for name, each in metadata.refs.items()}
    hidden: set[int] = set()
    shown = {entry.snapshot_id for entry in metadata.snapshot_log}
    for name, head in heads.items():
        (hidden if name.startswith(WORKING_BRANCH) else shown).update(ancestors_of(metadata, head))
    return [
        each
        for each in metadata.snapshots
        if each.snapshot_id in shown or each.snapshot_id not in hidden
    ]


def _references(metadata: TableMetadata, snapshot: Snapshot, kind: SnapshotRefType) -> list[str]:
    found = metadata.refs.items()
    return sorted(
        name
        for name, each in found
        if each.snapshot_id == snapshot.snapshot_id
        and each.snapshot_ref_type is kind
        and not name.startswith(WORKING_BRANCH)
    )


class Files(_MetadataFunction):
    """The files that make up a table now."""

    columns = pa.schema(
        [
            ("content", pa.string()),
            ("path", pa.string()),
            ("format", pa.string()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("partition", pa.string()),
            ("first_row_id", pa.int64()),
            ("sequence_number", pa.int64()),
            ("snapshot_id", pa.int64()),
            ("data_file", pa.string()),
            ("column_bytes", pa.map_(pa.string(), pa.int64())),
            ("null_counts", pa.map_(pa.string(), pa.int64())),
            ("deleted_rows", pa.int64()),
            ("is_small", pa.bool_()),
        ]
    )

    @property
    def name(self) -> str:
        return "files"

    @property
    def comment(self) -> str:
        return (
            "The data and delete files of a table, as it is now; data_file is the one whose rows a "
            "delete vector hides, deleted_rows how many it hides. is_small says whether the care "
            "of the table would join a file with others."
        )

    def _count(self, ctx: Context, state: TableState) -> int | None:
        if state.snapshot is None:
            return 0
        summary = (
            {} if state.snapshot.summary is None else state.snapshot.summary.additional_properties
        )
        try:
            return int(summary["total-data-files"]) + int(summary["total-delete-files"])
        except (KeyError, ValueError):
            return None

    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]:
        if state.snapshot is None:
            return
        io = self._metadata_files(state)
        with translated(f"table {state.identifier}"):
            manifests = read_manifest_list(io, state.snapshot.manifest_list)
        hidden = _hidden_rows(ctx, state, io, [each for each in manifests if each.holds_deletes])
        settings = care_of(self._lake.settings, state.metadata.properties)
        for number, manifest in enumerate(manifests):
            ctx.check()
            ctx.report_progress(number / len(manifests))
            with translated(f"table {state.identifier}"):
                entries = read_manifest(io, manifest)
            for entry in entries:
                is_data = entry.content == DATA
                yield {
                    **_file(state, entry, manifest.spec_id),
                    "deleted_rows": hidden.get(entry.path, 0) if is_data else None,
                    "is_small": is_small(entry, settings) if is_data else None,
                }


def _hidden_rows(
    ctx: Context, state: TableState, io: FileIO, manifests: Sequence[Manifest]
) -> Mapping[str, int]:
    """How many rows the deletes of these manifests hide, for each data file that they name."""
    found: Counter[str] = Counter()
    for manifest in manifests:
        ctx.check()
        with translated(f"table {state.identifier}"):
            for entry in read_manifest(io, manifest):
                if entry.referenced_data_file is not None:
                    found[entry.referenced_data_file] += entry.rows
    return found


def _file(state: TableState, entry: ManifestEntry, spec_id: int) -> Mapping[str, Any]:
    is_vector = entry.format == "PUFFIN"
    names = {
        each: state.schema.find_column_name(each) or str(each)
        for each in (*entry.column_sizes, *entry.null_counts)
    }
    return {
        "content": "delete vector"
        if is_vector
        else _CONTENTS.get(entry.content, str(entry.content)),
        "path": entry.path,
        "format": entry.format.lower(),
        "rows": entry.rows,
        "bytes": entry.content_length
        if is_vector and entry.content_length is not None
        else entry.size,
        "partition": _partition(state, entry, spec_id),
        "first_row_id": entry.first_row_id,
        "sequence_number": entry.sequence_number,
        "snapshot_id": entry.snapshot_id,
        "data_file": entry.referenced_data_file,
        "column_bytes": [(names[each], size) for each, size in entry.column_sizes.items()],
        "null_counts": [(names[each], count) for each, count in entry.null_counts.items()],
    }


_CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}


def _partition(state: TableState, entry: ManifestEntry, spec_id: int) -> str | None:
    spec = state.metadata.specs().get(spec_id)
    if spec is None or not spec.fields:
        return None
    parts = []
    for field in spec.fields:
        value = entry.partition.get(field.field_id)
        try:
            source = state.schema.find_type(field.source_id)
            text = field.transform.to_human_string(source, value)
        except (ValueError, TypeError, NotImplementedError):  # the column was dropped since
            text = "null" if value is None else str(value)
        parts.append(f"{field.name}={text}")
    return "/".join(parts)


class History(_MetadataFunction):
    """The committed changes of a table."""

    columns = pa.schema(
        [
            ("version", pa.int64()),
            ("committed_at", _MOMENT),
            ("change", pa.string()),
            ("snapshot_id", pa.int64()),
            ("schema_id", pa.int32()),
        ]
    )

    @property
    def name(self) -> str:
        return "history"

    @property
    def comment(self) -> str:
        return (
            "The changes of a table, the oldest first: "
            "AT (VERSION => version) shows it as it was after one of them."
        )

    def _count(self, ctx: Context, state: TableState) -> int:
        return len(changes_of(self._lake, state, ctx.check))

    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]:
        changes = changes_of(self._lake, state, ctx.check)
        heads = zip(changes, *heads_of(self._lake, state, changes, ctx.check), strict=True)
        shown: set[int | None] = set()
        for change, after, before in heads:
            yield {
                "version": change.number,
                "committed_at": change.milliseconds * _MICROSECONDS,
                "change": _difference(state, change, before, after, shown),
                "snapshot_id": None if after is None else after.snapshot_id,
                "schema_id": None
                if after is None or isinstance(after.schema, str)
                else after.schema,
            }
            if after is not None:
                shown.add(after.snapshot_id)


def _difference(
    state: TableState,
    change: NumberedChange,
    before: MetadataHead | None,
    after: MetadataHead | None,
    shown: set[int | None],
) -> str | None:
    """What a change has changed; None if that is not known any more.

    `shown` are the snapshots that were current earlier.
    """
    if change.number == 0:
        return "create"
    if before is None or after is None:
        return None
    found = []
    if before.snapshot_id != after.snapshot_id:
        found.append(
            "rollback" if after.snapshot_id in shown else _operation(state, after.snapshot_id)
        )
    shapes = zip(SHAPING, before.shape, after.shape, strict=True)
    differing = [_ASPECTS.get(name, "properties") for name, old, new in shapes if old != new]
    if before.schema != after.schema:
        differing.insert(0, "columns")
    if before.has_row_ids != after.has_row_ids:
        differing.append("row ids")
    return ", ".join(dict.fromkeys([*found, *differing]))


def _operation(state: TableState, snapshot_id: int | None) -> str:
    snapshot = None if snapshot_id is None else state.metadata.snapshot_by_id(snapshot_id)
    return (
        "rows"
        if snapshot is None or snapshot.summary is None
        else str(snapshot.summary.operation.value)
    )


_ASPECTS = {
    TYPES_PROPERTY: "columns",
    DEFAULTS_PROPERTY: "defaults",
    CONSTRAINTS_PROPERTY: "constraints",
    COMMENT_PROPERTY: "comment",
}
