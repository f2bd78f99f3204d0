"""Small statements: how long one takes, and how many a second there are, against bare calls.

A SELECT of a small table is four calls: `create_transaction`, `catalog_version`, `endpoints` and
DoGet. The servers run in processes of their own: `python -m benchmarks.statements NAME [FOLDER]`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pyarrow.flight as flight

import sparkport as sp
from benchmarks.measure import Line, compare
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_CLIENTS = 8
_CALLS = 4
"""Of a SELECT without statistics."""
_AT_ONCE = 25
"""Statements of a client in one round."""
_TIMEOUT = flight.FlightCallOptions(timeout=60)


def run(_rows: int) -> Iterator[Line]:
    """All benchmarks of small statements."""
    print("statements: starting servers …", file=sys.stderr)
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="sparkport-bench-"))
        bare, grpcio, memory, lake = (
            running.enter_context(_start(name, folder))
            for name in ("flight", "grpcio", "memory", "lake")
        )
        yield from _one_client(bare, memory, lake)
        yield from _many_clients(grpcio, memory, lake)


def _one_client(bare: str, memory: str, lake: str) -> Iterator[Line]:
    with (
        flight.connect(bare) as caller,
        DuckDBClient(memory, "bench", timeout=60) as in_memory,
        DuckDBClient(lake, "bench", timeout=60) as in_lake,
    ):
        compared = compare(
            [
                partial(_repeat, partial(_bare_calls, caller)),
                partial(_repeat, partial(_select, in_memory)),
                partial(_repeat, partial(_select, in_lake)),
            ]
        )
    for index, where, target in ((1, "memory", 2.5), (2, "lake", 4.0)):
        ratio = compared.ratio(0, index)
        ours, theirs = (1000 / compared.rate(each) for each in (index, 0))
        yield Line(
            f"`SELECT *` of 25 rows × 8 columns by the simulated client, {where}, against four "
            "bare calls of a pyarrow.flight server",
            f"{ratio:.1f} × ({ours:.2f} : {theirs:.2f} ms)",
            f"≤ {target:g} ×",
            ratio <= target,
        )


def _repeat(statement: Callable[[], None]) -> float:
    for _ in range(_AT_ONCE):
        statement()
    return _AT_ONCE


def _select(client: DuckDBClient) -> None:
    rows = client.scan("s", "small")
    if rows.num_rows != 25 or rows.num_columns != 8:
        raise RuntimeError(f"the statement gave {rows.num_rows} rows × {rows.num_columns} columns")


def _bare_calls(client: flight.FlightClient) -> None:
    for _ in range(_CALLS):
        list(client.do_action(flight.Action("nothing", b""), _TIMEOUT))


def _many_clients(grpcio: str, memory: str, lake: str) -> Iterator[Line]:
    """Clients that only send the calls of a statement and take the answers, as fast as they can."""
    with ExitStack() as running:
        threads = running.enter_context(ThreadPoolExecutor(_CLIENTS))

        def connect(location: str, statement: Callable[..., None]) -> list[Callable[[], None]]:
            return [
                partial(statement, running.enter_context(flight.connect(location)))
                for _ in range(_CLIENTS)
            ]

        competitors = [
            connect(grpcio, _bare_calls),
            connect(memory, _statement),
            connect(lake, _statement),
        ]
        compared = compare(
            [partial(lambda each: sum(threads.map(_repeat, each)), each) for each in competitors]
        )
    for index, where in ((1, "memory"), (2, "lake")):
        ratio = compared.ratio(index, 0)
        ours, theirs = compared.rate(index), compared.rate(0)
        yield Line(
            f"{_CLIENTS} clients, that `SELECT` a second, {where}, against the same number of bare "
            "grpcio calls",
            f"{ratio:.2f} ({ours:.0f} : {theirs:.0f} a second)",
            "≥ 0.5",
            ratio >= 0.5,
        )


def _statement(client: flight.FlightClient) -> None:
    """The calls of a SELECT as DuckDB sends them, with its headers (airport §2.2, §5.1)."""
    named = [(b"airport-catalog", b"bench")]
    begun = _act(client, "create_transaction", {"catalog_name": "bench"}, named)
    _act(client, "catalog_version", {"catalog_name": "bench"}, named)
    traced = [
        *named,
        (b"airport-trace-id", b"00000000-0000-4000-8000-000000000000"),
        (b"airport-transaction-id", begun["identifier"].encode()),
    ]
    parameters = {"json_filters": "", "column_ids": list(range(8)), "at_unit": "", "at_value": ""}
    descriptor = flight.FlightDescriptor.for_path("s", "small").serialize()
    body = {"descriptor": descriptor, "parameters": parameters}
    (endpoint,) = _act(client, "endpoints", body, traced)
    ticket = flight.FlightEndpoint.deserialize(endpoint).ticket
    rows = client.do_get(ticket, _options(traced)).read_all()
    if rows.num_rows != 25:
        raise RuntimeError(f"the statement gave {rows.num_rows} rows")


def _act(
    client: flight.FlightClient, name: str, body: Any, headers: list[tuple[bytes, bytes]]
) -> Any:
    action = flight.Action(name, msgpack.packb(body))
    options = _options([*headers, (b"airport-action-name", name.encode())])
    (result,) = client.do_action(action, options)
    return msgpack.unpackb(result.body)


def _options(headers: list[tuple[bytes, bytes]]) -> flight.FlightCallOptions:
    always = [
        (b"airport-user-agent", b"airport/20250723"),
        (b"authority", b"grpc://127.0.0.1"),
        (b"airport-client-session-id", b"00000000-0000-4000-8000-000000000001"),
    ]
    return flight.FlightCallOptions(timeout=60, headers=[*always, *headers])


# ------------------------------------------------------------------------------------- the servers


@contextmanager
def _start(name: str, folder: str) -> Iterator[str]:
    """Start a server in a process of its own; the location that it listens on."""
    command = [sys.executable, "-m", "benchmarks.statements", name, folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError(f"the server {name} did not start")
        yield location
    finally:
        process.terminate()
        process.wait(60)


class _BareServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Answers every action with nothing."""

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return []


