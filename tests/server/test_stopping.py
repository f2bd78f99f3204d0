"""Stopping: running calls may finish for a while, none begins, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.catalogs import NUMBERS, Endless, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.ports import start_again
from tests.server.raw_client import RawClient, decode_stream, failure_of, path, ticket_message
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError

SOON = 30.0
T = path("s", "t")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Held:
    """A scan that goes on until it is released."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()

    def __call__(self, ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        batch = numbers(10).to_batches()[0]
        yield batch
        self.started.set()
        while not self.release.wait(0.02):
            ctx.check()
        yield batch


def stop(server: sp.Server, grace: float) -> threading.Thread:
    thread = threading.Thread(target=server.stop, args=(grace,), daemon=True)
    thread.start()
    assert eventually(lambda: server._watching is None or server._watching.draining)
    return thread


def health(client: RawClient) -> Any:
    return (
        health_pb2_grpc.HealthStub(client.channel)
        .Check(health_pb2.HealthCheckRequest(), timeout=SOON)
        .status
    )


def healthz(page: str | None) -> int:
    assert page is not None
    try:
        with urllib.request.urlopen(page + "/healthz", timeout=SOON) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_what_is_under_way_finishes_while_nothing_new_begins(start, connect):
    scan = Held()
    server = start(
        catalog_of(ScriptedTable("t", NUMBERS, scan), ListedTable("good", numbers())),
        sp.ServerSettings(http="127.0.0.1:0"),
    )
    page = server.status_page
    client = connect(server)
    (endpoint,) = client.endpoints(T)
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=30)
    assert scan.started.wait(SOON)
    assert healthz(page) == 200

    stopping = stop(server, 20)
    assert eventually(lambda: health(client) == NOT_SERVING)
    refused = client.failure("DoGet", ticket_message(endpoint.ticket.ticket))
    refused_action = client.action_failure("list_schemas", {"catalog_name": ""})

    assert healthz(page) == 503
    assert (refused.code, refused_action.code) == ("UNAVAILABLE", "UNAVAILABLE")
    assert "being stopped" in refused.message
    assert stopping.is_alive()
    scan.release.set()
    assert decode_stream(list(call)).table.num_rows == 20
    stopping.join(SOON)
    assert not stopping.is_alive()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page + "/healthz", timeout=SOON)


def test_a_call_that_helps_one_under_way_is_not_a_new_one(start, connect):
    """DuckDB reads a scan's parts in turn, and opens exchanges before the scans that feed them."""
    scan = Held()
    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan), ListedTable("good", numbers())))
    client = connect(server)
    mine = {"airport-client-session-id": "mine"}
    (endpoint,) = client.endpoints(T)
    (good,) = client.endpoints(path("s", "good"))
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), mine, timeout=30)
    assert scan.started.wait(SOON)

    stopping = stop(server, 20)

    assert client.get(good.ticket.ticket, mine).table.num_rows == 3
    theirs = client.failure(
        "DoGet", ticket_message(good.ticket.ticket), {"airport-client-session-id": "theirs"}
    )
    assert theirs.code == "UNAVAILABLE"
    assert client.failure("DoExchange", b"", mine).code == "UNAVAILABLE"
    scan.release.set()
    list(call)
    stopping.join(SOON)
    assert not stopping.is_alive()


def test_what_never_ends_is_cancelled_at_the_deadline(start, connect):
    scan = Endless()
    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan)))
    client = connect(server)
    (endpoint,) = client.endpoints(T)
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=30)
    next(call)
    next(call)

    began = time.monotonic()
    server.stop(0.5)

    assert 0.5 <= time.monotonic() - began < SOON
    assert scan.closed.wait(SOON)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert failure_of(caught.value).code in ("CANCELLED", "UNAVAILABLE")


def test_an_insert_that_is_cancelled_has_rolled_back_when_stop_returns(start, monkeypatch):
    """The catalogs are closed next, and must find nothing under way."""
    monkeypatch.setattr("sparkport.server.listen._ROLL_BACK_SECONDS", 60.0)
    catalog = sp.MemoryCatalog("m")
    table = sp.MemoryTable("t", pa.schema([("a", pa.int64())]))
    catalog.add_schema("s").add_table(table)
    server = start(catalog)
    sent, hold = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        sent.set()
        hold.wait(SOON)

    def insert() -> None:
        with DuckDBClient(server.location, "m", timeout=20) as client:
            try:
                client.insert("s", "t", rows())
            except ServerError as error:
                failures.append(error)

    thread = threading.Thread(target=insert)
    thread.start()
    assert sent.wait(SOON)
    watching = server._watching

    server.stop(0.2)

    assert watching.activity.running() == []
    hold.set()
    thread.join(SOON)
    assert failures
    assert sum(batch.num_rows for batch in table.scan(sp.Context(), sp.ScanOptions())) == 0


