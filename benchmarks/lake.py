"""The lake: reading it through the server, against Spark, Spark Connect and PyIceberg on the same
files.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgpack
import pyarrow.flight as flight

from benchmarks.measure import Line, resident_megabytes, seconds
from benchmarks.rivals import Rival, start_rival
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

__all__ = ["Running", "compared", "full_scan_rates", "run", "start_lake"]

_ROUNDS = 5
_TIMEOUT = flight.FlightCallOptions(timeout=300)
_ROW_ID = 2**64 - 1
_COLUMNS = """id BIGINT, customer BIGINT, quantity INT, amount DOUBLE, day DATE,
    at TIMESTAMP_NTZ, code STRING"""
_WRITTEN = """id BIGINT, customer INT, amount DOUBLE, price DOUBLE, day DATE,
    at TIMESTAMP_NTZ, code STRING"""
_ID_IS_500 = json.dumps(
    {
        "filters": [
            {
                "expression_class": "BOUND_COMPARISON",
                "type": "COMPARE_EQUAL",
                "alias": "",
                "query_location": 25,
                "left": {
                    "expression_class": "BOUND_COLUMN_REF",
                    "type": "BOUND_COLUMN_REF",
                    "alias": "id",
                    "query_location": 18446744073709551615,
                    "return_type": {"id": "BIGINT", "type_info": None},
                    "binding": {"table_index": 0, "column_index": 0},
                    "depth": 0,
                },
                "right": {
                    "expression_class": "BOUND_CAST",
                    "type": "OPERATOR_CAST",
                    "alias": "",
                    "query_location": 27,
                    "child": {
                        "expression_class": "BOUND_CONSTANT",
                        "type": "VALUE_CONSTANT",
                        "alias": "",
                        "query_location": 27,
                        "value": {
                            "type": {"id": "INTEGER", "type_info": None},
                            "is_null": False,
                            "value": 500,
                        },
                    },
                    "return_type": {"id": "BIGINT", "type_info": None},
                    "try_cast": False,
                },
            }
        ],
        "column_binding_names_by_index": [
            "id",
            "b",
            "i8",
            "i32",
            "u64",
            "hg",
            "f",
            "dbl",
            "dec",
            "dec30",
            "s",
            "bl",
            "d",
            "tm",
            "ts",
            "tss",
            "tsms",
            "tsns",
            "tstz",
            "iv",
            "u",
            "e",
            "l",
            "st",
            "m",
        ],
    }
)
"""`id = 500`, as DuckDB 1.5 sends it."""
_EVERYTHING = "SELECT * FROM bench.s.big"
_GROUP = "SELECT day, count(*) AS n, sum(amount) AS total FROM bench.s.big GROUP BY day"


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of reading the lake."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"the lake: writing {rows:,} rows …", file=sys.stderr)
        with start_lake(source, rows) as server, ExitStack() as rivals:
            spark = rivals.enter_context(start_rival("spark", source))
            yield from _full_scan(server, spark, source)
            yield _first_batch(server)
            yield _memory(
                server,
                "big",
                "server and driver memory above idle while the table streams, all of it",
            )
            yield from _view(server, spark)
            yield from _points(server, spark, rows)
            yield _small(server)
            yield _count(server)
            yield _group(server, spark)


@dataclass(frozen=True)
class Running:
    """The server of a lake."""

    location: str
    pid: int
    jvm: int


@contextmanager
def start_lake(source: LakeSource, rows: int) -> Iterator[Running]:
    """Serve a lake with a table of so many rows, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.lake", str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(source)) + "\n")
        process.stdin.flush()
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError("the lake did not start")
        jvm = subprocess.run(
            ["pgrep", "-P", str(process.pid), "java"], capture_output=True, text=True, check=False
        )
        yield Running(
            location, process.pid, int(jvm.stdout.split()[0]) if jvm.stdout.split() else process.pid
        )
    finally:
        process.terminate()
        process.wait(60)


def _serve(source: LakeSource, rows: int) -> None:
    """In a process of its own: the table of 8 files, a small one, a view; then the server."""
    import sparkport as sp

    lake = sp.LakeCatalog(source=source, name="bench")
    sql = lake.spark.sql
    sql("CREATE NAMESPACE bench.s")
    row = """id, pmod(xxhash64(id), 1000000000) AS customer,
        cast(id % 100 AS INT) AS quantity, id / 7D AS amount,
        date_add(DATE '2020-01-01', cast(id % 1000 AS INT)) AS day,
        timestamp_micros(id * 1000)::TIMESTAMP_NTZ AS at, concat('code ', id % 65536) AS code"""
    modes = ", ".join(
        f"'write.{kind}.mode' = 'merge-on-read'" for kind in ("delete", "update", "merge")
    )
    properties = (
        f"TBLPROPERTIES ('format-version' = '3', 'write.distribution-mode' = 'none', {modes})"
    )
    for name in ("sink", "sink_of_spark", "one"):
        sql(f"CREATE TABLE bench.s.{name} ({_WRITTEN}) USING iceberg {properties}")
    for name, count, files in (("big", rows, 8), ("small", 1000, 1)):
        sql(f"CREATE TABLE bench.s.{name} ({_COLUMNS}) USING iceberg {properties}")
        sql(f"INSERT INTO bench.s.{name} SELECT {row} FROM range(0, {count}, 1, {files})")
    sql("CREATE VIEW bench.s.seen AS SELECT * FROM bench.s.big")
    server = sp.Server(lake, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))
    lake.close()


