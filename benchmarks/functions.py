"""Functions, as DuckDB calls them: batches of 2048 rows in lockstep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import msgpack
import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.client import exchange_in_lockstep, function_descriptor
from benchmarks.measure import Line, compare, resident_megabytes
from benchmarks.servers import start

__all__ = ["run"]

_VECTOR = 2048
_PASSED_THROUGH = 5_000_000
_ROUNDS = 9


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of functions."""
    print("functions: starting servers …", file=sys.stderr)
    numbers = pa.array(range(_VECTOR), pa.int64())
    batch = pa.record_batch({"a": numbers, "b": numbers})
    echo = flight.FlightDescriptor.for_path("echo")
    with start("plain", 1) as plain, start("sparkport", 1) as ours:
        count = rows // _VECTOR // 2
        add = function_descriptor(ours.location, "add")
        yield _line(
            f"scalar function a + b over {rows:,} rows, 2 exchanges, against an echo of the same "
            f"batches",
            partial(
                _twice,
                partial(exchange_in_lockstep, ours.location, add, batch, count, "scalar_function"),
            ),
            partial(_twice, partial(exchange_in_lockstep, plain.location, echo, batch, count)),
            0.6,
        )
        count, arguments = _PASSED_THROUGH // _VECTOR, _no_arguments()
        for name, form in (
            ("passed", "called for each batch"),
            ("streamed", "iterating over all batches"),
        ):
            descriptor = function_descriptor(ours.location, name)
            before = resident_megabytes(ours.pid)
            line = _line(
                f"in/out function ({form}) passing 5 M rows through, against the echo",
                partial(
                    exchange_in_lockstep,
                    *(ours.location, descriptor, batch, count, "table_function_in_out", arguments),
                ),
                partial(exchange_in_lockstep, plain.location, echo, batch, count),
                0.5,
            )
            grown = resident_megabytes(ours.pid) - before
            yield replace(line, what=f"{line.what}; server memory {grown:+.0f} MB")


def _line(what: str, ours: Callable[[], float], peer: Callable[[], float], target: float) -> Line:
    compared = compare([peer, ours], rounds=_ROUNDS)
    ratio = compared.ratio(1, 0)
    rates = f"{compared.rate(1) / 1e6:.2f} : {compared.rate(0) / 1e6:.2f} M rows/s"
    return Line(what, f"{ratio:.2f} ({rates})", f"≥ {target}", ratio >= target)


def _twice(action: Callable[[], float]) -> float:
    """Run two exchanges at once, as DuckDB does with two threads."""
    with ThreadPoolExecutor(2) as threads:
        return sum(threads.map(lambda _: action(), range(2)))


def _no_arguments() -> bytes:
    sink = pa.BufferOutputStream()
    one_row = pa.record_batch({"_": [None]}).select([])
    with pa.ipc.new_stream(sink, one_row.schema) as writer:
        writer.write_batch(one_row)
    parameters = sink.getvalue().to_pybytes()
    packed: bytes = msgpack.packb(
        {
            "json_filters": "",
            "column_ids": [],
            "parameters": parameters,
            "at_unit": "",
            "at_value": "",
        }
    )
    return packed
