"""Reading data files of Iceberg tables into batches of the declared types.

Strategy: one thread reads one file after the other, so that the same request and parts give the
same batches in the same order. A Spark task that is tried again can then skip what was already
sent. The columns of the filter come first; where no row of a row group matches, nothing else of it
is read. Row ids that follow from positions cost no reading at all.

Runs in the server and in Spark's Python workers; imports neither pyspark nor grpc.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog.filters import Filter
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg.locations import local_path, reachable
from sparkport.spark.iceberg.part_reader import PartReader
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.types.natural_types import natural_type

if TYPE_CHECKING:
    from sparkport.spark.iceberg.table_state import TableState

__all__ = [
    "ReadRequest",
    "as_stored",
    "file_errors",
    "join_small_batches",
    "reachable",
    "read_parts",
    "read_positions",
    "read_request",
]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is to be read from each part. Picklable."""

    table: str
    """The table's name for messages."""
    schema_json: str
    """The Iceberg schema to read with."""
    columns: pa.Schema
    """The declared fields that are wanted or that the filter reads."""
    field_ids: tuple[int, ...]
    """The ids of the Iceberg fields of `columns`."""
    wanted: tuple[str, ...]
    """The names of the columns that are yielded, in this order."""
    wants_row_id: bool
    """Whether the row id follows them, as `rowid`."""
    has_row_ids: bool
    """Whether `rowid` in the filter is the row id, and not a column of that name."""
    filter: Filter | None = None
    batch_rows: int = 131_072
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties for PyIceberg's file systems."""
    name_mapping: str | None = None
    """The table's name mapping, for files without field ids."""
    folder: str | None = None
    """The table's folder if it is local. DuckDB may read the files in it."""


def read_request(
    state: TableState,
    columns: Sequence[str] | None,
    row_filter: Filter | None = None,
    *,
    batch_rows: int = 131_072,
    properties: Mapping[str, str] | None = None,
) -> ReadRequest:
    """What a scan of a table's state asks of the reader. Unknown column names are left out."""
    definition = state.definition
    names = definition.arrow_schema.names if columns is None else columns
    wants_row_id = definition.shows_row_id and ROWID_NAME in names
    wanted = [position for name in names if (position := definition.position(name)) is not None]
    filtered = [
        definition.position(name) for name in sorted(row_filter.columns if row_filter else ())
    ]
    read = list(
        dict.fromkeys([*wanted, *(position for position in filtered if position is not None)])
    )
    return ReadRequest(
        table=str(state.identifier),
        schema_json=state.schema.model_dump_json(),
        columns=pa.schema([definition.columns.field(position) for position in read]),
        field_ids=tuple(definition.field_ids[position] for position in read),
        wanted=tuple(definition.columns.field(position).name for position in dict.fromkeys(wanted)),
        wants_row_id=wants_row_id,
        has_row_ids=definition.shows_row_id,
        filter=row_filter if row_filter is not None and row_filter.expressions else None,
        batch_rows=batch_rows,
        properties=dict(properties or {}),
        name_mapping=state.metadata.properties.get("schema.name-mapping.default"),
        folder=_folder(state),
    )


def _folder(state: TableState) -> str | None:
    """The path of the table's folder, with a slash at the end; None where it is elsewhere."""
    path = local_path(str(state.metadata.location))
    return None if path is None else path.rstrip("/") + "/"


def as_stored(request: ReadRequest, state: TableState) -> ReadRequest:
    """The request, made to yield values of the stored types instead of the declared ones."""
    kinds = {each.field_id: each.field_type for each in state.schema.fields}
    fields = [
        pa.field(declared.name, natural_type(kinds[field_id]))
        for field_id, declared in zip(request.field_ids, request.columns, strict=True)
    ]
    return replace(request, columns=pa.schema(fields))


def read_parts(
    request: ReadRequest,
    parts: Sequence[FilePart],
    check: Callable[[], None],
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of the parts that the filter keeps, without deleted ones, in the declared types.

    The order is the same every time; without `use_threads`, so are the batches. `check` is called
    often, perhaps from another thread, and may raise to end the reading.

    Raises: PreconditionFailed when a file is missing or damaged; what `check` raises.
    """
    reader = PartReader(request, check, use_threads=use_threads)
    yield from join_small_batches(_checked(request, reader.read(parts), check), request.batch_rows)


def read_positions(
    request: ReadRequest,
    places: Sequence[tuple[FilePart, pa.Array]],
    check: Callable[[], None],
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows at ascending positions of files, deleted or not.

    The request has no filter. In all else this is like `read_parts`.
    """
    reader = PartReader(request, use_threads=use_threads)
    read = (reader.read_at(part, positions) for part, positions in places)
    yield from join_small_batches(_checked(request, read, check), request.batch_rows)


def _checked(
    request: ReadRequest,
    read: Iterable[Generator[pa.RecordBatch | None, None, None]],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    for batches in read:
        try:
            while True:
                check()  # outside of `_next`: an error of `check` is not the file's
                batch = _next(request, batches)
                if batch is _END:
                    break
                if batch is not None and batch.num_rows:
                    yield batch
        finally:
            batches.close()


_END = object()


def _next(request: ReadRequest, batches: Iterator[pa.RecordBatch | None]) -> Any:
    with file_errors(request.table):
        return next(batches, _END)


@contextmanager
def file_errors(table: str) -> Iterator[None]:
    """Translate errors of a table's files.

    Raises: PreconditionFailed when a file is missing or damaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise PreconditionFailed(
            f"a data file of table {table} is missing: it was removed from the storage by other "
            f"means than the"
            " table's own; restore it, or roll the table back to an older snapshot"
        ) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PreconditionFailed(
            f"a data file of table {table} cannot be read: it is damaged, or the storage does not "
            f"answer"
        ) from error


def join_small_batches(
    batches: Iterator[pa.RecordBatch], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Join small batches, as selective filters leave them: each costs the client a message."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows < batch_rows // 4:
            small.append(batch)
            rows += batch.num_rows
            if rows < batch_rows // 2:
                continue
            batch = None
        yield from _joined(small)
        small, rows = [], 0
        if batch is not None:
            yield batch
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowException:
        return batches  # Arrow cannot join arrays of every type
