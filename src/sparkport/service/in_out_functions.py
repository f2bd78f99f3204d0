"""Table in/out functions: rows in, rows out, in lockstep with the client (airport §9.3).

For every batch it sends, the client reads batches until it gets the last of the answer. It takes a
batch for not the last if its number of rows is a multiple of 2048, whatever its metadata says
(T18). An empty batch could follow, but two messages cost twice as much as one, and 2048 rows are
what a function that keeps all rows answers with. So the last row of such a batch is kept for the
next answer.

A function that works batch by batch is called in the thread that serves the exchange. Any other
function is an iterator that asks for its input when it wants to, deep inside its own code, where
the end of an answer cannot be sent from. It runs in a thread of its own and hands its messages
over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    Arguments,
    BatchwiseInOutFunction,
    Context,
    RecordReader,
    TableInOutFunction,
)
from sparkport.engine.argument_types import canonical_schema
from sparkport.engine.encodings import Converter
from sparkport.errors import BadRequest, CatalogFault
from sparkport.service.bound_columns import Fit, slices
from sparkport.service.calls import Call
from sparkport.service.closing import closing_reader
from sparkport.service.first_messages import Opening
from sparkport.service.function_guard import FunctionGuard, WatchedGuard
from sparkport.service.functions import PublishedFunction, bind_function, convert_arguments, guarded
from sparkport.service.handover import Handover, NextMessage
from sparkport.service.objects import published_result_schema
from sparkport.wire.flight_data import BatchReader, BatchWriter, decode_flight_data, encode_schema
from sparkport.wire.scan import TableFunctionFlightInfoRequest, decode_in_out_parameters

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["exchange", "result_schema"]

VECTOR = 2048
"""How many rows DuckDB's vectors have; the number is part of the protocol (T18)."""
_LONG_ANSWER = 4
"""After so many messages it is checked whether the client still wants the rest."""
_CONTINUES = b"chunk_continues"
_FINISHED = b"chunk_finished"


def result_schema(
    service: Service,
    call: Call,
    ctx: Context,
    published: PublishedFunction,
    request: TableFunctionFlightInfoRequest,
) -> pa.Schema:
    """The columns of the result for these arguments and this input. Raises: BadRequest."""
    if request.input_schema is None or not isinstance(request.arguments, pa.RecordBatch):
        raise BadRequest(f"{published.title} wants a subquery as its last argument")
    arguments = convert_arguments(published, request.arguments, from_duckdb=ctx.from_duckdb)
    with guarded(service, call, ctx, published) as guard:
        return _columns(ctx, published, guard, arguments, canonical_schema(request.input_schema))


def exchange(
    service: Service, call: Call, opening: Opening, messages: Iterator[bytes]
) -> Iterator[bytes]:
    """Run the function on what the client sends."""
    ctx, published = bind_function(service, call, opening.named, "table_function")
    function = published.function
    if not isinstance(function, TableInOutFunction):
        raise BadRequest(f"{published.title} takes no subquery")
    if not opening.app_metadata:
        raise BadRequest(
            f"{published.title}: its arguments must come before the schema of its input"
        )
    row = decode_in_out_parameters(opening.app_metadata).arguments
    if row is None:
        raise BadRequest(f"{published.title}: the exchange brings no arguments")
    arguments = convert_arguments(published, row, from_duckdb=ctx.from_duckdb)
    reader = BatchReader(opening.schema_message)
    rows = _Rows(reader, messages, from_duckdb=ctx.from_duckdb)
    watched = partial(guarded, service, call, ctx, published)
    with watched() as guard:
        arrow_schema = _columns(ctx, published, guard, arguments, rows.arrow_schema)
    answers = _Answers(arrow_schema, published.title)
    yield encode_schema(arrow_schema)  # the client sends no batch until it has this (T15)
    if isinstance(function, BatchwiseInOutFunction):
        with watched() as guard:
            yield from _batch_by_batch(function, ctx, arguments, rows, guard, answers)
    else:
        yield from _Thread(function, ctx, arguments, rows, watched, answers).messages()


