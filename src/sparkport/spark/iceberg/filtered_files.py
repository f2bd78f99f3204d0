"""Reads local files with a filter by DuckDB, which is the quicker reader where a filter leaves few
rows: it decodes dictionaries once, and the other columns only where a row matches.

Strategy: files of one layout are read together, by all threads that DuckDB has. DuckDB applies the
conjuncts that are plain comparisons of the files' own columns, and returns the files' columns with
the place of each row. All else happens in Arrow as for every other file: defaults, promoted and
declared types, row ids, deleted rows, and the conjuncts that are left.

Where DuckDB fails, Arrow reads on from the row after the last one. So a file that DuckDB does not
like costs time, and no rows.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog.filters.literals import quote_identifier
from sparkport.engine.databases import Check, files_below
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.deletes import DeletedPositions
from sparkport.spark.iceberg.layouts import Layout
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.lots import Lot, LotInFile, ReadColumn
from sparkport.spark.iceberg.parts import FilePart

if TYPE_CHECKING:
    from sparkport.engine.filters.evaluate import Condition
    from sparkport.spark.iceberg.part_reader import PartReader

__all__ = ["FileQuery", "FilteredFiles", "in_equal_batches", "query_of"]

_log = logging.getLogger(__name__)

_FETCHED_ROWS = 131_072
_OPTIONS = "can_have_nan = true, hive_partitioning = false, union_by_name = false"
"""Bounds in Parquet leave NaN out. Names of folders are not columns."""


@dataclass(frozen=True, slots=True)
class FileQuery:
    """What DuckDB reads from files of one layout."""

    layout: Layout
    found: LotInFile
    """Where the columns are that are read. Partition values in it are those of one of the files."""
    columns: str
    """The SQL of the files' columns as r0, r1, …, and of those in the conditions as c0, c1, …"""
    conditions: str
    is_exact: bool
    """Whether the conditions are the whole filter."""


def query_of(reader: PartReader, part: FilePart, layout: Layout) -> FileQuery | None:
    """How DuckDB reads files of a layout; None where it should not."""
    assert reader.evaluator is not None
    conditions = reader.evaluator.conditions
    in_files = _columns_in_files(reader.filtered, layout)
    applied = [each for each in conditions if _applies(each, in_files)]
    if not applied:
        return None
    is_exact = len(applied) == len(conditions)
    lot = reader.wanted if is_exact else reader.wanted_and_filtered
    found = LotInFile.of(lot, part, layout.fields)
    if not all(layout.plain[position] for position in found.fields):
        return None
    columns = [
        f"{quote_identifier(layout.names[position])} AS r{number}"
        for number, position in enumerate(found.fields)
    ]
    named = {name: field for each in applied for name, field in each.columns.items()}
    columns += [f"{in_files[field]} AS {name}" for name, field in named.items()]
    return FileQuery(
        layout,
        found,
        ", ".join(columns),
        " AND ".join(each.text for each in applied),
        is_exact,
    )


def _columns_in_files(filtered: Lot, layout: Layout) -> dict[str, str]:
    """The SQL of the columns of a filter that DuckDB sees in the files as the filter means them."""
    positions = {field.field_id: position for position, field in enumerate(layout.fields)}
    found = {}
    for column in filtered.columns:
        position = positions.get(column.stored.field_id)
        if position is None or column.decodes or not layout.plain[position]:
            continue
        name = quote_identifier(layout.names[position])
        kind = layout.fields[position].type
        if kind.equals(column.declared.type):
            found[column.declared.name] = name
        elif _is_promoted(column, kind):
            found[column.declared.name] = f"CAST({name} AS BIGINT)"
    return found


def _is_promoted(column: ReadColumn, kind: pa.DataType) -> bool:
    return bool(pa.types.is_int32(kind) and pa.types.is_int64(column.declared.type))


def _applies(condition: Condition, in_files: dict[str, str]) -> bool:
    return condition.is_plain and all(field in in_files for field in condition.columns.values())


