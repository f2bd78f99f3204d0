"""A server killed during a statement leaves the table as before the statement, or as after it.

Each start is both the restart after one kill and the victim of the next.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_processes import lake_process
from tests.spark.leftovers import expect_nothing_left

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_BEFORE, _AFTER, _EITHER = "before", "after", "either"
_POINTS = [
    ("insert", "after:stage", _BEFORE),
    ("insert", "before:batch", _BEFORE),
    ("insert", "before:journal", _BEFORE),
    ("insert", "after:journal", _BEFORE),
    ("insert", "after:file", _BEFORE),
    ("insert", "after:files", _BEFORE),
    ("insert", "after:rows", _BEFORE),
    ("insert", "before:swap", _BEFORE),
    ("insert", "during:swap", _EITHER),
    ("insert", "after:swap", _AFTER),
    ("insert", "before:done", _AFTER),
    ("insert", "after:end", _AFTER),
    ("update", "after:encode", _BEFORE),
    ("update", "after:file", _BEFORE),
    ("update", "after:vectors", _BEFORE),
    ("update", "during:swap", _EITHER),
    ("update", "after:swap", _AFTER),
    ("delete", "after:locate", _BEFORE),
    ("delete", "after:vectors", _BEFORE),
    ("delete", "after:swap", _AFTER),
]


def _rows(client: DuckDBClient) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in client.scan("s", "t").to_pylist()), key=repr)


def _statement(client: DuckDBClient, operation: str, number: int) -> None:
    if operation == "insert":
        ids = pa.array(range(number * 10_000, number * 10_000 + 5_000), pa.int64())
        client.insert("s", "t", pa.table({"id": ids, "v": pa.array([number] * 5_000, pa.int64())}))
    elif operation == "update":
        client.update("s", "t", {"v": "v + 1"}, where="id % 3 = 0")
    else:
        client.delete("s", "t", "id % 5 = 0")


def _expected(rows: list[tuple[Any, ...]], operation: str, number: int) -> list[tuple[Any, ...]]:
    if operation == "insert":
        rows = [*rows, *((number * 10_000 + index, number) for index in range(5_000))]
    elif operation == "update":
        rows = [(key, value + 1 if key % 3 == 0 else value) for key, value in rows]
    else:
        rows = [row for row in rows if row[0] % 5]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("killed", ["insert", "update", "delete"])
def test_a_killed_server_leaves_the_table_before_or_after(place, tmp_path, killed):
    points = [point for point in _POINTS if point[0] == killed]
    name = f"killed_{killed}"
    source = place.source(name)
    with lake_process(source, tmp_path) as (process, location):
        with DuckDBClient(location, "lake", timeout=120) as client:
            client.attach()
            client.create_schema("s")
            client.create_table("s", "t", pa.schema([("id", pa.int64()), ("v", pa.int64())]))
            _statement(client, "insert", 0)
            rows = _rows(client)
        process.terminate()
        process.wait(60)
    waiting: tuple[str, str, list[tuple[Any, ...]]] | None = None
    for number, (operation, point, outcome) in enumerate([*points, ("", "", "")], 1):
        with lake_process(source, tmp_path, *([point] if point else [])) as (process, location):
            with DuckDBClient(location, "lake", timeout=120) as client:
                client.attach()
                found = _rows(client)
                if waiting is not None:
                    killed_at, expected_outcome, after = waiting
                    allowed = {_BEFORE: [rows], _AFTER: [after], _EITHER: [rows, after]}[
                        expected_outcome
                    ]
                    assert found in allowed, (
                        f"killed at {killed_at}: {len(rows)} rows were there, now {len(found)}"
                    )
                expect_nothing_left(place, name, tmp_path)
                rows = found
                if not point:
                    return
                with pytest.raises((ServerError, ConnectionError)):
                    _statement(client, operation, number)
            assert process.wait(60) == -9
        waiting = (f"{operation} {point}", outcome, _expected(rows, operation, number))
