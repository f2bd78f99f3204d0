"""Rows by their ids, or by the places that were found for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog.rowid import ROWID_NAME, rowid_field
from sparkport.errors import NotFound
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.positional_read import MOST_ROWS
from sparkport.spark.iceberg.read import ReadRequest, gathered, read_positions, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.write.locate import Located, locate

__all__ = ["rows_of", "take_rows"]

_MANY = 100_000
"""Rows that are worth more than one thread."""


def rows_of(
    state: TableState,
    located: Sequence[Located],
    columns: Sequence[str] | None,
    *,
    stored: bool = False,
    batch_rows: int = 131_072,
    properties: Mapping[str, str],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """The rows at those places, file by file in the order of positions, with `rowid` last;
    `columns` None means all.

    With `stored`, values are not of the declared types but as they are stored (`natural_type`).

    Raises: PreconditionFailed when a file is missing or damaged; what `check` raises.
    """
    return _read(_request(state, columns, batch_rows, properties, stored=stored), located, check)


def take_rows(
    state: TableState,
    row_ids: pa.Array,
    columns: Sequence[str] | None,
    *,
    stored: bool = False,
    properties: Mapping[str, str],
    check: Callable[[], None],
) -> pa.Table:
    """The rows of these ids in their order, which may be any, with `rowid` last; an id may come
    more than once.

    Raises: NotFound; Unsupported where only Spark can read the files; PreconditionFailed when one
    is damaged.
    """
    location = locate(state, row_ids.unique().sort(), properties)
    if len(location.missing):
        raise NotFound(
            f"row id {location.missing[0].as_py()} does not exist in table {state.identifier}"
        )
    request = _request(state, columns, max(len(row_ids), 1), properties, stored=stored)
    fields = [request.columns.field(name) for name in request.wanted]
    batches = _read(request, location.found, check)
    rows = pa.Table.from_batches(batches, pa.schema([*fields, rowid_field()])).combine_chunks()
    found = rows.column(ROWID_NAME)
    if found.equals(pa.chunked_array([row_ids])):
        return rows
    return rows.take(pc.index_in(row_ids, value_set=found))


def _read(
    request: ReadRequest, located: Sequence[Located], check: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    places = [(each.part, each.positions) for each in located]
    rows = sum(len(positions) for _, positions in places)
    if len(places) < 2 or rows > MOST_ROWS * len(places):
        yield from read_positions(request, places, check, use_threads=rows >= _MANY)
        return

    def read(place: tuple[FilePart, pa.Array]) -> list[pa.RecordBatch]:
        return list(read_positions(request, [place], check))

    # The work is in finding them, file by file.
    with ThreadPoolExecutor(
        min(len(places), os.cpu_count() or 1), thread_name_prefix="sparkport-rows"
    ) as threads:
        yield from gathered(chain.from_iterable(threads.map(read, places)), request.batch_rows)


def _request(
    state: TableState,
    columns: Sequence[str] | None,
    batch_rows: int,
    properties: Mapping[str, str],
    *,
    stored: bool,
) -> ReadRequest:
    names = state.definition.columns.names if columns is None else columns
    wanted = [*(name for name in names if name != ROWID_NAME), ROWID_NAME]
    request = read_request(state, wanted, batch_rows=batch_rows, properties=properties)
    if not stored:
        return request
    kinds = {each.field_id: each.field_type for each in state.schema.fields}
    fields = [
        pa.field(field.name, natural_type(kinds[field_id]))
        for field_id, field in zip(request.field_ids, request.columns, strict=True)
    ]
    return replace(request, columns=pa.schema(fields))
