"""`sparkport bench`."""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparkport.cli.connecting_flags import add_client_flags
from sparkport.cli.flags import Commands, command
from sparkport.cli.progress import Progress
from sparkport.errors import BadRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkport.cli.connecting import Place
    from sparkport.testing import DuckDBClient

__all__ = ["add_command"]

_DESCRIPTION = """\
Measure a server as a client sees it: a table is made, filled, read and dropped
again. Without a location, a server that keeps everything in memory is started
for it, which tells what this machine can do at best. The client is written in
Python, and shares the machine's cores with a server that runs on it."""
_EXAMPLES = """\
examples:
  sparkport bench
  sparkport bench grpc://127.0.0.1:50051 --schema lake.demo --rows 200000
"""
_SMALL_SCANS = 30
_BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class _Result:
    what: str
    figure: str


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "bench",
        run,
        help="measure how fast a server is",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "location", nargs="?", help="of a server that runs; by default one is started"
    )
    parser.add_argument(
        "--schema", metavar="CATALOG.SCHEMA", help="where a table may be made in a server that runs"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="of that table (default 1,000,000)"
    )
    add_client_flags(parser)


def run(options: argparse.Namespace) -> int:
    from sparkport.cli.connecting import plain_errors

    if not 1 <= options.rows <= 100_000_000:
        raise BadRequest(f"--rows must be between 1 and 100,000,000, not {options.rows}")
    with ExitStack() as cleanup:
        place, catalog, schema = cleanup.enter_context(_server(options))
        cleanup.enter_context(plain_errors(place))
        client = cleanup.enter_context(place.client(catalog))
        with Progress("measuring") as progress:
            results = list(_measured(client, schema, options.rows, progress))
    width = max(len(each.what) for each in results)
    for each in results:
        print(f"{each.what.ljust(width)}  {each.figure}")
    return 0


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[tuple[Place, str, str]]:
    """A server, and the catalog and schema in which a table can be made."""
    from sparkport.cli.connecting import Place, place_of

    if options.location:
        catalog, _, schema = (options.schema or "").partition(".")
        if not catalog or not schema:
            raise BadRequest(
                "say with --schema CATALOG.SCHEMA where a table may be made for a while"
            )
        yield place_of(options, options.location), catalog, schema
        return
    from sparkport.memory import MemoryCatalog
    from sparkport.server import Server

    memory = MemoryCatalog("bench")
    memory.add_schema("s")
    with Server(memory, "grpc://127.0.0.1:0") as server:
        yield Place(server.location), "bench", "s"


def _measured(
    client: DuckDBClient, schema: str, rows: int, progress: Progress
) -> Iterator[_Result]:
    table = f"sparkport_bench_{uuid.uuid4().hex[:8]}"
    data = _rows(rows)
    client.create_table(schema, table, data.schema)
    try:
        progress.what, progress.done = "inserting", 0.0
        seconds = _seconds(lambda: client.insert(schema, table, _batches(data, progress)))
        yield _Result(f"insert of {rows:,} rows", _speed(rows, data.nbytes, seconds))
        progress.what, progress.done = "reading", None
        seconds = min(_seconds(lambda: client.scan(schema, table)) for _ in range(3))
        yield _Result(f"scan of {rows:,} rows", _speed(rows, data.nbytes, seconds))
        progress.what = "asking for single rows"
        times = []
        for number in range(_SMALL_SCANS):
            progress.done = number / _SMALL_SCANS
            wanted = number * (rows // _SMALL_SCANS)
            times.append(_seconds(partial(client.scan, schema, table, where=f"id = {wanted}")))
        median, slow = statistics.median(times), sorted(times)[int(len(times) * 0.9)]
        yield _Result(
            "scan for one row",
            f"{median * 1000:.1f} ms in the median, {slow * 1000:.1f} ms at the 90th percentile",
        )
        progress.what, progress.done = "inserting single rows", None
        times = [_seconds(lambda: client.insert(schema, table, data.slice(0, 1))) for _ in range(5)]
        yield _Result(
            "insert of one row", f"{statistics.median(times) * 1000:.1f} ms in the median"
        )
    finally:
        client.drop_table(schema, table)


def _rows(count: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(range(count), pa.int64())
    amounts = pc.multiply(pc.cast(ids, pa.float64()), 0.5)
    texts = pc.binary_join_element_wise("row ", pc.cast(ids, pa.string()), "")
    return pa.table({"id": ids, "amount": amounts, "text": texts})


def _batches(data: pa.Table, progress: Progress) -> Iterator[pa.RecordBatch]:
    sent = 0
    for batch in data.to_batches(_BATCH_ROWS):
        yield batch
        sent += batch.num_rows
        progress.done = sent / data.num_rows


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _speed(rows: int, size: int, seconds: float) -> str:
    return f"{rows / seconds:,.0f} rows/s, {size / seconds / 1e6:,.0f} MB/s"
