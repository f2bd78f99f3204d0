"""Read rows by their ids, or by the places that were found for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sparkport.catalog.rowid import ROWID_NAME, rowid_field
from sparkport.errors import NotFound
from sparkport.spark.iceberg.pages import MOST_ROWS
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.positions import array_of, bitmap_of
from sparkport.spark.iceberg.read import (
    ReadRequest,
    join_small_batches,
    read_positions,
    read_request,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.lake.changes import NO_ROWS, Located, Location
from sparkport.spark.write.locate import divided, locate

__all__ = ["RowLookup", "rows_of"]

_MANY = 100_000
"""Rows for which several threads are worth while."""


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
    """Read the rows at those places, file by file in the order of positions, with `rowid` last.

    `columns` None means all. With `stored`, values have their stored types (`natural_type`), not
    the declared ones. Raises: PreconditionFailed when a file is missing or damaged; what `check`
    raises.
    """
    return _read(_request(state, columns, batch_rows, properties, stored=stored), located, check)


class RowLookup:
    """Rows of a state of a table by their ids. For one thread.

    Each row is located once, and its place remembered.
    """

    def __init__(
        self, state: TableState, properties: Mapping[str, str], check: Callable[[], None]
    ) -> None:
        self._state = state
        self._properties = properties
        self._check = check
        self._known = BitMap64()
        self._found: list[Located] = []

    def locate(self, row_ids: pa.Array) -> Location:
        """Where the rows with these ids are; the ids ascend and are distinct.

        Raises: NotFound; Unsupported where only Spark can read the files; PreconditionFailed when
        files are missing or damaged.
        """
        if len(row_ids) and row_ids[0].as_py() < 0:
            raise self._missing(row_ids[0])
        wanted = bitmap_of(row_ids)
        new = wanted - self._known
        if new:
            location = locate(self._state, array_of(new), self._properties)
            if len(location.missing):
                raise self._missing(location.missing[0])
            self._known |= new
            self._found += location.found
            if len(new) == len(wanted):
                return location
        (own,) = divided(Location(tuple(self._found), NO_ROWS), [row_ids])
        return Location(tuple(_joined(own.found)), NO_ROWS)

    def located(self, row_ids: pa.Array) -> Location | None:
        """Where the rows with these ids are; None when not all of them were located before."""
        return self.locate(row_ids) if bitmap_of(row_ids) <= self._known else None

    def take(self, row_ids: pa.Array, columns: Sequence[str] | None) -> pa.Table:
        """The rows with these ids, in the order of the ids, with `rowid` last.

        The ids may be in any order, and may be repeated. Raises: what `locate` raises.
        """
        location = self.locate(row_ids.unique().sort())
        request = _request(
            self._state, columns, max(len(row_ids), 1), self._properties, stored=False
        )
        fields = [request.columns.field(name) for name in request.wanted]
        batches = _read(request, location.found, self._check)
        rows = pa.Table.from_batches(batches, pa.schema([*fields, rowid_field()])).combine_chunks()
        found = rows.column(ROWID_NAME)
        if found.equals(pa.chunked_array([row_ids])):
            return rows
        return rows.take(pc.index_in(row_ids, value_set=found))

    def stored_rows(self, row_ids: pa.Array, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of the rows with these ids, as they are stored, in the order of files.

        The ids ascend and are distinct; `rowid` is the last column. Raises: what `locate` raises.
        """
        return rows_of(
            self._state,
            self.locate(row_ids).found,
            columns,
            stored=True,
            properties=self._properties,
            check=self._check,
        )

    def _missing(self, row_id: pa.Scalar) -> NotFound:
        return NotFound(f"row id {row_id.as_py()} does not exist in table {self._state.identifier}")


def _joined(located: Sequence[Located]) -> Iterator[Located]:
    """Join places of the same file, as delete vectors need them."""
    by_file: dict[str, list[Located]] = {}
    for each in located:
        by_file.setdefault(each.part.path, []).append(each)
    for parts in by_file.values():
        if len(parts) == 1:
            yield parts[0]
            continue
        positions = pa.concat_arrays([each.positions for each in parts])
        order = pc.array_sort_indices(positions)
        row_ids = pa.concat_arrays([each.row_ids for each in parts]).take(order)
        yield replace(parts[0], positions=positions.take(order), row_ids=row_ids)


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

    # Most time is spent on finding the rows in each file.
    with ThreadPoolExecutor(
        min(len(places), os.cpu_count() or 1), thread_name_prefix="sparkport-rows"
    ) as threads:
        yield from join_small_batches(
            chain.from_iterable(threads.map(read, places)), request.batch_rows
        )


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
