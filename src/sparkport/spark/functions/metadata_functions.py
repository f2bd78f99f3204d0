"""What Iceberg's metadata tell of a table, as table functions: its snapshots, files and history. No Spark job is run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from sparkport.catalog import Context, FunctionSignature, Parameter, ScanOptions, TableFunction
from sparkport.catalog.names import folded
from sparkport.errors import NotFound, SparkportError, Unsupported
from sparkport.spark.errors import translated
from sparkport.spark.files.manifests import Entry as FileEntry
from sparkport.spark.files.manifests import read_manifest, read_manifest_list
from sparkport.spark.history import Change, changes_of
from sparkport.spark.identifiers import Identifier
from sparkport.spark.lake import Lake
from sparkport.spark.listing import Entry, Kind
from sparkport.spark.state import TableState

__all__ = ["metadata_functions"]

_MOMENT = pa.timestamp("us", "UTC")
_MICROSECONDS = 1_000
_BATCH_ROWS = 10_000


def metadata_functions(lake: Lake, namespace: tuple[str, ...]) -> list[TableFunction]:
    """The functions for tables of a schema."""
    return [Snapshots(lake, namespace), Files(lake, namespace), History(lake, namespace)]


class _MetadataFunction(TableFunction):
    """A function of a table's name: `table` in its own schema, or `schema.table`."""

    columns: pa.Schema

    def __init__(self, lake: Lake, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._namespace = namespace

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("table", pa.string()),))

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        self._state(parameters)  # so that a wrong name is told before anything is planned
        return self.columns

    def estimated_rows(self, ctx: Context, parameters: Sequence[Any]) -> int | None:
        return self._count(self._state(parameters))

    def execute(self, ctx: Context, parameters: Sequence[Any], options: ScanOptions) -> Iterator[pa.RecordBatch]:
        state = self._state(parameters)
        rows: list[Mapping[str, Any]] = []
        for row in self._rows(ctx, state):
            rows.append(row)
            if len(rows) == _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, self.columns)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, self.columns)

    @abstractmethod
    def _count(self, state: TableState) -> int | None: ...

    @abstractmethod
    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]: ...

    def _state(self, parameters: Sequence[Any]) -> TableState:
        """Raises: NotFound, Unsupported."""
        name = parameters[0]
        if name is None:
            raise NotFound(f"{self.name} needs the name of a table, such as {self.name}('orders')")
        entry = self._entry(str(name))
        if entry is None:
            raise NotFound(f"table {name} does not exist")
        if entry.kind is not Kind.ICEBERG:
            raise Unsupported(f"{entry.identifier} is not an Iceberg table: it has no {self.name}")
        return self._lake.state(entry.identifier, entry.location)

    def _entry(self, name: str) -> Entry | None:
        found = self._lake.directory.contents().namespaces
        # A name with dots in it may be cut at any of them; the table's own schema comes first.
        own = ".".join(self._namespace)
        cuts = [(own, name), *((name[:at], name[at + 1 :]) for at, char in enumerate(name) if char == ".")]
        for exact in (True, False):
            for schema_name, table_name in cuts:
                for each, namespace in found.items():
                    if not _same(each, schema_name, exact):
                        continue
                    table = next((own for own in namespace.entries if _same(own, table_name, exact)), None)
                    if table is not None:
                        return self._lake.directory.entry(namespace.parts, table)
        return None

    def _metadata_files(self, state: TableState) -> FileIO:
        if state.io is None:
            raise Unsupported(
                f"only Spark can reach the metadata of {state.identifier}: "
                f"ask spark_sql('SELECT * FROM {state.identifier}.{self.name}')"
            )
        return state.io


def _same(name: str, wanted: str, exact: bool) -> bool:
    return name == wanted if exact else folded(name) == folded(wanted)


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
        return "The snapshots of a table, the oldest first; version is what AT (VERSION => …) takes."

    def _count(self, state: TableState) -> int:
        return len(state.metadata.snapshots)

    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]:
        metadata = state.metadata
        versions = _versions(ctx, self._lake, state)
        for snapshot in sorted(metadata.snapshots, key=lambda each: (each.timestamp_ms, each.sequence_number or 0)):
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
                "summary": [] if snapshot.summary is None else list(snapshot.summary.additional_properties.items()),
            }


def _versions(ctx: Context, lake: Lake, state: TableState) -> dict[int, int]:
    """By snapshot, the number of the change that made it current; those that never were, or long ago, are missing."""
    found: dict[int, int] = {}
    changes = changes_of(state)
    for index, change in enumerate(changes):
        ctx.check()
        ctx.report_progress(index / len(changes))
        then = _state_after(lake, state.identifier, change)
        if then is not None and then.metadata.current_snapshot_id is not None:
            found.setdefault(then.metadata.current_snapshot_id, change.number)
    return found


