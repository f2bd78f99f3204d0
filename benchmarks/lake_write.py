"""Writing the lake through the server, against Spark doing the same to the same kind of table."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq

from benchmarks.client import exchange
from benchmarks.data import rows as made_rows
from benchmarks.lake import Running, start_lake
from benchmarks.measure import Line, resident_megabytes, seconds
from benchmarks.rivals import Rival, start_rival
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

__all__ = [
    "compared_seconds",
    "in_turns",
    "insert_of_one",
    "run",
    "update_of_few",
    "watched",
]

_ROUNDS = 3
_INSERTED = 5_000_000
_CHANGED = 1_000_000
_BATCH = 2048


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of writing the lake."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"writing the lake: making a table of {rows:,} rows …", file=sys.stderr)
        with start_lake(source, rows) as server, start_rival("spark", source) as spark:
            yield _insert(server, spark, Path(folder))
            yield _one_row(server)
            yield update_of_few(server, spark, Path(folder), rows)
            free = _free_rows(rows)
            yield _many(server, spark, Path(folder), free, "update")
            yield _many(server, spark, Path(folder), free, "delete")
            yield _memory(server)


def _insert(server: Running, spark: Rival, folder: Path) -> Line:
    source = made_rows(_INSERTED)
    pq.write_table(source, folder / "source.parquet")
    batches = source.combine_chunks().to_batches(max_chunksize=_BATCH)
    statement = (
        f"INSERT INTO bench.s.sink_of_spark SELECT * FROM parquet.`{folder / 'source.parquet'}`"
    )
    took = in_turns(
        lambda: seconds(lambda: _send(server, "sink", batches, "insert")),
        lambda: spark.run("collect", statement)[0],
    )
    return compared_seconds(
        "INSERT of 5 M rows × 7 columns by a Flight client, against Spark's INSERT … SELECT",
        took,
        0.8,
    )


def insert_of_one(server: Running) -> float:
    """The seconds that an INSERT of one row takes."""
    (batch,) = made_rows(1).combine_chunks().to_batches()
    return seconds(lambda: _send(server, "one", [batch], "insert"))


def _one_row(server: Running) -> Line:
    median = statistics.median([insert_of_one(server) for _ in range(22)][2:])
    return Line(
        "INSERT of 1 row, end to end, median of 20", f"{median:.2f} s", "≤ 0.35 s", median <= 0.35
    )


def update_of_few(server: Running, spark: Rival, folder: Path, rows: int) -> Line:
    """The line of an UPDATE of 10 rows."""
    chosen, path = random.Random(1), folder / "few.parquet"
    with DuckDBClient(server.location, "bench", timeout=120) as client:
        client.attach()

        def ours() -> float:
            first = chosen.randrange(rows - 10)
            condition = f"id BETWEEN {first} AND {first + 9}"
            return seconds(
                lambda: client.update("s", "big", {"quantity": "quantity + 1"}, where=condition)
            )

        def theirs() -> float:
            ids = chosen.sample(range(rows), 10)
            pq.write_table(
                pa.table(
                    {"rowid": pa.array(ids, pa.int64()), "quantity": pa.array([7] * 10, pa.int32())}
                ),
                path,
            )
            return spark.run("collect", _merge(path, "UPDATE SET t.quantity = s.quantity"))[0]

        took = in_turns(ours, theirs)
    return compared_seconds(
        "UPDATE of 10 rows in 20 M, end to end, against Spark's MERGE with broadcast", took, 0.35
    )


def _free_rows(rows: int) -> Iterator[pa.Array]:
    """A million row ids each, which nobody has had before."""
    ids = list(range(rows))
    random.Random(2).shuffle(ids)
    for start in range(0, rows, _CHANGED):
        yield pa.array(sorted(ids[start : start + _CHANGED]), pa.int64())


def _many(
    server: Running, spark: Rival, folder: Path, free: Iterator[pa.Array], operation: str
) -> Line:
    def values(ids: pa.Array) -> pa.Table:
        if operation == "delete":
            return pa.table({"rowid": ids})
        return pa.table({"amount": pa.array([0.5] * len(ids)), "rowid": ids})

    def ours() -> float:
        batches = values(next(free)).to_batches(max_chunksize=_BATCH)
        return seconds(lambda: _send(server, "big", batches, operation))

    def theirs() -> float:
        path = folder / f"{operation}.parquet"
        pq.write_table(values(next(free)), path)
        action = "DELETE" if operation == "delete" else "UPDATE SET t.amount = s.amount"
        return spark.run("collect", _merge(path, action))[0]

    took = in_turns(ours, theirs)
    return compared_seconds(
        f"{operation.upper()} of 1 M rows in 20 M, against Spark's MERGE from staged Parquet",
        took,
        1.3,
    )


def _merge(source: Path, action: str) -> str:
    staged = f"(SELECT /*+ BROADCAST(p) */ * FROM parquet.`{source}` AS p)"
    joined = f"MERGE INTO bench.s.big AS t USING {staged} AS s ON t._row_id = s.rowid"
    return f"{joined} WHEN MATCHED THEN {action}"


def _memory(server: Running) -> Line:
    batches = made_rows(_INSERTED).combine_chunks().to_batches(max_chunksize=_BATCH) * 2
    with watched(server) as peak:
        _send(server, "sink", batches, "insert")
    above = peak()
    return Line(
        "server and driver memory above idle during an INSERT of 10 M rows",
        f"{above:.0f} MB",
        "< 400 MB",
        above < 400,
    )


@contextmanager
def watched(server: Running) -> Iterator[Callable[[], float]]:
    """How far memory rises above what it is now."""

    def used() -> float:
        return resident_megabytes(server.pid) + resident_megabytes(server.jvm)

    idle = used()
    highest, ended = [idle], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            highest.append(max(highest.pop(), used()))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield lambda: highest[0] - idle
    finally:
        ended.set()
        watcher.join(10)


def _send(server: Running, table: str, batches: list[pa.RecordBatch], operation: str) -> None:
    answers = exchange(
        server.location,
        flight.FlightDescriptor.for_path("s", table),
        batches,
        operation=operation,
        lockstep=False,
    )
    if answers != 1:
        raise RuntimeError(f"the {operation} was not answered")


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int = _ROUNDS
) -> list[tuple[float, float]]:
    """The seconds of two competitors that run in turns, after a round to warm up."""
    return [(ours(), theirs()) for _ in range(rounds + 1)][1:]


def compared_seconds(what: str, took: list[tuple[float, float]], target: float) -> Line:
    """The line of two that took so many seconds each round."""
    ratio = statistics.median(mine / theirs for mine, theirs in took)
    mine, theirs = (statistics.median(each[index] for each in took) for index in (0, 1))
    return Line(what, f"{ratio:.2f} ({mine:.2f} : {theirs:.2f} s)", f"≤ {target}", ratio <= target)
