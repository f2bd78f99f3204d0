"""Small statements on a lake: how long one takes, and how many a second many clients get done."""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.client import replace_table
from benchmarks.data import rows as made_rows
from benchmarks.lake import Running, start_lake
from benchmarks.measure import Line, seconds
from benchmarks.rivals import start_rival
from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["Writer", "one_row", "run"]

_WARM_UP = 5
_ROUNDS = 25
_TURNS = 3
_SECONDS = 3.0
_INSERTERS = 32
_UPDATERS = 8
_OWN_ROWS = 100


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of small statements. They need no large table."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print("small statements: starting a lake …", file=sys.stderr)
        with start_lake(source, 1000) as server:
            yield _one_row(server, source)
            yield _inserts(server)
            yield _updates(server)


def _one_row(server: Running, source: LakeSource) -> Line:
    batch = one_row(1)
    replace_table(server.location, "alone", batch.schema)
    with start_rival("pyiceberg_append", source) as rival, Writer(server, "alone") as writer:

        def ours() -> float:
            return seconds(lambda: writer.run("insert", batch))

        took = [(ours(), rival.run("append", "")[0]) for _ in range(_WARM_UP + _ROUNDS)][_WARM_UP:]
    ratio = statistics.median(mine / theirs for mine, theirs in took)
    mine, theirs = (statistics.median(each[index] for each in took) * 1000 for index in (0, 1))
    return Line(
        "INSERT of 1 row, one client, against PyIceberg's append of 1 row in its own process",
        f"{ratio:.2f} ({mine:.1f} : {theirs:.1f} ms)",
        "≤ 2",
        ratio <= 2,
    )


def _inserts(server: Running) -> Line:
    def statement(number: int, count: int) -> tuple[str, pa.RecordBatch]:
        return "insert", one_row(number * 1_000_000 + count)

    def fresh(table: str) -> None:
        replace_table(server.location, table, one_row(0).schema)

    what = "INSERT of 1 row into one table"
    return _many(server, what, _INSERTERS, 8, fresh, statement)


def _updates(server: Running) -> Line:
    def statement(number: int, count: int) -> tuple[str, pa.RecordBatch]:
        row_id = number * _OWN_ROWS + count % _OWN_ROWS
        new = {"amount": pa.array([float(count)]), "rowid": pa.array([row_id], pa.int64())}
        return "update", pa.RecordBatch.from_pydict(new)

    def fresh(table: str) -> None:
        replace_table(server.location, table, one_row(0).schema)
        (batch,) = made_rows(_UPDATERS * _OWN_ROWS).combine_chunks().to_batches()
        with Writer(server, table) as writer:
            writer.run("insert", batch)

    what = "UPDATE of 1 row of its own in one table"
    return _many(server, what, _UPDATERS, 4, fresh, statement)


def _many(
    server: Running,
    what: str,
    clients: int,
    target: int,
    fresh: Callable[[str], None],
    statement: Callable[[int, int], tuple[str, pa.RecordBatch]],
) -> Line:
    """Compare what many clients get done in a second with what one gets done.

    Each measurement has a table of its own: commits become dearer as a table becomes older.
    """
    rates = []
    for turn in range(_TURNS):
        pair = []
        for count in (clients, 1):
            table = f"many_{what[:6].lower()}_{count}_{turn}"
            fresh(table)
            pair.append(_rate(server, table, count, statement))
        rates.append(pair)
    ratio = statistics.median(many / one for many, one in rates)
    many, one = (statistics.median(each[index] for each in rates) for index in (0, 1))
    return Line(
        f"{clients} clients, each {what}: statements a second, against one client",
        f"{ratio:.1f} ({many:.0f} : {one:.0f} a second)",
        f"≥ {target}",
        ratio >= target,
    )


def _rate(
    server: Running,
    table: str,
    clients: int,
    statement: Callable[[int, int], tuple[str, pa.RecordBatch]],
) -> float:
    """Statements a second of so many clients together, after some to warm up."""
    done, measuring, ended = [0] * clients, threading.Event(), threading.Event()
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            with Writer(server, table) as writer:
                count = 0
                while not ended.is_set():
                    writer.run(*statement(number, count))
                    count += 1
                    done[number] += measuring.is_set() and not ended.is_set()
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    measuring.set()
    began = time.perf_counter()
    time.sleep(_SECONDS)
    took = time.perf_counter() - began
    ended.set()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    return sum(done) / took


def one_row(number: int) -> pa.RecordBatch:
    (batch,) = made_rows(1).combine_chunks().to_batches()
    return batch.set_column(0, "id", pa.array([number], pa.int64()))


class Writer:
    """A client that keeps its connection, as DuckDB does."""

    def __init__(self, server: Running, table: str) -> None:
        self._open = ExitStack()
        self._client = self._open.enter_context(flight.connect(server.location))
        self._descriptor = flight.FlightDescriptor.for_path("s", table)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self, operation: str, batch: pa.RecordBatch) -> None:
        """Send a statement, and wait until it is answered."""
        headers = [(b"airport-operation", operation.encode()), (b"return-chunks", b"0")]
        options = flight.FlightCallOptions(timeout=60, headers=headers)
        writer, reader = self._client.do_exchange(self._descriptor, options)
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            answers = [chunk for chunk in reader if chunk.app_metadata is not None]
        if len(answers) != 1:
            raise RuntimeError(f"the {operation} was not answered")
