"""A scalar function over many rows: an exchange for each thread, batch by batch (airport §9.1)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from sparkport.engine.validation import validate
from sparkport.testing.arguments import chosen, encoded, parameters_of, sql_type
from sparkport.testing.exchange import VECTOR
from sparkport.testing.failures import ProtocolViolation, ServerError
from sparkport.testing.headers import new_trace
from sparkport.testing.objects import AttachedFunction
from sparkport.testing.session import Session
from sparkport.testing.transport import Exchange

__all__ = ["Columns", "ScalarCall", "call"]

Columns: TypeAlias = (
    pa.Table | pa.RecordBatch | Mapping[str, Sequence[Any]] | Sequence[pa.Array | pa.ChunkedArray]
)
"""The arguments of many calls: a column for each parameter, in order; names do not matter."""


def call(
    session: Session,
    functions: Sequence[AttachedFunction],
    name: str,
    arguments: Columns,
    rows: int | None,
    threads: int,
) -> pa.ChunkedArray:
    """`SELECT name(…)`, within a statement."""
    columns = _columns(arguments)
    count = _row_count(columns, rows)
    given = [sql_type(column.type, session) for column in columns]
    function = chosen(session, functions, "scalar_function", name, given)
    result = function.arrow_schema.field(0)
    if kinds.is_dictionary(result.type):
        raise ProtocolViolation(
            "T33", f"{function.schema}.{function.name}: the indices of the result are shown"
        )
    if any(kinds.is_null(column.type) for column in columns):
        # DuckDB knows the result for a NULL without a type, and does not call (airport §9.1).
        return pa.chunked_array([pa.nulls(count, result.type)])
    sent = _sent(session, function, columns, count)
    return ScalarCall(session, function, sent.schema).run(sent, max(1, threads))


def _columns(arguments: Columns) -> list[pa.Array | pa.ChunkedArray]:
    if isinstance(arguments, Mapping):
        arguments = pa.table(dict(arguments))
    if isinstance(arguments, pa.Table | pa.RecordBatch):
        return list(arguments.columns)
    return list(arguments)


def _row_count(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int | None) -> int:
    counts = {len(column) for column in columns} | ({rows} if rows is not None else set())
    if len(counts) != 1:
        raise ValueError(
            "say with rows= how many" if not counts else f"columns of {sorted(counts)} rows"
        )
    return counts.pop()


# ------------------------------------------------------------------------------------ what is sent


@dataclass(frozen=True, slots=True)
class _Sent:
    """All rows, with the schema under which they are sent; a batch may have no columns."""

    schema: pa.Schema
    rows: pa.RecordBatch

    def shares(self, threads: int) -> list[list[pa.RecordBatch]]:
        """Return the batches of each thread."""
        size = -(-self.rows.num_rows // threads)
        shares = (self.rows.slice(number * size, size) for number in range(threads))
        return [
            [share.slice(start, VECTOR) for start in range(0, share.num_rows, VECTOR)]
            for share in shares
        ]


def _sent(
    session: Session,
    function: AttachedFunction,
    columns: Sequence[pa.Array | pa.ChunkedArray],
    count: int,
) -> _Sent:
    if not columns:
        empty = pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        return _Sent(function.input_schema, _labelled(empty, function.input_schema))
    parameters = parameters_of(function, session.headers.line)
    made = encoded(session, columns, [each.sql_type for each in parameters]).combine_chunks()
    batches = made.to_batches()
    batch = (
        batches[0]
        if batches
        else pa.RecordBatch.from_arrays(
            [pa.nulls(0, f.type) for f in made.schema], schema=made.schema
        )
    )
    if any(b"is_any_type" in (field.metadata or {}) for field in function.input_schema):
        # Rebuilt from the types of the arguments: names kept, metadata dropped (airport §9.1).
        names = function.input_schema.names
        schema = pa.schema(
            [field.with_name(name) for name, field in zip(names, made.schema, strict=True)]
        )
    else:
        schema = function.input_schema
        for field, actual in zip(schema, made.schema, strict=True):
            if not _same_layout(actual.type, field.type):
                raise ProtocolViolation(
                    "T32",
                    f"{function.schema}.{function.name}, parameter {field.name!r}: with its "
                    f"settings DuckDB sends {actual.type} under the name of {field.type}, and the "
                    "server misreads memory",
                )
    return _Sent(schema, _labelled(batch, schema))


class _Labelled:
    """Puts a batch under another schema unchecked, as the client's `ImportRecordBatch` does."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, array = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), array


def _labelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch(_Labelled(batch, schema))