def _serve_flight(_folder: str) -> None:
    server = _BareServer("grpc://127.0.0.1:0")
    print(f"grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


class _BareCalls(grpc.GenericRpcHandler):
    """Answers every call with an empty message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_stream_rpc_method_handler(lambda _request, _context: iter((b"",)))


def _serve_grpcio(_folder: str) -> None:
    server = grpc.server(ThreadPoolExecutor(_CLIENTS), handlers=[_BareCalls()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"grpc://127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def _serve_memory(_folder: str) -> None:
    builder = sp.CatalogBuilder("bench")
    builder.schema("s").table("small", _rows())
    server = sp.Server(builder, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))


def _serve_lake(folder: str) -> None:
    lake = sp.LakeCatalog(f"{folder}/lake", name="bench")
    server = sp.Server(lake, "grpc://127.0.0.1:0")
    server.start()
    with DuckDBClient(server.location, "bench", timeout=60) as client:
        client.create_schema("s")
        client.create_table_as("s", "small", _rows())
    server.stop()
    server = sp.Server(lake, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))
    lake.close()


def _rows() -> pa.Table:
    numbers = range(25)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"name {number}" for number in numbers],
            "quantity": pa.array(numbers, pa.int32()),
            "amount": [number / 7 for number in numbers],
            "day": pa.array(numbers, pa.date32()),
            "at": pa.array(numbers, pa.timestamp("us")),
            "good": [number % 2 == 0 for number in numbers],
            "code": [f"code {number % 5}" for number in numbers],
        }
    )


if __name__ == "__main__":
    {
        "flight": _serve_flight,
        "grpcio": _serve_grpcio,
        "memory": _serve_memory,
        "lake": _serve_lake,
    }[sys.argv[1]](sys.argv[2])
