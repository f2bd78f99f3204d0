"""The Flight double with functions.

`server.spoil` has the points `functions`, `bind`, `scalar` and `in_out` for them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
from tests.client.flight_double import REUSE, FlightDouble, app_metadata, described

ANY = {"is_any_type": "1"}
NAMED = {"is_named_parameter": "1"}
TABLE = pa.field("rows", pa.null(), metadata={"is_table_type": "1"})

Batches = Iterator[pa.RecordBatch]


def result(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("result", kind)])


@dataclass(frozen=True)
class Function:
    """An overload. A scalar function computes an array; other functions make batches.

    The schema of the batches depends on the arguments.
    """

    name: str
    kind: str
    parameters: list[Any]
    returns: pa.Schema | Callable[[pa.RecordBatch, Any], pa.Schema]
    compute: Any
    stability: str | None = None
    last: Callable[[pa.Schema], Batches] = field(default=lambda schema: iter(()))

    @property
    def input_schema(self) -> pa.Schema:
        return pa.schema(self.parameters)


def _numbers(arguments: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    count, step = (arguments.column(name)[0].as_py() for name in ("count", "step"))
    values = [number * (step or 1) for number in range(count)]
    return pa.table([values, [str(value) for value in values]], schema=schema)


def _echo(arguments: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([arguments.cast(schema)])


def _tagged(arguments: pa.RecordBatch, schema: pa.Schema, batch: pa.RecordBatch) -> Batches:
    label = pa.array([arguments.column("label")[0].as_py()] * batch.num_rows, pa.string())
    yield pa.RecordBatch.from_arrays([label, *batch.columns], schema=schema)


def _repeated(arguments: pa.RecordBatch, schema: pa.Schema, batch: pa.RecordBatch) -> Batches:
    for _ in range(arguments.column("times")[0].as_py()):
        yield batch


NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])
FUNCTIONS = [
    Function(
        "twice",
        "scalar_function",
        [("x", pa.int64())],
        result(pa.int64()),
        lambda x: pc.multiply(x, 2),
    ),
    Function(
        "kind",
        "scalar_function",
        [("x", pa.int64())],
        result(pa.string()),
        lambda x: ["BIGINT"] * len(x),
    ),
    Function(
        "kind",
        "scalar_function",
        [("x", pa.float64())],
        result(pa.string()),
        lambda x: ["DOUBLE"] * len(x),
    ),
    Function(
        "kind",
        "scalar_function",
        [("x", pa.string())],
        result(pa.string()),
        lambda x: ["VARCHAR"] * len(x),
    ),
    Function(
        "shown",
        "scalar_function",
        [pa.field("x", pa.null(), metadata=ANY)],
        result(pa.string()),
        lambda x: [f"{x.type}: {value}" for value in x.to_pylist()],
    ),
    Function("not", "scalar_function", [("x", pa.bool_())], result(pa.bool_()), pc.invert),
    Function(
        "id_text",
        "scalar_function",
        [("x", pa.uuid())],
        result(pa.string()),
        lambda x: map(str, x.to_pylist()),
    ),
    Function("seven", "scalar_function", [], result(pa.int64()), None),
    Function(
        "numbers",
        "table_function",
        [("count", pa.int64()), pa.field("step", pa.int64(), metadata=NAMED)],
        NUMBERS,
        _numbers,
    ),
    Function(
        "echo",
        "table_function",
        [pa.field("value", pa.null(), metadata=ANY)],
        lambda arguments, rows: arguments.schema,
        _echo,
    ),
    Function(
        "tagged",
        "table_function",
        [("label", pa.string()), TABLE],
        lambda arguments, rows: pa.schema([("label", pa.string()), *rows]),
        _tagged,
        last=lambda schema: iter([pa.RecordBatch.from_pylist([{"label": "last"}], schema=schema)]),
    ),
    Function(
        "repeated",
        "table_function",
        [("times", pa.int32()), TABLE],
        lambda arguments, rows: rows,
        _repeated,
    ),
]


class FunctionDouble(FlightDouble):
    """`shop.sales` with the functions above."""

    def __init__(self, *functions: Function, **options: Any) -> None:
        self.functions = list(functions) or FUNCTIONS
        super().__init__(**options)

    # ------------------------------------------------------------------------------------- catalog

    def descriptor(self, function: Function) -> flight.FlightDescriptor:
        path = [self.catalog, self.schemas[0], function.kind, function.name]
        if self.joined_path:  # as recorded, where nothing is overloaded
            return flight.FlightDescriptor.for_path("/".join(path))
        return flight.FlightDescriptor.for_path(*path, str(self.functions.index(function)))

    def infos(self, schema: str) -> list[bytes]:
        found = [
            self.function_info(function) for function in self.functions if schema == self.schemas[0]
        ]
        return super().infos(schema) + self.point("functions", found)

    def function_info(self, function: Function) -> bytes:
        extra = (
            None if function.stability is None else msgpack.packb({"stability": function.stability})
        )
        metadata = app_metadata(
            function.name,
            self.schemas[0],
            catalog=self.catalog,
            type=function.kind,
            input_schema=function.input_schema.serialize().to_pybytes(),
            extra_data=extra,
        )
        schema = function.returns if isinstance(function.returns, pa.Schema) else pa.schema([])
        return described(schema, self.descriptor(function), metadata)

    def function_of(self, descriptor: flight.FlightDescriptor) -> Function | None:
        return next((each for each in self.functions if self.descriptor(each) == descriptor), None)

    # ------------------------------------------------------------------------------------- actions

    def action_table_function_flight_info(self, body: dict[str, Any]) -> list[bytes]:
        descriptor = flight.FlightDescriptor.deserialize(body["descriptor"])
        function = self.function_of(descriptor)
        assert function is not None
        rows = body["table_input_schema"]
        schema = self.schema_of(
            function, body["parameters"], pa.ipc.read_schema(pa.py_buffer(rows)) if rows else None
        )
        return [self.point("bind", described(schema, descriptor, None))]

    def schema_of(self, function: Function, parameters: bytes, rows: pa.Schema | None) -> pa.Schema:
        returns = function.returns
        return (
            returns if isinstance(returns, pa.Schema) else returns(arguments_of(parameters), rows)
        )

    def action_endpoints(self, body: dict[str, Any]) -> list[bytes]:
        function = self.function_of(flight.FlightDescriptor.deserialize(body["descriptor"]))
        if function is None:
            return super().action_endpoints(body)
        parameters = body["parameters"]
        ticket = msgpack.packb(
            [
                self.functions.index(function),
                parameters["table_function_parameters"],
                parameters["column_ids"],
            ]
        )
        return [msgpack.packb([flight.FlightEndpoint(ticket, [REUSE]).serialize()])]

    # ---------------------------------------------------------------------------------------- rows

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        content = msgpack.unpackb(ticket.ticket)
        if len(content) != 3:
            return super().do_get(context, ticket)
        function = self.functions[content[0]]
        rows = function.compute(
            arguments_of(content[1]), self.schema_of(function, content[1], None)
        )
        wanted = set(content[2])
        fields = [
            f if i in wanted else pa.field(f.name, pa.null()) for i, f in enumerate(rows.schema)
        ]
        arrays = [
            column if i in wanted else pa.chunked_array([pa.nulls(len(column))])
            for i, column in enumerate(rows.columns)
        ]
        return flight.RecordBatchStream(
            self.point("rows", pa.table(arrays, schema=pa.schema(fields)))
        )

    def do_exchange(
        self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any
    ) -> None:
        function = self.function_of(descriptor)
        if function is None:
            return super().do_exchange(context, descriptor, reader, writer)
        point = "scalar" if function.kind == "scalar_function" else "in_out"
        run = Scalar(function).run if point == "scalar" else InOut(self, function).run
        self.point(point, run)(reader, writer)


@dataclass(frozen=True)
class Scalar:
    function: Function

    def run(self, reader: Any, writer: Any) -> None:
        assert isinstance(self.function.returns, pa.Schema)
        assert reader.schema is not None
        writer.begin(self.function.returns)
        for chunk in reader:
            writer.write_batch(self.answer(chunk.data))

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert isinstance(self.function.returns, pa.Schema)
        computed = (
            self.function.compute(*batch.columns) if batch.num_columns else [7] * batch.num_rows
        )
        values = computed if isinstance(computed, pa.Array) else list(computed)
        kind = self.function.returns.field(0).type
        return pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=self.function.returns)


@dataclass(frozen=True)
class InOut:
    server: FunctionDouble
    function: Function

    def run(self, reader: Any, writer: Any) -> None:
        first = next(reader)
        assert first.data is None
        parameters = msgpack.unpackb(first.app_metadata.to_pybytes(), raw=True)
        self.server.bodies.append(("in_out", first.app_metadata.to_pybytes()))
        arguments = parameters[b"parameters"]
        schema = self.server.schema_of(self.function, arguments, reader.schema)
        writer.begin(schema)
        empty = schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]
        for chunk in reader:
            for batch in self.function.compute(arguments_of(arguments), schema, chunk.data):
                writer.write_with_metadata(batch, b"chunk_continues")
            writer.write_with_metadata(empty[0], b"chunk_finished")
        for batch in self.function.last(schema):
            writer.write_with_metadata(batch, b"chunk_continues")
        writer.write_with_metadata(empty[0], b"chunk_finished")


def arguments_of(parameters: bytes) -> pa.RecordBatch:
    """Return the row of arguments; the stream must hold nothing else."""
    with pa.ipc.open_stream(parameters) as stream:
        (batch,) = list(stream)
    assert batch.num_rows == 1
    return batch
