"""Scalar functions: a batch back for each batch (airport §9.1).

Each thread of the client has an exchange of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Context, NullHandling, ScalarFunction
from sparkport.engine.argument_types import canonical_schema
from sparkport.engine.encodings import Converter, convert_array
from sparkport.errors import BadRequest, CatalogFault
from sparkport.service.calls import Call
from sparkport.service.first_messages import Opening
from sparkport.service.function_guard import FunctionGuard
from sparkport.service.functions import PublishedFunction, bind_function, guarded
from sparkport.wire.flight_data import BatchReader, BatchWriter, decode_flight_data, encode_schema

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["exchange"]


def exchange(
    service: Service, call: Call, opening: Opening, messages: Iterator[bytes]
) -> Iterator[bytes]:
    """Answer every batch with a batch of as many rows."""
    ctx, published = bind_function(service, call, opening.named, "scalar_function")
    function = published.function
    assert isinstance(function, ScalarFunction)
    reader = BatchReader(opening.schema_message)
    incoming = _Incoming(published, reader.arrow_schema, from_duckdb=ctx.from_duckdb)
    result = _Result(published, function)
    run = _skip_nulls if function.null_handling is NullHandling.PROPAGATE else _run
    # Before any batch is read: the client sends none until it has this (T15).
    yield encode_schema(published.arrow_schema)
    writer = BatchWriter(published.arrow_schema)
    with guarded(service, call, ctx, published) as guard:
        for message in messages:
            batch = _read(reader, message)
            if batch is not None:
                arguments = incoming.convert(batch)
                values = run(guard, function, ctx, arguments, result)
                yield from writer.messages(
                    pa.RecordBatch.from_arrays([values], schema=published.arrow_schema)
                )


def _read(reader: BatchReader, message: bytes) -> pa.RecordBatch | None:
    try:
        return reader.read(decode_flight_data(message))
    except BadRequest as error:
        raise BadRequest(
            f"{error.message}. Under DuckDB's settings arrow_large_buffer_size, "
            f"produce_arrow_string_view and "
            "arrow_output_version it mislabels arguments of typed parameters: RESET them, or "
            "declare the parameter as ANY"
        ) from error


def _run(
    guard: FunctionGuard,
    function: ScalarFunction,
    ctx: Context,
    arguments: pa.RecordBatch,
    result: _Result,
) -> pa.Array:
    return result.check(guard.call(function.execute, ctx, arguments), arguments.num_rows)


def _skip_nulls(
    guard: FunctionGuard,
    function: ScalarFunction,
    ctx: Context,
    arguments: pa.RecordBatch,
    result: _Result,
) -> pa.Array:
    """Call the function on rows without NULLs, and put its values back: NULL in, NULL out."""
    columns = [column for column in arguments.columns if column.null_count]
    if not columns:
        return _run(guard, function, ctx, arguments, result)
    complete = columns[0].is_valid()
    for column in columns[1:]:
        complete = pc.and_(complete, column.is_valid())
    if not pc.any(complete).as_py():
        return pa.nulls(arguments.num_rows, result.data_type)
    rows = pc.indices_nonzero(complete)
    kept = [_take(column, rows) for column in arguments.columns]
    values = _run(
        guard, function, ctx, pa.RecordBatch.from_arrays(kept, schema=arguments.schema), result
    )
    return _take(
        values,
        pc.if_else(complete, pc.subtract(pc.cumulative_sum(complete.cast(pa.int64())), 1), None),
    )


def _take(values: pa.Array, places: pa.Array) -> pa.Array:
    """The values at these positions, and NULL where the position is NULL."""
    try:
        return values.take(places)
    except pa.ArrowNotImplementedError:  # of views, for instance
        missing = pa.nulls(1, values.type)
        pieces = [
            missing if place is None else values.slice(place, 1) for place in places.to_pylist()
        ]
        return pa.concat_arrays(pieces or [values.slice(0, 0)])


class _Incoming:
    """Converts arguments to the types that the function declares (airport §13.3).

    The client's encoding depends on its settings.
    """

    def __init__(
        self, published: PublishedFunction, received: pa.Schema, *, from_duckdb: bool
    ) -> None:
        parameters = published.parameters
        if len(received) != len(parameters):
            raise BadRequest(
                f"{published.title} takes {len(parameters)} arguments, not {len(received)}"
            )
        names = [parameter.name for parameter in parameters]
        canonical = canonical_schema(received)
        target = pa.schema(
            [
                pa.field(each.name, canonical.field(index).type if each.type is None else each.type)
                for index, each in enumerate(parameters)
            ]
        )
        source = pa.schema(
            [field.with_name(name) for field, name in zip(received, names, strict=True)]
        )
        self._names = None if received.names == names else names
        converter = Converter(source, target, from_duckdb=from_duckdb)
        self._converter = None if converter.keeps_columns else converter

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises: BadRequest for values that a parameter's type cannot hold."""
        if self._names is not None:
            batch = batch.rename_columns(self._names)
        return batch if self._converter is None else self._converter.convert(batch)


class _Result:
    """Checks what a function returns: the client believes whatever it gets."""

    def __init__(self, published: PublishedFunction, function: ScalarFunction) -> None:
        self._title = published.title
        self._declared = function.signature.return_type
        self.data_type: pa.DataType = published.arrow_schema.field(0).type

    def check(self, result: Any, rows: int) -> pa.Array:
        """Raises: CatalogFault."""
        if isinstance(result, pa.RecordBatch) and result.num_columns == 1:
            result = result.column(0)
        elif isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        elif isinstance(result, pa.Scalar):
            result = _repeated(result, rows)
        if not isinstance(result, pa.Array):
            raise CatalogFault(
                f"{self._title} returned {type(result).__name__}, not an Arrow array"
            )
        if result.type != self._declared:
            raise CatalogFault(
                f"{self._title} returned {result.type}, but declares {self._declared}"
            )
        if len(result) != rows:
            raise CatalogFault(f"{self._title} returned {len(result)} values for {rows} rows")
        if result.type != self.data_type:  # dictionaries are published as plain values (T33)
            result = convert_array(result, self.data_type, "result", from_duckdb=False)
        return result


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    if not value.is_valid:
        return pa.nulls(rows, value.type)
    if isinstance(value.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(value.type, pa.repeat(value.value, rows))
    return pa.repeat(value, rows)