def _same_layout(actual: pa.DataType, declared: pa.DataType) -> bool:
    """Whether buffers of a type can be read as another type's.

    Extensions, time zones and names of inner fields do not matter.
    """
    actual, declared = (
        kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        for kind in (actual, declared)
    )
    if actual.id != declared.id or actual.num_fields != declared.num_fields:
        return False
    if kinds.is_timestamp(actual):
        return bool(actual.unit == declared.unit)
    if kinds.is_fixed_size_list(actual) and actual.list_size != declared.list_size:
        return False
    if kinds.is_union(actual) and (actual.mode, actual.type_codes) != (
        declared.mode,
        declared.type_codes,
    ):
        return False
    if not actual.num_fields:
        return bool(actual.equals(declared))
    inner = range(actual.num_fields)
    return all(
        _same_layout(actual.field(index).type, declared.field(index).type) for index in inner
    )


# ----------------------------------------------------------------------------------- the exchanges


class ScalarCall:
    """A call site of the function in a query."""

    def __init__(self, session: Session, function: AttachedFunction, schema: pa.Schema) -> None:
        self._session = session
        self._function = function
        self._schema = schema
        self._result = function.arrow_schema
        self._failed = threading.Event()

    def run(self, sent: _Sent, threads: int) -> pa.ChunkedArray:
        shares = sent.shares(threads)
        with ExitStack() as opened:
            # All are open before the first batch, as when a SELECT calls the function twice.
            exchanges = []
            for _ in shares:
                exchange = self._open()
                opened.callback(exchange.close)
                opened.callback(self._cancel_after_failure, exchange)
                exchanges.append(exchange)
                self.begin(exchange)
            if threads == 1:
                parts = [self.answers(exchanges[0], shares[0])]
            else:
                with ThreadPoolExecutor(threads, thread_name_prefix="duckdb-function") as pool:
                    parts = list(pool.map(self.answers, exchanges, shares))
        return pa.chunked_array(
            [array for part in parts for array in part], self._result.field(0).type
        )

    def _open(self) -> Exchange:
        descriptor = self._function.descriptor
        headers = self._session.headers.of_table(
            new_trace(),
            descriptor,
            self._session.transaction(),
            airport_operation="scalar_function",
            return_chunks="1",
        )
        return self._session.connection.exchange(descriptor, headers)

    def begin(self, exchange: Exchange) -> None:
        """Send the schema and check the schema that comes back."""
        try:
            exchange.begin(self._schema)
            answered = exchange.schema()
            if not answered.equals(self._result):
                raise self._violated(
                    f"Schema equality check: {_shown(answered)} instead of {_shown(self._result)}"
                )
        except BaseException:
            self._failed.set()
            raise

    def answers(self, exchange: Exchange, batches: Iterable[pa.RecordBatch]) -> list[pa.Array]:
        """Return the results of a thread's batches; each is sent when the previous is answered."""
        results = []
        try:
            for batch in batches:
                if self._failed.is_set():
                    return []
                exchange.write(batch)
                results.append(self._answer(exchange, batch.num_rows))
            exchange.half_close()
            self._end(exchange)
        except BaseException:
            self._failed.set()
            raise
        return results

    def _answer(self, exchange: Exchange, rows: int) -> pa.Array:
        """Return the only batch that answers a batch."""
        chunk = exchange.read("§9.1")
        if chunk is None:
            raise self._violated(
                "the stream ends where a batch is due: the DuckDB process would crash"
            )
        if chunk.data is None:
            raise self._violated(
                "a message with metadata alone comes where a batch is due: the DuckDB process "
                "would crash"
            )
        batch = chunk.data
        try:
            validate(batch)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise self._violated(f"a batch is not valid: {error}") from error
        if batch.num_rows == rows:
            return batch.column(0)
        if batch.num_rows == 1:
            # The client turns it into a constant.
            return pa.concat_arrays([batch.column(0)] * rows)
        if batch.num_rows < rows:
            raise self._violated(
                f"{batch.num_rows} rows came back for {rows}: there is garbage at the end"
            )
        raise self._violated(f"{batch.num_rows} rows came back for {rows}: all others are dropped")

    def _end(self, exchange: Exchange) -> None:
        """Check that nothing follows the last answer: the client would not look at it."""
        try:
            chunk = exchange.read("§9.1")
        except ServerError as error:
            raise self._violated(f"nobody sees the error after the last batch: {error}") from error
        if chunk is not None:
            raise self._violated(
                "more came back than one batch for each batch: results are shifted"
            )

    def _cancel_after_failure(self, exchange: Exchange) -> None:
        if self._failed.is_set():
            exchange.cancel()

    def _violated(self, message: str) -> ProtocolViolation:
        return ProtocolViolation(
            "§9.1", f"scalar function {self._function.schema}.{self._function.name}: {message}"
        )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'' if field.nullable else ' NOT NULL'}" for field in schema
    )