def _columns(
    ctx: Context,
    published: PublishedFunction,
    guard: FunctionGuard,
    arguments: Arguments,
    arrow_schema: pa.Schema,
) -> pa.Schema:
    function = published.function
    assert isinstance(function, TableInOutFunction)
    own = guard.call(function.schema_for_input, ctx, arguments, arrow_schema)
    if not isinstance(own, pa.Schema):
        raise CatalogFault(
            f"{published.title} told {type(own).__name__} as its columns, not an Arrow schema"
        )
    return published_result_schema(own, published.title)


def _batch_by_batch(
    function: BatchwiseInOutFunction,
    ctx: Context,
    arguments: Arguments,
    rows: _Rows,
    guard: FunctionGuard,
    answers: _Answers,
) -> Iterator[bytes]:
    for batch in rows:
        ctx.check()
        reader = _reader(guard.call(function.process_batch, ctx, arguments, batch), guard)
        with closing_reader(reader, guard.call) as results:
            for number, message in enumerate(answers.of(guard.iterate(results))):
                if number >= _LONG_ANSWER and rows.has_ended_early():
                    return
                yield message
    yield from answers.ending_all(None)


def _reader(result: RecordReader | None, guard: FunctionGuard) -> RecordReader:
    if not isinstance(result, Iterable):
        raise CatalogFault(
            f"{guard.title} returned {type(result).__name__}, which yields no batches"
        )
    return result


class _Rows:
    """The input in the types that functions are shown, whatever the client's settings."""

    def __init__(
        self, reader: BatchReader, messages: Iterator[bytes], *, from_duckdb: bool
    ) -> None:
        self._reader = reader
        self._messages = messages
        self._ahead: NextMessage | None = None
        self.arrow_schema = canonical_schema(reader.arrow_schema)
        # Columns of a subquery may share a name, so their positions tell them apart.
        numbers = [str(index) for index in range(len(self.arrow_schema))]
        source, target = (
            pa.schema(
                [field.with_name(number) for field, number in zip(each, numbers, strict=True)]
            )
            for each in (reader.arrow_schema, self.arrow_schema)
        )
        converter = Converter(source, target, from_duckdb=from_duckdb)
        self._converter = None if converter.keeps_columns else converter
        self._numbers = numbers

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (message := self._next()) is not None:
            batch = self._reader.read(decode_flight_data(message))
            if batch is not None:
                yield self._convert(batch)

    def has_ended_early(self) -> bool:
        """Whether the client has ended its input during an answer: a LIMIT has got its rows.

        The client does not cancel the call then. It reads on to the end without looking, however
        far away that is.
        """
        if self._ahead is None:
            self._ahead = NextMessage(self._messages)
        return self._ahead.has_ended

    def _next(self) -> bytes | None:
        ahead, self._ahead = self._ahead, None
        return next(self._messages, None) if ahead is None else ahead.take()

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._converter is None:
            return batch
        converted = self._converter.convert(batch.rename_columns(self._numbers))
        return pa.RecordBatch.from_arrays(converted.columns, schema=self.arrow_schema)


