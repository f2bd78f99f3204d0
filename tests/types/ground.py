"""A server with functions for every type of the matrix, and clients that send every encoding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
from tests.server.raw_client import RawClient
from tests.types.encoded import sent
from tests.types.matrix import LINES, Line, Setting

from sparkport.builder import SchemaBuilder
from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    RecordReader,
    ScanOptions,
    TableFunction,
)
from sparkport.engine.argument_types import canonical_schema
from sparkport.engine.types import narrowed_schema
from sparkport.memory import MemoryCatalog
from sparkport.server import Server
from sparkport.testing import DuckDBClient
from sparkport.testing.objects import AttachedFunction
from sparkport.testing.requests import in_out_parameters
from sparkport.testing.transport import Connection

TIMEOUT = 20.0
AGENT = {"airport-user-agent": "airport/20250723"}
ROOM = 100
"""Row numbers of one test: more than any line has values."""


class Ground:
    """The server and its clients. All tables are in the schema `s`; every call has a deadline."""

    def __init__(self, location: str, echoes: dict[str, Echo], stack: ExitStack) -> None:
        self.echoes = echoes
        self.client = stack.enter_context(DuckDBClient(location, "types", timeout=TIMEOUT))
        self.default = stack.enter_context(
            DuckDBClient(location, "types", timeout=TIMEOUT, arrow_lossless=False)
        )
        self._raw = stack.enter_context(RawClient(location))
        self._connection = Connection(location, TIMEOUT)
        stack.callback(self._connection.close)
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """The first of so many row numbers that nobody else uses."""
        return next(self._numbers) * ROOM

    def table(self, line: Line) -> str:
        """The one table of the type, made by CREATE TABLE with lossless conversion."""
        name = f"t{LINES.index(line)}"
        if name not in self.client.tables("s"):
            self.client.create_table("s", name, {"i": "INTEGER", "v": line.declared})
        return name

    def filled(self, line: Line) -> int:
        """Insert all values of the line; the first row's number."""
        first = self.number()
        self.insert(self.table(line), line, Setting.LOSSLESS, first)
        return first

    def rows(self, name: str, first: int) -> pa.Array:
        """The values of the rows from that number on, as they are read."""
        rows = self.client.scan("s", name, ["i", "v"])
        numbers = rows.column("i").to_pylist()
        start = numbers.index(first)
        count = sum(first <= number < first + ROOM for number in numbers)
        assert numbers[start : start + count] == [*range(first, first + count)], (
            "rows keep their order"
        )
        return rows.column("v").slice(start, count)

    def insert(self, name: str, line: Line, setting: Setting, first: int) -> pa.RecordBatch:
        """INSERT … RETURNING, as a client with that setting sends it; what comes back."""
        values = sent(line, setting)
        numbers = pa.array(range(first, first + len(values)), pa.int32())
        arrow_schema = pa.schema([pa.field("i", pa.int32()), line.sent_as(setting)])
        batch = pa.RecordBatch.from_arrays([numbers, values], schema=arrow_schema)
        returned, total = self._exchange("insert", self.client.table("s", name).descriptor, batch)
        assert total == {"total_changed": len(values)}
        return returned

    def update(self, line: Line, setting: Setting, number: int) -> pa.RecordBatch:
        """UPDATE … RETURNING of one row to the first value; what comes back."""
        name = self.table(line)
        row_id = (
            self.client.scan("s", name, ["rowid", "i"], where=f"i = {number}")
            .column("rowid")
            .combine_chunks()
        )
        arrow_schema = pa.schema([line.sent_as(setting), pa.field("rowid", row_id.type)])
        batch = pa.RecordBatch.from_arrays([sent(line, setting, 0), row_id], schema=arrow_schema)
        returned, total = self._exchange("update", self.client.table("s", name).descriptor, batch)
        assert total == {"total_changed": 1}
        assert returned.schema.names == ["v", "rowid"]
        return returned

    # ----------------------------------------------------------------------------------- functions

    def function(self, name: str) -> AttachedFunction:
        (found,) = [each for each in self.client.functions("s") if each.name == name]
        return found

    def call(self, name: str, line: Line, setting: Setting) -> pa.Array:
        """A scalar function of all values."""
        batch = _arguments(line, setting, sent(line, setting))
        return self._exchange("scalar_function", self.function(name).descriptor, batch)[0].column(0)

    def table_function(self, name: str, line: Line, setting: Setting, row: int) -> pa.Table:
        """A table function of one value: binding and reading."""
        parameters = _stream(_arguments(line, setting, sent(line, setting, row)))
        descriptor = self.function(name).descriptor
        asked = {
            "descriptor": descriptor.serialize(),
            "parameters": parameters,
            "table_input_schema": b"",
        }
        (answer,) = self._raw.action(
            "table_function_flight_info", {**asked, "at_unit": "", "at_value": ""}, AGENT
        )
        (endpoint,) = self._raw.endpoints(
            descriptor, [0], AGENT, table_function_parameters=parameters
        )
        stream = self._raw.get(endpoint.ticket.ticket, AGENT)
        assert stream.arrow_schema == flight.FlightInfo.deserialize(answer).schema
        return stream.table

    def in_out(self, name: str, line: Line, setting: Setting) -> pa.RecordBatch:
        """A table in/out function of all values."""
        nothing = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
        batch = _arguments(line, setting, sent(line, setting))
        opening = in_out_parameters("", _stream(nothing))
        return self._exchange(
            "table_function_in_out", self.function(name).descriptor, batch, opening
        )[0]

    # ----------------------------------------------------------------------------------- exchanges

    def _exchange(
        self,
        operation: str,
        descriptor: flight.FlightDescriptor,
        batch: pa.RecordBatch,
        opening: bytes | None = None,
    ) -> tuple[pa.RecordBatch, Any]:
        """A whole DoExchange with one batch: the one that comes back for it, and the count of
        changed rows.
        """
        headers = {**AGENT, "airport-operation": operation, "return-chunks": "1"}
        exchange = self._connection.exchange(
            descriptor, [(k.encode(), v.encode()) for k, v in headers.items()]
        )
        try:
            if opening is not None:
                exchange.write_metadata(opening)
            exchange.begin(batch.schema)
            answered = exchange.schema()
            exchange.write(batch)
            exchange.half_close()
            chunks = []
            while (chunk := exchange.read("§7.1")) is not None:
                chunks.append(chunk)
        except BaseException:
            exchange.cancel()
            raise
        finally:
            exchange.close()
        (full,) = [chunk.data for chunk in chunks if chunk.data is not None and chunk.data.num_rows]
        assert full.schema.equals(answered, check_metadata=True)
        full.validate()
        total = None
        if operation in ("insert", "update"):
            total = msgpack.unpackb(chunks[-1].app_metadata.to_pybytes())
        return full, total


