"""Tables that fail or break their contract: the client learns what it may, the log has the rest."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pyarrow as pa
import pytest
from tests.server.catalogs import NUMBERS, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, decode_stream, failure_of, path, ticket_message

from sparkport.errors import PreconditionFailed

BATCH = numbers(10).to_batches()[0]
T, GOOD = path("s", "t"), path("s", "good")


def serve_scan(serve, scan, arrow_schema=NUMBERS) -> RawClient:
    """A client of a server with this scan, beside a table that is in order."""
    return serve(catalog_of(ScriptedTable("t", arrow_schema, scan), ListedTable("good", numbers())))


def read_until_failure(client: RawClient):
    """Return what a DoGet sent before it failed, and the failure."""
    (endpoint,) = client.endpoints(T)
    received = []
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
    try:
        received.extend(call)
    except grpc.RpcError as error:
        return received, failure_of(error)
    raise AssertionError("the scan succeeded")


def test_an_error_of_ours_halfway_keeps_its_code(serve):
    def scan(_ctx, _options):
        yield BATCH
        yield BATCH
        raise PreconditionFailed("the lake is frozen; wait for spring")

    client = serve_scan(serve, scan)
    received, failure = read_until_failure(client)

    assert (failure.code, failure.message) == (
        "FAILED_PRECONDITION",
        "the lake is frozen; wait for spring",
    )
    assert decode_stream(received).table.num_rows == 20
    assert client.scan(GOOD).table.num_rows == 3


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("secret password")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret password"),
        KeyError("secret password"),
        OSError(2, "secret password", "/etc/passwd"),
        pa.ArrowInvalid("secret password"),
        StopIteration("secret password"),
        MemoryError("secret password"),
        RecursionError("secret password"),
        Unprintable(),
        SystemExit("secret password"),
        KeyboardInterrupt("secret password"),
        asyncio.CancelledError("secret password"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_error_halfway_is_only_a_trace_id(serve, caplog, error):
    def scan(_ctx, _options):
        yield BATCH
        raise error

    client = serve_scan(serve, scan)
    (endpoint,) = client.endpoints(T)
    with caplog.at_level(logging.ERROR, "sparkport.server"):
        failure = client.failure(
            "DoGet", ticket_message(endpoint.ticket.ticket), {"airport-trace-id": "trace-4711"}
        )

    assert failure.code == "INTERNAL"
    assert (
        failure.message
        == "internal error; the server's log has the details under trace id trace-4711"
    )
    # Where PySpark has put its own formatter on pytest's handlers, an error that cannot be shown is
    # logged twice.
    record, *more = [each for each in caplog.records if each.name == "sparkport.server"]
    assert "trace-4711" in record.getMessage()
    assert record.exc_info is not None
    assert [each.getMessage() for each in more] in (
        [],
        ["trace trace-4711: unexpected error Unprintable, which cannot be shown"],
    )
    assert client.scan(GOOD).table.num_rows == 3


def test_an_error_that_the_log_does_not_take_is_only_a_trace_id_too(serve, caplog, monkeypatch):
    def scan(_ctx, _options):
        yield BATCH
        raise Unprintable

    def refuse(record):
        raise RuntimeError("secret password")

    client = serve_scan(serve, scan)
    (endpoint,) = client.endpoints(T)
    monkeypatch.setattr(
        caplog.handler, "format", lambda record: refuse(record) if record.exc_info else "fine"
    )
    failure = client.failure(
        "DoGet", ticket_message(endpoint.ticket.ticket), {"airport-trace-id": "trace-4712"}
    )

    assert failure.code == "INTERNAL"
    assert (
        failure.message
        == "internal error; the server's log has the details under trace id trace-4712"
    )


def test_an_unexpected_error_of_an_action_is_unknown_which_costs_no_retry(serve, caplog):
    class Broken(ListedTable):
        @property
        def arrow_schema(self):
            raise RuntimeError("secret password")

    client = serve(catalog_of(Broken("t", numbers())))

    headers = {"airport-user-agent": "airport/20250723"}
    failure = client.action_failure("endpoints", {"schema": "s", "table": "t"}, headers)

    assert failure.code == "UNKNOWN"
    assert "trace id" in failure.message
    assert "secret" not in failure.message
    assert "secret password" in caplog.text


@pytest.mark.parametrize("trace_id", [None, "x" * 4000])
def test_a_trace_id_is_always_there_and_never_too_long(serve, trace_id):
    def scan(_ctx, _options):
        raise RuntimeError

    client = serve_scan(serve, scan)
    (endpoint,) = client.endpoints(T)
    headers = {"airport-trace-id": trace_id} if trace_id else {}
    failure = client.failure("DoGet", ticket_message(endpoint.ticket.ticket), headers)

    assert failure.code == "INTERNAL"
    assert 60 < len(failure.message) < 300


def _columns(**columns):
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("yielded", "problem"),
    [
        (_columns(id=pa.array([1]), name=pa.array(["x"])), "no column 'value'"),
        (_columns(id=pa.array([1], pa.int32()), name=["x"], value=[0.5]), "'id' as int32"),
        (_columns(id=["1"], name=["x"], value=[0.5]), "'id' as string"),
        (
            pa.RecordBatch.from_arrays(
                [pa.array([1]), pa.array([2]), pa.array(["x"]), pa.array([0.5])],
                ["id", "id", "name", "value"],
            ),
            "more than one column 'id'",
        ),
        (numbers(), "Table"),
        ([1, 2, 3], "list"),
        (None, "NoneType"),
        ("rows", "str"),
    ],
    ids=[
        "missing column",
        "narrower type",
        "other type",
        "column twice",
        "table",
        "list",
        "None",
        "text",
    ],
)
def test_a_scan_that_yields_something_else_is_a_fault_that_names_the_table(serve, yielded, problem):
    def scan(_ctx, _options):
        yield BATCH
        yield yielded

    client = serve_scan(serve, scan)
    received, failure = read_until_failure(client)

    assert failure.code == "UNKNOWN"
    assert "s.t" in failure.message
    assert problem in failure.message
    assert decode_stream(received).table.num_rows == 10
    assert client.scan(GOOD).table.num_rows == 3


@pytest.mark.parametrize("returned", [None, 42], ids=["None", "a number"])
def test_a_scan_that_returns_no_reader_is_a_fault_that_names_the_table(serve, returned):
    failure = serve_scan(serve, lambda *_: returned).scan_failure(T)

    assert failure.code == "UNKNOWN"
    assert "s.t" in failure.message


def test_a_scan_may_yield_columns_in_any_order_and_more_than_asked(serve):
    reordered = BATCH.select(["value", "name", "id"]).append_column("extra", pa.array(range(10)))

    stream = serve_scan(serve, lambda *_: [reordered, BATCH]).scan(T)

    assert stream.table.equals(pa.Table.from_batches([BATCH, BATCH]))


@pytest.mark.parametrize(
    "batches",
    [[], [BATCH.slice(0, 0)], [BATCH.slice(0, 0), BATCH.slice(0, 0)]],
    ids=["none", "empty", "empty twice"],
)
def test_a_scan_without_rows_is_a_stream_with_only_a_schema(serve, batches):
    stream = serve_scan(serve, lambda *_: iter(batches)).scan(T)

    assert stream.arrow_schema == NUMBERS
    assert stream.table.num_rows == 0


def test_a_record_batch_reader_is_a_reader(serve):
    closed = []

    class Reader:
        def __iter__(self):
            return iter([BATCH])

        def close(self):
            closed.append(True)

    assert (
        serve_scan(serve, lambda *_: pa.RecordBatchReader.from_batches(NUMBERS, [BATCH]))
        .scan(T)
        .table.num_rows
        == 10
    )
    assert serve_scan(serve, lambda *_: Reader()).scan(T).table.num_rows == 10
    assert closed == [True]
