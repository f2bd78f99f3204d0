"""The DoExchange of an INSERT, UPDATE or DELETE, message by message (airport §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.engine.validation import validate
from sparkport.testing.failures import ClientFailure, ProtocolViolation, ServerError
from sparkport.testing.headers import new_trace
from sparkport.testing.objects import AttachedTable
from sparkport.testing.replies import Fields
from sparkport.testing.session import Session
from sparkport.testing.transport import Exchange
from sparkport.testing.types import as_given_out, difference, given_out

__all__ = ["VECTOR", "Changed", "Statement", "drain"]

VECTOR = 2048
"""Rows of DuckDB's chunks, at most; the number is part of the protocol."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The number of rows that the server says it changed, and with RETURNING the rows.

    They have the table's columns.
    """

    total: int
    rows: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of rows, ready to run.

    `source` is called once the exchange is open, so that its scan comes second.
    """

    session: Session
    table: AttachedTable
    operation: str
    sent: pa.Schema
    source: Callable[[], Iterable[pa.RecordBatch]]
    returning: bool

    def run(self) -> Changed:
        exchange = self.session.connection.exchange(
            self.table.descriptor,
            self.session.headers.of_table(
                new_trace(),
                self.table.descriptor,
                self.session.transaction(),
                airport_operation=self.operation,
                return_chunks="1" if self.returning else "0",
            ),
        )
        try:
            return self._run(exchange)
        except BaseException:
            exchange.cancel()
            raise
        finally:
            exchange.close()

    def _run(self, exchange: Exchange) -> Changed:
        exchange.begin(self.sent)
        answered = exchange.schema()
        if self.returning:
            self._check_schema(answered)
        returned = self._send(exchange)
        exchange.half_close()
        total = self._total(exchange)
        rows = self._in_table_order(answered, returned) if self.returning else None
        return Changed(total, rows)

    def _send(self, exchange: Exchange) -> list[pa.RecordBatch]:
        returned: list[pa.RecordBatch] = []
        batches = iter(self.source())
        while (batch := self._next(exchange, batches)) is not None:
            exchange.write(batch)
            if self.returning:
                returned.append(self._answer(exchange, batch))
        return returned

    def _next(self, exchange: Exchange, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Return the next batch of the source; to the server a failure is its end (trap T22)."""
        try:
            return next(iter(batches), None)
        except ProtocolViolation:
            raise
        except Exception:
            drain(exchange)
            raise

    def _answer(self, exchange: Exchange, sent: pa.RecordBatch) -> pa.RecordBatch:
        """Return the only batch that answers a batch."""
        chunk = exchange.read("T16")
        if chunk is None or chunk.data is None:
            raise self._violated("T16", "no batch came back for a batch")
        rows = chunk.data.num_rows
        if rows > VECTOR:
            raise self._violated(
                "T16", f"a batch of {rows} rows came back; all after {VECTOR} are dropped"
            )
        if rows > sent.num_rows:
            raise self._violated("T16", f"{rows} rows came back for {sent.num_rows}")
        try:
            validate(chunk.data)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise self._violated("§7.4", f"a returned batch is not valid: {error}") from error
        return chunk.data

    def _total(self, exchange: Exchange) -> int:
        chunk = exchange.read("§7.1")
        if chunk is None:
            raise self._violated(
                "§7.1", "the stream ends without total_changed: the user sees 0 rows"
            )
        if chunk.data is not None and (self.returning or chunk.app_metadata is None):
            if self.returning:
                raise self._violated("T16", "more batches came back than were sent")
            raise self._violated("§7.3", "a batch comes before total_changed and hides it")
        if chunk.app_metadata is None:
            raise self._violated("§7.1", "the last message has no metadata: the user sees 0 rows")
        total = _total_changed(chunk)
        try:
            further = exchange.read("T21")
        except ServerError as error:
            raise self._violated(
                "T21", f"the error after total_changed is ignored, the statement succeeds: {error}"
            ) from error
        if further is not None:
            raise self._violated("§7.1", "a message comes after total_changed")
        return total

    def _check_schema(self, answered: pa.Schema) -> None:
        if self.operation == "update":
            self._check_echo(answered)
            return
        for column in self.table.columns:
            indices = answered.get_all_field_indices(column.field.name)
            if not indices:
                raise self._violated(
                    "§7.4", f"column {column.field.name!r} is missing: String not found in vector"
                )
            problem = difference(answered.field(indices[0]), column.field)
            if problem is not None:
                raise self._violated("§7.4", f"column {column.field.name!r} is {problem}")

    def _check_echo(self, answered: pa.Schema) -> None:
        """Check an UPDATE's answer: it is read by position in the schema that was sent.

        The values go into columns of the table's own types.
        """
        if answered.names != self.sent.names:
            raise self._violated(
                "T17",
                f"the columns are {answered.names}, but {self.sent.names} were sent: values are "
                "misread",
            )
        for got, sent in zip(answered, self.sent, strict=True):
            column = self.table.column(sent.name)
            problem = difference(got, sent if column is None else column.field)
            if problem is not None:
                raise self._violated(
                    "T17", f"column {sent.name!r} is {problem}: values are misread"
                )

    def _in_table_order(self, answered: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Table:
        returned = pa.Table.from_batches(batches, schema=answered)
        update = self.operation == "update"
        names = [column.name if update else column.field.name for column in self.table.columns]
        present = [(name, column) for name, column in zip(names, self.table.columns, strict=True)]
        arrays = {
            column.name: _given_out(returned.column(returned.schema.get_all_field_indices(name)[0]))
            for name, column in present
            if name in returned.column_names
        }
        return pa.table(arrays)

    def _violated(self, trap: str, message: str) -> ProtocolViolation:
        return ProtocolViolation(
            trap, f"{self.operation} of {self.table.schema}.{self.table.name}: {message}"
        )


def _given_out(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array(map(as_given_out, column.chunks), given_out(column.type))


def _total_changed(chunk: flight.FlightStreamChunk) -> int:
    fields = Fields.unpack(
        chunk.app_metadata.to_pybytes(), "last message of the exchange", trap="§7.1"
    )
    return fields.unsigned("total_changed")


def drain(exchange: Exchange) -> None:
    """Half-close and read to the end, as Arrow does for a client that drops an exchange."""
    try:
        exchange.half_close()
        while exchange.read("T22") is not None:
            pass
    except ClientFailure:
        pass