class _Answers:
    """Encodes what a function yields for a batch of its input, or after the last batch."""

    def __init__(self, arrow_schema: pa.Schema, title: str) -> None:
        self._title = title
        self._fit = Fit(arrow_schema, None, title)
        self._writer = BatchWriter(arrow_schema)
        self._kept: pa.RecordBatch | None = None
        self._empty = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in arrow_schema], schema=arrow_schema
        )

    def of(self, results: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield all messages of one answer, at least one."""
        last: pa.RecordBatch | None = None
        for piece in self.pieces(results):
            if last is not None:
                yield from self.going_on(last)
            last = piece
        yield from self.ending(last)

    def pieces(self, results: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield non-empty batches with the promised columns, of a size that is good to send."""
        for batch in results:
            if not isinstance(batch, pa.RecordBatch):
                raise CatalogFault(
                    f"{self._title} yielded {type(batch).__name__}, not record batches"
                )
            if batch.num_rows:
                fitted = self._fit(batch)
                kept, self._kept = self._kept, None
                yield from slices(fitted if kept is None else pa.concat_batches([kept, fitted]))

    def going_on(self, piece: pa.RecordBatch) -> Iterable[bytes]:
        """Encode a piece that is not the last of its answer."""
        return self._writer.messages(piece, _CONTINUES)

    def ending(self, last: pa.RecordBatch | None) -> Iterable[bytes]:
        """Encode the last piece of an answer, if there was any."""
        if last is None:
            last = self._empty
        elif last.num_rows % VECTOR == 0:
            self._kept = last.slice(last.num_rows - 1)
            last = last.slice(0, last.num_rows - 1)
        return self._writer.messages(last, _FINISHED)

    def ending_all(self, last: pa.RecordBatch | None) -> Iterator[bytes]:
        """Encode the last piece of all: nothing more is kept back."""
        for piece in (last, self._kept):
            if piece is not None:
                yield from self.going_on(piece)
        yield from self._writer.messages(self._empty, _FINISHED)


class _Enough(Exception):
    """Raised when the client wants no more rows."""


class _Thread:
    """Runs a function in a thread of its own, which reads the input and hands over messages."""

    def __init__(
        self,
        function: TableInOutFunction,
        ctx: Context,
        arguments: Arguments,
        rows: _Rows,
        watched: Callable[[], WatchedGuard],
        answers: _Answers,
    ) -> None:
        self._function = function
        self._ctx = ctx
        self._arguments = arguments
        self._rows = rows
        self._batches = iter(rows)
        self._watched = watched
        self._answers = answers
        self._owed = False
        """Whether the client waits for the end of an answer to a batch that it has sent."""
        self._last: pa.RecordBatch | None = None
        """The last piece, held back until it is known whether more follows."""
        self._answered = 0
        """How many pieces of the present answer have been handed over."""
        self._handover = Handover()

    def messages(self) -> Iterator[bytes]:
        """Yield what the function's thread hands over; closing this ends the function."""
        threading.Thread(target=self._work, name="sparkport-in-out", daemon=True).start()
        try:
            yield from self._handover.take_all()
        finally:
            self._handover.close()

    def _work(self) -> None:
        try:
            with self._watched() as guard:
                self._run(guard)
            # The function may have ended before its input; the client still wants an answer to
            # every batch.
            while self._owed:
                self._end_answer()
                self._receive()
            self._hand_over(self._answers.ending_all(self._last))
        except _Enough:
            self._handover.end()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the exchange is served
            self._handover.fail(error)
        else:
            self._handover.end()

    def _run(self, guard: FunctionGuard) -> None:
        first = self._receive()  # nothing may be sent before the client has (airport §9.3)
        result = guard.call(
            self._function.process, self._ctx, self._arguments, self._input(guard, first)
        )
        with closing_reader(_reader(result, guard), guard.call) as batches:
            for piece in self._answers.pieces(guard.iterate(iter(batches))):
                if self._last is not None:
                    self._hand_over(self._answers.going_on(self._last))
                    self._answered += 1
                    if (
                        self._owed
                        and self._answered >= _LONG_ANSWER
                        and self._rows.has_ended_early()
                    ):
                        raise _Enough
                self._last = piece

    def _input(
        self, guard: FunctionGuard, batch: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the function's input. Asking for the next batch ends the present answer."""
        while batch is not None:
            yield batch
            with guard.paused():  # the client's time is not counted as the function's
                self._end_answer()
                batch = self._receive()

    def _receive(self) -> pa.RecordBatch | None:
        batch = next(self._batches, None)
        self._owed = batch is not None
        return batch

    def _end_answer(self) -> None:
        last, self._last, self._answered = self._last, None, 0
        self._hand_over(self._answers.ending(last))

    def _hand_over(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self._handover.put(message)
