"""Rows on their way to DuckDB's vectors: the narrow form of decimals against the wide one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import duckdb
import msgpack
import pyarrow.flight as flight

from benchmarks.measure import Line, compare
from benchmarks.servers import RunningServer, start

__all__ = ["run"]

_AGENT = (b"airport-user-agent", b"airport/20250723")
"""The header by which the server knows a client that reads the narrow form."""
_QUERY = "SELECT max(a), max(b), max(c), max(d) FROM received"
_MOST_ROWS = 4_000_000


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of rows."""
    count = min(rows, _MOST_ROWS)
    print(f"rows: starting a server with {count:,} rows of decimals …", file=sys.stderr)
    with start("decimals", count) as server:
        wide, narrow = _scan(server, narrow=False), _scan(server, narrow=True)
        if wide() != narrow():
            raise RuntimeError("the narrow form has other values")
        compared = compare(
            [lambda: count / 1e6 * bool(wide()), lambda: count / 1e6 * bool(narrow())]
        )
    ratio = compared.ratio(1, 0)
    yield Line(
        "scan of 4 columns DECIMAL(15,2) by DuckDB's Arrow reader, as decimal64 : as decimal128",
        f"{ratio:.2f} ({compared.rate(1):.1f} : {compared.rate(0):.1f} million rows/s)",
        "≥ 1.2",
        ratio >= 1.2,
    )


def _scan(server: RunningServer, *, narrow: bool) -> Callable[[], list[tuple[object, ...]]]:
    """A statement that reads all rows, in the form that the caller is known to take."""
    options = flight.FlightCallOptions(timeout=300, headers=[_AGENT] if narrow else [])
    client = flight.connect(server.location)
    connection = duckdb.connect(config={"threads": 1})

    def statement() -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for ticket in _tickets(client, options):
            received = client.do_get(ticket, options).to_reader()  # noqa: F841 - the query reads it
            found += connection.execute(_QUERY).fetchall()
        return sorted(found, key=repr)

    return statement


def _tickets(client: flight.FlightClient, options: flight.FlightCallOptions) -> list[flight.Ticket]:
    descriptor = flight.FlightDescriptor.for_path("bench", "s", "prices").serialize()
    parameters = {"json_filters": "", "column_ids": [0, 1, 2, 3], "at_unit": "", "at_value": ""}
    body = msgpack.packb({"descriptor": descriptor, "parameters": parameters})
    (result,) = client.do_action(flight.Action("endpoints", body), options)
    return [
        flight.FlightEndpoint.deserialize(each).ticket
        for each in msgpack.unpackb(result.body.to_pybytes())
    ]
