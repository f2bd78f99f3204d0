"""Arrow tasks: Spark's workers read the files of a table."""

import os
import pickle
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from tests.spark.spark_jobs import running, wait_for

from sparkport.catalog import Context
from sparkport.errors import PreconditionFailed
from sparkport.service.framing import ScanFraming
from sparkport.spark.iceberg.division import divide
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.plan import FilePart, plan_scan
from sparkport.spark.iceberg.read import ReadRequest, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.sender import Outlet
from sparkport.spark.jvm.relay.tasks import _ReadTask, scan_tasks
from sparkport.wire.flight_data import BatchReader, decode_flight_data, encode_schema

ROWS = 2_000_000


@pytest.fixture
def relay(spark: Any) -> Iterator[Relay]:
    relay = Relay.of(spark)
    yield relay
    relay.release()


@pytest.fixture(scope="module")
def large(lake: Any) -> TableState:
    """A table of four files, more than fits into the buffers of connections."""
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{lake.spark_catalog}`.arrow_tasks")
    name = Identifier(lake.spark_catalog, ("arrow_tasks",), "large")
    lake.spark.sql(f"CREATE TABLE {name.sql} (id bigint, v double, name string) USING iceberg")
    rows = lake.spark.range(0, ROWS, 1, 4).selectExpr(
        "id", "id / 2 AS v", "concat('name-', id) AS name"
    )
    rows.writeTo(name.sql).append()
    return lake._lake.current(name)


class Reading:
    """A scan of a table."""

    def __init__(
        self, spark: Any, relay: Relay, state: TableState, tasks: int = 2, wanted: Any = None
    ) -> None:
        self.ctx = Context()
        bound = pa.schema([field.with_metadata(None) for field in state.definition.columns])
        self.framing = ScanFraming(bound, wanted, str(state.identifier))
        names = bound.names if wanted is None else [bound.names[each] for each in wanted]
        self.request = read_request(state, names)
        plan = plan_scan(state, names, None)
        self.groups = divide(plan, tasks)
        self.messages = scan_tasks(
            spark, relay, self.ctx, "table s.t", self.request, self.groups, self.framing, plan.rows
        )

    def rows(self, before: Iterable[bytes] = ()) -> pa.Table:
        """The rows that a client decodes from all messages."""
        reader = BatchReader(decode_flight_data(encode_schema(self.framing.arrow_schema)))
        batches = [
            reader.read(decode_flight_data(message)) for message in (*before, *self.messages)
        ]
        return pa.Table.from_batches(
            [each for each in batches if each is not None], self.framing.arrow_schema
        )


def is_complete(rows: pa.Table) -> bool:
    ids = rows.column("id")
    return (
        rows.num_rows == ROWS
        and pc.count_distinct(ids).as_py() == ROWS
        and pc.max(ids).as_py() == ROWS - 1
    )


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_all_rows_arrive_whatever_the_number_of_tasks(relay, spark, large, tasks):
    reading = Reading(spark, relay, large, tasks)
    rows = reading.rows()

    assert is_complete(rows)
    assert reading.ctx.progress.fraction == 1.0
    assert pc.all(
        pc.equal(rows.column("v"), pc.divide(rows.column("id").cast(pa.float64()), 2.0))
    ).as_py()


def test_only_wanted_columns_are_read(relay, spark, large):
    rows = Reading(spark, relay, large, wanted=(1,)).rows()

    assert [str(field.type) for field in rows.schema] == ["null", "double", "null"]
    assert rows.num_rows == ROWS


def test_tasks_are_given_secrets_when_they_start_and_not_in_their_plan(relay, spark, large):
    reading = Reading(spark, relay, large)
    asked = []

    def properties() -> dict[str, str]:
        asked.append(True)
        return {"s3.session-token": "s3cret"}

    messages = scan_tasks(
        *(spark, relay, reading.ctx, "t", reading.request, reading.groups, reading.framing, 0),
        properties=properties,
    )

    assert sum(1 for _ in messages) > 2
    assert len(asked) == 2
    assert not reading.request.properties


def test_without_files_there_is_no_job(relay, spark, large):
    reading = Reading(spark, relay, large)

    assert (
        list(scan_tasks(spark, relay, Context(), "t", reading.request, [], reading.framing, 0))
        == []
    )
    assert relay._scans == {}


def test_a_worker_that_dies_in_the_middle_costs_no_row_and_duplicates_none(relay, spark, large):
    reading = Reading(spark, relay, large)
    first = [next(reading.messages) for _ in range(3)]

    assert kill_workers(spark) > 0

    assert is_complete(reading.rows(first))


def kill_workers(spark: Any) -> int:
    """End the Python workers of this session: the children of the daemons of its own JVM."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    workers = [pid for daemon in children(jvm) for pid in children(daemon)]
    for pid in workers:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
    return len(workers)


def children(parent: int) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(each.parent.name))
    return found


def test_closing_the_reader_stops_the_job(relay, spark, large):
    reading = Reading(spark, relay, large)
    next(reading.messages)
    assert wait_for(lambda: running(spark) > 0)

    reading.messages.close()

    assert wait_for(lambda: not running(spark))
    assert relay._scans == {}


def test_a_missing_file_fails_the_query_with_the_words_of_the_reader(relay, spark, lake, namespace):
    name = Identifier(lake.spark_catalog, (namespace,), "t")
    spark.sql(f"CREATE TABLE {name.sql} USING iceberg AS SELECT id FROM range(10)")
    state = lake._lake.current(name)
    for part in plan_scan(state, None, None).parts:
        Path(part.path.removeprefix("file:")).unlink()

    with pytest.raises(PreconditionFailed) as caught:
        Reading(spark, relay, state).rows()
    assert "/" not in caught.value.message


def test_a_task_is_pickled_by_reference_and_small(relay, spark, large):
    reading = Reading(spark, relay, large)
    task = _ReadTask(Outlet("localhost", 1, bytes(16), bytes(32)), reading.request, reading.framing)

    assert len(cloudpickle.dumps(task)) < 10_000
    assert b"read_parts" not in cloudpickle.dumps(task)
    assert isinstance(pickle.loads(pickle.dumps(task)).request, ReadRequest)
    assert all(isinstance(part, FilePart) for group in reading.groups for part in group)


def test_others_functions_run_beside_ours(spark):
    """The daemon that starts our workers quickly also starts those of other functions."""
    from pyspark.sql.functions import udf

    doubled = udf(lambda value: value * 2, "long")

    rows = spark.range(10).select(doubled("id").alias("d")).collect()
    assert sorted(row.d for row in rows) == list(range(0, 20, 2))
    assert spark.sparkContext.parallelize(range(10), 3).map(lambda value: value + 1).sum() == 55