def test_a_server_can_be_started_again(start, connect):
    def stopped() -> sp.Server:
        server: sp.Server = start(
            catalog_of(ListedTable("t", numbers())), sp.ServerSettings(http="127.0.0.1:0")
        )
        server.stop(0)
        server.stop(0)
        assert server.status_page is None
        return server

    server = start_again(stopped)

    assert connect(server).scan(T).table.num_rows == 3
    assert healthz(server.status_page) == 200


# ------------------------------------------------------------------------------------ as a process

_SERVING = """
import sys, threading, time, pyarrow as pa
import sparkport as sp
from sparkport.server import Server

def held(ctx, options):
    yield pa.record_batch({"id": [1]})
    print("scanning", flush=True)
    for _ in range(10):
        ctx.wait(0.1)
    yield pa.record_batch({"id": [2]})

def endless(ctx, options):
    yield pa.record_batch({"id": [1]})
    print("scanning", flush=True)
    while True:
        ctx.wait(0.1)

catalog = sp.MemoryCatalog("cat")
schema = catalog.add_schema("s")
builder = sp.CatalogBuilder("scans")
columns = pa.schema([("id", pa.int64())])
tables = builder.schema("s")
tables.table("held", held, arrow_schema=columns).table("endless", endless, arrow_schema=columns)
schema.add_table(sp.MemoryTable("t", columns))
settings = sp.ServerSettings(stop_seconds=float(sys.argv[1]))
server = Server([catalog, builder], "grpc://127.0.0.1:0", settings)
server.run_until_signal(lambda: print(server.location, flush=True))
batches = schema.table(sp.Context(), "t").scan(sp.Context(), sp.ScanOptions())
count = sum(batch.num_rows for batch in batches)
print("stopped", count, flush=True)
"""


@contextmanager
def serving(
    stop_seconds: float, program: str = _SERVING
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", program, str(stop_seconds)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def scan_of(client: RawClient, process: Any, table: str) -> Any:
    (endpoint,) = client.endpoints(path("scans", "s", table), headers={"airport-catalog": "scans"})
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=30)
    next(call)
    next(call)
    assert process.stdout.readline() == "scanning\n"
    return call


def test_a_scan_under_way_at_sigterm_finishes():
    with serving(30) as (process, location), RawClient(location) as client:
        call = scan_of(client, process, "held")
        process.send_signal(signal.SIGTERM)

        assert len(list(call)) == 1
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "stopped 0\n")
        assert "Traceback" not in errors


def test_a_scan_that_never_ends_is_cancelled_when_its_time_is_over():
    with serving(0.5) as (process, location), RawClient(location) as client:
        call = scan_of(client, process, "endless")
        process.send_signal(signal.SIGTERM)

        with pytest.raises(grpc.RpcError):
            list(call)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "stopped 0\n")
        assert "Traceback" not in errors


def test_a_second_signal_hurries():
    with serving(600) as (process, location), RawClient(location) as client:
        call = scan_of(client, process, "endless")
        process.send_signal(signal.SIGINT)
        assert eventually(lambda: health(client) == NOT_SERVING)  # two signals at once would be one
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)

        with pytest.raises(grpc.RpcError):
            list(call)
        output, _ = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "stopped 0\n")


def test_a_signal_that_interrupts_no_wait_is_noticed():
    """Another thread may be given it, or it comes just before the main thread begins to wait."""
    announced = "server.run_until_signal(lambda: print(server.location, flush=True))"
    assert announced in _SERVING
    blocked = announced.replace(
        "lambda:", "lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]) or"
    )
    program = "import signal\n" + _SERVING.replace(announced, blocked)
    with serving(30, program) as (process, _):
        process.send_signal(signal.SIGTERM)

        output, _ = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "stopped 0\n")


def test_no_thread_that_python_does_not_wait_for_outlives_the_server(start, connect, monkeypatch):
    monkeypatch.setattr("sparkport.server.listen._LAST_THREADS_SECONDS", 60.0)
    before = set(threading.enumerate())
    server = start(catalog_of(ListedTable("t", numbers())))
    client = connect(server)
    assert client.scan(T).table.num_rows == 3

    server.stop()

    left = [
        thread.name for thread in threading.enumerate() if thread.daemon and thread not in before
    ]
    # The client has threads too.
    assert [name for name in left if "sparkport" in name or "_serve" in name] == []


@pytest.mark.parametrize("finishes", [True, False])
def test_an_insert_under_way_at_sigterm_finishes_or_is_nothing(finishes: bool):
    with serving(60 if finishes else 0.3) as (process, location):
        changed = []

        def rows() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"id": [1, 2]})
            process.send_signal(signal.SIGTERM)
            if finishes:
                time.sleep(0.5)
            else:
                process.wait(30)
            yield pa.record_batch({"id": [3]})

        with DuckDBClient(location, "cat", timeout=60) as client:
            try:
                changed.append(client.insert("s", "t", rows()).total)
            except ServerError:
                changed.append(0)
        output, errors = process.communicate(timeout=30)

        assert changed == [3 if finishes else 0]
        assert (process.returncode, output) == (0, f"stopped {changed[0]}\n")
        assert "Traceback" not in errors
