"""Functions to test with, and checks of what is left when a call is over."""

# Arrow types are made by calls, which mypy does not take as annotations.
# mypy: disable-error-code="valid-type"

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import pytest

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError

LOCAL = "grpc://127.0.0.1:0"
SOON = 30.0
NUMBERS = pa.schema([("n", pa.int64())])
FORMS = ("rows", "batch")
"""The two ways to write an in/out function: over all rows, and for each batch."""
KINDS = ("scalar", "table", *FORMS)

Builders = tuple[sp.CatalogBuilder, sp.SchemaBuilder]


def catalog(name: str = "c") -> Builders:
    """An empty catalog with the schema `s`."""
    builder = sp.CatalogBuilder(name)
    return builder, builder.schema("s")


def numbers(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())}, schema=NUMBERS)


def table(count: int) -> pa.Table:
    return pa.Table.from_batches([numbers(count)])


def in_out(
    function: Callable[..., Any], returns: Any = NUMBERS, **options: Any
) -> sp.CatalogBuilder:
    """A catalog with the function, of either form, as `f`."""
    builder, schema = catalog()
    schema.table_function(returns=returns, name="f", **options)(function)
    return builder


def echoing() -> sp.CatalogBuilder:
    """In/out functions that answer each row with itself and its double.

    A process of its own serves them too.
    """
    builder, schema = catalog()
    returns = pa.schema([("n", pa.int64()), ("double", pa.int64())])

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [batch.column(0), pc.multiply(batch.column(0), 2)], schema=returns
        )

    @schema.table_function(returns=returns, name="rows")
    def _rows(rows: pa.Table):
        for batch in rows:
            yield doubled(batch)

    @schema.table_function(returns=returns, name="batch")
    def _batch(rows: pa.RecordBatch):
        return doubled(rows)

    return builder


def serve_echoing() -> None:
    """Serve in a process of its own: print the location, and serve until the input ends."""
    import sys

    with sp.Server(echoing(), LOCAL) as server:
        sys.stdout.write(server.location + "\n")
        sys.stdout.flush()
        sys.stdin.read()


# ------------------------------------------------------------------------------------- misbehaving


def doing(kind: str, body: Callable[[sp.Context], Any], **options: Any) -> sp.CatalogBuilder:
    """A catalog with a function `f` that runs `body` after its first answer, and a function `good`.

    A scalar function runs it at its second batch.
    """
    builder, schema = catalog()
    add(schema, kind, body, **options)
    add_good(schema)
    return builder


def add_good(schema: sp.SchemaBuilder) -> None:
    @schema.scalar_function
    def good(x: pa.int64()) -> pa.int64():
        return pc.add(x, 1)


def add(
    schema: sp.SchemaBuilder, kind: str, body: Callable[[sp.Context], Any], **options: Any
) -> None:
    if kind == "scalar":
        calls = iter(range(1_000_000))

        @schema.scalar_function(name="f", **options)
        def _scalar(x: pa.int64(), ctx: sp.Context) -> pa.int64():
            if next(calls):
                body(ctx)
            return x

    elif kind == "table":

        @schema.table_function(returns=NUMBERS, name="f", **options)
        def _table(ctx: sp.Context):
            yield numbers(1)
            body(ctx)

    elif kind == "rows":

        @schema.table_function(returns=NUMBERS, name="f", **options)
        def _all_rows(rows: pa.Table, ctx: sp.Context):
            for batch in rows:
                yield batch
                body(ctx)

    else:

        @schema.table_function(returns=NUMBERS, name="f", **options)
        def _each_batch(rows: pa.RecordBatch, ctx: sp.Context):
            yield rows
            body(ctx)


def run(client: DuckDBClient, kind: str, function: str = "f", rows: int = 5000) -> Any:
    """Call the function as DuckDB does, and take its whole answer."""
    given = pa.table([pa.array(range(rows), pa.int64())], names=["n"])
    if kind == "scalar":
        return client.call("s", function, given).to_pylist()
    if kind == "table":
        return client.table_function("s", function).column("n").to_pylist()
    return client.in_out("s", function, rows=given).column("n").to_pylist()


# ------------------------------------------------------------------------------------ what is left


def threads() -> set[threading.Thread]:
    """The server's own threads, without gRPC's."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("sparkport")}


def eventually(condition: Callable[[], Any], timeout: float = SOON) -> bool:
    """Poll until a condition is true; return whether it became true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def nothing_left_behind(client: DuckDBClient) -> Iterator[None]:
    """Fails unless all threads of a call end by themselves soon, and the server still serves."""
    before = threads()
    yield
    assert eventually(lambda: not threads() - before), (
        f"still there: {sorted(t.name for t in threads() - before)}"
    )
    assert client.call("s", "good", {"x": [1]}).to_pylist() == [2]


def failure(client: DuckDBClient, kind: str, **options: Any) -> ServerError:
    """The error of a call that must fail; nothing of the call is left."""
    with nothing_left_behind(client), pytest.raises(ServerError) as caught:
        run(client, kind, **options)
    assert not caught.value.stalls
    return caught.value


@contextmanager
def exchange(client: DuckDBClient, location: str, function: str, operation: str) -> Iterator[Any]:
    """Writer and reader of an exchange that the test controls, as another Flight client might."""
    (found,) = [each for each in client.functions("s") if each.name == function]
    headers = [
        (b"airport-user-agent", b"airport/20250723"),
        (b"airport-operation", operation.encode()),
    ]
    with flight.connect(location) as connection:
        writer, reader = connection.do_exchange(
            found.descriptor, flight.FlightCallOptions(SOON, headers=headers)
        )
        yield writer, reader


def begin_in_out(writer: Any, reader: Any) -> None:
    """The first messages of an exchange of an in/out function without arguments (airport §9.3)."""
    sink = pa.BufferOutputStream()
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    with pa.ipc.new_stream(sink, nothing.schema) as stream:
        stream.write_batch(nothing)
    opening = {"json_filters": "", "column_ids": [], "parameters": sink.getvalue().to_pybytes()}
    writer.write_metadata(pa.py_buffer(msgpack.packb({**opening, "at_unit": "", "at_value": ""})))
    writer.begin(NUMBERS)
    assert reader.schema == NUMBERS