# -------------------------------------------------------------------------------------- the client


def _tickets(
    client: flight.FlightClient, table: str, columns: list[int], filters: str = ""
) -> list[bytes]:
    descriptor = flight.FlightDescriptor.for_path("s", table).serialize()
    parameters = {"json_filters": filters, "column_ids": columns, "at_unit": "", "at_value": ""}
    body = msgpack.packb({"descriptor": descriptor, "parameters": parameters})
    result = next(iter(client.do_action(flight.Action("endpoints", body), _TIMEOUT)))
    endpoints = msgpack.unpackb(result.body.to_pybytes())
    return [flight.FlightEndpoint.deserialize(endpoint).ticket.ticket for endpoint in endpoints]


def _scan(
    server: Running, table: str, columns: list[int], on_batch: Callable[[], None] = lambda: None
) -> float:
    """Plan and read, all streams at once as DuckDB does; how many bytes of Arrow data came."""
    total: list[float] = []
    with flight.connect(server.location) as client:

        def read(ticket: bytes) -> None:
            size = 0
            for chunk in client.do_get(flight.Ticket(ticket), _TIMEOUT):
                on_batch()
                size += chunk.data.nbytes
            total.append(size)

        threads = [
            threading.Thread(target=read, args=(each,)) for each in _tickets(client, table, columns)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    return sum(total)


_ALL = list(range(7))


def _rates(actions: list[Callable[[], tuple[float, float]]]) -> list[list[float]]:
    """Bytes a second of competitors that run in turns, round by round, after one to warm up."""
    rounds = [
        [size / took for took, size in (action() for action in actions)] for _ in range(_ROUNDS + 1)
    ]
    return rounds[1:]


def _ours(server: Running, table: str) -> tuple[float, float]:
    began = time.perf_counter()
    size = _scan(server, table, _ALL)
    return time.perf_counter() - began, size


def compared(what: str, rates: list[list[float]], rival: int, target: float) -> Line:
    ratio = statistics.median(each[0] / each[rival] for each in rates)
    ours, theirs = (statistics.median(each[index] for each in rates) / 1e6 for index in (0, rival))
    return Line(
        what, f"{ratio:.2f} ({ours:.0f} : {theirs:.0f} MB/s)", f"≥ {target}", ratio >= target
    )


def full_scan_rates(
    server: Running, spark: Rival, source: LakeSource, location: str
) -> list[list[float]]:
    """Bytes a second of the server, of Spark and of PyIceberg, which reads metadata there."""
    with start_rival("pyiceberg", source) as pyiceberg:
        return _rates(
            [
                lambda: _ours(server, "big"),
                lambda: spark.run("to_arrow", _EVERYTHING),
                lambda: pyiceberg.run("to_arrow", location),
            ]
        )


def _full_scan(server: Running, spark: Rival, source: LakeSource) -> Iterator[Line]:
    with sqlite3.connect(source.folder / "catalog.db") as catalog:
        found = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'big'"
        (location,) = catalog.execute(found).fetchone()
    rates = full_scan_rates(server, spark, source, location)
    yield compared("full scan through the server, against spark.table(t).toArrow()", rates, 1, 3.5)
    yield compared("full scan, against PyIceberg reading the table in one process", rates, 2, 0.9)
    if (
        importlib.util.find_spec("pandas") is None
        or importlib.util.find_spec("grpc_status") is None
    ):
        yield Line("full scan, against Spark Connect's toArrow()", "not installed", "≥ 4", False)
        return
    with start_rival("connect", source) as connect:
        rates = _rates([lambda: _ours(server, "big"), lambda: connect.run("to_arrow", _EVERYTHING)])
    yield compared("full scan, against Spark Connect's toArrow()", rates, 1, 4)


def _first_batch(server: Running) -> Line:
    def first() -> float:
        with flight.connect(server.location) as client:
            began = time.perf_counter()
            reader = client.do_get(flight.Ticket(_tickets(client, "big", _ALL)[0]), _TIMEOUT)
            reader.read_chunk()
            took = time.perf_counter() - began
            reader.cancel()
        time.sleep(0.5)  # until the job has ended
        return took

    median = statistics.median(first() for _ in range(7))
    return Line(
        "first batch of the full scan, median of 7", f"{median:.2f} s", "≤ 0.25 s", median <= 0.25
    )


def _memory(server: Running, table: str, what: str) -> Line:
    def used() -> float:
        return resident_megabytes(server.pid) + (
            resident_megabytes(server.jvm) if server.jvm != server.pid else 0
        )

    idle = peak = used()
    seen = 0

    def look() -> None:
        nonlocal peak, seen
        seen += 1
        if seen % 20 == 0:
            peak = max(peak, used())

    _scan(server, table, _ALL, look)
    return Line(what, f"{peak - idle:.0f} MB", "< 300 MB", peak - idle < 300)


def _view(server: Running, spark: Rival) -> Iterator[Line]:
    rates = _rates(
        [lambda: _ours(server, "seen"), lambda: spark.run("to_arrow", "SELECT * FROM bench.s.seen")]
    )
    yield compared("the same rows through a view, against toArrow() of it", rates, 1, 1.1)
    yield _memory(server, "seen", "server and driver memory above idle while the view streams")


def _points(server: Running, spark: Rival, rows: int) -> Iterator[Line]:
    with DuckDBClient(server.location, "bench", timeout=60) as client:
        wanted = rows // 3
        customer = client.scan("s", "big", ["customer"], where=f"id = {wanted}")["customer"][
            0
        ].as_py()
        for name, column, value in (
            ("an unsorted", "customer", customer),
            ("a clustered", "id", wanted),
        ):
            condition = f"{column} = {value}"
            query = f"SELECT * FROM bench.s.big WHERE {condition}"
            took = [
                (
                    seconds(lambda: client.scan("s", "big", where=condition)),  # noqa: B023
                    spark.run("collect", query)[0],
                )
                for _ in range(_ROUNDS + 2)
            ][2:]
            ratio = statistics.median(ours / theirs for ours, theirs in took)
            mine, theirs = (
                statistics.median(each[index] for each in took) * 1000 for index in (0, 1)
            )
            yield Line(
                f"point query on {name} unpartitioned column, against spark.sql(…).collect()",
                f"{ratio:.2f} ({mine:.0f} : {theirs:.0f} ms)",
                "≤ 0.25",
                ratio <= 0.25,
            )


def _small(server: Running) -> Line:
    """`endpoints` with DuckDB's filter, and DoGet; on a connection that is there already, as
    DuckDB's is.
    """
    with flight.connect(server.location) as client:

        def query() -> None:
            rows = [
                client.do_get(flight.Ticket(ticket), _TIMEOUT).read_all().num_rows
                for ticket in _tickets(client, "small", _ALL, _ID_IS_500)
            ]
            if rows != [1]:
                raise RuntimeError(f"the point query found {rows}")

        query()
        median = statistics.median(seconds(query) for _ in range(50))
    return Line(
        "point query on a 1,000-row table, end to end, median of 50",
        f"{median * 1000:.0f} ms",
        "≤ 30 ms",
        median <= 0.03,
    )


def _count(server: Running) -> Line:
    took = [
        (
            seconds(lambda: _scan(server, "big", [_ROW_ID])),
            seconds(lambda: _scan(server, "big", _ALL)),
        )
        for _ in range(_ROUNDS)
    ]
    ratio = statistics.median(count / full for count, full in took)
    count, full = (statistics.median(each[index] for each in took) for index in (0, 1))
    return Line(
        "count(*) by the client's scan of row ids, against the full scan",
        f"{ratio:.2f} ({count:.2f} : {full:.2f} s)",
        "≤ 0.25",
        ratio <= 0.25,
    )


def _group(server: Running, spark: Rival) -> Line:
    with DuckDBClient(server.location, "bench", timeout=120) as client:
        took = [
            (
                seconds(lambda: client.table_function("s", "spark_sql", _GROUP)),
                spark.run("collect", _GROUP)[0],
            )
            for _ in range(_ROUNDS + 2)
        ][2:]
    ratio = statistics.median(ours / theirs for ours, theirs in took)
    mine, theirs = (statistics.median(each[index] for each in took) for index in (0, 1))
    return Line(
        "GROUP BY of all rows through spark_sql, against spark.sql(…).collect()",
        f"{ratio:.2f} ({mine:.2f} : {theirs:.2f} s)",
        "≤ 1.3",
        ratio <= 1.3,
    )


if __name__ == "__main__":
    _serve(LakeSource(**json.loads(sys.stdin.readline())), int(sys.argv[1]))
