"""The servers that are compared, each in a process of its own: `python -m benchmarks.servers NAME
ROWS`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight

import sparkport as sp
from benchmarks.data import rows

__all__ = ["RunningServer", "start"]


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    location: str
    pid: int


@contextmanager
def start(name: str, count: int) -> Iterator[RunningServer]:
    """Start a server and wait until it listens."""
    command = [sys.executable, "-m", "benchmarks.servers", name, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError(f"the server {name} did not start")
        yield RunningServer(location, process.pid)
    finally:
        process.terminate()
        process.wait(30)


class PlainServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """pyarrow.flight at its plainest: the same batches from memory, and exchanges that count or
    echo.
    """

    def __init__(self, table: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._table = table

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        return flight.RecordBatchStream(self._table)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        echo = descriptor.path == [b"echo"]
        writer.begin(reader.schema)
        total = 0
        for chunk in reader:
            total += chunk.data.num_rows
            if echo:
                writer.write_batch(chunk.data)
        writer.write_metadata(total.to_bytes(8, "little"))


def _plain(count: int) -> None:
    server = PlainServer(rows(count))
    print(f"grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


def _sparkport(count: int) -> None:
    builder = sp.CatalogBuilder("bench")
    schema = builder.schema("s")
    schema.table("big", rows(count))
    schema.table("small", rows(10))
    schema.table("sink", rows(1).schema)
    _add_functions(schema)
    _serve(builder)


def _add_functions(schema: sp.SchemaBuilder) -> None:
    @schema.scalar_function
    def add(a: pa.int64(), b: pa.int64()) -> pa.int64():  # type: ignore[valid-type]  # annotations are Arrow types
        return pc.add(a, b)

    @schema.table_function(returns=lambda batch: batch)
    def passed(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    @schema.table_function(returns=lambda rows: rows)
    def streamed(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from rows


def _serve(builder: sp.CatalogBuilder) -> None:
    server = sp.Server(builder, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))


def _many_tables(count: int) -> None:
    arrow_schema = pa.schema([(f"column_{index}", pa.int64()) for index in range(50)])
    builder = sp.CatalogBuilder("bench")
    schema = builder.schema("s")
    for index in range(count):
        schema.table(f"table_{index}", arrow_schema)
    _serve(builder)


def _decimals(count: int) -> None:
    """Prices as tables of TPC-H have them: 15 digits, 4 columns."""
    numbers = pa.array(range(count), pa.int64())
    cents = [pc.bit_wise_and(pc.multiply(numbers, factor), 0xFFFFFFF) for factor in (1, 3, 5, 7)]
    wide = [each.cast(pa.decimal128(19, 0)).view(pa.decimal128(19, 2)) for each in cents]
    builder = sp.CatalogBuilder("bench")
    builder.schema("s").table(
        "prices", pa.table([each.cast(pa.decimal128(15, 2)) for each in wide], names=list("abcd"))
    )
    _serve(builder)


if __name__ == "__main__":
    {
        "plain": _plain,
        "sparkport": _sparkport,
        "many_tables": _many_tables,
        "decimals": _decimals,
    }[sys.argv[1]](int(sys.argv[2]))
