"""Lakes that take care of their tables, each served by a process of its own.

That process is `python -m benchmarks.cared_lakes`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lake import Running

__all__ = ["FILES", "start_cared"]

FILES = 64
"""How many files a table of many rows has at first."""


@contextmanager
def start_cared(settings: Mapping[str, Any], rows: int = 0) -> Iterator[tuple[Running, Path]]:
    """Serve a new lake with care; the server, and the folder of its tables."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkport-bench-")))
        warehouse = folder / "lake"
        command = [sys.executable, "-m", "benchmarks.cared_lakes"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(warehouse), dict(settings), rows]) + "\n")
        process.stdin.flush()
        location = process.stdout.readline().strip()
        if not location:
            raise RuntimeError("the lake did not start")
        yield Running(location, process.pid, process.pid), warehouse


def _serve(warehouse: str, settings: Mapping[str, Any], rows: int) -> None:
    import sparkport as sp
    from sparkport.spark import LakeSettings

    lake = sp.LakeCatalog(warehouse, name="bench", settings=LakeSettings(**settings))
    sql = lake.spark.sql
    sql("CREATE NAMESPACE bench.s")
    if rows:
        sql(
            "CREATE TABLE bench.s.big (id BIGINT, customer BIGINT, amount DOUBLE, code STRING) "
            "USING iceberg TBLPROPERTIES ('format-version' = '3', "
            "'write.distribution-mode' = 'none')"
        )
        sql(
            "INSERT INTO bench.s.big SELECT id, pmod(xxhash64(id), 1000000000), id / 7D, "
            f"concat('code ', id % 65536) FROM range(0, {rows}, 1, {FILES})"
        )
    server = sp.Server(lake, "grpc://127.0.0.1:0")

    def begin() -> None:
        print(server.location, flush=True)
        lake.start_care()

    server.run_until_signal(begin)
    lake.close()


if __name__ == "__main__":
    _serve(*json.loads(sys.stdin.readline()))
