"""Limits on use at once, in all and by a principal; errors name the limit and the reason."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import Endless, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, endpoints_body, path, ticket_message
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.catalog.quotas import StagedBytes
from sparkport.errors import BadRequest, LimitExceeded
from sparkport.server import Server, ServerSettings
from sparkport.service.limits import LimitKeeper
from sparkport.service.settings import Limits
from sparkport.testing import DuckDBClient, ServerError

ADA, BOB = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
NOTES = pa.schema([("id", pa.int64()), ("text", pa.string())])
NOTHING = dict.fromkeys(
    ("scans", "exchanges", "actions", "transactions", "staged_bytes", "held_bytes", "spark_jobs"), 0
)


def with_tokens(**limits: Any) -> ServerSettings:
    tokens = sp.TokenAuthenticator({"a": "ada", "b": "bob"})
    return ServerSettings(authenticate=tokens, **limits)


def in_use(server: Server) -> dict[str, int]:
    return dict(server._service.keeper.snapshot())


def endless() -> sp.Catalog:
    scan = Endless()
    return catalog_of(
        ScriptedTable("endless", scan.batch.schema, scan), ListedTable("t", numbers())
    )


def open_scan(client: RawClient, headers: dict[str, str]) -> Any:
    (endpoint,) = client.endpoints(path("s", "endless"), headers=headers)
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers)
    next(call)
    return call


def scan_failure(client: RawClient, headers: dict[str, str]) -> Any:
    (endpoint,) = client.endpoints(path("s", "t"), headers=headers)
    return client.failure("DoGet", ticket_message(endpoint.ticket.ticket), headers)


def can_scan(client: RawClient, headers: dict[str, str]) -> bool:
    return client.scan(path("s", "t"), headers=headers).table.equals(numbers())


# -- scans


def test_a_principal_has_only_so_many_scans_and_others_do_not_suffer(start, connect):
    server = start(endless(), with_tokens(max_scans_per_principal=2))
    client = connect(server)
    calls = [open_scan(client, ADA) for _ in range(2)]

    failure = scan_failure(client, ADA)
    assert failure.code == "RESOURCE_EXHAUSTED"
    assert failure.message == (
        "you have 2 scans under way, and 2 are all that is allowed at once "
        "(max_scans_per_principal): wait for one to end"
    )
    assert can_scan(client, BOB)
    assert server._service.keeper.of_each("scans") == {"ada": 2}

    calls[0].cancel()
    assert eventually(lambda: server._service.keeper.of_each("scans") == {"ada": 1})
    assert can_scan(client, ADA)
    calls[1].cancel()
    assert eventually(lambda: in_use(server) == NOTHING)


def test_all_together_have_only_so_many_scans(start, connect):
    server = start(endless(), with_tokens(max_scans=2))
    client = connect(server)
    calls = [open_scan(client, ADA), open_scan(client, BOB)]

    failure = scan_failure(client, ADA)
    assert failure.code == "RESOURCE_EXHAUSTED"
    assert "all users of this server together have 2 scans under way" in failure.message
    assert "(max_scans)" in failure.message

    for call in calls:
        call.cancel()
    assert eventually(lambda: in_use(server) == NOTHING)


def test_callers_without_a_name_share_what_one_may_have(start, connect):
    server = start(endless(), ServerSettings(max_scans_per_principal=1))
    with RawClient(server.location) as other:
        call = open_scan(other, {})
        assert "callers without a token have 1 scans" in scan_failure(connect(server), {}).message
        assert call.is_active()
    # The other client has gone without a word.
    assert eventually(lambda: in_use(server) == NOTHING)
    assert can_scan(connect(server), {})


def test_a_scan_that_fails_counts_no_longer(start, connect):
    def fail(ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        yield numbers().to_batches()[0]
        raise sp.PreconditionFailed("no more of that")

    server = start(
        catalog_of(ScriptedTable("t", numbers().schema, fail)), ServerSettings(max_scans=1)
    )
    client = connect(server)
    for _ in range(3):
        assert client.scan_failure(path("s", "t")).message == "no more of that"
    assert eventually(lambda: in_use(server) == NOTHING)


# -- changes of rows


@pytest.fixture
def notes(start) -> Callable[..., Server]:
    def serve(settings: ServerSettings) -> Server:
        builder = sp.CatalogBuilder("cat")
        builder.schema("s").table("notes", NOTES)
        server: Server = start(builder, settings)
        return server

    return serve


def rows(count: int, width: int = 10) -> pa.Table:
    return pa.table({"id": range(count), "text": ["x" * width] * count}, NOTES)


def count(server: Server) -> int:
    with DuckDBClient(server.location, "cat", timeout=30) as client:
        return client.count("s", "notes")


def half_sent(stop: threading.Event) -> Iterator[pa.RecordBatch]:
    yield rows(10).to_batches()[0]
    stop.wait(20)


def test_a_principal_has_only_so_many_exchanges_also_without_its_token(notes):
    """With the token as an option of ATTACH, exchanges come without it (airport §2.3)."""
    server = notes(with_tokens(max_exchanges_per_principal=1))
    clients = [
        DuckDBClient(server.location, "cat", attach_token=token, timeout=30) for token in "aab"
    ]
    stop = threading.Event()
    with clients[0], clients[1], clients[2], ThreadPoolExecutor(1) as pool:
        for client in clients:
            client.attach()
        first = pool.submit(clients[0].insert, "s", "notes", half_sent(stop))
        try:
            assert eventually(lambda: server._service.keeper.of_each("exchanges") == {"ada": 1})
            with pytest.raises(ServerError) as caught:
                clients[1].insert("s", "notes", rows(1))
            assert caught.value.code == "RESOURCE_EXHAUSTED"
            assert "max_exchanges_per_principal" in str(caught.value)
            assert clients[2].insert("s", "notes", rows(1)).total == 1
        finally:
            stop.set()
        assert first.result(20).total == 10
        assert clients[1].insert("s", "notes", rows(1)).total == 1
    assert eventually(lambda: in_use(server) == NOTHING)


def test_a_statement_that_brings_too_much_changes_nothing(notes):
    server = notes(ServerSettings(max_staged_bytes_per_principal=1_000_000))
    with DuckDBClient(server.location, "cat", timeout=30) as client:
        with pytest.raises(ServerError) as caught:
            client.insert("s", "notes", rows(50_000, 100))
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert "this would make it more than the 1.0 MB that are allowed at once" in str(
            caught.value
        )
        assert "(max_staged_bytes_per_principal): change fewer rows in one statement" in str(
            caught.value
        )
        assert client.count("s", "notes") == 0
        for _ in range(4):  # each is gone when it has ended
            assert client.insert("s", "notes", rows(5000, 100)).total == 5000
    assert eventually(lambda: in_use(server) == NOTHING)


@pytest.mark.parametrize("returning", ["true", "false"])
def test_the_same_holds_for_the_contracts_own_way_to_insert(notes, connect, returning):
    server = notes(ServerSettings(max_staged_bytes=100_000))
    table = '"schema_name": "s", "table_name": "notes"'
    command = f'{{"operation": "insert", {table}, "returning": {returning}}}'
    descriptor = flight.FlightDescriptor.for_command(command.encode())
    stream = flight_data(NOTES, rows(5000, 100).to_pylist())
    client = connect(server)

    failure = client.failure("DoPut", aimed(stream, descriptor, "insert").messages)

    assert failure.code == "RESOURCE_EXHAUSTED"
    assert count(server) == 0
    assert eventually(lambda: in_use(server) == NOTHING)


def test_a_client_that_vanishes_in_the_midst_of_a_statement_leaves_nothing(notes):
    server = notes(ServerSettings())
    stop = threading.Event()

    def messages() -> Iterator[bytes]:
        yield from aimed(
            flight_data(NOTES, rows(100).to_pylist()), path("s", "notes"), "insert"
        ).messages
        stop.wait(20)

    with RawClient(server.location) as client:
        call = client.open("DoExchange", messages(), {"airport-operation": "insert"})
        assert eventually(lambda: in_use(server)["staged_bytes"] > 1000)
        assert in_use(server)["exchanges"] == 1
        assert call.is_active()
    stop.set()

    assert eventually(lambda: in_use(server) == NOTHING)
    assert count(server) == 0


# -- sizes


def test_a_message_that_is_too_large_is_refused(notes, connect):
    client = connect(notes(ServerSettings(max_message_bytes=100_000)))

    large = aimed(flight_data(NOTES, rows(2000, 100).to_pylist()), path("s", "notes"), "insert")
    failure = client.failure("DoExchange", large.messages, large.headers)
    assert failure.code == "RESOURCE_EXHAUSTED"
    assert client.action_failure("list_schemas", b"x" * 200_000).code == "RESOURCE_EXHAUSTED"

    small = aimed(flight_data(NOTES, rows(500, 100).to_pylist()), path("s", "notes"), "insert")
    client.call("DoExchange", small.messages, small.headers)
    assert client.scan(path("s", "notes")).table.num_rows == 500


def _compressed(batch: pa.RecordBatch, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_arguments_of_a_stranger_are_not_unpacked_to_any_size(start, connect, codec):
    """200 MB of the same byte are a few kilobytes: what they claim is read first."""
    client = connect(start(endless(), with_tokens()))
    bomb = _compressed(pa.record_batch({"a": [b"\0" * 200_000_000]}), codec)
    assert len(bomb) < 1_000_000
    before = pa.total_allocated_bytes()

    body = endpoints_body(path("s", "t"), table_function_parameters=bomb)
    failure = client.action_failure("endpoints", body)

    assert failure.code in ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED")
    assert pa.total_allocated_bytes() <= before + 1_000_000
    known = client.action_failure("endpoints", body, ADA)
    assert known.code == "RESOURCE_EXHAUSTED"
    assert "200 MB when it is unpacked" in known.message


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_rows_are_taken_unless_they_become_too_many(notes, codec, monkeypatch):
    server = notes(ServerSettings())
    compressed = pa.ipc.IpcWriteOptions(compression=codec)
    options = flight.FlightCallOptions(headers=[(b"airport-operation", b"insert")], timeout=20)

    def insert(sent: pa.Table) -> None:
        with flight.connect(server.location) as client:
            writer, reader = client.do_exchange(
                flight.FlightDescriptor.for_path("s", "notes"), options
            )
            with writer:
                writer.begin(NOTES, options=compressed)
                writer.write_table(sent, max_chunksize=len(sent))
                writer.done_writing()
                while True:
                    try:
                        reader.read_chunk()
                    except StopIteration:
                        return

    insert(rows(50_000))
    monkeypatch.setattr("sparkport.wire.inflation.refuse_inflated.__defaults__", (1_000_000,))
    with pytest.raises((flight.FlightError, pa.ArrowException), match="unpacked"):
        insert(rows(200_000))
    assert count(server) == 50_000


# -- the counting itself


def test_a_limit_below_zero_is_refused():
    with pytest.raises(BadRequest, match="max_scans"):
        replace(Limits(), max_scans=-1)


def test_zero_is_no_limit():
    keeper = LimitKeeper(Limits(max_scans=0, max_scans_per_principal=0))
    with keeper.quotas("ada").hold("scans", 10**9), keeper.quotas("ada").hold("scans"):
        assert keeper.snapshot()["scans"] == 10**9 + 1
    assert keeper.snapshot() == NOTHING
    assert keeper.of_each("scans") == {}


def test_there_are_never_more_than_allowed_however_many_ask():
    keeper = LimitKeeper(Limits(max_spark_jobs=5, max_spark_jobs_per_principal=3))
    highest: list[int] = []
    refused: list[str] = []

    def use(number: int) -> None:
        for _ in range(300):
            try:
                with keeper.quotas(f"p{number % 3}").hold("spark_jobs"):
                    highest.append(keeper.snapshot()["spark_jobs"])
            except LimitExceeded as error:
                refused.append(error.message)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(use, range(12)))

    assert max(highest) <= 5
    assert len(highest) + len(refused) == 12 * 300
    assert keeper.snapshot() == NOTHING
    assert keeper.of_each("spark_jobs") == {}


def test_a_large_statement_is_counted_in_few_steps_and_up_to_the_limit():
    keeper = LimitKeeper(Limits(max_staged_bytes=100_000_000))
    staged = StagedBytes(keeper.quotas("ada"))
    for number in range(1000):
        staged.add(100_000)
        assert keeper.snapshot()["staged_bytes"] >= (number + 1) * 100_000
    assert keeper.snapshot()["staged_bytes"] == 100_000_000
    with pytest.raises(
        LimitExceeded, match=r"together have 100\.0 MB of rows in statements that have not ended"
    ):
        staged.add(1)
    staged.close()
    assert keeper.snapshot() == NOTHING
