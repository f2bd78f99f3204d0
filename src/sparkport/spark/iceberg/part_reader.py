"""Reads data files one after the other for one request: which row groups, columns and rows.

Strategy: there are two lots of columns. Those of the filter are read first and give a mask. The
others are read only from row groups in which a row matches, and decoded only for the matching rows.
Without a filter there is only the second lot. Local files are read by DuckDB where a filter has
something for it to compare (`filtered_files.py`).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from sparkport.catalog.filters import ROWID
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.databases import Check
from sparkport.engine.filters import Evaluator
from sparkport.spark.iceberg.conditions import Condition
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.deletes import DeletedPositions, deleted_positions
from sparkport.spark.iceberg.file_reader import FileReader, without_columns
from sparkport.spark.iceberg.filtered_files import FileQuery, FilteredFiles, query_of
from sparkport.spark.iceberg.layouts import Layout, layout_of
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.lots import Lot, ReadColumn
from sparkport.spark.iceberg.pages import Span
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.pruning import condition_of, prunable_columns
from sparkport.spark.iceberg.types.declared import needs_decoding

if TYPE_CHECKING:
    from sparkport.spark.iceberg.read import ReadRequest

__all__ = ["PartReader"]

_MANY_ROWS = 65_536
_MANY_FILES = 16
"""From so many rows or files on, DuckDB's planning of a query is worth its milliseconds."""
_AT_ONCE = 2048
"""Files that DuckDB reads with one query."""

_Reading: TypeAlias = "Generator[pa.RecordBatch | None, None, None]"


