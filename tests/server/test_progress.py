"""Progress of scans: DoGet's only metadata, and only for DuckDB (airport §5.5, T20)."""

# mypy: disable-error-code="valid-type"

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.server.raw_client import RawClient, path, ticket_message

import sparkport as sp
from sparkport.testing import DuckDBClient
from sparkport.wire.flight_data import FlightData, decode_flight_data

LOCAL = "grpc://127.0.0.1:0"
DUCKDB = {"airport-user-agent": "airport/20250723"}
NUMBERS = pa.schema([("n", pa.int64())])
BATCH = pa.record_batch({"n": [1, 2]}, schema=NUMBERS)


def reporting(
    fractions: Sequence[Any], rows: Sequence[pa.RecordBatch] | None = None
) -> Callable[..., Any]:
    """Return a scan that reports progress with each batch."""

    def scan(ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        for fraction, batch in zip(fractions, rows or [BATCH] * len(fractions), strict=True):
            if fraction is not None:
                ctx.report_progress(fraction)
            yield batch

    return scan


def streams(source: Any, headers: Any = DUCKDB, **options: Any) -> list[list[FlightData]]:
    """Return what DoGet sends of each partition of a table."""
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", source, **options)
    with sp.Server(builder, LOCAL) as server, RawClient(server.location) as client:
        tickets = [
            each.ticket.ticket for each in client.endpoints(path("c", "s", "t"), headers=headers)
        ]
        sent = [client.call("DoGet", ticket_message(ticket), headers) for ticket in tickets]
        return [[decode_flight_data(message) for message in each] for each in sent]


def messages(source: Any, headers: Any = DUCKDB, **options: Any) -> list[FlightData]:
    """Return what DoGet sends of a table without partitions."""
    (sent,) = streams(source, headers, **options)
    return sent


def progress(sent: Sequence[FlightData]) -> list[Any]:
    """Return the progress in the messages, after a check that its form is the only one allowed."""
    told: list[Any] = []
    for message in sent:
        if not message.app_metadata:
            told.append(None)
            continue
        unpacked = msgpack.unpackb(message.app_metadata)
        assert set(unpacked) == {"progress"}
        assert isinstance(unpacked["progress"], float)
        assert 0 <= unpacked["progress"] <= 1
        assert message.header, (
            "a message with metadata but without a batch ends the stream for the client"
        )
        told.append(unpacked["progress"])
    return told


def test_a_batch_tells_how_far_the_scan_is():
    sent = messages(reporting([0.25, 0.5, 1.0]), arrow_schema=NUMBERS)

    assert progress(sent) == [None, 0.25, 0.5, 1.0]  # the first is the schema


def test_nothing_is_told_where_the_scan_says_nothing():
    assert progress(messages(reporting([None, None]), arrow_schema=NUMBERS)) == [None] * 3


def test_only_news_are_told():
    sent = messages(reporting([0.5, 0.5, 0.502, None, 0.7]), arrow_schema=NUMBERS)

    assert progress(sent) == [None, 0.5, None, None, None, 0.7]


def test_progress_does_not_go_backwards():
    assert progress(messages(reporting([0.5, 0.2, 0.6]), arrow_schema=NUMBERS)) == [
        None,
        0.5,
        None,
        0.6,
    ]


@pytest.mark.parametrize("fraction", [-1, 2, -0.1, 1.0001, math.inf, -math.inf, math.nan, 1, True])
def test_whatever_a_scan_says_the_client_gets_a_number_from_0_to_1(fraction):
    told = progress(messages(reporting([0.5, fraction]), arrow_schema=NUMBERS))

    assert told[1] == 0.5
    assert told[2] in (None, 1.0)


def test_batches_without_rows_bear_no_progress_and_are_not_sent():
    rows = [BATCH.slice(0, 0), BATCH, BATCH.slice(0, 0)]

    assert progress(messages(reporting([0.2, 0.4, 1.0], rows), arrow_schema=NUMBERS)) == [None, 0.4]


def test_a_batch_in_pieces_tells_it_once():
    large = pa.record_batch({"n": pa.array(range(1_000_000), pa.int64())}, schema=NUMBERS)

    told = progress(messages(reporting([0.5], [large]), arrow_schema=NUMBERS))

    assert len(told) > 3
    assert [each for each in told if each is not None] == [0.5]


@pytest.mark.parametrize(
    "headers", [{}, {"airport-user-agent": "other/1"}, {"user-agent": "grpc-java"}], ids=str
)
def test_other_clients_are_sent_no_metadata(headers):
    sent = messages(reporting([0.25, 1.0]), headers, arrow_schema=NUMBERS)

    assert len(sent) == 3
    assert not any(message.app_metadata for message in sent)


def test_every_partition_tells_of_itself(tmp_path):
    for number in range(8):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number}.parquet")

    told = [progress(sent) for sent in streams(ds.dataset(tmp_path))]

    assert len(told) == 4  # of two files each, of which the first is the half
    assert all(len(each) == 3 and each[2] >= 0.5 for each in told)


def test_a_table_in_memory_tells_how_far_it_is():
    rows = pa.table({"n": pa.array(range(3_000_000), pa.int64())})

    for sent in streams(rows):
        told = [each for each in progress(sent) if each is not None]
        assert told == sorted(told)
        assert told[-1] == 1.0


def test_duckdb_reads_a_scan_that_reports_as_any_other():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s").table("t", reporting([0.25, 0.5, 1.0]), arrow_schema=NUMBERS)

    @schema.table_function(returns=NUMBERS)
    def f(count: pa.int64(), ctx: sp.Context):
        for number in range(count):
            ctx.report_progress(number / count)
            yield BATCH

    @schema.table_function(returns=NUMBERS)
    def g(rows: pa.Table, ctx: sp.Context):
        for batch in rows:
            ctx.report_progress(0.5)
            yield batch

    with (
        sp.Server(builder, LOCAL) as server,
        DuckDBClient(server.location, "c", timeout=15) as client,
    ):
        assert client.scan("s", "t").num_rows == 6
        assert client.scan("s", "t", where="n = 2").num_rows == 3
        assert client.table_function("s", "f", 5).num_rows == 10
        # An exchange has other metadata, and must not have this.
        assert client.in_out("s", "g", rows=pa.table({"n": range(5000)})).num_rows == 5000
