"""Tables that offer the contracts' forms of writing, each only those that its name says, and note
how they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    ConstrainedTable,
    Constraints,
    Context,
    DeletableBatchTable,
    DeletableTable,
    DMLOptions,
    DMLResult,
    InsertableTable,
    RecordReader,
    ScanOptions,
    Table,
    UpdatableBatchTable,
    UpdatableTable,
    find_rowid_column,
    rowid_field,
)
from sparkport.errors import NotFound

COLUMNS = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])


@dataclass(frozen=True)
class Called:
    """One call of a table: the method, the ids, the columns and rows it was given, and its
    options.
    """

    method: str
    row_ids: list[Any] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    options: DMLOptions = field(default_factory=DMLOptions)


class Reader:
    """A reader that notes whether it was read to its end, and closed."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches
        self.consumed = False
        self.closed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches
        self.consumed = True

    def close(self) -> None:
        self.closed = True


class WrittenTable(Table):
    """Rows in a dictionary by row id. What it can do is in the classes below."""

    def __init__(
        self,
        name: str = "t",
        rows: Sequence[dict[str, Any]] = (
            {"a": 1, "b": "x"},
            {"a": 2, "b": "y"},
            {"a": 3, "b": "z"},
        ),
        *,
        columns: pa.Schema = COLUMNS,
        row_id: pa.Field | None = None,
        position: int | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        """`row_id` None publishes `rowid` as int64; its `position` among the columns is at their
        end.
        """
        self._name = name
        self._columns = columns
        self._row_id = row_id or rowid_field()
        at = len(columns) if position is None else position
        self._arrow_schema = columns.insert(at, self._row_id)
        self.stored = {index + 10: dict(row) for index, row in enumerate(rows)}
        self.declared = constraints or Constraints()
        self.calls: list[Called] = []
        self.given: list[RecordReader] = []
        self.returned: list[Reader] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        return [self._batch(self.stored)]

    # What the methods of the capabilities do.

    def inserted(self, rows: RecordReader, options: DMLOptions) -> DMLResult:
        batches = self._take(rows)
        self.calls.append(Called("insert", [], batches[0].schema.names, _dicts(batches), options))
        first = max(self.stored, default=9) + 1
        new = {first + index: row for index, row in enumerate(_dicts(batches))}
        self.stored |= new
        return self._result(new, options)

    def updated(
        self, method: str, ids: Sequence[Any], batches: list[pa.RecordBatch], options: DMLOptions
    ) -> DMLResult:
        rows = _dicts(batches)
        self.calls.append(Called(method, list(ids), batches[0].schema.names, rows, options))
        self._expect(ids)
        changed = {}
        for row_id, row in zip(ids, rows, strict=True):
            known = {key: value for key, value in row.items() if key != self._row_id.name}
            self.stored[row_id] = changed[row_id] = self.stored[row_id] | known
        return self._result(changed, options)

    def deleted(
        self, method: str, ids: Sequence[Any], columns: list[str], options: DMLOptions
    ) -> DMLResult:
        self.calls.append(Called(method, list(ids), columns, [], options))
        self._expect(ids)
        return self._result({row_id: self.stored.pop(row_id) for row_id in ids}, options)

    def _take(self, rows: RecordReader) -> list[pa.RecordBatch]:
        self.given.append(rows)
        return list(rows)

    def _expect(self, ids: Sequence[Any]) -> None:
        for row_id in ids:
            if row_id not in self.stored:
                raise NotFound(f"row id {row_id} does not exist in table {self._name}")

    def _result(self, rows: dict[Any, dict[str, Any]], options: DMLOptions) -> DMLResult:
        if not options.returning:
            return DMLResult(len(rows))
        self.returned.append(Reader([self._batch(rows)]))
        return DMLResult(len(rows), self.returned[-1])

    def _batch(self, rows: dict[Any, dict[str, Any]]) -> pa.RecordBatch:
        listed = [{**row, self._row_id.name: row_id} for row_id, row in rows.items()]
        return pa.RecordBatch.from_pylist(listed, schema=self._arrow_schema)


class Inserts(WrittenTable, InsertableTable):
    def insert(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        return self.inserted(rows, options)


class Updates(WrittenTable, UpdatableTable):
    def update(
        self, ctx: Context, row_ids: Sequence[int], rows: RecordReader, options: DMLOptions
    ) -> DMLResult:
        return self.updated("update", row_ids, self._take(rows), options)


class UpdatesBatches(WrittenTable, UpdatableBatchTable):
    def update_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        batches = self._take(rows)
        return self.updated("update_batch", _row_ids(batches), batches, options)


class Deletes(WrittenTable, DeletableTable):
    def delete(self, ctx: Context, row_ids: Sequence[int], options: DMLOptions) -> DMLResult:
        return self.deleted("delete", row_ids, [], options)


class DeletesBatches(WrittenTable, DeletableBatchTable):
    def delete_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        batches = self._take(rows)
        return self.deleted("delete_batch", _row_ids(batches), batches[0].schema.names, options)


class BothUpdates(Updates, UpdatesBatches):
    pass


class BothDeletes(Deletes, DeletesBatches):
    pass


class AllFour(BothUpdates, BothDeletes):
    pass


class Everything(AllFour, Inserts):
    pass


class RowIdForms(Inserts, Updates, Deletes):
    """Everything, in the forms with row ids."""


class ConstrainedRowIdForms(RowIdForms, ConstrainedTable):
    @property
    def constraints(self) -> Constraints:
        return self.declared


class ConstrainedBatchForms(Inserts, UpdatesBatches, DeletesBatches, ConstrainedTable):
    @property
    def constraints(self) -> Constraints:
        return self.declared


def _row_ids(batches: Sequence[pa.RecordBatch]) -> list[Any]:
    ids: list[Any] = []
    for batch in batches:
        index = find_rowid_column(batch.schema)
        assert index is not None
        ids.extend(batch.column(index).to_pylist())
    return ids


def _dicts(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
