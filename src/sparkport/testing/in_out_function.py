"""A table in/out function: rows of a subquery in, rows out, in lockstep (airport §9.3)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.engine.validation import validate
from sparkport.testing.arguments import encoded, sql_type
from sparkport.testing.exchange import VECTOR, drain
from sparkport.testing.failures import ProtocolViolation, ServerError
from sparkport.testing.headers import new_trace
from sparkport.testing.objects import AttachedFunction
from sparkport.testing.requests import in_out_parameters, json_text, no_filter
from sparkport.testing.scan import Predicate, matching
from sparkport.testing.session import Session
from sparkport.testing.table_function import BoundFunction, bind
from sparkport.testing.transport import Exchange
from sparkport.testing.types import difference

__all__ = ["InOutCall", "InputRows", "in_out"]

InputRows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]
"""What a subquery yields. The first batch of an iterable is taken early, for its schema."""

_CONTINUES = b"chunk_continues"


def in_out(
    session: Session,
    functions: Sequence[AttachedFunction],
    name: str,
    arguments: Sequence[Any],
    rows: InputRows,
    where: Predicate | None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """`SELECT * FROM name(…, (SELECT …)) WHERE where`: return columns, and rows as they arrive.

    Call it within a statement.
    """
    schema, batches = _opened(rows)
    sent = _sent_schema(session, schema)
    bound = bind(session, functions, name, arguments, {}, sent)
    made = _rows(session, InOutCall(session, bound, sent), schema, batches, where)
    return pa.schema([pa.field(each.name, each.field.type) for each in bound.result.columns]), made


def _rows(
    session: Session,
    call: InOutCall,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    source = itertools.chain.from_iterable(_vectors(session, schema, batch) for batch in batches)
    metadata = in_out_parameters(_pushed(session, call.bound, where), call.bound.parameters)
    for batch in call.run(source, metadata):
        # DuckDB applies every filter again (airport §6.1).
        yield from matching(session, pa.Table.from_batches([batch]), where).to_batches()


# --------------------------------------------------------------------------------------- the input


def _opened(rows: InputRows) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if isinstance(rows, pa.RecordBatch):
        return rows.schema, [rows]
    if isinstance(rows, pa.Table):
        return rows.schema, rows.to_batches()
    if isinstance(rows, pa.RecordBatchReader):
        return rows.schema, rows
    batches = iter(rows)
    first = next(batches, None)
    if first is None:
        raise ValueError(
            "the rows of a subquery need at least one batch, or a schema: pass a table or a reader"
        )
    return first.schema, itertools.chain([first], batches)


def _sent_schema(session: Session, schema: pa.Schema) -> pa.Schema:
    empty = [pa.nulls(0, field.type) for field in schema]
    return encoded(session, empty, _types(session, schema)).rename_columns(schema.names).schema


def _vectors(
    session: Session, schema: pa.Schema, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    rows = encoded(session, batch.columns, _types(session, schema)).rename_columns(schema.names)
    yield from rows.combine_chunks().to_batches(max_chunksize=VECTOR)


def _types(session: Session, schema: pa.Schema) -> list[str | None]:
    # Cast even to types that they have, so that DuckDB sends no column as a dictionary.
    return [sql_type(field.type, session) for field in schema]


def _pushed(session: Session, bound: BoundFunction, where: Predicate | None) -> str:
    """Return the filter JSON, with all columns bound: none can be left out (airport §9.3)."""
    columns = {column.name: column.sql_type for column in bound.result.columns}
    if not isinstance(where, str):
        return no_filter(list(columns))
    made = json.loads(session.local.filter_json(where, columns))
    places = [
        list(columns).index(name)
        for name in made["column_binding_names_by_index"]
        if name in columns
    ]
    return json_text(
        {
            "filters": _rebound(made["filters"], places),
            "column_binding_names_by_index": list(columns),
        }
    )


def _rebound(value: Any, places: Sequence[int]) -> Any:
    if isinstance(value, list):
        return [_rebound(element, places) for element in value]
    if not isinstance(value, dict):
        return value
    if value.get("expression_class") == "BOUND_COLUMN_REF":
        binding = value["binding"]
        return {**value, "binding": {**binding, "column_index": places[binding["column_index"]]}}
    return {key: _rebound(element, places) for key, element in value.items()}


# ------------------------------------------------------------------------------------ the exchange


@dataclass(frozen=True, slots=True)
class InOutCall:
    """A call, ready to run."""

    session: Session
    bound: BoundFunction
    sent: pa.Schema

    def run(self, source: Iterator[pa.RecordBatch], metadata: bytes) -> Iterator[pa.RecordBatch]:
        descriptor = self.bound.function.descriptor
        headers = self.session.headers.of_table(
            new_trace(),
            descriptor,
            None,
            airport_operation="table_function_in_out",
            return_chunks="1",
        )
        yield from self.exchanged(
            self.session.connection.exchange(descriptor, headers), source, metadata
        )

    def exchanged(
        self, exchange: Exchange, source: Iterator[pa.RecordBatch], metadata: bytes
    ) -> Iterator[pa.RecordBatch]:
        """Yield all that comes back in an exchange, and close it.

        `metadata` is the map that opens the exchange.
        """
        try:
            yield from self._run(exchange, source, metadata)
        except ProtocolViolation:
            exchange.cancel()
            raise
        except BaseException:
            # The subquery failed, or the caller has enough rows: Arrow ends the call for DuckDB,
            # which forgets it.
            drain(exchange)
            raise
        finally:
            exchange.close()

    def _run(
        self, exchange: Exchange, source: Iterator[pa.RecordBatch], metadata: bytes
    ) -> Iterator[pa.RecordBatch]:
        exchange.write_metadata(metadata)
        exchange.begin(self.sent)
        self._check_schema(exchange.schema())
        for batch in source:
            exchange.write(batch)
            yield from self._answers(exchange)
        exchange.half_close()
        yield from self._last(exchange)

    def _answers(self, exchange: Exchange) -> Iterator[pa.RecordBatch]:
        """Yield the answers to a batch, up to the batch that the client takes for the last."""
        hang = "§9.3"
        while True:
            chunk = exchange.read(hang)
            if chunk is None or chunk.data is None:
                what = "the stream ends" if chunk is None else "a message with metadata alone comes"
                raise self._violated(f"{what} where a batch is due: the DuckDB process would crash")
            yield self._checked(chunk.data)
            if not _goes_on(chunk):
                return
            hang = "T18" if _full(chunk) else "§9.3"

    def _last(self, exchange: Exchange) -> Iterator[pa.RecordBatch]:
        """Yield what comes after half-close, up to the client's last batch or the end."""
        hang = "§9.3"
        while (chunk := exchange.read(hang)) is not None:
            if chunk.data is not None:
                yield self._checked(chunk.data)
            if not _goes_on(chunk):
                self._end(exchange)
                return
            hang = "T18" if _full(chunk) else "§9.3"

    def _end(self, exchange: Exchange) -> None:
        """Check that nothing follows the last batch: the client would not look at it."""
        try:
            chunk = exchange.read("§9.3")
        except ServerError as error:
            raise self._violated(f"nobody sees the error after the last batch: {error}") from error
        if chunk is not None:
            raise self._violated(
                "a message comes after the batch that ends the result: its rows are lost"
            )

    def _check_schema(self, answered: pa.Schema) -> None:
        due = self.bound.result.arrow_schema
        if len(answered) != len(due):
            raise self._violated(
                f"{len(answered)} columns come back instead of the {len(due)} that were announced"
            )
        for index, field in enumerate(due):
            got = answered.field(index)
            if (
                got.name != field.name
                and field.name in answered.names
                and due.names.count(field.name) == 1
            ):
                raise self._violated(
                    f"column {field.name!r} is not at position {index}: values are misread"
                )
            problem = difference(got, field)
            if problem is not None:
                raise self._violated(f"column {field.name!r} is {problem}: values are misread")

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            validate(batch)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise self._violated(f"a batch is not valid: {error}") from error
        arrays = []
        for column, array in zip(self.bound.result.columns, batch.columns, strict=True):
            arrays.append(
                array if array.type == column.field.type else array.cast(column.field.type)
            )
        return pa.RecordBatch.from_arrays(
            arrays, names=[column.name for column in self.bound.result.columns]
        )

    def _violated(self, message: str) -> ProtocolViolation:
        function = self.bound.function
        return ProtocolViolation(
            "§9.3", f"in/out function {function.schema}.{function.name}: {message}"
        )


def _goes_on(chunk: flight.FlightStreamChunk) -> bool:
    """Whether the client reads on: after `chunk_continues`, and after a full batch (trap T18).

    A full batch fills the client's vectors.
    """
    metadata = None if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
    return _full(chunk) or metadata == _CONTINUES


def _full(chunk: flight.FlightStreamChunk) -> bool:
    return chunk.data is not None and chunk.data.num_rows > 0 and chunk.data.num_rows % VECTOR == 0
