"""Functions that hang, and callers that go away: the call ends, and the function's thread too."""

# mypy: disable-error-code="valid-type"

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.functions.catalogs import (
    FORMS,
    KINDS,
    LOCAL,
    NUMBERS,
    SOON,
    add_good,
    begin_in_out,
    catalog,
    doing,
    exchange,
    failure,
    nothing_left_behind,
    numbers,
    run,
)

import sparkport as sp
from sparkport.service import function_guard
from sparkport.testing import ClientHang, DuckDBClient, ServerError


def loop(_ctx: sp.Context) -> None:
    while True:
        pass


def wait(ctx: sp.Context) -> None:
    ctx.wait(1000)


def stubborn(_ctx: sp.Context) -> None:
    for _ in range(2):  # stops at the third interruption
        try:
            loop(_ctx)
        except BaseException:
            continue
    loop(_ctx)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        *((kind, body) for kind in KINDS for body in (loop, wait)),
        ("scalar", stubborn),
        ("rows", stubborn),
    ],
)
def test_a_function_that_takes_too_long_is_stopped(serve, kind, body):
    client = serve(doing(kind, body, time_limit=0.2))

    failed = failure(client, kind)

    assert (failed.code, failed.duckdb_exception) == ("RESOURCE_EXHAUSTED", "InvalidInputException")
    assert failed.message == "function s.f took longer than 0.2 seconds and was stopped"


def test_a_function_is_stopped_soon_after_its_time():
    """With the real delays."""
    with (
        sp.Server(doing("rows", loop, time_limit=0.2), LOCAL) as server,
        DuckDBClient(server.location, "c", timeout=SOON) as client,
    ):
        started = time.monotonic()
        with pytest.raises(ServerError, match="took longer"):
            run(client, "rows")
        assert time.monotonic() - started < SOON


@pytest.mark.parametrize("kind", ["table", "rows"])
def test_telling_the_columns_must_not_take_too_long_either(serve, kind):
    def columns_of(*_: Any) -> pa.Schema:
        while True:
            pass

    builder, schema = catalog()
    if kind == "table":
        schema.table_function(returns=columns_of, name="f", time_limit=0.2)(lambda: None)
    else:

        @schema.table_function(returns=columns_of, name="f", time_limit=0.2)
        def _rows(rows: pa.Table): ...

    with pytest.raises(ServerError, match=r"took longer than 0\.2 seconds"):
        run(serve(builder), kind)


def test_dividing_the_work_must_not_take_too_long_either(serve):
    def divide() -> list[bytes]:
        deadline = time.monotonic() + 60  # so that the test ends, whatever happens
        while time.monotonic() < deadline:
            pass
        return []

    builder, schema = catalog()
    schema.table_function(returns=NUMBERS, name="f", partitions=divide, time_limit=0.2)(
        lambda: None
    )

    with pytest.raises(ServerError, match=r"took longer than 0\.2 seconds"):
        run(serve(builder), "table")


@pytest.mark.parametrize("kind", ["scalar", "rows"])
def test_the_limit_is_for_one_batch_and_not_for_all(serve, kind):
    def slow(_ctx: sp.Context) -> None:
        time.sleep(0.3)

    client = serve(doing(kind, slow, time_limit=2.0))

    with nothing_left_behind(client):
        assert run(client, kind, rows=8 * 2048 + 1) == list(range(8 * 2048 + 1))


def test_the_time_that_the_client_takes_does_not_count(start):
    builder = doing("rows", lambda _ctx: None, time_limit=1.0)
    with DuckDBClient(start(builder), "c", timeout=SOON) as client, nothing_left_behind(client):

        def slowly():
            for first in (0, 2):
                yield numbers(2, first)
                time.sleep(1.2)

        batches = client.in_out_batches("s", "f", rows=slowly())
        assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(4))


@pytest.mark.parametrize(
    ("kind", "body"), [*((kind, loop) for kind in KINDS), ("scalar", wait), ("rows", wait)]
)
def test_a_function_whose_caller_gives_up_ends(start, kind, body):
    location = start(doing(kind, body))
    with (
        DuckDBClient(location, "c", timeout=SOON) as client,
        nothing_left_behind(client),
        DuckDBClient(location, "c", timeout=0.6) as impatient,
        pytest.raises(ClientHang),
    ):
        run(impatient, kind)


