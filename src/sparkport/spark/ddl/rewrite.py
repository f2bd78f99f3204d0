"""Rewrite the data files of a table, in the commit that changes one of its columns.

Strategy: file by file and batch by batch, so memory stays flat. Each new file belongs to the
partition of the old one. Values are copied as they are stored; only the new column is computed, by
DuckDB. Rows keep their ids, which are written, too. The commit that changes the columns replaces
all files, so no reader sees one without the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from sparkport.catalog import Constraints, Context
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.enforce import columns_of, enforce_keys, enforce_rows
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.data_format import DATA_SUFFIX
from sparkport.spark.iceberg.locations import open_parquet, storage_at
from sparkport.spark.iceberg.metrics import columns_without_bounds
from sparkport.spark.iceberg.parquet_output import (
    ParquetOutput,
    ParquetStyle,
    file_schema,
    relabelled,
    style_of,
    writing,
)
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.projection import file_fields
from sparkport.spark.iceberg.read import ReadRequest, as_stored, read_parts, read_request
from sparkport.spark.iceberg.types.declared import decode, encode
from sparkport.spark.lake.iceberg_commit import Draft
from sparkport.spark.write.java_files import java_file

__all__ = ["Compute", "files_without", "rewrite"]

Compute: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Array]]
"""Computes the new column, in its declared type, from the old rows as users see them."""


def rewrite(
    draft: Draft,
    ctx: Context,
    columns: pa.Schema,
    changed: pa.Field,
    compute: Compute,
    constraints: Constraints,
    parts: Sequence[FilePart] | None = None,
) -> None:
    """Replace data files by files that fit the columns which `draft` has staged.

    All files are replaced, unless `parts` names some. `columns` are the declared columns as they
    will be. `changed` is the column that is computed; the others are copied. `constraints` are
    those that the new values must fulfil.

    Raises: ConstraintViolation, BadRequest; Unsupported for files that are not Parquet or that only
    Spark can reach; LimitExceeded when the storage is full.
    """
    state = draft.state
    plan = plan_scan(state, None, None)
    io = state.io
    if not plan.readable or io is None:
        raise Unsupported(
            f"the files of table {draft.identifier} cannot be written anew here: run Iceberg's "
            "procedure rewrite_data_files on it in Spark first, or create the table anew"
        )
    files = _Files.of(draft, io, columns, changed)
    keys: list[pa.RecordBatch] = []
    overwrite = draft.transaction.newOverwrite()
    present = _data_files(draft)
    for part in plan.parts if parts is None else parts:
        with writing(draft.identifier):
            written = _rewritten(draft, ctx, files, part, compute, constraints, keys)
        if written is not None:
            overwrite.addFile(files.java_file(written, present[part.path]))
    _check_keys(draft, ctx, constraints, keys)
    for path, old in present.items():
        if parts is None or any(part.path == path for part in parts):
            overwrite.deleteFile(old)
    overwrite.commit()


def files_without(draft: Draft, field_id: int) -> list[FilePart]:
    """Files that lack a column which no visible row needs: all rows without a value are deleted.

    Once the column is required, Spark cannot read these files any more.
    """
    plan = plan_scan(draft.state, None, None)
    mapping = draft.state.metadata.properties.get("schema.name-mapping.default")
    found = []
    for part in plan.parts if plan.readable else ():
        if part.vector is not None or part.position_deletes:
            with open_parquet(part.path, draft.state.file_properties, part.size) as file:
                ids = {each.field_id for each in file_fields(file.schema_arrow, mapping)}
            if field_id not in ids:
                found.append(part)
    return found


def _stored_rows(draft: Draft) -> ReadRequest:
    request = read_request(
        draft.state,
        None,
        batch_rows=draft.lake.settings.batch_rows,
        properties=draft.state.file_properties,
    )
    return as_stored(request, draft.state)


@dataclass(frozen=True, slots=True)
class _Written:
    path: str
    size: int
    without_bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """How new files are written."""

    draft: Draft
    io: FileIO
    columns: pa.Schema
    changed: pa.Field
    schema: Schema
    """The columns as they will be."""
    arrow_schema: pa.Schema
    """The schema of the files."""

    @classmethod
    def of(cls, draft: Draft, io: FileIO, columns: pa.Schema, changed: pa.Field) -> _Files:
        schema = draft.schema()
        return cls(
            draft,
            io,
            columns,
            changed,
            schema,
            file_schema(schema, with_row_ids=draft.state.has_row_ids),
        )

    def new_place(self, part: FilePart) -> str:
        """A location beside the old file, or in the table's own folder if that is elsewhere."""
        folder = part.path.rpartition("/")[0]
        if not folder.startswith(f"{self.draft.state.metadata.location}/"):
            folder = f"{self.draft.state.metadata.location}/data"
        return f"{folder}/rewritten-{uuid.uuid4()}{DATA_SUFFIX}"

    def batch(self, stored: pa.RecordBatch, values: pa.Array) -> pa.RecordBatch:
        """Rows as they are written: copied, except for the new column."""
        arrays = []
        for field in self.schema.fields:
            if field.name == self.changed.name:
                array = encode(values, self.changed, field.field_type)
            else:
                array = stored.column(field.name)
            if not isinstance(field.field_type, UnknownType):
                arrays.append(array)
        if self.draft.state.has_row_ids:
            arrays += [stored.column(ROWID_NAME), pa.nulls(stored.num_rows, pa.int64())]
        fitted = [
            relabelled(array, field.type)
            for array, field in zip(arrays, self.arrow_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(fitted, schema=self.arrow_schema)

    def new_file(self, part: FilePart) -> ParquetOutput:
        path = self.new_place(part)
        self.draft.written.append(path)
        style = style_of(self.draft.state.metadata.properties) or ParquetStyle()
        storage = storage_at(path, self.io.properties)
        return ParquetOutput(storage, path, self.arrow_schema, style)

    def java_file(self, written: _Written, old: Any) -> Any:
        """The org.apache.iceberg.DataFile of a new file, in the partition of the old one."""
        table = self.draft.transaction.table()
        spec = table.specs().get(old.specId())
        partition = old.partition() if spec.isPartitioned() else None
        return java_file(
            self.draft.lake,
            table,
            spec,
            written.path,
            written.size,
            partition,
            written.without_bounds,
        )

    def finished(self, output: ParquetOutput) -> _Written:
        size = output.finish()
        fields = [
            each for each in self.schema.fields if not isinstance(each.field_type, UnknownType)
        ]
        unknown = columns_without_bounds(output.metadata, fields)
        return _Written(output.location, size, unknown)


def _rewritten(
    draft: Draft,
    ctx: Context,
    files: _Files,
    part: FilePart,
    compute: Compute,
    constraints: Constraints,
    keys: list[pa.RecordBatch],
) -> _Written | None:
    """Write the new file for an old one; None when no row is left."""
    stored = _RememberingLast(read_parts(_stored_rows(draft), [part], ctx.check))
    needed = columns_of(constraints, files.columns.names)
    keyed = {name for key in (constraints.primary_key, *constraints.unique) for name in key}
    output: ParquetOutput | None = None
    try:
        for values in compute(_declared(draft, batch) for batch in stored):
            if constraints:
                rows = _checked_rows(draft, files, stored.last, values, needed)
                enforce_rows(draft.identifier.name, constraints, rows, ctx.check)
                keys.append(rows.select([name for name in rows.schema.names if name in keyed]))
            if output is None:
                output = files.new_file(part)
            output.write(pa.Table.from_batches([files.batch(stored.last, values)]))
        return None if output is None else files.finished(output)
    finally:
        if output is not None:
            output.abandon()


class _RememberingLast:
    """Iterates over batches and remembers the last one it has returned."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.last: pa.RecordBatch = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.last = batch
            yield batch


def _declared(draft: Draft, stored: pa.RecordBatch) -> pa.RecordBatch:
    """Stored rows as users see them, without their ids."""
    columns = draft.definition.columns
    kinds = {each.name: each.field_type for each in draft.state.schema.fields}
    arrays = [decode(stored.column(field.name), kinds[field.name], field) for field in columns]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([field.with_nullable(True) for field in columns])
    )


def _checked_rows(
    draft: Draft, files: _Files, stored: pa.RecordBatch, values: pa.Array, needed: Sequence[str]
) -> pa.RecordBatch:
    rows = _declared(draft, stored)
    arrays = [values if name == files.changed.name else rows.column(name) for name in needed]
    return pa.RecordBatch.from_arrays(arrays, names=list(needed))


def _check_keys(
    draft: Draft, ctx: Context, constraints: Constraints, keys: Sequence[pa.RecordBatch]
) -> None:
    if keys and (constraints.unique or constraints.primary_key):
        rows = pa.Table.from_batches(keys)
        enforce_keys(
            draft.identifier.name, constraints, rows, rows.slice(0, 0).select, check=ctx.check
        )


def _data_files(draft: Draft) -> dict[str, Any]:
    """All data files of the state by path, as Iceberg's Java objects."""
    found: dict[str, Any] = {}
    snapshot = draft.state.snapshot
    if snapshot is None:
        return found
    tasks = draft.table.newScan().useSnapshot(snapshot.snapshot_id).planFiles()
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            file = iterator.next().file()
            found[str(file.location())] = file
    finally:
        tasks.close()
    return found
