"""Clients that stop reading, cancel, or vanish: the reader is closed, and the server goes on."""

from __future__ import annotations

import subprocess
import sys
import threading

import grpc
import pytest
from tests.server.catalogs import (
    NUMBERS,
    Endless,
    ListedTable,
    ScriptedTable,
    Silent,
    catalog_of,
    numbers,
)
from tests.server.raw_client import RawClient, path, ticket_message

SOON = 30.0
T, GOOD = path("s", "t"), path("s", "good")


def served(scan):
    return catalog_of(ScriptedTable("t", NUMBERS, scan), ListedTable("good", numbers()))


def open_scan(client: RawClient):
    (endpoint,) = client.endpoints(T)
    return client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=60)


def test_cancelling_closes_the_reader_of_the_table(serve):
    scan = Endless()
    client = serve(served(scan))
    call = open_scan(client)
    next(call)
    next(call)

    call.cancel()

    assert scan.closed.wait(SOON)
    assert scan.cancelled.wait(SOON)
    assert client.scan(GOOD).table.num_rows == 3


def test_a_client_that_vanishes_closes_the_reader_of_the_table(start, connect):
    scan = Endless()
    server = start(served(scan))
    with RawClient(server.location) as client:
        call = open_scan(client)
        next(call)
        next(call)

    assert scan.closed.wait(SOON)
    assert connect(server).scan(GOOD).table.num_rows == 3


_VANISHING = """
import os, sys
from tests.server.raw_client import RawClient, path, ticket_message
client = RawClient(sys.argv[1])
(endpoint,) = client.endpoints(path("s", "t"))
call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
next(call), next(call)
os._exit(0)
"""


def test_a_client_process_that_dies_closes_the_reader_of_the_table(start):
    scan = Endless()
    server = start(served(scan))

    subprocess.run([sys.executable, "-c", _VANISHING, server.location], timeout=50, check=True)

    assert scan.closed.wait(SOON)


def test_a_client_that_does_not_read_on_stops_the_scan_by_flow_control(serve):
    """LIMIT: the client reads a little and drops the stream. The server must not run far ahead."""
    scan = Endless(rows=100_000)
    client = serve(served(scan))
    call = open_scan(client)
    for _ in range(3):
        next(call)
    assert client.scan(GOOD).table.num_rows == 3

    call.cancel()

    assert scan.closed.wait(SOON)
    assert scan.yielded < 50


def test_cancelling_reaches_a_scan_that_never_yields(serve):
    scan = Silent()
    client = serve(served(scan))
    call = open_scan(client)
    assert scan.started.wait(SOON)

    call.cancel()

    assert scan.ended.wait(SOON)
    assert client.scan(GOOD).table.num_rows == 3


def test_a_deadline_reaches_a_scan_that_never_yields(serve):
    scan = Silent()
    client = serve(served(scan))
    (endpoint,) = client.endpoints(T)

    for seconds in (1, 5, 25):
        with pytest.raises(grpc.RpcError) as caught:
            list(client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=seconds))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if scan.started.wait(1):  # and not only when it was too late
            break

    assert scan.ended.wait(SOON)


def test_many_scans_that_never_yield_leave_room_for_others(serve):
    """Nothing may block scans (airport §1.2): there is a thread for each call."""
    scan = Silent()
    client = serve(served(scan))
    calls = [open_scan(client) for _ in range(100)]
    assert scan.started.wait(SOON)

    assert client.scan(GOOD).table.num_rows == 3

    for call in calls:
        call.cancel()


def test_a_server_can_stop_while_a_scan_never_yields(start):
    scan = Silent()
    server = start(served(scan))
    with RawClient(server.location) as client:
        call = open_scan(client)
        assert scan.started.wait(SOON)

        server.stop(grace=0)

        assert scan.ended.wait(SOON)
        with pytest.raises(grpc.RpcError):
            list(call)


def test_a_server_can_stop_while_a_scan_ignores_everything(start):
    release, started, ended = threading.Event(), threading.Event(), threading.Event()

    def scan(_ctx, _options):
        started.set()
        release.wait()
        ended.set()
        yield from ()

    server = start(served(scan))
    with RawClient(server.location) as client:
        call = open_scan(client)  # kept: gRPC cancels a call without references
        assert started.wait(SOON)

        server.stop(grace=0)

        with pytest.raises(grpc.RpcError):
            list(call)
    assert not ended.is_set()
    release.set()
    assert ended.wait(SOON)


def test_the_context_is_not_cancelled_by_a_normal_end(serve):
    contexts = []

    def scan(ctx, _options):
        contexts.append(ctx)
        yield numbers().to_batches()[0]

    client = serve(served(scan))
    client.scan(T)
    client.scan(GOOD)

    assert not contexts[0].cancelled


def test_an_exception_after_a_cancellation_is_not_logged_as_an_error(serve, caplog):
    waiting, ended = threading.Event(), threading.Event()

    def scan(ctx, _options):
        cancelled = threading.Event()
        ctx.on_cancel(cancelled.set)
        yield numbers().to_batches()[0]
        try:
            waiting.set()
            cancelled.wait()
            raise RuntimeError("the connection to the lake was interrupted")
        finally:
            ended.set()

    client = serve(served(scan))
    call = open_scan(client)
    next(call)
    next(call)
    assert waiting.wait(SOON)
    call.cancel()

    assert ended.wait(SOON)
    assert client.scan(GOOD).table.num_rows == 3
    assert "interrupted" not in caplog.text
