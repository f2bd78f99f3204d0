"""Rows that move to other files: read as they are stored, with all that Iceberg knows of them.

Strategy: a row keeps its id and the number of the commit that last changed it. Both are written
beside its values, as the specification of format version 3 asks (row lineage). Rows without a
number of their own have that of the commit that added their file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, UnknownType

from sparkport.spark.iceberg.data_format import FIELD_ID
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.parquet_output import LAST_UPDATED, ROW_ID
from sparkport.spark.iceberg.part_reader import PartReader
from sparkport.spark.iceberg.plan import DataFile
from sparkport.spark.iceberg.read import ReadRequest, file_errors, join_small_batches
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.lake.changes import WrittenFile
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.data_files import DataFileWriter

__all__ = ["RESERVED_NAMES", "row_ids_at", "rows_of", "write_rows"]

RESERVED_NAMES = frozenset({ROW_ID.name, LAST_UPDATED.name})
"""Columns of files that are Iceberg's own. A table with such a column is not rewritten here."""

_UPDATED_ID = int(LAST_UPDATED.metadata[FIELD_ID])
_UPDATED = NestedField(_UPDATED_ID, LAST_UPDATED.name, LongType(), required=False)
_SMALL = 1024 * 1024
"""Bytes of a file that is read at once, with others, where each takes a request to a store."""
_AT_ONCE = 8


def rows_of(
    state: TableState, files: Sequence[DataFile], batch_rows: int, read: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """The rows of files that are not deleted: stored columns, row ids, numbers of commits.

    They are in the order of the files, and few files are joined to a batch. `read` is called with
    the size of each file after it, and may raise. Raises: PreconditionFailed when a file is missing
    or damaged.
    """
    request = _request(state, batch_rows)
    names = [*(each.name for each in _columns(state)), LAST_UPDATED.name, ROW_ID.name]
    batches = _batches(state, request, files, read)
    for batch in join_small_batches(batches, batch_rows):
        yield pa.RecordBatch.from_arrays(batch.columns, names=names)


def row_ids_at(state: TableState, file: DataFile, positions: pa.Array) -> pa.Array:
    """The ids of rows at ascending positions of a file, deleted or not. Raises: as `rows_of`."""
    request = replace(_request(state, 131_072), columns=pa.schema([]), field_ids=(), wanted=())
    with file_errors(str(state.identifier)):
        found = list(PartReader(request).read_at(file.part, positions))
    return pa.concat_arrays([each.column(0) for each in found if each is not None])


def write_rows(
    state: TableState, staging: Staging, batches: Iterator[pa.RecordBatch]
) -> list[WrittenFile]:
    """New data files with rows of `rows_of`. Raises: NotWritable; LimitExceeded when the storage is
    full; PermissionDenied, PreconditionFailed; what `batches` raises.
    """
    writer = DataFileWriter(state, staging, with_row_ids=True)
    try:
        with closing(batches):  # type: ignore[type-var]  # they are generators
            for batch in batches:
                writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def _columns(state: TableState) -> list[NestedField]:
    """The columns that files have."""
    return [each for each in state.schema.fields if not isinstance(each.field_type, UnknownType)]


def _request(state: TableState, batch_rows: int) -> ReadRequest:
    """What is read: columns under their ids, so that no name is in the way of the row id's."""
    columns = [*_columns(state), _UPDATED]
    names = [str(each.field_id) for each in columns]
    return ReadRequest(
        table=str(state.identifier),
        schema_json=Schema(*columns).model_dump_json(),
        columns=pa.schema(
            [
                pa.field(name, natural_type(each.field_type))
                for name, each in zip(names, columns, strict=True)
            ]
        ),
        field_ids=tuple(each.field_id for each in columns),
        wanted=tuple(names),
        wants_row_id=True,
        has_row_ids=True,
        batch_rows=batch_rows,
        properties=dict(state.file_properties),
        name_mapping=state.metadata.properties.get("schema.name-mapping.default"),
    )


def _batches(
    state: TableState,
    request: ReadRequest,
    files: Sequence[DataFile],
    read: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Small files of a store are read several at a time, as each takes a request."""
    properties = request.properties
    is_near = all(storage_at(each.part.path, properties).is_local for each in files)
    step = 1 if is_near else _AT_ONCE
    with ThreadPoolExecutor(step, "sparkport-care") as threads:
        for start in range(0, len(files), step):
            some = files[start : start + step]
            if len(some) > 1 and all(each.entry.size <= _SMALL for each in some):
                for batches in threads.map(lambda file: list(_batches_of(request, file)), some):
                    yield from batches
                read(sum(each.entry.size for each in some))
                continue
            for file in some:
                for batch in _batches_of(request, file):
                    yield batch
                    read(0)
                read(file.entry.size)


def _batches_of(request: ReadRequest, file: DataFile) -> Iterator[pa.RecordBatch]:
    number = file.entry.sequence_number
    # What a file lacks is read from the values of its partition.
    part = replace(file.part, partition=(*file.part.partition, (_UPDATED_ID, number)))
    place = len(request.wanted) - 1
    with closing(PartReader(request).read_by_arrow(part)) as batches:
        while True:
            with file_errors(request.table):
                batch = next(batches, _END)
            if batch is _END:
                return
            assert isinstance(batch, pa.RecordBatch)
            if batch.num_rows:
                updated = batch.column(place)
                if updated.null_count:
                    name = batch.schema.names[place]
                    batch = batch.set_column(place, name, updated.fill_null(number))
                yield batch


_END = object()
