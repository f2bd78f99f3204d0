"""A server killed while `spark_run` makes objects: they are there whole, or nothing of them is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.lake_processes import SECONDS, lake_process
from tests.spark.leftovers import expect_no_trace, staged_files

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_PIPELINE = [
    "CREATE TABLE {0} AS SELECT * FROM t",
    "INSERT INTO {0} SELECT id + 100, v FROM {0}",
    "CREATE VIEW {0}_view AS SELECT count(*) AS n FROM {0}",
    "CREATE OR REPLACE TABLE t AS SELECT id, v + 1 AS v FROM t",
]
_POINTS = [
    ("after:filled", False),
    ("after:filled:2", False),
    ("after:filled:3", False),
    ("before:together", False),
    ("during:together", None),
    ("after:together", True),
]
"""Where the server is killed, and whether the pipeline is published then; None for either."""


def test_a_killed_server_leaves_objects_whole_or_nothing_of_them(place, tmp_path):
    name = "spark_run_create"
    source = place.source(name)
    with lake_process(source, tmp_path) as (process, location):
        with DuckDBClient(location, "lake", timeout=SECONDS) as client:
            client.attach()
            client.create_schema("s")
            client.create_table("s", "t", pa.schema([("id", pa.int64()), ("v", pa.int64())]))
            client.insert("s", "t", pa.table({"id": [1, 2], "v": [0, 0]}))
        process.terminate()
        process.wait(60)
    expected = 0
    made: list[str] = []
    waiting: tuple[str, bool | None] | None = None
    for number, (point, outcome) in enumerate([*_POINTS, ("", None)]):
        armed = [point] if point else []
        with lake_process(source, tmp_path, *armed) as (process, location):
            with DuckDBClient(location, "lake", timeout=SECONDS) as client:
                client.attach()
                (value,) = set(client.scan("s", "t", ["v"])["v"].to_pylist())
                if waiting is not None:
                    last, was_made = waiting
                    is_made = value == expected + 1
                    assert is_made or value == expected
                    assert was_made in (None, is_made), last
                    expected = value
                    tables = set(client.tables("s"))
                    assert {last in tables, f"{last}_view" in tables} == {is_made}
                    if is_made:
                        made.append(last)
                        assert client.count("s", last) == 4
                        assert client.scan("s", f"{last}_view", ["n"])["n"].to_pylist() == [4]
                assert _folders(place.folder(name)) == {
                    "t",
                    *made,
                    *(f"{each}_view" for each in made),
                }
                assert staged_files(place, name, tmp_path) == []
                expect_no_trace(place, name, tmp_path, "t")
                if not point:
                    return
                new = f"n{number}"
                with pytest.raises((ServerError, ConnectionError)):
                    client.table_function(
                        "s", "spark_run", [each.format(new) for each in _PIPELINE]
                    )
            assert process.wait(60) == -9, point
        waiting = (new, outcome)


def _folders(warehouse: Path) -> set[str]:
    """The tables and views that have files."""
    files = [path for path in (warehouse / "s").rglob("*") if path.is_file()]
    return {path.relative_to(warehouse / "s").parts[0].rpartition("-")[0] for path in files}
