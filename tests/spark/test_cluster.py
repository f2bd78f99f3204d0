"""A lake on a standalone cluster of separate processes: workers read for it, and may die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.server.raw_client import RawClient, decode_stream, path, ticket_message
from tests.spark.cluster import Cluster, ServerProcess
from tests.spark.cluster_lake import CHANGED, LARGE

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(cluster, tmp_path_factory) -> Iterator[ServerProcess]:
    """A server of one warehouse as two catalogs.

    `lake` is set up as the README says; `tasks` leaves all work to Spark.
    """
    folder = tmp_path_factory.mktemp("served")
    with ServerProcess(
        [
            f"{Path(__file__).with_name('cluster_lake.py')}:lake",
            "--warehouse",
            f"{folder}/lake",
            "--master",
            cluster.url,
        ],
        {"CLUSTER_WAREHOUSE": f"{folder}/lake", "CLUSTER_MASTER": cluster.url},
        folder / "log",
    ) as server:
        yield server


@pytest.fixture
def tasks(server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "tasks", timeout=120) as client:
        yield client.attach()


@pytest.fixture
def both_workers(cluster, tasks) -> None:
    def work() -> bool:
        try:
            return tasks.scan("s", "large", ["id"]).num_rows > 0
        except ServerError as error:
            if _NO_EXECUTOR not in str(error):
                raise
            return False  # executors that are still to come take longer than scans wait

    cluster.complete()
    cluster.wait_for_executors(work)


_NO_EXECUTOR = "Spark has no executor"


@pytest.fixture
def in_place(server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "lake", timeout=120) as client:
        yield client.attach()


@pytest.fixture
def raw(server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


def test_schemas_tables_and_views_are_listed(in_place):
    assert "s" in in_place.schemas()
    assert set(in_place.tables("s")) == {"small", "large", "foreign", "view", "changed"}


def test_executors_read_the_files_with_row_ids_and_without_deleted_rows(tasks, both_workers):
    found = tasks.scan("s", "small", ["id", "item", "rowid"])

    assert sorted(found["id"].to_pylist()) == [each for each in range(300) if each % 10]
    assert len(set(found["rowid"].to_pylist())) == 270
    assert tasks.count("s", "small") == 270


def test_both_routes_return_the_same_rows(tasks, in_place):
    for where in (
        "id = 123",
        "item > 'item 27' AND day = DATE '2024-01-02'",
        "rowid < 5",
        "item LIKE '%9'",
    ):
        expected = in_place.scan(
            "s", "small", ["id", "item", "day", "rowid"], where=where
        ).to_pylist()
        found = tasks.scan("s", "small", ["id", "item", "day", "rowid"], where=where).to_pylist()
        assert sorted(found, key=str) == sorted(expected, key=str) != []


def test_executors_travel_in_time(tasks):
    assert tasks.scan("s", "small", at=("VERSION", "0")).num_rows == 0
    assert tasks.scan("s", "small", at=("VERSION", "1")).num_rows == 300


def test_a_view_is_computed_by_executors(tasks):
    assert sorted(tasks.scan("s", "view", ["id"], where="id < 5")["id"].to_pylist()) == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert tasks.count("s", "view") == LARGE


def test_spark_sql_runs_on_executors(tasks):
    query = "SELECT day, count(*) AS n FROM small GROUP BY day ORDER BY day"

    assert tasks.table_function("s", "spark_sql", query)["n"].to_pylist() == [90, 90, 90]


def test_tables_are_created_altered_and_dropped(in_place):
    in_place.create_schema("made")
    in_place.create_table("made", "t", {"a": "INTEGER", "b": "VARCHAR"}, not_null=["a"])
    in_place.add_column("made", "t", "c", "HUGEINT")
    in_place.rename_column("made", "t", "b", "bb")
    in_place.rename_table("made", "t", "u")
    assert in_place.scan("made", "u").schema.names == ["a", "bb", "c"]
    in_place.drop_table("made", "u")
    in_place.drop_schema("made")
    assert "made" not in in_place.schemas()


def opened(raw: RawClient, table: str) -> Any:
    """The messages of a scan by Spark of a table or view that has one endpoint."""
    (endpoint,) = raw.endpoints(path("tasks", "s", table))
    return raw.open("DoGet", ticket_message(endpoint.ticket.ticket), timeout=120)


def begun(raw: RawClient, table: str) -> tuple[list[bytes], Iterator[bytes]]:
    """The first messages of a scan, and an iterator of the others.

    Then both tasks have sent some messages, and neither has sent most.
    """
    while True:
        messages = opened(raw, table)
        taken = [next(messages)]  # the Arrow schema
        rows: Counter[bool] = Counter()
        while max(rows.values(), default=0) <= LARGE // 4:
            taken.append(next(messages))
            ids = decode_stream([taken[0], taken[-1]]).table["id"]
            rows[ids[0].as_py() < LARGE // 2] += len(ids)
            if len(rows) == 2:
                return taken, messages
        messages.cancel()  # one task is so late that the other might end before it


def test_a_stalled_client_gives_its_place_to_others_and_gets_every_row_once(
    raw, tasks, both_workers
):
    """Its scan has a task on every core there is."""
    first, messages = begun(raw, "large")
    time.sleep(1.5)

    assert tasks.scan("s", "small", ["item"], where="id = 7")["item"].to_pylist() == ["item 7"]

    rows = decode_stream([*first, *messages]).table
    assert Counter(rows["id"].to_pylist()) == Counter(range(LARGE))


def test_a_worker_killed_in_the_middle_of_a_scan_costs_no_row_and_duplicates_none(
    raw, cluster, both_workers
):
    first, messages = begun(raw, "large")

    cluster.kill_worker()
    rows = decode_stream([*first, *messages]).table

    assert Counter(rows["id"].to_pylist()) == Counter(range(LARGE))


def test_a_worker_killed_in_the_middle_of_a_view_fails_the_query_clearly(
    raw, cluster, both_workers
):
    _, messages = begun(raw, "view")

    cluster.kill_worker()

    with pytest.raises(grpc.RpcError) as caught:
        list(messages)
    assert "run the query again" in str(caught.value.details())


def test_a_worker_killed_in_the_middle_of_an_update_leaves_all_or_nothing(
    tasks, cluster, both_workers
):
    with ThreadPoolExecutor(1) as thread:
        update = thread.submit(tasks.update, "s", "changed", {"v": "v + 1"})
        time.sleep(1.0)
        cluster.kill_worker()
        try:
            assert update.result(200).total == CHANGED
            expected = 1
        except ServerError:
            expected = 0

    assert Counter(tasks.scan("s", "changed", ["v"])["v"].to_pylist()) == {expected: CHANGED}


def test_without_workers_spark_is_given_up_soon_and_what_needs_none_goes_on(raw, in_place, cluster):
    messages = opened(raw, "large")
    next(messages), next(messages)
    cluster.kill_workers()
    began = time.monotonic()

    for scan in (messages, opened(raw, "view")):
        with pytest.raises(grpc.RpcError) as caught:
            list(scan)
        assert _NO_EXECUTOR in str(caught.value.details())
    in_place.drop_table("s", "foreign")  # else Spark would say which of its files may go

    assert time.monotonic() - began < 100  # by default each scan waits for a minute
    assert in_place.scan("s", "small", where="id = 7")["item"].to_pylist() == ["item 7"]
    in_place.create_table("s", "made_meanwhile", {"a": "INTEGER"})
    in_place.drop_table("s", "made_meanwhile")


def test_all_goes_on_when_workers_have_come_back(tasks, both_workers):
    assert tasks.count("s", "small") == 270
    assert tasks.scan("s", "view", ["id"], where="id < 3").num_rows == 3
