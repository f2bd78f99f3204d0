"""Spark jobs in threads of their own."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkport.catalog import Context
from sparkport.errors import SparkportError
from sparkport.spark.relay.jobs import start_job

SOON = 30.0


def sleeping(spark: Any, seconds: float) -> Callable[[], int]:
    """An action whose only task takes its time."""

    def sleep(rows: Iterator[int]) -> Iterator[int]:
        list(rows)
        time.sleep(seconds)
        return iter(())

    rdd = spark.sparkContext.parallelize([1], 1).mapPartitions(sleep)
    return lambda: int(rdd._jrdd.count())


def running(spark: Any) -> int:
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


def wait_for(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_job_gives_its_result(spark):
    assert start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 0)).result(SOON) == 0


def test_a_job_that_fails_raises_an_error_for_users_to_whoever_asks(spark):
    def fail() -> None:
        spark.sql("SELECT raise_error('no such luck')").collect()

    ended = threading.Event()
    job = start_job(spark.sparkContext, Context(), "view s.v", fail)
    job.on_end(ended.set)

    with pytest.raises(SparkportError) as caught:
        job.result(SOON)
    assert ended.wait(SOON)
    assert "Traceback" not in caught.value.message
    with pytest.raises(SparkportError):
        job.check()


def test_spark_knows_for_whom_it_works(spark):
    seen: dict[str, str] = {}

    def look() -> None:
        for key in ("spark.job.description", "spark.scheduler.pool", "spark.job.interruptOnCancel"):
            seen[key] = spark.sparkContext.getLocalProperty(key)

    start_job(spark.sparkContext, Context(principal="ada", trace_id="t-1"), "table s.t", look).result(SOON)

    assert seen["spark.job.description"] == "table s.t, for ada (trace t-1)"
    assert seen["spark.scheduler.pool"].startswith("sparkport-")
    assert seen["spark.job.interruptOnCancel"] == "true"


def test_jobs_at_the_same_time_are_in_different_pools(spark):
    pools: list[str] = []
    both = threading.Barrier(2, timeout=SOON)

    def look() -> None:
        pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        both.wait()

    for job in [start_job(spark.sparkContext, Context(), "a job", look) for _ in range(2)]:
        job.result(SOON)

    assert len(set(pools)) == 2


def test_a_cancelled_job_ends_soon(spark):
    job = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 120))
    assert wait_for(lambda: running(spark) > 0)
    began = time.monotonic()

    job.cancel()
    job.cancel()

    with pytest.raises(Exception, match=r"."):
        job.result(SOON)
    assert time.monotonic() - began < 5
    assert wait_for(lambda: running(spark) == 0)


def test_a_job_that_is_cancelled_before_it_begins_never_does(spark):
    action = sleeping(spark, 120)
    ready = threading.Event()

    def late() -> None:
        ready.wait(SOON)
        action()

    job = start_job(spark.sparkContext, Context(), "a job", late)
    time.sleep(0.2)
    job.cancel()
    ready.set()

    with pytest.raises(Exception, match=r"."):
        job.result(SOON)
    assert wait_for(lambda: running(spark) == 0, 5)


def test_cancelling_one_job_leaves_others_alone(spark):
    first = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 120))
    second = start_job(spark.sparkContext, Context(), "another", sleeping(spark, 2))
    assert wait_for(lambda: running(spark) >= 2)

    first.cancel()

    assert second.result(SOON) == 0


def test_jobs_leave_no_threads_behind(spark):
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    for _ in range(5):
        start_job(spark.sparkContext, Context(), "a job", lambda: spark.sparkContext.version).result(SOON)
    before, python = threads.getThreadCount(), threading.active_count()

    for _ in range(100):
        start_job(spark.sparkContext, Context(), "a job", lambda: spark.sparkContext.version).result(SOON)

    assert wait_for(lambda: threads.getThreadCount() < before + 20)
    assert wait_for(lambda: threading.active_count() <= python + 1)


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.02, 0.05])
def test_a_job_can_be_cancelled_at_any_moment(spark, pause):
    """Spark forgets a cancellation that comes while the job is being submitted."""
    job = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 60))
    time.sleep(pause)
    job.cancel()
    assert wait_for(lambda: job.ended, 20)
    assert wait_for(lambda: running(spark) == 0, 20)