def _state_after(lake: Lake, table: Identifier, change: Change) -> TableState | None:
    try:
        return lake.state(table, change.location)
    except SparkportError:  # its file was removed, as old ones are
        return None


def _references(metadata: TableMetadata, snapshot: Snapshot, kind: SnapshotRefType) -> list[str]:
    found = metadata.refs.items()
    return sorted(
        name for name, each in found if each.snapshot_id == snapshot.snapshot_id and each.snapshot_ref_type is kind
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
        ]
    )

    @property
    def name(self) -> str:
        return "files"

    @property
    def comment(self) -> str:
        return (
            "The data and delete files of a table, as it is now; data_file is the one whose rows a delete vector hides."
        )

    def _count(self, state: TableState) -> int | None:
        if state.snapshot is None:
            return 0
        summary = {} if state.snapshot.summary is None else state.snapshot.summary.additional_properties
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
        for number, manifest in enumerate(manifests):
            ctx.check()
            ctx.report_progress(number / len(manifests))
            with translated(f"table {state.identifier}"):
                entries = read_manifest(io, manifest)
            for entry in entries:
                yield _file(state, entry, manifest.spec_id)


def _file(state: TableState, entry: FileEntry, spec_id: int) -> Mapping[str, Any]:
    is_vector = entry.format == "PUFFIN"
    names = {
        each: state.schema.find_column_name(each) or str(each) for each in (*entry.column_sizes, *entry.null_counts)
    }
    return {
        "content": "delete vector" if is_vector else _CONTENTS.get(entry.content, str(entry.content)),
        "path": entry.path,
        "format": entry.format.lower(),
        "rows": entry.rows,
        "bytes": entry.content_length if is_vector and entry.content_length is not None else entry.size,
        "partition": _partition(state, entry, spec_id),
        "first_row_id": entry.first_row_id,
        "sequence_number": entry.sequence_number,
        "snapshot_id": entry.snapshot_id,
        "data_file": entry.referenced_data_file,
        "column_bytes": [(names[each], size) for each, size in entry.column_sizes.items()],
        "null_counts": [(names[each], count) for each, count in entry.null_counts.items()],
    }


_CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}


def _partition(state: TableState, entry: FileEntry, spec_id: int) -> str | None:
    spec = state.metadata.specs().get(spec_id)
    if spec is None or not spec.fields:
        return None
    parts = []
    for field in spec.fields:
        value = entry.partition.get(field.field_id)
        try:
            source = state.schema.find_type(field.source_id)
            text = field.transform.to_human_string(source, value)
        except (ValueError, TypeError, NotImplementedError):  # a column that was dropped since
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
        return "The changes of a table, the oldest first: AT (VERSION => version) shows it as it was after one of them."

    def _count(self, state: TableState) -> int:
        return len(changes_of(state))

    def _rows(self, ctx: Context, state: TableState) -> Iterator[Mapping[str, Any]]:
        changes = changes_of(state)
        before: TableMetadata | None = None
        for index, change in enumerate(changes):
            ctx.check()
            ctx.report_progress(index / len(changes))
            then = _state_after(self._lake, state.identifier, change)
            metadata = None if then is None else then.metadata
            yield {
                "version": change.number,
                "committed_at": change.milliseconds * _MICROSECONDS,
                "change": _difference(change, before, metadata),
                "snapshot_id": None if metadata is None else metadata.current_snapshot_id,
                "schema_id": None if metadata is None else metadata.current_schema_id,
            }
            before = metadata


def _difference(change: Change, before: TableMetadata | None, after: TableMetadata | None) -> str | None:
    """What a change has changed; None if nobody knows any more."""
    if after is None:
        return None
    if before is None:
        return "create" if change.number == 0 else None
    found = []
    if before.current_snapshot_id != after.current_snapshot_id:
        found.append(_operation(before, after))
    for name, aspect in _ASPECTS.items():
        if getattr(before, aspect) != getattr(after, aspect):
            found.append(name)
    known = {name: each for name, each in before.refs.items() if name != "main"}
    if known != {name: each for name, each in after.refs.items() if name != "main"}:
        found.append("tags and branches")
    return ", ".join(found) or "metadata"


def _operation(before: TableMetadata, after: TableMetadata) -> str:
    snapshot = after.current_snapshot()
    if snapshot is None:
        return "replace"
    if before.snapshot_by_id(snapshot.snapshot_id) is not None:
        return "rollback"
    return "snapshot" if snapshot.summary is None else str(snapshot.summary.operation.value)


_ASPECTS = {
    "columns": "current_schema_id",
    "partitioning": "default_spec_id",
    "sort order": "default_sort_order_id",
    "properties": "properties",
    "format version": "format_version",
}
