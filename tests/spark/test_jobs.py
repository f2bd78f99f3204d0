"""Spark jobs in their own threads."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.spark_jobs import SOON, running, wait_for

from sparkport.catalog import Context, Quotas
from sparkport.errors import LimitExceeded, SparkportError
from sparkport.spark.jvm.relay.jobs import start_job


def doing(spark: Any, work: Callable[[], object], tasks: int = 1) -> Callable[[], int]:
    """An action whose tasks each do some work."""

    def do(rows: Iterator[int]) -> Iterator[int]:
        list(rows)
        work()
        return iter(())

    rdd = spark.sparkContext.parallelize([1] * tasks, tasks).mapPartitions(do)
    return lambda: int(rdd._jrdd.count())


def sleeping(spark: Any, seconds: float) -> Callable[[], int]:
    return doing(spark, lambda: time.sleep(seconds))


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

    start_job(
        spark.sparkContext, Context(principal="ada", trace_id="t-1"), "table s.t", look
    ).result(SOON)

    assert seen["spark.job.description"] == "table s.t, for ada (trace t-1)"
    assert seen["spark.scheduler.pool"].startswith("sparkport-")
    assert seen["spark.job.interruptOnCancel"] == "true"


def test_every_principal_has_a_pool_of_its_own_while_it_has_jobs(spark):
    pools: dict[str | None, set[str]] = {}
    together = threading.Barrier(6, timeout=SOON)

    def look(principal: str | None) -> None:
        name = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
        pools.setdefault(principal, set()).add(name)
        together.wait()

    def start(principal: str | None) -> Any:
        context = Context(principal=principal)
        return start_job(spark.sparkContext, context, "a job", lambda: look(principal))

    for job in [start(principal) for principal in ("ada", "bob", None) for _ in range(2)]:
        job.result(SOON)

    names = [name for each in pools.values() for name in each]
    assert len(names) == len(set(names)) == 3
    scheduler = spark.sparkContext._jsc.sc()
    assert {scheduler.getPoolForName(name).get().schedulingMode().toString() for name in names} == {
        "FAIR"
    }


def test_a_new_principal_does_not_wait_for_the_many_jobs_of_another(spark, tmp_path):
    """It gets half of the cluster.

    With equal shares for all nine jobs, the others would do eight tasks for each of its tasks.
    """
    tasks, log = 12, tmp_path / "started"

    def start(principal: str, tasks: int) -> Any:
        action = doing(spark, noting(log, principal), tasks)
        return start_job(spark.sparkContext, Context(principal=principal), "a job", action)

    def meanwhile(principal: str) -> int:
        """How many tasks of the busy principal start during those of another."""
        start(principal, tasks).result(SOON)
        started = [
            who
            for _, who in sorted((float(moment), who) for moment, who in map(str.split, lines(log)))
        ]
        own = [position for position, who in enumerate(started) if who == principal]
        assert len(own) == tasks
        return own[-1] - own[0] + 1 - tasks

    busy = [start("busy", 1000) for _ in range(8)]
    try:
        assert wait_for(lambda: running(spark) == 8)
        # Several attempts: while the machine delays a worker, the others go on.
        assert any(meanwhile(principal) <= 4 * tasks for principal in ("ada", "bob", "eve"))
        assert not any(job.ended for job in busy)
    finally:
        for job in busy:
            job.cancel()
    assert wait_for(lambda: all(job.ended for job in busy))


def noting(log: Path, who: str) -> Callable[[], None]:
    """Work that notes when it begins, by the clock of the machine, and then takes a while."""

    def note() -> None:
        with log.open("a") as file:
            file.write(f"{time.monotonic()} {who}\n")
        time.sleep(0.1)

    return note


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_principal_has_only_so_many_jobs(spark):
    class OneJob(Quotas):
        held = 0

        @contextmanager
        def hold(self, what: str, amount: int = 1) -> Iterator[None]:
            assert what == "spark_jobs"
            if self.held:
                raise LimitExceeded("there is one already")
            self.held += amount
            yield
            self.held -= amount

    context = Context(quotas=OneJob())
    job = start_job(spark.sparkContext, context, "a job", sleeping(spark, 60))

    with pytest.raises(LimitExceeded):
        start_job(spark.sparkContext, context, "another", sleeping(spark, 0))
    job.cancel()

    assert wait_for(lambda: context.quotas.held == 0)  # type: ignore[attr-defined]
    assert start_job(spark.sparkContext, context, "a third", sleeping(spark, 0)).result(SOON) == 0


def test_a_cancelled_job_ends_soon(spark):
    job = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 120))
    assert wait_for(lambda: running(spark) > 0)
    began = time.monotonic()

    job.cancel()
    job.cancel()

    with pytest.raises(Exception, match=r"."):
        job.result(SOON)
    assert time.monotonic() - began < SOON
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
    assert wait_for(lambda: running(spark) == 0)


def test_cancelling_one_job_leaves_others_alone(spark, tmp_path):
    cancelled = tmp_path / "cancelled"

    def wait() -> None:
        deadline = time.monotonic() + 120
        while not cancelled.exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    first = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 120))
    second = start_job(spark.sparkContext, Context(), "another", doing(spark, wait))
    assert wait_for(lambda: running(spark) >= 2)

    first.cancel()
    cancelled.touch()

    assert second.result(SOON) == 0


def test_jobs_leave_no_threads_behind(spark):
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    for _ in range(5):
        start_job(
            spark.sparkContext, Context(), "a job", lambda: spark.sparkContext.version
        ).result(SOON)
    before, python = threads.getThreadCount(), threading.active_count()

    for _ in range(100):
        start_job(
            spark.sparkContext, Context(), "a job", lambda: spark.sparkContext.version
        ).result(SOON)

    assert wait_for(lambda: threads.getThreadCount() < before + 20)
    assert wait_for(lambda: threading.active_count() <= python + 1)


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.02, 0.05])
def test_a_job_can_be_cancelled_at_any_moment(spark, pause):
    """Spark loses a cancellation that comes while the job is being submitted."""
    job = start_job(spark.sparkContext, Context(), "a job", sleeping(spark, 60))
    time.sleep(pause)
    job.cancel()
    assert wait_for(lambda: job.ended)
    assert wait_for(lambda: running(spark) == 0)
