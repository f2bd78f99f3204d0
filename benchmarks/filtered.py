"""Filtered scans of the lake, through the server, against DuckDB's `read_parquet` of the files."""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import duckdb
import msgpack
import pyarrow.flight as flight

from benchmarks.measure import Line, seconds
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing.local import LocalDuckDB

__all__ = ["run"]

_ROUNDS = 7
_THREADS = 2
_TIMEOUT = flight.FlightCallOptions(timeout=300)
_FILES = 4000
_ROWS_OF_SMALL_FILES = 250
_COLUMNS = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "quantity": "INTEGER",
    "amount": "DOUBLE",
    "day": "DATE",
    "at": "TIMESTAMP",
    "code": "VARCHAR",
}


def _seven_days(number: int) -> str:
    """Of a thousand days that follow each other row by row, so that no page can be skipped."""
    first = datetime.date(2020, 3, 1) + datetime.timedelta(days=10 * number)
    return f"day BETWEEN DATE '{first}' AND DATE '{first + datetime.timedelta(days=6)}'"


def _one_row(number: int) -> str:
    return f"id = {_FILES * _ROWS_OF_SMALL_FILES // 3 + number}"


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of filtered scans."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"filtered scans: writing {rows:,} rows, and {_FILES:,} files …", file=sys.stderr)
        with _serving(source, "in_place", rows) as location:
            yield _days(location, Path(folder), "in place")
            yield _row(location, Path(folder))
        with _serving(source, "tasks", 0) as location:
            yield _days(location, Path(folder), "by Spark's tasks")


def _days(location: str, folder: Path, where: str) -> Line:
    return _compared(
        f"two columns of 0.7 % of the rows, {where}, against DuckDB's read_parquet",
        location,
        ("big", ["day", "customer", "amount"], _seven_days),
        _files(folder, "big"),
        2.5,
    )


def _row(location: str, folder: Path) -> Line:
    return _compared(
        f"one row of {_FILES:,} small files, against DuckDB's read_parquet of them",
        location,
        ("many", list(_COLUMNS), _one_row),
        _files(folder, "many"),
        2,
    )


def _files(folder: Path, table: str) -> list[str]:
    return sorted(map(str, folder.glob(f"lake/**/{table}*/data/**/*.parquet")))


def _compared(
    what: str,
    location: str,
    query: tuple[str, list[str], Callable[[int], str]],
    files: list[str],
    target: float,
) -> Line:
    """Run a query in turns, with another condition in each round: nothing is remembered of it."""
    table, columns, condition = query
    listed = ", ".join(f'"{name}"' for name in columns)
    database = duckdb.connect(config={"threads": _THREADS})
    with flight.connect(location) as client:

        def round_of(number: int) -> tuple[float, float]:
            text = f"SELECT {listed} FROM read_parquet(?) WHERE {condition(number)}"
            filters = LocalDuckDB.shared(False).filter_json(condition(number), _COLUMNS)
            counts: list[int] = []

            def ours() -> None:
                counts.append(_scan(client, table, columns, filters))

            def theirs() -> None:
                counts.append(database.sql(text, params=[files]).to_arrow_table().num_rows)

            took = seconds(ours), seconds(theirs)
            if len(set(counts)) != 1 or not counts[0]:
                raise RuntimeError(f"other rows than DuckDB found: {counts}")
            return took

        took = [round_of(number) for number in range(_ROUNDS + 2)][2:]
    database.close()
    ratio = statistics.median(mine / other for mine, other in took)
    mine, other = (statistics.median(each[index] for each in took) for index in (0, 1))
    return Line(what, f"{ratio:.2f} ({mine:.2f} : {other:.2f} s)", f"≤ {target:g}", ratio <= target)


def _scan(client: flight.FlightClient, table: str, columns: list[str], filters: str) -> int:
    """Plan and read, all streams at once as DuckDB does; how many rows came."""
    descriptor = flight.FlightDescriptor.for_path("s", table).serialize()
    numbers = [list(_COLUMNS).index(name) for name in columns]
    parameters = {"json_filters": filters, "column_ids": numbers, "at_unit": "", "at_value": ""}
    body = msgpack.packb({"descriptor": descriptor, "parameters": parameters})
    result = next(iter(client.do_action(flight.Action("endpoints", body), _TIMEOUT)))
    found: list[int] = []

    def read(endpoint: bytes) -> None:
        ticket = flight.FlightEndpoint.deserialize(endpoint).ticket
        found.append(client.do_get(ticket, _TIMEOUT).read_all().num_rows)

    threads = [
        threading.Thread(target=read, args=(each,))
        for each in msgpack.unpackb(result.body.to_pybytes())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return sum(found)


@contextmanager
def _serving(source: LakeSource, route: str, rows: int) -> Iterator[str]:
    """Serve the lake in a process of its own, by one route; rows: make the tables first."""
    command = [sys.executable, "-m", "benchmarks.filtered", route, str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(source)) + "\n")
        process.stdin.flush()
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError("the lake did not start")
        yield location
    finally:
        process.terminate()
        process.wait(60)


def _serve(source: LakeSource, route: str, rows: int) -> None:
    """In a process of its own: the tables, and then the server."""
    import sparkport as sp
    from sparkport.spark import LakeSettings

    settings = {
        "in_place": LakeSettings(in_place_bytes=1 << 40),
        "tasks": LakeSettings(in_place_bytes=0),
    }
    lake = sp.LakeCatalog(source=source, name="bench", settings=settings[route])
    if rows:
        _make_tables(lake.spark.sql, rows)
    server = sp.Server(lake, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))
    lake.close()


def _make_tables(sql: Callable[[str], object], rows: int) -> None:
    row = """id, pmod(xxhash64(id), 1000000000) AS customer, cast(id % 100 AS INT) AS quantity,
        id / 7D AS amount, date_add(DATE '2020-01-01', cast(id % 1000 AS INT)) AS day,
        timestamp_micros(id * 1000)::TIMESTAMP_NTZ AS at, concat('code ', id % 65536) AS code"""
    types = """id BIGINT, customer BIGINT, quantity INT, amount DOUBLE, day DATE,
        at TIMESTAMP_NTZ, code STRING"""
    properties = "TBLPROPERTIES ('format-version' = '3', 'write.distribution-mode' = 'none')"
    sql("CREATE NAMESPACE bench.s")
    sql(f"CREATE TABLE bench.s.big ({types}) USING iceberg {properties}")
    sql(f"INSERT INTO bench.s.big SELECT {row} FROM range(0, {rows}, 1, 8)")
    # Every file has ids from all over the range, so that none can be skipped. The files are
    # partitions, because then two of Spark's tasks write them all.
    small = _FILES * _ROWS_OF_SMALL_FILES
    sql(
        f"CREATE TABLE bench.s.many ({types}, file INT) USING iceberg PARTITIONED BY (file) "
        f"{properties[:-1]}, 'write.spark.fanout.enabled' = 'false')"
    )
    file = f"cast(n % {_FILES // 2} + {_FILES // 2} * (n div {small // 2}) AS INT) AS file"
    sql(
        f"INSERT INTO bench.s.many SELECT {row}, {file} "
        f"FROM (SELECT id AS n, (id * 7919) % {small} AS id FROM range(0, {small}, 1, 2))"
    )


if __name__ == "__main__":
    _serve(LakeSource(**json.loads(sys.stdin.readline())), sys.argv[1], int(sys.argv[2]))
