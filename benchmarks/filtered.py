"""Filtered scans of the lake, through the server, against DuckDB's `read_parquet` of the files."""

from __future__ import annotations

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
_SEVEN_DAYS = "day BETWEEN DATE '2020-03-01' AND DATE '2020-03-07'"
"""Of a thousand days that follow each other row by row: no page can be skipped."""
_ONE_ROW = f"id = {_FILES * _ROWS_OF_SMALL_FILES // 3}"


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of filtered scans."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"filtered scans: writing {rows:,} rows, and {_FILES:,} files …", file=sys.stderr)
        with _serving(source, "in_place", rows) as location:
            yield _seven_days(location, Path(folder), "in place", 2.5)
            yield _one_row(location, Path(folder), 2)
        with _serving(source, "tasks", 0) as location:
            yield _seven_days(location, Path(folder), "by Spark's tasks", 2.5)


def _seven_days(location: str, folder: Path, where: str, target: float) -> Line:
    files = _files(folder, "big")
    return _compared(
        f"two columns of 0.7 % of the rows, {where}, against DuckDB's read_parquet",
        location,
        ("big", ["customer", "amount"], _SEVEN_DAYS),
        files,
        target,
    )


def _one_row(location: str, folder: Path, target: float) -> Line:
    return _compared(
        f"one row of {_FILES:,} small files, against DuckDB's read_parquet of them",
        location,
        ("many", list(_COLUMNS), _ONE_ROW),
        _files(folder, "many"),
        target,
    )


def _files(folder: Path, table: str) -> list[str]:
    return sorted(map(str, folder.glob(f"lake/**/{table}*/data/**/*.parquet")))


def _compared(
    what: str,
    location: str,
    query: tuple[str, list[str], str],
    files: list[str],
    target: float,
) -> Line:
    table, columns, condition = query
    local = LocalDuckDB.shared(False)
    filters = local.filter_json(condition, _COLUMNS)
    # The filter's columns come along, as in the client's own plans.
    wanted = [*dict.fromkeys([*_columns_of(condition), *columns])]
    database = duckdb.connect(config={"threads": _THREADS})
    listed = ", ".join(f'"{name}"' for name in wanted)
    text = f"SELECT {listed} FROM read_parquet(?) WHERE {condition}"
    with flight.connect(location) as client:

        def ours() -> None:
            counts.append(_scan(client, table, wanted, filters))

        def theirs() -> None:
            counts.append(database.sql(text, params=[files]).to_arrow_table().num_rows)

        counts: list[int] = []
        took = [(seconds(ours), seconds(theirs)) for _ in range(_ROUNDS + 2)][2:]
    database.close()
    if len(set(counts)) != 1 or not counts[0]:
        raise RuntimeError(f"other rows than DuckDB found: {counts}")
    ratio = statistics.median(mine / other for mine, other in took)
    mine, other = (statistics.median(each[index] for each in took) for index in (0, 1))
    return Line(what, f"{ratio:.2f} ({mine:.2f} : {other:.2f} s)", f"≤ {target:g}", ratio <= target)


def _columns_of(condition: str) -> list[str]:
    return [name for name in _COLUMNS if name in condition.split()]


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