@pytest.mark.parametrize("kind", ["scalar", *FORMS])
def test_an_exchange_that_is_cancelled_midway_ends_the_function(start, kind):
    entered = threading.Event()

    def body(ctx: sp.Context) -> None:
        entered.set()
        ctx.wait(1000)

    location = start(doing(kind, body))
    operation = "scalar_function" if kind == "scalar" else "table_function_in_out"
    with (
        DuckDBClient(location, "c", timeout=SOON) as client,
        nothing_left_behind(client),
        exchange(client, location, "f", operation) as (writer, reader),
    ):
        if kind == "scalar":
            writer.begin(pa.schema([("x", pa.int64())]))
        else:
            begin_in_out(writer, reader)
        for _ in range(2):
            writer.write_batch(numbers(1) if kind != "scalar" else numbers(1).rename_columns(["x"]))
        assert entered.wait(SOON)
        reader.cancel()


def test_a_client_that_vanishes_while_a_function_waits_for_rows_ends_it(start):
    ended = threading.Event()
    builder, schema = catalog()

    @schema.table_function(returns=NUMBERS)
    def f(rows: pa.Table):
        try:
            yield from rows
        finally:
            ended.set()

    add_good(schema)
    location = start(builder)
    with DuckDBClient(location, "c", timeout=SOON) as client, nothing_left_behind(client):
        with exchange(client, location, "f", "table_function_in_out") as (writer, reader):
            begin_in_out(writer, reader)
            writer.write_batch(numbers(1))
            assert reader.read_chunk().data.num_rows == 1
            reader.cancel()
        assert ended.wait(SOON)


def test_a_stream_that_is_dropped_ends_the_table_function(start):
    closed = threading.Event()
    builder, schema = catalog()

    @schema.table_function(returns=NUMBERS, name="f")
    def _endless(ctx: sp.Context):
        try:
            while True:
                yield numbers(1000)
        finally:
            closed.set()

    add_good(schema)
    with DuckDBClient(start(builder), "c", timeout=SOON) as client, nothing_left_behind(client):
        assert client.table_function("s", "f", limit=10).num_rows == 10
        assert closed.wait(SOON)


@pytest.mark.parametrize("kind", ["scalar", "rows"])
def test_the_caller_of_a_function_that_cannot_be_interrupted_is_let_go(
    serve, monkeypatch, caplog, kind
):
    monkeypatch.setattr(function_guard, "_ABANDON_SECONDS", 0.3)
    release = threading.Event()

    def body(_ctx: sp.Context) -> None:
        release.wait(SOON)  # interruptible is False, so this stands for foreign code

    client = serve(doing(kind, body, time_limit=0.2, interruptible=False))
    started = time.monotonic()
    with nothing_left_behind(client):
        with pytest.raises(ServerError) as caught:
            run(client, kind)
        waited = time.monotonic() - started
        release.set()

    assert waited < SOON
    assert caught.value.code in ("CANCELLED", "RESOURCE_EXHAUSTED")
    assert "cannot be interrupted" in caplog.text


@pytest.mark.parametrize("kind", ["table", *FORMS])
def test_a_function_that_does_not_come_to_an_end_when_it_is_closed_is_stopped(serve, kind):
    builder, schema = catalog()
    add_good(schema)

    def never_closed() -> Iterator[pa.RecordBatch]:
        try:
            yield numbers(1)
            yield pa.record_batch({"m": [1]})  # a fault, for which the generator is closed
        finally:
            deadline = time.monotonic() + 60  # so that the test ends, whatever happens
            while time.monotonic() < deadline:
                pass

    def of_rows(rows: pa.Table):
        return never_closed()

    def of_batch(rows: pa.RecordBatch):
        return never_closed()

    functions: dict[str, Callable[..., Any]] = {
        "table": never_closed,
        "rows": of_rows,
        "batch": of_batch,
    }
    schema.table_function(returns=NUMBERS, name="f", time_limit=0.5)(functions[kind])
    client = serve(builder)

    failed = failure(client, kind)

    assert "no column 'n'" in failed.message
