"""Reading: throughput, latency, and memory with a slow client."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

import msgpack
import pyarrow.flight as flight

from benchmarks.client import plan, read, read_in_parallel
from benchmarks.measure import Line, compare, resident_megabytes, seconds
from benchmarks.servers import RunningServer, start

__all__ = ["run"]


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of reading."""
    print(f"reading: starting servers with {rows:,} rows …", file=sys.stderr)
    with start("plain", rows) as plain, start("sparkport", rows) as ours:
        yield from _throughput(plain, ours)
        yield _latency(ours)
        yield _memory(ours)
    with start("many_tables", 1000) as server:
        yield _listing(server)


def _throughput(plain: RunningServer, ours: RunningServer) -> Iterator[Line]:
    with flight.connect(ours.location) as client:
        tickets = plan(client, "big")
    compared = compare(
        [
            lambda: read(plain.location, [b""]) / 1e6,
            lambda: read(ours.location, tickets) / 1e6,
            lambda: read_in_parallel(ours.location, tickets) / 1e6,
        ]
    )
    them, one, four = (compared.rate(index) for index in range(3))
    yield Line(
        "one DoGet stream at a time, against pyarrow.flight with the same batches",
        f"{compared.ratio(1, 0):.2f} ({one:.0f} : {them:.0f} MB/s)",
        "≥ 0.9",
        compared.ratio(1, 0) >= 0.9,
    )
    yield Line(
        f"{len(tickets)} endpoints read by {len(tickets)} threads, against one stream at a time",
        f"{compared.ratio(2, 1):.2f} ({four:.0f} : {one:.0f} MB/s)",
        "≥ 1",
        compared.ratio(2, 1) >= 1,
    )


def _latency(ours: RunningServer) -> Line:
    with flight.connect(ours.location) as client:

        def statement() -> None:
            for ticket in plan(client, "small"):
                client.do_get(flight.Ticket(ticket)).read_all()

        statement()
        median = statistics.median(seconds(statement) for _ in range(200)) * 1000
    return Line(
        "`endpoints` + DoGet of a 10-row table, median of 200",
        f"{median:.1f} ms",
        "≤ 5 ms",
        median <= 5,
    )


def _memory(ours: RunningServer) -> Line:
    idle = peak = resident_megabytes(ours.pid)
    with flight.connect(ours.location) as client:
        readers = [client.do_get(flight.Ticket(ticket)) for ticket in plan(client, "big")]
        while (
            readers
        ):  # all streams are open at once, and read far more slowly than the server could send
            time.sleep(0.02)
            readers = [reader for reader in readers if _has_more(reader)]
            peak = max(peak, resident_megabytes(ours.pid))
    return Line(
        "server memory above idle while the table streams to a slow client",
        f"{peak - idle:.0f} MB",
        "< 100 MB",
        peak - idle < 100,
    )


def _has_more(reader: flight.FlightStreamReader) -> bool:
    try:
        reader.read_chunk()
    except StopIteration:
        return False
    return True


def _listing(server: RunningServer) -> Line:
    body = msgpack.packb({"catalog_name": "bench"})
    with flight.connect(server.location) as client:

        def attach() -> None:
            list(client.do_action(flight.Action("list_schemas", body)))

        first = seconds(attach) * 1000
        later = statistics.median(seconds(attach) for _ in range(20)) * 1000
    return Line(
        "list_schemas of 1,000 tables × 50 columns from the second call on, median of 20",
        f"{later:.0f} ms (first call {first:.0f} ms)",
        "< 100 ms",
        later < 100,
    )
