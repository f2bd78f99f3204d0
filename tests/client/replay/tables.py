"""Tables like those of the recording server: odd row ids, points of failure, a slow scan."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    DeletableBatchTable,
    DMLOptions,
    DMLResult,
    InsertableTable,
    Operation,
    RecordReader,
    ScanOptions,
    StagedWrite,
    Table,
    UpdatableBatchTable,
)
from sparkport.errors import NotFound, SparkportError
from sparkport.memory import MemoryTable

ROWID = {b"is_rowid": b"1"}


class KeyedTable(InsertableTable, UpdatableBatchTable, DeletableBatchTable):
    """Rows under keys of any type; `schema` has the row id field at any place, or none."""

    def __init__(self, name: str, schema: pa.Schema, key: Callable[[int], Any] = int) -> None:
        self._name = name
        self._schema = schema
        self._rowid = next((f.name for f in schema if (f.metadata or {}).get(b"is_rowid")), None)
        self._key = key
        self._numbers = itertools.count()
        self._rows: dict[Any, dict[str, Any]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        with self._lock:
            return [self._batch(self._rows)]

    def insert(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        with self._lock:
            added = {
                self._key(next(self._numbers)): row for batch in rows for row in batch.to_pylist()
            }
            self._rows = {**self._rows, **added}
            return self._result(added, options)

    def update_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        with self._lock:
            changed = {}
            for row in (row for batch in rows for row in batch.to_pylist()):
                key = row.pop(self._rowid)
                changed[key] = {**self._found(key), **row}
            self._rows = {**self._rows, **changed}
            return self._result(changed, options)

    def delete_batch(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        with self._lock:
            keys = [key for batch in rows for key in batch.column(self._rowid).to_pylist()]
            gone = {key: self._found(key) for key in keys}
            self._rows = {key: row for key, row in self._rows.items() if key not in gone}
            return self._result(gone, options)

    def _found(self, key: Any) -> dict[str, Any]:
        if key not in self._rows:
            raise NotFound(f"row id {key!r} does not exist")
        return self._rows[key]

    def _result(self, rows: dict[Any, dict[str, Any]], options: DMLOptions) -> DMLResult:
        return DMLResult(len(rows), [self._batch(rows)] if options.returning else None)

    def _batch(self, rows: dict[Any, dict[str, Any]]) -> pa.RecordBatch:
        keyed = [
            {**row, **({self._rowid: key} if self._rowid else {})} for key, row in rows.items()
        ]
        return pa.RecordBatch.from_pylist(keyed, self._schema)


def keyed_table(name: str, columns: pa.Schema) -> Table:
    """The variants of the scenarios, by the names of their tables."""
    fields = list(columns)
    if name == "rid_first":
        return KeyedTable(name, pa.schema([pa.field("rowid", pa.int64(), metadata=ROWID), *fields]))
    if name == "rid_named":
        return KeyedTable(
            name, pa.schema([*fields, pa.field("my_row_id", pa.int64(), metadata=ROWID)])
        )
    if name == "rid_str":
        return KeyedTable(
            name, pa.schema([*fields, pa.field("rowid", pa.string(), metadata=ROWID)]), "r{}".format
        )
    if name == "rid_notnull":
        return KeyedTable(name, pa.schema([*fields, pa.field("rowid", pa.int64(), False, ROWID)]))
    return KeyedTable(name, columns)


class FailingTable(MemoryTable):
    """Fails when a statement starts, at its batch of that number (from 1), or at its commit."""

    def __init__(
        self, name: str, data: pa.Table, point: str | int, error: SparkportError | Exception
    ) -> None:
        super().__init__(name, data)
        self.point = point
        self.error = error

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        if self.point == "start":
            raise self.error
        return FailingWrite(super().stage(ctx, operation, options), self.point, self.error)


class FailingWrite(StagedWrite):
    """Fails at its batch of that number, or at its commit, after which nothing is left of it."""

    def __init__(self, inner: StagedWrite, point: str | int, error: Exception) -> None:
        self._inner = inner
        self._point = point
        self._error = error
        self._batches = 0

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        self._batches += 1
        if self._point == self._batches:
            raise self._error
        return self._inner.apply(batch)

    def commit(self) -> int:
        if self._point == "end":
            self._inner.abort()
            raise self._error
        return self._inner.commit()

    def abort(self) -> None:
        self._inner.abort()


class SlowTable(Table):
    """Yields ten rows at a time, with a pause after each ten, until the reader is closed."""

    def __init__(self, name: str, columns: pa.Schema) -> None:
        self._name = name
        self._columns = columns
        self.stopped = threading.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._columns

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        try:
            for number in itertools.count():
                yield pa.RecordBatch.from_pylist(
                    [{"id": number, "name": f"v{number}"}] * 10, self._columns
                )
                if ctx.cancellation.wait(0.005):
                    return
        finally:
            self.stopped.set()


class WatchedTable(MemoryTable):
    """Tells how statements end, and lets their commits wait."""

    def __init__(self, name: str, data: pa.Table | pa.Schema) -> None:
        super().__init__(name, data)
        self.applied = threading.Semaphore(0)
        """Released once for each batch."""
        self.aborted = threading.Event()
        self.committed = threading.Event()
        self.committing = threading.Event()
        self.may_commit = threading.Event()
        self.may_commit.set()

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        return _Watched(super().stage(ctx, operation, options), self)


class _Watched(StagedWrite):
    def __init__(self, inner: StagedWrite, table: WatchedTable) -> None:
        self._inner = inner
        self._table = table

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        returned = self._inner.apply(batch)
        self._table.applied.release()
        return returned

    def commit(self) -> int:
        self._table.committing.set()
        assert self._table.may_commit.wait(20)
        changed = self._inner.commit()
        self._table.committed.set()
        return changed

    def abort(self) -> None:
        self._inner.abort()
        self._table.aborted.set()
