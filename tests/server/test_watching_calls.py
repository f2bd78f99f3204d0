"""Records of calls: who does what, how far it is, what has ended, and silent clients."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyarrow as pa
import pytest
from tests.counting import lines_run
from tests.server.catalogs import NUMBERS, Endless, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, path, ticket_message
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server.logs import JsonFormatter, configure_logging
from sparkport.service.activity import Activity, Totals, Work
from sparkport.testing import DuckDBClient, ServerError
from sparkport.wire.flight_data import BatchWriter, encode_metadata, encode_schema, with_metadata
from sparkport.wire.row_counts import count_rows

SOON = 30.0
T, GOOD = path("s", "t"), path("s", "good")


def activity_of(server: Any) -> Activity:
    activity: Activity = server._watching.activity
    return activity


def metrics_of(server: Any) -> dict[str, float]:
    lines = server._watching.metrics.exposition().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def open_scan(client: RawClient, headers: dict[str, str] | None = None) -> Any:
    (endpoint,) = client.endpoints(T, headers=headers)
    return client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers, timeout=50)


# ----------------------------------------------------------------------------------- what is noted


def test_rows_are_counted_off_the_messages():
    for rows in (0, 1, 2048, 100_000):
        batch = pa.record_batch(
            {"a": pa.array(range(rows), pa.int64()), "b": pa.array(["x"] * rows, pa.string())}
        )
        for message in BatchWriter(batch.schema).messages(batch):
            assert count_rows(message) == rows
            assert count_rows(with_metadata(message, b"m" * 300)) == rows
        assert count_rows(encode_schema(batch.schema)) == 0
    coded = pa.record_batch({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert [count_rows(each) for each in BatchWriter(coded.schema).messages(coded)] == [0, 3]
    assert count_rows(encode_metadata(b"1")) == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\x12", b"\x12\xff", b"\x12\x04abcd", b"\x0a\x7f", b"\x12\x08" + b"\xff" * 8]
)
def test_garbage_has_no_rows(garbage):
    assert count_rows(garbage) == 0


def test_a_scan_under_way_is_shown_with_all_that_is_known_of_it(start, connect):
    def scan(ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        ctx.report_progress(0.25)
        ctx.report_route("in_place")
        while True:
            yield numbers(1000).to_batches()[0]

    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan), name="cat"))
    client = connect(server)
    headers = {"airport-trace-id": "trace-1", "airport-client-session-id": "session-1"}
    call = open_scan(client, headers)
    for _ in range(3):
        next(call)

    (work,) = activity_of(server).running()

    assert (work.rpc, work.object, work.trace_id, work.session) == (
        "DoGet",
        "cat.s.t",
        "trace-1",
        "session-1",
    )
    assert work.progress.fraction == 0.25
    assert work.messages_out >= 3
    # When nothing is on its way.
    assert eventually(lambda: work.rows_out == (work.messages_out - 1) * 1000)
    assert work.bytes_out > work.rows_out * 16
    assert metrics_of(server)['sparkport_calls_running{method="DoGet"}'] == 1
    assert metrics_of(server)["sparkport_scans_in_use"] == 1
    call.cancel()
    assert eventually(lambda: not activity_of(server).running())
    assert activity_of(server).ended()[0].code == "CANCELLED"
    assert activity_of(server).failures() == []  # a client that goes away is no failure
    assert eventually(
        lambda: metrics_of(server).get('sparkport_scans_total{route="in_place"}') == 1
    )


def test_a_call_can_be_ended_from_outside(start, connect):
    scan = Endless()
    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan)))
    call = open_scan(connect(server))
    next(call)
    next(call)
    (work,) = activity_of(server).running()

    work.cut("it was cancelled by ada")

    assert scan.closed.wait(SOON)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert eventually(lambda: not activity_of(server).running())
    assert [failure.message for failure in activity_of(server).failures()] == [
        "it was cancelled by ada"
    ]


def test_errors_are_kept_as_the_client_got_them(start, connect):
    def scan(_ctx, _options):
        raise RuntimeError("secret of the house")

    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan)))
    client = connect(server)
    client.scan_failure(T)
    client.action_failure("endpoints", b"garbage")

    garbage, internal = activity_of(server).failures()

    assert (garbage.code, garbage.work.operation) == ("INVALID_ARGUMENT", "endpoints")
    assert internal.code == "INTERNAL"
    assert internal.message.startswith(
        "internal error; the server's log has the details under trace id"
    )
    assert "secret" not in internal.message
    assert metrics_of(server)['sparkport_errors_total{code="INTERNAL"}'] == 1


def test_what_has_ended_is_forgotten_in_time_and_added_up():
    activity = Activity()
    for index in range(1000):
        work = Work("DoGet", trace_id=str(index))
        activity.begin(work)
        work.rows_out, work.bytes_out, work.code, work.message = 2, 10, "NOT_FOUND", "it is gone"
        activity.end(work)
        activity.end(work)

    assert len(activity.ended()) == 200
    assert activity.ended()[0].trace_id == "999"
    assert len(activity.failures()) == 100
    assert activity.totals() == Totals(rows_out=2000, bytes_out=10_000)


def test_throughput_is_what_has_gone_through_between_two_samples():
    activity, work = Activity(), Work("DoGet")
    activity.begin(work)
    for rows in (5, 7, 0):
        work.rows_out += rows
        activity.sample()
    work.rows_out += 1
    activity.end(work)
    activity.sample()
    activity.sample()

    assert [sample.totals.rows_out for sample in activity.samples()] == [5, 7, 0, 1, 0]
    for _ in range(1000):
        activity.sample()
    assert len(activity.samples()) == 720  # an hour


# ------------------------------------------------------------------------------------ idle clients


def test_a_client_that_takes_nothing_is_cut_off_and_a_slow_table_is_not(start, connect, caplog):
    release = threading.Event()
    endless = Endless(rows=100_000)

    def slow(_ctx, _options):
        release.wait(SOON)
        yield numbers().to_batches()[0]

    tables = (ScriptedTable("t", NUMBERS, endless), ScriptedTable("good", NUMBERS, slow))
    server = start(catalog_of(*tables), sp.ServerSettings(idle_seconds=0.5))
    client = connect(server)
    call = open_scan(client)
    next(call)
    (endpoint,) = client.endpoints(GOOD)
    patient = client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=50)

    with caplog.at_level(logging.WARNING, "sparkport.server"):
        assert endless.closed.wait(SOON)  # by flow control it has come to a stop long before
        time.sleep(0.7)
    release.set()

    assert len(list(patient)) == 2
    with pytest.raises(grpc.RpcError):
        list(call)
    assert eventually(lambda: not activity_of(server).running())
    (failure,) = activity_of(server).failures()
    assert "neither taken nor sent a message for 0.5 s" in failure.message
    assert f"trace {failure.work.trace_id}" in caplog.text
    assert metrics_of(server)["sparkport_idle_cut_offs_total"] == 1


def test_a_client_that_sends_nothing_is_cut_off_and_its_insert_leaves_nothing(start):
    catalog = sp.MemoryCatalog("m")
    catalog.add_schema("s").add_table(sp.MemoryTable("t", pa.schema([("a", pa.int64())])))
    server = start(catalog, sp.ServerSettings(idle_seconds=0.5))
    hold = threading.Event()
    with (
        DuckDBClient(server.location, "m", timeout=30) as client,
        DuckDBClient(server.location, "m") as other,
    ):

        def stalling() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"a": [1]})
            hold.wait(SOON)
            yield pa.record_batch({"a": [2]})

        failed: list[BaseException] = []

        def insert() -> None:
            try:
                client.insert("s", "t", stalling())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=insert)
        thread.start()
        assert eventually(lambda: bool(activity_of(server).failures()))
        hold.set()
        thread.join(SOON)
        assert not thread.is_alive()
        assert failed
        assert other.count("s", "t") == 0


def test_an_exchange_is_not_idle_while_its_client_waits_for_our_own_scan(start, monkeypatch):
    """INSERT … SELECT from a table that takes its time."""
    catalog = sp.MemoryCatalog("m")
    schema = catalog.add_schema("s")
    schema.add_table(sp.MemoryTable("t", pa.schema([("id", pa.int64())])))

    release = threading.Event()

    def slow(_ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        release.wait(SOON)
        yield numbers().to_batches()[0]

    schema.add_table(ScriptedTable("slow", NUMBERS, slow))
    server = start(catalog, sp.ServerSettings(idle_seconds=60))

    def waiting() -> list[tuple[str, bool]]:
        return [(work.rpc, work.waits_since > 0) for work in activity_of(server).running()]

    with DuckDBClient(server.location, "m", timeout=60) as client, ThreadPoolExecutor(1) as pool:
        inserted = pool.submit(client.insert_select, "s", "t", ("s", "slow"))
        assert eventually(lambda: waiting() == [("DoExchange", True), ("DoGet", False)])
        with monkeypatch.context() as later:
            later.setattr("sparkport.service.activity._monotonic", lambda: time.monotonic() + 100)
            server._watching._cut_off_idle()
        release.set()
        assert inserted.result(SOON).total == 3


def test_zero_never_cuts_anybody_off(start, connect):
    endless = Endless(rows=100_000)
    server = start(
        catalog_of(ScriptedTable("t", NUMBERS, endless)), sp.ServerSettings(idle_seconds=0)
    )
    call = open_scan(connect(server))
    next(call)
    assert not endless.closed.wait(0.5)
    next(call)
    call.cancel()


def test_the_watching_thread_ends_with_the_server(start):
    def watchers() -> int:
        return sum(thread.name == "watching (sparkport)" for thread in threading.enumerate())

    before = watchers()
    server = start(catalog_of(ListedTable("t", numbers())))
    assert watchers() == before + 1
    server.stop(grace=0)
    assert watchers() == before


# ------------------------------------------------------------------------------------------- costs


def test_noting_a_message_costs_little():
    batch = numbers(20_000).to_batches()[0]
    (message,) = BatchWriter(batch.schema).messages(batch)
    work = Work("DoGet")

    def note() -> None:
        work.note_sending(message)
        work.stop_waiting()

    note()
    assert lines_run(note) < 40


# ----------------------------------------------------------------------------------------- metrics


def test_metrics_count_what_was_done(start):
    class Counted(sp.MemoryCatalog):
        def gauges(self) -> dict[str, float]:
            return {"open_files": 3, "Not A Name": 1}

    catalog = Counted("m")
    catalog.add_schema("s").add_table(
        sp.MemoryTable("secret_table", pa.schema([("a", pa.int64())]))
    )
    authenticate = sp.TokenAuthenticator({"correct-horse": "ada"})
    server = start(catalog, sp.ServerSettings(authenticate=authenticate))
    with DuckDBClient(server.location, "m", token="correct-horse", timeout=20) as client:
        client.insert("s", "secret_table", pa.table({"a": range(5000)}))
        assert client.count("s", "secret_table") == 5000
    with (
        pytest.raises(ServerError),
        DuckDBClient(server.location, "m", token="wrong", timeout=20) as client,
    ):
        client.scan("s", "secret_table")

    seen = metrics_of(server)

    assert seen['sparkport_rpcs_total{code="OK",method="DoExchange"}'] == 1
    assert seen['sparkport_rows_total{direction="in"}'] == 5000
    assert seen['sparkport_rows_total{direction="out"}'] >= 5000
    assert seen['sparkport_bytes_total{direction="in"}'] > 5000 * 8
    assert seen['sparkport_actions_total{action="endpoints",code="OK"}'] >= 1
    assert seen['sparkport_rpc_seconds_count{method="DoGet"}'] >= 1
    assert seen["sparkport_logins_refused_total"] >= 1
    assert (
        seen['sparkport_errors_total{code="UNAUTHENTICATED"}']
        == seen["sparkport_logins_refused_total"]
    )
    assert seen['sparkport_catalog_open_files{catalog="m"}'] == 3
    assert [
        seen[f"sparkport_{what}_in_use"]
        for what in ("scans", "exchanges", "staged_bytes", "spark_jobs")
    ] == [0] * 4
    assert seen["sparkport_draining"] == 0
    text = "".join(seen)
    for word in ("ada", "secret_table", "correct-horse", "Not A Name"):
        assert word not in text


def test_an_action_that_nobody_knows_is_no_label(start, connect):
    server = start(catalog_of(ListedTable("t", numbers())))
    connect(server).action_failure("x" * 500, b"")

    assert metrics_of(server)['sparkport_actions_total{action="other",code="UNIMPLEMENTED"}'] == 1


def test_a_catalog_in_trouble_does_not_hide_the_other_metrics(start):
    class Broken(sp.MemoryCatalog):
        def gauges(self) -> dict[str, float]:
            raise RuntimeError("no")

    assert "sparkport_threads" in metrics_of(start(Broken("m")))


# -------------------------------------------------------------------------------------------- logs


@pytest.fixture
def logged() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    lines: list[str] = []
    formatter, handler, logger = JsonFormatter(), Kept(), logging.getLogger("sparkport")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in lines]
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_log_lines_of_a_request_bear_its_trace_id_and_its_principal(start, connect, logged):
    own = logging.getLogger("sparkport.catalog.of.a.user")

    def scan(_ctx, _options):
        yield numbers().to_batches()[0]
        own.warning("reading\nslowly")
        raise RuntimeError("boom")

    settings = sp.ServerSettings(authenticate=sp.TokenAuthenticator({"correct-horse": "ada"}))
    server = start(catalog_of(ScriptedTable("t", NUMBERS, scan)), settings)
    headers = {"authorization": "Bearer correct-horse", "airport-trace-id": "trace-7"}
    with pytest.raises(grpc.RpcError):
        list(open_scan(connect(server), headers))

    of_user = next(line for line in logged() if line["logger"] == own.name)
    failure = next(line for line in logged() if line["level"] == "error")
    others = [line for line in logged() if line["message"].startswith("serving on")]

    assert (of_user["trace_id"], of_user["principal"], of_user["message"]) == (
        "trace-7",
        "ada",
        "reading\nslowly",
    )
    assert failure["trace_id"] == "trace-7"
    assert failure["exception"].endswith("RuntimeError: boom")
    assert of_user["ts"].endswith("+00:00")
    assert others
    assert all("trace_id" not in line for line in others)
    assert not any("correct-horse" in json.dumps(line) for line in logged())


def test_a_log_format_that_does_not_exist_is_refused():
    with pytest.raises(sp.BadRequest, match="text or json"):
        configure_logging(logging.INFO, "xml")
