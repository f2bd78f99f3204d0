"""The first statements after the start, against the tenth of their kind."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Line, seconds
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_TIMES = 10
_MOST = 2.0
_STARTED_SECONDS = 120
_WARM_SECONDS = 120
_IDLE = 0.2
"""Part of a core that an idle server uses at most."""
_QUIET_LOOKS = 3
"""How often it must be seen idle: less is used, too, when a worker ends."""
_QUERY = "SELECT country, count(*) AS n FROM customers GROUP BY country"


def run(_rows: int) -> Iterator[Line]:
    """First statements of a server that has had time to warm up: one line for each kind."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder:
        with (
            _served(folder, "--demo", "--no-lake-warm-up") as (location, _),
            DuckDBClient(location, "lake", timeout=120) as client,
        ):
            client.create_table("demo", "w", {"id": "BIGINT", "v": "VARCHAR"})
            client.insert("demo", "w", pa.table({"id": list(range(100)), "v": ["x"] * 100}))
        with _served(folder) as (location, pid):
            _wait_until_idle(pid)
            with DuckDBClient(location, "lake", timeout=120) as client:
                client.tables("demo")
                for what, statement in _statements(client).items():
                    times = [seconds(partial(statement, n)) for n in range(_TIMES)]
                    ratio = times[0] / statistics.median(times[-3:])
                    yield Line(
                        f"first {what} after the start : tenth",
                        f"{ratio:.1f} × ({times[0] * 1000:.0f} ms)",
                        f"≤ {_MOST:g} ×",
                        ratio <= _MOST,
                    )


def _statements(client: DuckDBClient) -> dict[str, Callable[[int], object]]:
    """What is measured, in this order: what runs first is the coldest."""
    return {
        "view": lambda _: client.scan("demo", "revenue"),
        "spark_sql": lambda _: client.table_function("demo", "spark_sql", _QUERY),
        "UPDATE": lambda n: client.update("demo", "w", {"v": "'z'"}, where=f"id = {n}"),
        "DELETE": lambda n: client.delete("demo", "w", where=f"id = {50 + n}"),
        "INSERT": lambda n: client.insert("demo", "w", pa.table({"id": [200 + n], "v": ["y"]})),
        "CREATE TABLE": lambda n: client.create_table("demo", f"made_{n}", {"id": "BIGINT"}),
        "point query": lambda n: client.scan("demo", "orders", where=f"id = {n}"),
    }


@contextmanager
def _served(folder: str, *flags: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "sparkport", "serve", "--warehouse", f"{folder}/lake"]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--log-level", "error", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"grpc://[\d.:]+", process.stdout.readline())
        if found is None:
            raise RuntimeError("the lake did not start")
        yield found[0], process.pid
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_idle(pid: int) -> None:
    """Wait until the server and its children do nothing any more."""
    deadline = time.monotonic() + _WARM_SECONDS
    used, quiet = _cpu_seconds(pid), 0
    while time.monotonic() < deadline:
        time.sleep(2)
        before, used = used, _cpu_seconds(pid)
        quiet = quiet + 1 if abs(used - before) < 2 * _IDLE else 0
        if quiet == _QUIET_LOOKS:
            return
    raise RuntimeError("the server does not come to rest")


def _cpu_seconds(pid: int) -> float:
    children = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    )
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # a worker that has ended meanwhile
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / 100
    return own + sum(_cpu_seconds(int(each)) for each in children.stdout.split())
