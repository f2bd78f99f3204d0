"""Spark jobs with a caller that waits: each in its own thread, cancelled when the caller leaves."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkport.catalog import Context
from sparkport.errors import CatalogFault
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.executors import ExecutorWatch
from sparkport.spark.jvm.relay.pools import BACKGROUND, make_fair, pool_of

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Job", "start_job"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_LOOK_AROUND = 0.5
"""How often a waiting caller checks for executors, and runs `meanwhile`."""


def start_job(
    spark_context: SparkContext,
    ctx: Context,
    title: str,
    action: Callable[[], _T],
    *,
    interrupt: bool = True,
    in_background: bool = False,
) -> Job[_T]:
    """Run `action`, which runs Spark jobs, in a thread of its own.

    `title` names it in errors and in Spark's UI. With FAIR scheduling every principal with running
    jobs gets an equal share of the cluster, and its jobs share that. `interrupt` says whether the
    threads of a cancelled job's tasks are interrupted, or only told. Jobs `in_background` share one
    pool, which gets what the others leave.

    Raises: LimitExceeded when there are too many jobs.
    """
    description = f"{title}, for {ctx.principal or 'anonymous'} (trace {ctx.trace_id or 'none'})"
    with ExitStack() as held:
        held.enter_context(ctx.quotas.hold("spark_jobs"))
        pool = BACKGROUND if in_background else held.enter_context(pool_of(ctx.principal))
        job = Job(spark_context, title, description, pool, action, interrupt)
        job.start()
        job.on_end(held.pop_all().close)
    return job


_INSIST = 0.2
_INSIST_SELDOM = 5.0
"""How long until a cancelled job that goes on is cancelled again, at first and in the end."""


_LONGEST_END = 60.0
"""How long to wait for the end of a job that was stopped."""


class Job(Generic[_T]):
    """An action that runs on Spark, in its own job group. Thread-safe."""

    def __init__(
        self,
        spark_context: SparkContext,
        title: str,
        description: str,
        pool: str,
        action: Callable[[], _T],
        interrupt: bool,
    ) -> None:
        self._spark_context = spark_context
        self._title = title
        self._description = description
        self._pool = pool
        self._action = action
        self._interrupt = interrupt
        self._group = f"sparkport-{uuid.uuid4()}"
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._watch = ExecutorWatch(spark_context, title)

    def start(self) -> None:
        # Spark keeps a JVM thread for each Python thread, with the properties of its jobs; both end
        # together.
        threading.Thread(target=self._run, name=self._group, daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def check(self) -> None:
        """Raise the job's error, once it has failed."""
        if self._ended.is_set() and self._error is not None:
            raise self._error

    def check_executors(self) -> None:
        """Call this now and then, in the thread that waits.

        Raises: CatalogFault when there are no executors.
        """
        try:
            self._watch.check()
        except CatalogFault:
            self.cancel()
            raise

    def result(
        self, timeout: float | None = None, *, meanwhile: Callable[[], object] = lambda: None
    ) -> _T:
        """Wait for the end; `meanwhile` is called now and then.

        Raises: the job's error; TimeoutError; CatalogFault when there are no executors.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(min(_LOOK_AROUND, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError
            self.check_executors()
            meanwhile()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # there is one where there is no error

    def fraction(self) -> float:
        """How many of the tasks are done that Spark knows of by now, from 0 to 1."""
        tracker = self._spark_context.statusTracker()
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._group))
        stages = [
            stage
            for job in jobs
            if job is not None
            for number in job.stageIds
            if (stage := tracker.getStageInfo(number)) is not None
        ]
        done = sum(each.numCompletedTasks for each in stages)
        return done / max(1, sum(each.numTasks for each in stages))

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have the job's thread call `callback` when the job ends; at once if it has ended."""
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def cancel(self) -> None:
        """Stop the job, without waiting for its end. A job that has ended is left alone."""
        with self._lock:
            if self._cancelled or self._ended.is_set():
                return
            self._cancelled = True
        if self._cancel_now():
            # A cancellation is lost while the job is being submitted, so it is repeated.
            threading.Thread(target=self._insist, name=f"{self._group}-cancel", daemon=True).start()

    def stop(self) -> None:
        """Stop the job, and wait for its end, which cannot take long: nothing new is begun."""
        self.cancel()
        if not self._ended.wait(_LONGEST_END):
            _log.warning("%s: a cancelled Spark job does not end", self._title)

    def _insist(self) -> None:
        pause = _INSIST
        while not self._ended.wait(pause) and self._cancel_now():
            pause = min(2 * pause, _INSIST_SELDOM)

    def _cancel_now(self) -> bool:
        try:
            # Future jobs of the group, too: the thread may be about to start the job.
            self._spark_context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
            # Iceberg's procedures put their jobs into their own groups.
            self._spark_context.cancelJobsWithTag(self._group)
        except Exception:  # noqa: BLE001 - Spark has gone, and the job with it
            _log.info("a Spark job could not be cancelled: Spark has gone")
            _log.debug("cancelling %s", self._group, exc_info=True)
            return False
        return True

    def _run(self) -> None:
        try:
            with translated(self._title):
                self._prepare()
                self._result = self._action()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the job raises it
            self._error = error
        with self._lock:
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _prepare(self) -> None:
        if self._cancelled:
            raise CatalogFault(f"{self._title}: the job was cancelled")
        context = self._spark_context
        context.setJobGroup(self._group, self._description, interruptOnCancel=self._interrupt)
        context.addJobTag(self._group)
        make_fair(context, self._pool)
        context.setLocalProperty("spark.scheduler.pool", self._pool)
