"""Tables whose messages are made elsewhere: the service passes them on, unnoticed by clients."""

import pickle
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.server.catalogs import catalog_of
from tests.server.raw_client import RawClient, path, ticket_message

import sparkport as sp
from sparkport.catalog import FramedTable, Framing, RecordReader
from sparkport.errors import CatalogFault
from sparkport.service.framing import ScanFraming
from sparkport.testing import DuckDBClient, ServerError
from sparkport.wire.flight_data import BatchReader, decode_flight_data, encode_schema

LOCAL = "grpc://127.0.0.1:0"
NUMBERS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
DUCKDB = {"airport-user-agent": "airport/20250723"}


def numbers(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    columns = [list(ids), [f"n{each}" for each in ids], [each / 2 for each in ids]]
    return pa.record_batch(
        [pa.array(each, f.type) for each, f in zip(columns, NUMBERS, strict=True)], schema=NUMBERS
    )


def joined(framing: Framing, batch: pa.RecordBatch) -> Iterator[bytes]:
    return map(b"".join, framing.open().frames(batch))


Scan = Callable[[sp.Context, sp.ScanOptions, Framing], Iterable[Any]]


class Framed(FramedTable):
    """A table whose framed scan is a function."""

    def __init__(self, scan: Scan, arrow_schema: pa.Schema = NUMBERS) -> None:
        self._scan = scan
        self._arrow_schema = arrow_schema

    @property
    def name(self) -> str:
        return "t"

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> RecordReader:
        raise AssertionError("clients are served by scan_framed")

    def scan_framed(
        self, ctx: sp.Context, options: sp.ScanOptions, framing: Framing
    ) -> Iterable[Any]:
        return self._scan(ctx, options, framing)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a server with one framed table `s.t`, and return its location."""
    servers: list[sp.Server] = []

    def serve(table: sp.Table) -> str:
        server = sp.Server(catalog_of(table), LOCAL).start()
        servers.append(server)
        return server.location

    yield serve
    for server in servers:
        server.stop(grace=0)


def read(location: str, columns: list[str] | None = None, **options: Any) -> pa.Table:
    with DuckDBClient(location) as client:
        client.attach()
        return client.scan("s", "t", columns, **options)


def test_messages_reach_the_client_as_rows(serve):
    batches = [numbers(0, 10), numbers(10, 100_000)]  # a small batch, and one of several messages
    table = Framed(
        lambda _ctx, _options, framing: (m for each in batches for m in joined(framing, each))
    )

    assert read(serve(table)).equals(pa.Table.from_batches(batches))


def test_messages_are_passed_on_untouched(serve):
    sent: list[bytes] = []

    def scan(_ctx: sp.Context, _options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        sent.extend(joined(framing, numbers(0, 100_000)))
        yield from sent

    with RawClient(serve(Framed(scan))) as client:
        (endpoint,) = client.endpoints(path("s", "t"))
        received = client.call("DoGet", ticket_message(endpoint.ticket.ticket))

    assert received[1:] == sent
    assert len(sent) > 1


def test_messages_and_batches_may_be_mixed(serve):
    def scan(_ctx: sp.Context, _options: sp.ScanOptions, framing: Framing) -> Iterator[Any]:
        yield numbers(0, 5)
        yield from joined(framing, numbers(5, 5))
        yield numbers(10, 5)

    assert read(serve(Framed(scan))).column("id").to_pylist() == list(range(15))


def test_columns_that_nobody_wants_are_null_and_cost_nothing(serve):
    asked: list[tuple[str, ...] | None] = []
    sizes: list[int] = []

    def scan(_ctx: sp.Context, options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        asked.append(options.columns)
        assert [str(field.type) for field in framing.arrow_schema] == ["null", "string", "null"]
        for message in joined(framing, numbers(0, 1000).select(["name"])):
            sizes.append(len(message))
            yield message

    assert read(serve(Framed(scan)), ["name"]).column("name").to_pylist() == [
        f"n{each}" for each in range(1000)
    ]
    assert asked == [("name",)]
    assert sum(sizes) < 10_000


def test_a_batch_without_rows_makes_no_message(serve):
    table = Framed(lambda _ctx, _options, framing: joined(framing, numbers(0, 0)))

    assert read(serve(table)).num_rows == 0


def test_the_table_applies_the_filter(serve):
    seen: list[Any] = []

    def scan(_ctx: sp.Context, options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        seen.append(options.filter)
        return joined(framing, numbers(3, 2))

    assert read(serve(Framed(scan)), ["id"], where="id >= 3").column("id").to_pylist() == [3, 4]
    assert seen[0].columns == {"id"}


def test_a_table_that_leaves_filters_to_the_service_is_told_so(serve):
    class Lazy(Framed):
        applies_filters = False

    table = Lazy(lambda _ctx, _options, framing: joined(framing, numbers(0, 1)))

    with pytest.raises(
        ServerError, match=r"table s\.t yields finished messages, so it must apply filters itself"
    ):
        read(serve(table))


def test_only_framed_tables_may_yield_bytes(serve):
    class Plain(sp.Table):
        name = "t"
        arrow_schema = NUMBERS

        def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Any:
            return [b"message"]

    with pytest.raises(ServerError, match="its scan yields bytes, not record batches"):
        read(serve(Plain()))


def test_progress_goes_with_finished_messages(serve):
    def scan(ctx: sp.Context, _options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        for step in range(1000):
            ctx.report_progress((step + 1) / 1000)
            yield from joined(framing, numbers(step, 1))

    location = serve(Framed(scan))
    with RawClient(location) as client:
        (endpoint,) = client.endpoints(path("s", "t"), headers=DUCKDB)
        received = client.call("DoGet", ticket_message(endpoint.ticket.ticket), DUCKDB)
    told = [decode_flight_data(message).app_metadata for message in received]

    assert 90 <= sum(map(bool, told)) <= 101
    assert read(location).num_rows == 1000


def test_cancelling_closes_the_reader(serve):
    closed, cancelled = threading.Event(), threading.Event()

    def scan(ctx: sp.Context, _options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        ctx.on_cancel(cancelled.set)
        (message,) = joined(framing, numbers(0, 1000))
        try:
            while True:
                yield message
        finally:
            closed.set()

    with RawClient(serve(Framed(scan))) as client:
        (endpoint,) = client.endpoints(path("s", "t"))
        call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
        next(call)
        next(call)
        call.cancel()

        assert closed.wait(60)
        assert cancelled.wait(60)


STRANGE = pa.schema(
    [
        pa.field("key", pa.uuid()),
        pa.field("large", pa.opaque(pa.binary(16), "hugeint", "DuckDB")),
        pa.field("word", pa.dictionary(pa.int8(), pa.string())),
        pa.field("many", pa.list_(pa.struct([pa.field("x", pa.int32())]))),
        pa.field("rest", pa.int32()),
    ]
)


def strange() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([uuid.UUID(int=7).bytes, None], pa.binary(16))
            ),
            pa.ExtensionArray.from_storage(
                STRANGE.field(1).type, pa.array([bytes(16), None], pa.binary(16))
            ),
            pa.array(["a", None]).dictionary_encode().cast(STRANGE.field(2).type),
            pa.array([[{"x": 1}], None], STRANGE.field(3).type),
            pa.array([1, 2], pa.int32()),
        ],
        schema=STRANGE,
    )


def test_types_of_their_own_and_dictionaries_arrive(serve):
    rows = read(serve(Framed(lambda _ctx, _options, framing: joined(framing, strange()), STRANGE)))

    assert rows.schema.field("key").type == pa.uuid()
    assert rows.column("key").to_pylist() == [uuid.UUID(int=7), None]
    assert rows.schema.field("large").type == STRANGE.field("large").type
    assert rows.column("word").to_pylist() == ["a", None]
    assert rows.column("many").to_pylist() == [[{"x": 1}], None]


_ELSEWHERE = """
import pickle, sys, pyarrow as pa
framing, ipc = pickle.load(sys.stdin.buffer)
assert "grpc" not in sys.modules and "pyspark" not in sys.modules
(batch,) = pa.ipc.open_stream(ipc)
pickle.dump([b"".join(parts) for parts in framing.open().frames(batch)], sys.stdout.buffer)
"""


def test_another_process_makes_the_same_messages(serve):
    def scan(_ctx: sp.Context, _options: sp.ScanOptions, framing: Framing) -> Iterator[bytes]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, STRANGE) as writer:
            writer.write_batch(strange())
        task = pickle.dumps((framing, sink.getvalue().to_pybytes()))
        done = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE], input=task, capture_output=True, check=True
        )
        messages = pickle.loads(done.stdout)
        assert messages == list(joined(framing, strange()))
        yield from messages

    rows = read(serve(Framed(scan, STRANGE)), ["large", "word"])

    assert rows.column("large").type == STRANGE.field("large").type
    assert rows.column("word").to_pylist() == ["a", None]


def test_an_encoded_batch_is_wrapped_without_a_copy():
    framing = ScanFraming(NUMBERS, None, "s.t")
    encoded = numbers(0, 1000).serialize()

    parts = framing.open().frame_encoded(memoryview(encoded))
    reader = BatchReader(decode_flight_data(encode_schema(NUMBERS)))
    batch = reader.read(decode_flight_data(b"".join(parts)))

    assert batch is not None
    assert batch.equals(numbers(0, 1000))
    assert pa.py_buffer(parts[-1]).address > encoded.address


@pytest.mark.parametrize(
    "message", [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x00\x01\x00\x00short", bytes(100)]
)
def test_what_is_no_encoded_batch_is_refused(message):
    with pytest.raises(CatalogFault, match="no Arrow IPC message"):
        ScanFraming(NUMBERS, None, "s.t").open().frame_encoded(message)


def test_a_batch_that_lacks_a_wanted_column_is_refused():
    framer = ScanFraming(NUMBERS, (0, 1), "s.t").open()

    with pytest.raises(
        CatalogFault, match=r"table s\.t: its scan yields no column 'name', which it declares"
    ):
        list(framer.frames(numbers(0, 1).select(["id"])))
