"""A catalog that runs SQL by DuckDB, to test Flight SQL with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from tests.server.catalogs import ListedCatalog

from sparkport.catalog import (
    Context,
    RecordReader,
    SqlCatalog,
    SqlStatement,
    TransactionManager,
    TransactionState,
)
from sparkport.errors import (
    BadRequest,
    Conflict,
    ConstraintViolation,
    NotFound,
    PermissionDenied,
    SparkportError,
)

ENDLESS = "SELECT n FROM endless"
"""A query that goes on until it is cancelled."""


class DuckCatalog(ListedCatalog, SqlCatalog, TransactionManager):
    """A DuckDB in memory. A transaction is a cursor of it."""

    def __init__(self, name: str = "duck") -> None:
        super().__init__(name)
        self.database = duckdb.connect(":memory:")
        self.traces: list[tuple[str, str]] = []
        """The trace id of each analysis, and the text."""
        self.executed: list[str] = []
        self.closed = threading.Event()
        self.marker_type: pa.DataType = pa.string()
        self._lock = threading.Lock()
        self._cursors: dict[str, duckdb.DuckDBPyConnection] = {}
        self._states: dict[str, TransactionState] = {}

    def analyse_sql(
        self, ctx: Context, text: str, parameters: pa.RecordBatch | None = None
    ) -> SqlStatement:
        self.traces.append((ctx.trace_id, text))
        if "forbidden" in text:
            raise PermissionDenied("you may not read forbidden")
        if text == ENDLESS:
            return EndlessStatement(self.closed)
        return DuckStatement(self, ctx, text, parameters)

    @contextmanager
    def cursor(self, ctx: Context) -> Iterator[duckdb.DuckDBPyConnection]:
        known = self._cursors.get(ctx.transaction_id or "")
        cursor = self.database.cursor() if known is None else known
        try:
            yield cursor
        except duckdb.Error as error:
            raise typed(error) from error
        finally:
            if known is None:
                cursor.close()

    def begin_transaction(self, ctx: Context) -> str:
        with self._lock:
            own = f"t{len(self._states)}"
            self._states[own] = TransactionState.ACTIVE
            self._cursors[own] = self.database.cursor()
        self._cursors[own].begin()
        return own

    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        try:
            self._end(transaction_id, TransactionState.COMMITTED)
        except duckdb.Error as error:
            raise typed(error) from error

    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        self._end(transaction_id, TransactionState.ABORTED)

    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        return self._states.get(transaction_id)

    def _end(self, own: str, state: TransactionState) -> None:
        with self._lock:
            if self._states[own] is not TransactionState.ACTIVE:
                return
            self._states[own] = state
            cursor = self._cursors.pop(own)
        try:
            if state is TransactionState.COMMITTED:
                cursor.commit()
            else:
                cursor.rollback()
        finally:
            cursor.close()


class DuckStatement(SqlStatement):
    def __init__(
        self, catalog: DuckCatalog, ctx: Context, text: str, parameters: pa.RecordBatch | None
    ) -> None:
        self._catalog = catalog
        self._text = text
        with catalog.cursor(ctx) as cursor:
            found = cursor.extract_statements(text)
            if len(found) != 1:
                raise BadRequest("send one statement at a time")
            self._markers = len(found[0].named_parameters)
            self._values: list[list[Any]] = [[None] * self._markers]
            if parameters is not None:
                if parameters.num_columns != self._markers:
                    raise BadRequest(f"{self._markers} values are wanted")
                columns = [column.to_pylist() for column in parameters.columns]
                self._values = [list(row) for row in zip(*columns, strict=True)]
            first = self._values[0] if self._values else [None] * self._markers
            self._schema: pa.Schema | None = None
            if found[0].type == duckdb.StatementType.SELECT:
                # A subquery with LIMIT 0 would give columns of equal names other names.
                self._schema = cursor.sql(text, params=first).to_arrow_table().schema
            else:
                cursor.execute(f"EXPLAIN {text}", first).fetchall()

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return self._schema

    @property
    def parameters(self) -> pa.Schema:
        kind = self._catalog.marker_type
        return pa.schema([(str(number + 1), kind) for number in range(self._markers)])

    def rows(self, ctx: Context) -> RecordReader:
        assert self._schema is not None
        for values in self._values:
            with self._catalog.cursor(ctx) as cursor:
                rows = cursor.sql(self._text, params=values).to_arrow_table()
                yield from rows.cast(self._schema).to_batches(max_chunksize=1000)

    def execute(self, ctx: Context) -> int:
        self._catalog.executed.append(self._text)
        with self._catalog.cursor(ctx) as cursor:
            if ctx.transaction_id is not None:
                return self._run(cursor)
            cursor.begin()
            changed = self._run(cursor)
            cursor.commit()
            return changed

    def _run(self, cursor: duckdb.DuckDBPyConnection) -> int:
        changed = 0
        for values in self._values:
            answer: Sequence[Any] = cursor.execute(self._text, values).fetchall()
            changed += answer[0][0] if answer else -1
        return max(changed, -1)


class EndlessStatement(SqlStatement):
    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return pa.schema([("n", pa.int64())])

    @property
    def parameters(self) -> pa.Schema:
        return pa.schema([])

    def rows(self, ctx: Context) -> RecordReader:
        batch = pa.record_batch({"n": list(range(1000))}, self.arrow_schema)
        try:
            while True:
                yield batch
        finally:
            self._closed.set()

    def execute(self, ctx: Context) -> int:
        raise AssertionError("a query is not executed")


def typed(error: duckdb.Error) -> SparkportError:
    message = str(error)
    match error:
        case duckdb.CatalogException():
            return NotFound(message)
        case duckdb.ConstraintException():
            return ConstraintViolation(message)
        case duckdb.TransactionException():
            return Conflict(message)
        case _:
            return BadRequest(message)
