"""A client that goes away stops the statement that Spark runs for it, and nothing is left."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, folder, insert, sql_name, values
from tests.spark.spark_jobs import running, wait_for

from sparkport.catalog import Constraints
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_SLOW = "SELECT id + 100 AS id, sha2(cast(id AS STRING), 512) AS name FROM range(0, 1000000000)"
"""More than could be written while a test waits."""
STATEMENTS: dict[str, Any] = {
    "insert": f"INSERT INTO t {_SLOW}",
    "overwrite": f"INSERT OVERWRITE t {_SLOW}",
    "pipeline": ["INSERT INTO t VALUES (7, 'x')", "DELETE FROM u", f"INSERT INTO t {_SLOW}"],
}


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_client_that_goes_away_leaves_nothing(lake, namespace, server, what):
    for name in ("t", "u"):
        create(lake, namespace, name, _COLUMNS, constraints=Constraints(primary_key=("id",)))
        insert(lake, namespace, name, "(1, 'ann'), (2, 'bob')")
        lake.spark.sql(
            f"ALTER TABLE {sql_name(lake, namespace, name)} SET TBLPROPERTIES "
            "('write.parquet.row-group-size-bytes' = '1048576')"  # a file is seen soon
        )
    before = _files(lake, namespace)
    errors: list[Exception] = []
    # Arrow's clients end their calls when these take too long, and not when they are closed.
    client = DuckDBClient(server.location, lake.name, timeout=50).attach()

    def run() -> None:
        try:
            client.table_function(namespace, "spark_run", STATEMENTS[what])
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        _wait(lambda: _written(_files(lake, namespace) - before, what), "Spark writes no file")
    finally:
        client.close()
    thread.join(100)
    assert not thread.is_alive()
    assert len(errors) == 1
    _wait(lambda: running(lake.spark) == 0, "Spark goes on")
    _wait(lambda: _files(lake, namespace) == before, "files are left")
    for name in ("t", "u"):
        _wait(partial(_has_only_main, lake, namespace, name), "a branch is left")
        assert sorted(values(find(lake, namespace, name), "id")) == [1, 2]


def _written(files: set[Path], what: str) -> bool:
    """Whether Spark has begun to write files of the last statement, which are several."""
    own = re.compile(r"\d+-\d+-[0-9a-f]{32}-.*\.parquet")
    return sum(own.fullmatch(each.name) is not None for each in files) > (what == "pipeline")


def _files(lake: LakeCatalog, namespace: str) -> set[Path]:
    places = [folder(find(lake, namespace, name)) for name in ("t", "u")]
    return {path for place in places for path in place.rglob("data/*") if path.is_file()}


def _has_only_main(lake: LakeCatalog, namespace: str, name: str) -> bool:
    return set(find(lake, namespace, name).state.metadata.refs) == {"main"}


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    assert wait_for(condition, 60), otherwise