class FilteredFiles:
    """Reads files of one layout for one request. For one thread."""

    def __init__(
        self, reader: PartReader, query: FileQuery, parts: Sequence[FilePart], check: Check | None
    ) -> None:
        self._reader = reader
        self._query = query
        self._parts = parts
        self._check = check
        self._next = (0, 0)
        """The file and the position after the last row that was read."""
        self._found: dict[int, tuple[LotInFile, DeletedPositions | None]] = {}

    def read(self) -> Generator[pa.RecordBatch | None, None, None]:
        """The rows in the order of files and positions; None now and then.

        Raises: OSError, ValueError, ArrowException for files that are missing or damaged.
        """
        if self._reader.use_threads:
            yield from self._read()
        else:  # a task of Spark, which may be tried again
            yield from in_equal_batches(self._read(), self._reader.batch_rows)

    def _read(self) -> Iterator[pa.RecordBatch | None]:
        try:
            for batch in self._by_duckdb():
                yield from self._pieces(batch)
            return
        except Exception:  # noqa: BLE001 - whatever it is, Arrow reads on, or says what is wrong
            _log.debug("DuckDB could not read files of a table", exc_info=True)
            self._database.forget()
        yield None  # so that the caller notices if nobody waits any more
        index, position = self._next
        for number, part in enumerate(self._parts[index:]):
            yield from self._reader.read_by_arrow(part, 0 if number else position)

    def _by_duckdb(self) -> Iterator[pa.RecordBatch]:
        """The place and the columns of the rows that the conditions keep."""
        database, query = self._database, self._query
        text = (
            f"SELECT i, p{''.join(f', r{number}' for number in range(len(query.found.fields)))} "
            f"FROM (SELECT file_index AS i, file_row_number AS p, {query.columns} "
            f"FROM read_parquet([{', '.join(map(_path_sql, self._parts))}], {_OPTIONS})) "
            f"WHERE {query.conditions}{self._range()}"
        )
        cursor = database.cursor()
        try:
            with database.watched(cursor, self._check):
                relation: Any = cursor.sql(text)
                # DuckDB 2 has a new name for it.
                stream = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
                batches = stream(_FETCHED_ROWS)
            kinds = [query.layout.fields[position].type for position in query.found.fields]
            if batches.schema.types[2:] != kinds:
                raise ValueError(f"DuckDB reads other types: {batches.schema.types[2:]}")
            while True:
                with database.watched(cursor, self._check):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            cursor.close()

    @property
    def _database(self) -> Any:
        assert self._reader.folder is not None
        threads = (os.cpu_count() or 1) if self._reader.use_threads else 1
        return files_below(self._reader.folder, threads)

    def _range(self) -> str:
        """The condition for the row groups of a part of a file, which is alone in its query."""
        part = self._parts[0]
        if part.row_groups is None:
            return ""
        first, end = part.row_groups
        with DataFile(part.path, {}, part.size) as file:
            rows = [
                file.metadata.row_group(index).num_rows
                for index in range(file.metadata.num_row_groups)
            ]
        start = sum(rows[:first])
        return f" AND p >= {start} AND p < {start + sum(rows[first:end])}"

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | None]:
        """The rows of a batch, file by file, in the request's columns."""
        runs = pc.run_end_encode(batch.column(0))
        start = 0
        for end, value in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield self._piece(int(value), batch.slice(start, end - start))
            self._next = int(value), batch.column(1)[end - 1].as_py() + 1
            start = end

    def _piece(self, index: int, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        part = self._parts[index]
        if index not in self._found:
            found = LotInFile.of(self._query.found.lot, part, self._query.layout.fields)
            self._found = {index: (found, self._reader.deleted(part))}
        found, deleted = self._found[index]
        positions = rows.column(1)
        if deleted is not None:
            mask = deleted.kept_of(positions)
            rows, positions = rows.filter(mask), positions.filter(mask)
        if not rows.num_rows:
            return None
        raw = rows.select(range(2, rows.num_columns)) if found.fields else None
        arrays = found.arrays(part, raw, positions)
        if self._query.is_exact:
            return self._reader.batch(arrays, rows.num_rows)
        return self._reader.matching(arrays, rows.num_rows)


def _path_sql(part: FilePart) -> str:
    path = local_path(part.path) or ""
    return "'" + path.replace("'", "''") + "'"


def in_equal_batches(
    batches: Iterator[pa.RecordBatch | None], batch_rows: int
) -> Iterator[pa.RecordBatch | None]:
    """The same rows in batches of so many, so that they do not depend on how they were read.

    Spark's tasks count the batches that they have sent before.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch is None or not batch.num_rows:
            yield None
            continue
        while rows + batch.num_rows >= batch_rows:
            taken = batch_rows - rows
            yield _joined([*waiting, batch.slice(0, taken)])
            batch, waiting, rows = batch.slice(taken), [], 0
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