def _arguments(line: Line, setting: Setting, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=pa.schema([line.sent_as(setting)]))


def _stream(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


# -------------------------------------------------------------------------------------- the server


class Echo(TableFunction):
    """Its one argument as a row; keeps what the argument was in Python. `kind` None takes any
    type.
    """

    def __init__(self, name: str, kind: pa.DataType | None) -> None:
        self._name = name
        self._kind = kind
        self.arrived: Any = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("v", self._kind),))

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        assert isinstance(parameters, Arguments)
        return parameters.arrow.schema

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        assert isinstance(parameters, Arguments)
        self.arrived = parameters[0]
        return [parameters.arrow]


def shown(kind: pa.DataType) -> pa.DataType:
    """How a function sees a type that it did not ask for."""
    return canonical_schema(pa.schema([pa.field("v", kind)])).field(0).type


def told(kind: pa.DataType) -> pa.DataType:
    """The type that the client is told of a column: decimals in their narrowest form."""
    return narrowed_schema(pa.schema([pa.field("v", kind)])).field(0).type


def serve(stack: ExitStack) -> Ground:
    """Start everything; the stack stops it."""
    catalog = MemoryCatalog("types")
    schema = catalog.add_schema("s")
    builder = SchemaBuilder(schema)
    echoes = [
        Echo("echo", None),
        *(Echo(f"echo_{number}", line.arrow) for number, line in enumerate(LINES)),
    ]
    for echo in echoes:
        schema.add_table_function(echo)
    for number, line in enumerate(LINES):
        _add_identity(builder, f"same_{number}", line.arrow, line.arrow)
        for setting in line.distinct:
            _add_identity(
                builder, f"any_{number}_{setting.name}", Any, shown(line.encodings[setting])
            )

    @builder.table_function(returns=lambda rows: rows)
    def through(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from rows

    server = Server(catalog, "grpc://127.0.0.1:0").start()
    stack.callback(server.stop, 0)
    return Ground(server.location, {echo.name: echo for echo in echoes}, stack)


def _add_identity(builder: SchemaBuilder, name: str, parameter: Any, returns: pa.DataType) -> None:
    def identity(value: Any) -> Any:
        return value

    identity.__annotations__ = {"value": parameter, "return": returns}
    builder.scalar_function(identity, name=name)