class PartReader:
    """Reads parts for one request. For one thread."""

    def __init__(
        self, request: ReadRequest, check: Check | None = None, *, use_threads: bool = False
    ) -> None:
        """`check` ends the evaluation of the filter by raising. Another thread calls it."""
        self._properties = request.properties
        self._check = check
        self.folder = request.folder
        self.spans: dict[tuple[str, int], list[Span] | None] = {}
        """What is known of the pages of row groups: the rows that may match, if they are few."""
        self.name_mapping = request.name_mapping
        self.batch_rows = request.batch_rows
        self.use_threads = use_threads
        stored = _stored_fields(request.schema_json)
        columns = {
            declared.name: ReadColumn(
                stored[field_id], declared, needs_decoding(stored[field_id].field_type, declared)
            )
            for field_id, declared in zip(request.field_ids, request.columns, strict=True)
        }
        self.filtered = Lot((), False)
        self.evaluator: Evaluator | None = None
        self.matches_nothing = False
        self.condition: Condition | None = None
        if request.filter is not None:
            kinds = {field_id: stored[field_id].field_type for field_id in request.field_ids}
            self.condition = condition_of(
                request.filter,
                prunable_columns(
                    request.columns, request.field_ids, kinds, has_row_ids=request.has_row_ids
                ),
            )
            names = request.filter.columns
            lot = Lot(
                tuple(column for name, column in columns.items() if name in names),
                request.has_row_ids and ROWID in names,
            )
            evaluator = Evaluator(
                request.filter, lot.arrow_schema, ROWID_NAME if lot.has_row_id else None, check
            )
            if evaluator.conditions and lot:
                self.evaluator, self.filtered = evaluator, lot
            elif evaluator.conditions:
                # A filter without columns gives the same for all rows. It is evaluated once here,
                # because a batch without columns cannot say how many rows it has.
                mask = evaluator.mask(without_columns(1))
                self.matches_nothing = mask is not None and not mask.true_count
        wanted = Lot(tuple(columns[name] for name in request.wanted), request.wants_row_id)
        self.rest = Lot(
            tuple(column for column in wanted.columns if column not in self.filtered.columns),
            wanted.has_row_id and not self.filtered.has_row_id,
        )
        self.wanted = wanted
        self.wanted_and_filtered = Lot(
            (*self.filtered.columns, *self.rest.columns),
            wanted.has_row_id or self.filtered.has_row_id,
        )
        self.arrow_schema = wanted.arrow_schema

    def read(self, parts: Sequence[FilePart]) -> Iterator[_Reading]:
        """The rows of parts, in several readings to be read one after the other; None where nothing
        matched, so that the caller can stop.

        The readings raise OSError, ValueError, ArrowException for files that are missing or
        damaged.
        """
        if self.matches_nothing:
            return
        if not self._is_for_duckdb(parts):
            yield from map(self.read_by_arrow, parts)
            return
        for start in range(0, len(parts), _AT_ONCE):
            together: dict[Layout, list[FilePart]] = {}
            queries: dict[Layout, FileQuery | None] = {}
            some = parts[start : start + _AT_ONCE]
            for part, layout in zip(some, self._layouts(some), strict=True):
                if layout is not None and layout not in queries:
                    queries[layout] = query_of(self, part, layout)
                query = None if layout is None else queries[layout]
                if layout is None or query is None or self._reads_few_pages(part):
                    yield self.read_by_arrow(part)
                elif part.row_groups is not None:
                    yield FilteredFiles(self, query, [part], self._check).read()
                else:
                    together.setdefault(layout, []).append(part)
            for layout, alike in together.items():
                found = queries[layout]
                assert found is not None
                yield FilteredFiles(self, found, alike, self._check).read()

    def _is_for_duckdb(self, parts: Sequence[FilePart]) -> bool:
        return (
            self.folder is not None
            and self.evaluator is not None
            and any(condition.is_plain for condition in self.evaluator.conditions)
            and (len(parts) >= _MANY_FILES or sum(part.rows for part in parts) >= _MANY_ROWS)
        )

    def _layouts(self, parts: Sequence[FilePart]) -> list[Layout | None]:
        """The layouts of files that DuckDB may read. Opening files is most of that."""
        cores = os.cpu_count() or 1
        if not self.use_threads or len(parts) < _MANY_FILES:
            return list(map(self._layout, parts))
        each = -(-len(parts) // cores)
        shares = [parts[start : start + each] for start in range(0, len(parts), each)]
        with ThreadPoolExecutor(cores, "sparkport-layouts") as threads:
            found = threads.map(lambda share: list(map(self._layout, share)), shares)
            return [layout for share in found for layout in share]

    def _layout(self, part: FilePart) -> Layout | None:
        """The layout of a file that DuckDB may read."""
        path = local_path(part.path)
        if self.folder is None or path is None or not path.startswith(self.folder):
            return None
        try:
            return layout_of(part, self.name_mapping)
        except (OSError, ValueError, pa.ArrowException):
            return None  # Arrow will say what is wrong with it

    def _reads_few_pages(self, part: FilePart) -> bool:
        """Whether Arrow reads a file more quickly than DuckDB, because it reads only few pages."""
        if self.condition is None or part.rows < _MANY_ROWS:
            return False
        try:
            with DataFile(part.path, self._properties, part.size) as file:
                return FileReader(self, part, None, file).reads_few_pages()
        except (OSError, ValueError, pa.ArrowException):
            return True  # Arrow will say what is wrong with it

    def read_by_arrow(self, part: FilePart, done: int = 0) -> _Reading:
        """The rows of a part; None where nothing matched. With a filter, the first rows may have
        been read before: those before position `done` are left out.

        Raises: OSError, ValueError, ArrowException for files that are missing or damaged.
        """
        deleted = self.deleted(part)
        if self._needs_file(part):
            with DataFile(part.path, self._properties, part.size) as file:
                yield from FileReader(self, part, deleted, file, done).read()
        else:
            yield from FileReader(self, part, deleted, None, done).read()

    def deleted(self, part: FilePart) -> DeletedPositions | None:
        """Raises: OSError, ValueError, ArrowInvalid for damaged files."""
        return deleted_positions(part, self._properties)

    def matching(self, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
        """The rows of `wanted_and_filtered` that the filter keeps, in the wanted columns."""
        assert self.evaluator is not None
        names = self.wanted_and_filtered.arrow_schema.names
        columns = dict(zip(names, arrays, strict=True))
        seen = [columns[name] for name in self.filtered.arrow_schema.names]
        mask = self.evaluator.mask(
            pa.RecordBatch.from_arrays(seen, schema=self.filtered.arrow_schema)
        )
        batch = self.batch([columns[name] for name in self.arrow_schema.names], rows)
        return batch if mask is None else batch.filter(mask)

    def batch(self, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of the wanted columns."""
        if not arrays:
            return without_columns(rows)  # no column is wanted, only the number of rows
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def read_at(
        self, part: FilePart, positions: pa.Array
    ) -> Generator[pa.RecordBatch | None, None, None]:
        """The rows at ascending positions of a whole file, deleted or not.

        The request has no filter. Raises: OSError, ValueError, ArrowException for files that are
        missing or damaged.
        """
        if self._needs_file(part):
            with DataFile(part.path, self._properties, part.size) as file:
                yield from FileReader(self, part, None, file).read_at(positions)
        else:
            yield from FileReader(self, part, None, None).read_at(positions)

    def _needs_file(self, part: FilePart) -> bool:
        """Whether the file must be opened: row counts and row ids by position do without."""
        if self.filtered.columns or self.rest.columns or part.row_groups is not None:
            return True
        return part.may_hold_row_ids and (self.filtered.has_row_id or self.rest.has_row_id)


@lru_cache(maxsize=256)
def _stored_fields(schema_json: str) -> Mapping[int, NestedField]:
    """The columns of a schema by their ids."""
    return {each.field_id: each for each in Schema.model_validate_json(schema_json).fields}
