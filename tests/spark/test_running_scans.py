"""Running scans: clients that stop, vanish or do not read on, and what others notice of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from tests.server.raw_client import RawClient, decode_stream, path, ticket_message
from tests.spark.spark_jobs import running, wait_for

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient

ROWS = 1_500_000
_TABLES = (
    "CREATE NAMESPACE {n}",
    "CREATE TABLE {n}.point USING iceberg AS SELECT id, concat('name ', id) AS name FROM "
    "range(1000)",
    # Small in its files, which is quick to make, and more than all buffers hold when it is sent.
    f"CREATE TABLE {{n}}.huge USING iceberg AS SELECT id, repeat('x', 200) AS text FROM range(0, "
    f"{ROWS}, 1, 4)",
    "CREATE VIEW {n}.endless AS SELECT id FROM range(0, 1000000000000, 1, 2)",
    "CREATE VIEW {n}.silent AS SELECT id FROM range(0, 1000000000000, 1, 2) WHERE id < 0",
)


@pytest.fixture(scope="module")
def lake(lake, tmp_path_factory) -> Iterator[LakeCatalog]:
    """A lake for these tests alone: listing it asks Spark for everything in the catalog."""
    with LakeCatalog(tmp_path_factory.mktemp("scans_that_run"), name="scans_that_run") as own:
        yield own


@pytest.fixture(scope="module")
def server(lake) -> Iterator[Server]:
    """Serves the lake, and, as `tasks`, the same lake with everything left to Spark."""
    for statement in _TABLES:
        lake.spark.sql(statement.format(n=f"`{lake.spark_catalog}`.running"))
    settings = LakeSettings(in_place_bytes=0)
    with (
        LakeCatalog(
            spark=lake.spark, spark_catalog=lake.spark_catalog, name="tasks", settings=settings
        ) as tasks,
        Server([lake, tasks], "grpc://127.0.0.1:0") as server,
    ):
        yield server


@pytest.fixture
def raw(server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


@pytest.fixture
def tasks(server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "tasks", timeout=60) as client:
        yield client.attach()


@pytest.fixture
def in_place(server, lake) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture(autouse=True)
def _idle_spark(spark) -> None:
    assert wait_for(lambda: not running(spark)), "something runs on Spark still"


def opened(raw: RawClient, table: str) -> Any:
    """A call that streams a table from Spark's tasks, or a view."""
    (endpoint,) = raw.endpoints(path("tasks", "running", table))
    return raw.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=170)


@pytest.mark.parametrize("table", ["huge", "endless"])
def test_limit_stops_the_spark_job_within_two_seconds(tasks, spark, table):
    assert tasks.scan("running", table, limit=10).num_rows == 10

    assert wait_for(lambda: not running(spark))


@pytest.mark.parametrize("table", ["huge", "endless", "silent"])
def test_a_cancelled_call_stops_the_spark_job_within_two_seconds(raw, spark, table):
    call = opened(raw, table)
    next(call)
    assert wait_for(lambda: running(spark) > 0)

    call.cancel()

    assert wait_for(lambda: not running(spark))


_VANISHING = """
import sys, time
from tests.server.raw_client import RawClient, path, ticket_message
client = RawClient(sys.argv[1])
(endpoint,) = client.endpoints(path("tasks", "running", sys.argv[2]))
call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=170)
next(call), next(call)
print("reading", flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("table", ["huge", "endless"])
def test_a_client_process_that_dies_stops_the_spark_job_within_two_seconds(server, spark, table):
    with subprocess.Popen(
        [sys.executable, "-c", _VANISHING, server.location, table],
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "reading\n"
            assert wait_for(lambda: running(spark) > 0)
        finally:
            client.kill()

        assert wait_for(lambda: not running(spark))


@pytest.fixture
def stalled(server, tasks, in_place) -> Iterator[list[RawClient]]:
    """Four clients amid a huge scan that do not read on: the tasks of their scans fill Spark."""
    for client in (in_place, tasks):
        client.scan("running", "point", where="id = 1")  # what is only done once is done
    clients = [RawClient(server.location) for _ in range(4)]
    calls = [opened(client, "huge") for client in clients]
    for call in calls:
        next(call)
        next(call)
    time.sleep(1.5)  # a client that has read a moment ago is not stalled
    yield clients
    for client in clients:
        client.close()


def test_stalled_clients_leave_room_for_point_queries(stalled, tasks, in_place):
    for client in (in_place, tasks):
        for number in (700, 800, 900):
            # Without room for others there was no answer within a minute, which is as long as the
            # client waits.
            found = client.scan("running", "point", ["name"], where=f"id = {number}")
            assert found["name"].to_pylist() == [f"name {number}"]


def test_a_view_is_answered_while_clients_stall(stalled, tasks):
    assert tasks.scan("running", "endless", limit=10).num_rows == 10


def test_stalled_clients_that_vanish_stop_their_jobs_within_two_seconds(stalled, tasks, spark):
    assert wait_for(lambda: running(spark) > 0)
    tasks.scan("running", "point", where="id = 2")  # for which at least one of them has made room

    for client in stalled:
        client.close()

    assert wait_for(lambda: not running(spark))


def test_a_stalled_client_that_reads_on_gets_every_row_once(server, stalled, tasks):
    for number in range(3):  # some of the stalled ones make room
        tasks.scan("running", "point", where=f"id = {number}")

    with RawClient(server.location) as client:
        call = opened(client, "huge")
        first = [next(call), next(call), next(call)]
        time.sleep(1.5)
        tasks.scan("running", "point", where="id = 5")
        rows = decode_stream([*first, *call]).table

    assert rows.num_rows == ROWS
    assert pc.count_distinct(rows["id"]).as_py() == ROWS


def test_memory_does_not_grow_while_clients_stall(stalled, spark):
    processes = ["self", str(spark._jvm.java.lang.ProcessHandle.current().pid())]

    def grown() -> int:
        before = sum(map(resident, processes))
        time.sleep(4)
        return sum(map(resident, processes)) - before

    assert any(
        grown() < 50 * 1024**2 for _ in range(5)
    )  # in the first, buffers may still be filled
    assert running(spark) > 0, "all that there was is held"


def resident(process: str) -> int:
    """Bytes of memory in use."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
    )
