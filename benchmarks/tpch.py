"""TPC-H at scale 1 through the server, against DuckDB on the lake's own files.

The simulated client reads what DuckDB's plan of a query scans, with the columns and conditions that
DuckDB pushes down, into DuckDB, which then runs the query. The real client does both at the same
time, so this is an upper bound.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from tests.spark import tpc

from benchmarks.measure import Line, compare
from sparkport.testing import DuckDBClient
from sparkport.testing.local import LocalDuckDB

__all__ = ["run"]

_SCALE = 1.0
_MOST = 2.2
_ROUNDS = 3
_SCHEMA = "tpch"
_LATEST = ("VERSION", "latest")


def run(_rows: int) -> Iterator[Line]:
    """All 22 queries, one after the other."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        data, lake = Path(folder, "data"), Path(folder, "lake")
        print(f"TPC-H: making the data at scale {_SCALE:g} …", file=sys.stderr)
        tpc.make("tpch", _SCALE, data)
        with (
            _served(lake, data) as location,
            DuckDBClient(location, "bench", timeout=300) as client,
            duckdb.connect() as files,
            duckdb.connect() as fetched,
        ):
            for table in tpc.tables(data):
                paths = [str(path) for path in lake.glob(f"{_SCHEMA}/{table}/data/**/*.parquet")]
                files.execute(f"CREATE VIEW {table} AS FROM read_parquet({paths})")
            scans = _scans(client, data)
            queries = tpc.queries(data)

            def by_duckdb() -> float:
                for query in queries:
                    files.execute(query).fetchall()
                return 1.0

            def by_the_server() -> float:
                for query, needed in zip(queries, scans, strict=True):
                    for table, scan in needed.items():
                        came = scan()  # noqa: F841 - DuckDB finds it by its name
                        fetched.execute(f"CREATE OR REPLACE TABLE {table} AS FROM came")
                    fetched.execute(query).fetchall()
                return 1.0

            found = compare([by_the_server, by_duckdb], _ROUNDS)
        ratio = found.ratio(1, 0)
        yield Line(
            "TPC-H scale 1, 22 queries by the simulated client : DuckDB on the same files",
            f"{ratio:.2f} × ({1 / found.rate(0):.1f} : {1 / found.rate(1):.1f} s)",
            f"≤ {_MOST:g} ×",
            ratio <= _MOST,
        )


def _scans(client: DuckDBClient, data: Path) -> list[dict[str, Callable[[], object]]]:
    """For each query, what reads each of its tables."""
    columns, types = {}, {}
    with duckdb.connect() as planner:
        for table, path in tpc.tables(data).items():
            planner.execute(f"CREATE TABLE {table} AS FROM '{path}'")
            attached = client.table(_SCHEMA, table).columns
            columns[table] = [each.name for each in attached]
            types[table] = {each.name: each.sql_type for each in attached}
        needed = [tpc.scanned(planner, query, columns) for query in tpc.queries(data)]

    def reading(table: str, scan: tpc.Scanned) -> Callable[[], object]:
        pushed = (
            None
            if scan.where is None
            else LocalDuckDB.shared(True).filter_json(scan.where, types[table])
        )
        return lambda: client.scan(
            _SCHEMA, table, scan.columns, filter=pushed, at=_LATEST, threads=2
        )

    return [{table: reading(table, scan) for table, scan in each.items()} for each in needed]


@contextmanager
def _served(lake: Path, data: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.tpch", str(lake), str(data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError("the lake did not start")
        yield location
    finally:
        process.terminate()
        process.wait(60)


def _serve(warehouse: str, data: str) -> None:
    """In a process of its own: the tables, as Spark writes them; then the server."""
    import sparkport as sp

    lake = sp.LakeCatalog(warehouse, name="bench")
    lake.spark.sql(f"CREATE NAMESPACE bench.{_SCHEMA}")
    for table, path in tpc.tables(Path(data)).items():
        lake.spark.read.parquet(f"file://{path}").writeTo(f"bench.{_SCHEMA}.{table}").tableProperty(
            "format-version", "3"
        ).using("iceberg").create()
    server = sp.Server(lake, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))
    lake.close()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
