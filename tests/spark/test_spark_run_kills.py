"""A server killed during `spark_run` leaves every table as before it, or as after it.

Each start is both the restart after one kill and the victim of the next.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_processes import SECONDS, lake_process
from tests.spark.leftovers import expect_no_trace

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

_BEFORE, _AFTER, _EITHER = "before", "after", "either"
_WRITTEN = "written"
"""The moment when the first file of Spark is there: the test itself kills the server."""
_POINTS = [
    ("insert", "before:branch", _BEFORE),
    ("insert", "after:branch", _BEFORE),
    ("insert", _WRITTEN, _BEFORE),
    ("insert", "after:spark", _BEFORE),
    ("insert", "after:found", _BEFORE),
    ("insert", "after:checked", _BEFORE),
    ("insert", "after:rows", _BEFORE),
    ("insert", "before:swap", _BEFORE),
    ("insert", "during:swap", _EITHER),
    ("insert", "after:swap", _AFTER),
    ("insert", "before:done", _AFTER),
    ("update", _WRITTEN, _EITHER),
    ("update", "after:spark", _BEFORE),
    ("update", "after:rows", _BEFORE),
    ("update", "during:swap", _EITHER),
    ("update", "after:swap", _AFTER),
    ("merge", _WRITTEN, _EITHER),
    ("merge", "before:spark", _BEFORE),
    ("merge", "after:spark", _BEFORE),
    ("merge", "after:checked", _BEFORE),
    ("merge", "after:rows", _BEFORE),
    ("merge", "during:swap", _EITHER),
    ("merge", "after:swap", _AFTER),
    ("pipeline", _WRITTEN, _BEFORE),
    ("pipeline", "after:spark", _BEFORE),
    ("pipeline", "after:rows", _BEFORE),
    ("pipeline", "after:swap", _BEFORE),
    ("pipeline", "after:piece", _BEFORE),
    ("pipeline", "after:spark:2", _BEFORE),
    ("pipeline", "after:swap:2", _BEFORE),
    ("pipeline", "after:piece:3", _BEFORE),
    ("pipeline", "after:draft_of_all:2", _BEFORE),
    ("pipeline", "before:together", _BEFORE),
    ("pipeline", "during:together", _EITHER),
    ("pipeline", "after:together", _AFTER),
]
_FOR_CI = [
    ("insert", _WRITTEN, _BEFORE),
    ("insert", "after:spark", _BEFORE),
    ("update", "after:rows", _BEFORE),
    ("merge", _WRITTEN, _EITHER),
    ("merge", "after:swap", _AFTER),
    ("pipeline", "after:piece", _BEFORE),
    ("pipeline", "during:together", _EITHER),
]
"""Each takes the start of a server. SPARKPORT_TEST_EVERYTHING=1 runs all of the above."""
_SEQUENCES = (
    {each: [point for point in _POINTS if point[0] == each] for each, _, _ in _POINTS}
    if os.environ.get("SPARKPORT_TEST_EVERYTHING")
    else {"some": _FOR_CI}
)

Rows = dict[int, int]
_COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
_NEW = 2_000
_MANY = 8_000_000
"""So many that Spark still writes when its first file is seen."""


def _statements(operation: str, number: int, rows: int) -> str | list[str]:
    first = number * 10_000_000
    insert = f"INSERT INTO t SELECT id + {first}, {number} FROM range(0, {rows}, 1, 8)"
    match operation:
        case "insert":
            return insert
        case "update":
            return "UPDATE t SET v = v + 1 WHERE id % 3 = 0"
        case "merge":
            return (
                f"MERGE INTO t USING (SELECT id * 2 AS id, {number} AS v FROM range({_NEW})) AS s "
                "ON t.id = s.id WHEN MATCHED AND s.id % 5 = 0 THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
            )
    return [insert, "INSERT INTO u SELECT max(id) + 1, count(*) FROM t", "UPDATE u SET v = v + 1"]


def _expected(tables: Sequence[Rows], operation: str, number: int) -> list[Rows]:
    t, u = map(dict, tables)
    match operation:
        case "insert" | "pipeline":
            t |= {key + number * 10_000_000: number for key in range(_NEW)}
        case "update":
            t = {key: value + (key % 3 == 0) for key, value in t.items()}
        case "merge":
            for key in range(0, 2 * _NEW, 2):
                if key in t and key % 5 == 0:
                    del t[key]
                else:
                    t[key] = number
    if operation == "pipeline":
        u[max(t) + 1] = len(t)
        u = {key: value + 1 for key, value in u.items()}
    return [t, u]


def _tables(client: DuckDBClient) -> list[Rows]:
    found = []
    for name in ("t", "u"):
        rows = client.scan("s", name, ["id", "v"])
        found.append(dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)))
        assert len(found[-1]) == rows.num_rows, "a key is there twice"
    return found


@pytest.mark.parametrize("sequence", _SEQUENCES)
def test_a_killed_server_leaves_all_tables_before_or_after(place, tmp_path, sequence):
    name = f"spark_run_{sequence}"
    source = place.source(name)
    with lake_process(source, tmp_path) as (process, location):
        with DuckDBClient(location, "lake", timeout=SECONDS) as client:
            client.attach()
            client.create_schema("s")
            for each in ("t", "u"):
                client.create_table("s", each, _COLUMNS, primary_key=["id"])
                client.insert("s", each, pa.table({"id": range(1_000), "v": [0] * 1_000}))
            tables = _tables(client)
        process.terminate()
        process.wait(60)
    waiting: tuple[str, str, list[Rows]] | None = None
    for number, (operation, point, outcome) in enumerate([*_SEQUENCES[sequence], ("", "", "")], 1):
        armed = [point] if point and point != _WRITTEN else []
        with lake_process(source, tmp_path, *armed) as (process, location):
            with DuckDBClient(location, "lake", timeout=SECONDS) as client:
                client.attach()
                found = _tables(client)
                if waiting is not None:
                    killed_at, allowed, after = waiting
                    before = allowed != _AFTER and found == tables
                    assert before or (allowed != _BEFORE and found == after), killed_at
                for each in ("t", "u"):
                    expect_no_trace(place, name, tmp_path, each)
                tables = found
                if not point:
                    return
                is_watched = point == _WRITTEN
                statement = _statements(operation, number, _MANY if is_watched else _NEW)
                machine = _machine_of(process)
                if is_watched:
                    _kill_when_written(process, place.folder(name))
                with pytest.raises((ServerError, ConnectionError)):
                    client.table_function("s", "spark_run", statement)
            assert process.wait(60) == -9, point
            _wait_for_end(machine)
        waiting = (f"{operation} {point}", outcome, _expected(tables, operation, number))


def _kill_when_written(process: subprocess.Popen[str], folder: Path) -> None:
    """Kill a server as soon as Spark has begun to write, or has written, a file of a statement."""
    before = set(_files_by_spark(folder))

    def watch() -> None:
        try:
            _wait(lambda: set(_files_by_spark(folder)) - before, "Spark writes no file")
        finally:
            process.kill()

    threading.Thread(target=watch, daemon=True).start()


def _files_by_spark(folder: Path) -> list[Path]:
    own = re.compile(r"\d+-\d+-[0-9a-f]{32,}(-\d+)?-\d+\.parquet")
    return [each for each in folder.rglob("data/*.parquet") if own.fullmatch(each.name)]


def _machine_of(process: subprocess.Popen[str]) -> list[int]:
    """The children of a process, which is where Java runs."""
    found = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(each) for path in found for each in path.read_text().split()]


def _wait_for_end(processes: list[int]) -> None:
    _wait(lambda: not any(map(_lives, processes)), "Java does not end")


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(happened: Callable[[], Any], otherwise: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        if time.monotonic() > deadline:
            pytest.fail(otherwise)
        time.sleep(0.005)
