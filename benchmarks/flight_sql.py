"""Flight SQL by the ADBC driver: reading a large table, and ingesting rows."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.data import rows as made_rows
from benchmarks.lake import Running, compared, start_lake
from benchmarks.lake_write import compared_seconds, in_turns, watched
from benchmarks.measure import Line, seconds
from benchmarks.rivals import start_rival
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_ROUNDS = 3
_INGESTED = 5_000_000
_NEEDED = ("adbc_driver_flightsql", "grpc_status", "pandas")


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of Flight SQL."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        yield Line("Flight SQL by ADBC", f"not installed: {', '.join(absent)}", "", False)
        return
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"Flight SQL: writing {rows:,} rows …", file=sys.stderr)
        with start_lake(source, rows) as server:
            yield _read(server, source, rows)
            yield _memory(
                server,
                f"during an ADBC SELECT of {rows / 1e6:g} M rows",
                lambda: _drained(server),
            )
            yield _ingest(server, min(_INGESTED, rows))
            ingested = made_rows(min(2 * _INGESTED, rows))
            yield _memory(
                server,
                f"during an adbc_ingest of {ingested.num_rows / 1e6:g} M rows",
                lambda: _ingested(server, ingested),
            )


@contextmanager
def _cursor(server: Running) -> Iterator[Any]:
    from adbc_driver_flightsql import dbapi

    limits = {f"adbc.flight.sql.rpc.timeout_seconds.{each}": "900" for each in _CALLS}
    with (
        dbapi.connect(server.location, db_kwargs=limits, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


_CALLS = ("fetch", "query", "update")


def _read(server: Running, source: LakeSource, rows: int) -> Line:
    query = "SELECT * FROM s.big"

    def ours() -> float:
        with _cursor(server) as cursor:
            began = time.perf_counter()
            cursor.execute(query)
            found = cursor.fetch_arrow_table()
            took = time.perf_counter() - began
        if found.num_rows != rows:
            raise RuntimeError(f"the query gave {found.num_rows} rows")
        return float(found.nbytes) / took

    with start_rival("connect", source) as connect:

        def theirs() -> float:
            took, size = connect.run("to_arrow", "SELECT * FROM bench.s.big")
            return size / took

        rates = [[ours(), theirs()] for _ in range(_ROUNDS + 1)][1:]
    return compared(
        f"ADBC's SELECT * of {rows / 1e6:g} M rows × 7 columns, against Spark Connect's toArrow()",
        rates,
        1,
        4,
    )


def _drained(server: Running) -> None:
    with _cursor(server) as cursor:
        cursor.execute("SELECT * FROM s.big")
        for _ in cursor.fetch_record_batch():
            pass


def _ingest(server: Running, count: int) -> Line:
    rows = made_rows(count)
    with DuckDBClient(server.location, "bench", timeout=900) as client:
        took = in_turns(
            lambda: seconds(lambda: _ingested(server, rows)),
            lambda: seconds(lambda: client.insert("s", "sink_of_spark", rows)),
            _ROUNDS,
        )
    return compared_seconds(
        f"adbc_ingest of {count / 1e6:g} M rows × 7 columns, against the INSERT of them by the "
        "simulated DuckDB client",
        took,
        1.1,
    )


def _ingested(server: Running, rows: Any) -> None:
    with _cursor(server) as cursor:
        count = cursor.adbc_ingest("sink", rows, mode="append", db_schema_name="s")
    if count != rows.num_rows:
        raise RuntimeError(f"{count} rows were ingested")


def _memory(server: Running, when: str, action: Callable[[], object]) -> Line:
    with watched(server) as peak:
        action()
    above = peak()
    return Line(
        f"server and driver memory above idle {when}", f"{above:.0f} MB", "< 400 MB", above < 400
    )
