"""Arrow tasks: Spark's Python workers read a table's files and send messages (route 1)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkport.catalog import Context, Framing
from sparkport.catalog.scan import MessagePart
from sparkport.errors import CatalogFault, SparkportError
from sparkport.spark.jvm.relay.jobs import Job, start_job
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.relayed_scan import RelayedScan
from sparkport.spark.jvm.relay.sender import Outlet, Sender
from sparkport.spark.jvm.relay.workers import run_by_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkport.spark.iceberg.plan import FilePart
    from sparkport.spark.iceberg.read import ReadRequest

__all__ = ["Message", "deliver", "forwarded", "scan_tasks"]

_log = logging.getLogger(__name__)

_PATIENCE = 0.25
"""How long the tasks of a scan may take to start before idle scans are stopped for them."""


def scan_tasks(
    spark: SparkSession,
    relay: Relay,
    ctx: Context,
    title: str,
    request: ReadRequest,
    groups: Sequence[Sequence[FilePart]],
    framing: Framing,
    rows: int,
    properties: Callable[[], Mapping[str, str]] = dict,
) -> Generator[bytes, None, None]:
    """The messages of a scan, by one Spark task for each group of files, in any order.

    `rows` is the approximate number, for the progress bar. `properties` are those of the storage,
    of which each task gets the ones that are current when it starts. Closing the iterator stops the
    job.

    Raises: the errors of the reader; Conflict; what Spark's errors are translated to.
    """
    if not groups:
        return
    context = spark.sparkContext
    scan = relay.open(title, deterministic=True)
    scan.properties = properties
    task = _ReadTask(scan.outlet, request, framing)
    scan.expect(len(groups))

    def run() -> None:
        run_by_workers(context.parallelize(groups, len(groups)), task)  # one group for each

    with closing(
        forwarded(relay, scan, lambda: start_job(context, ctx, title, run), ctx)
    ) as messages:
        for message in messages:
            if rows:
                ctx.report_progress(scan.rows / rows)
            yield message


def forwarded(
    relay: Relay, scan: RelayedScan, start: Callable[[], Job[Any]], ctx: Context
) -> Generator[bytes, None, None]:
    """What the tasks of a job send; `start` starts the job, and again after the scan has rested.

    Closing the iterator stops the job. The scan is closed in the end.

    Raises: Cancelled, the job's error, those of `RelayedScan.messages`.
    """

    def begin() -> Job[Any]:
        job = start()
        scan.stop_tasks = job.cancel
        job.on_end(scan.wake)
        return job

    title, began, count, size = scan.title, time.monotonic(), 0, 0
    job, alone_since = begin(), math.inf

    def check() -> None:
        nonlocal job, alone_since
        ctx.check()
        if scan.go_on():
            job = begin()
        ended = job.ended  # before checking whether all has arrived
        job.check()
        if ended and not scan.complete:
            raise CatalogFault(
                f"{title}: Spark has ended the job before all rows had arrived; run the query again"
            )
        if not scan.waits:
            alone_since = math.inf
            return
        job.check_executors()
        now = time.monotonic()
        alone_since = min(alone_since, now)
        if now - alone_since > _PATIENCE:
            alone_since = now
            relay.make_room()

    ctx.on_cancel(scan.wake)
    try:
        for message in scan.messages(check):
            count += 1
            size += len(message)
            yield message
    finally:
        if not scan.complete:
            job.cancel()
        scan.close()
        _log.info(
            "trace %s: %s: %d messages, %d rows, %d bytes from Spark in %.0f ms",
            *(ctx.trace_id, title, count, scan.rows, size, (time.monotonic() - began) * 1000),
        )


@dataclass(frozen=True, slots=True)
class _ReadTask:
    """What a worker runs. It is pickled by reference to this module, with only its fields."""

    outlet: Outlet
    request: ReadRequest
    framing: Framing

    def __call__(self, index: int, groups: Iterable[Sequence[FilePart]]) -> Iterator[None]:
        from sparkport.spark.iceberg.read import read_parts

        # When the JVM fails, a worker sees no group at all; that is not an empty group.
        (parts,) = groups
        framer = self.framing.open()

        def messages(sender: Sender) -> Iterator[Message]:
            request = replace(self.request, properties=sender.properties)
            for batch in read_parts(request, parts, sender.check):
                rows = batch.num_rows
                for message in framer.frames(batch):
                    yield message, rows
                    rows = 0  # rows count once, however many messages they fill

        deliver(self.outlet, index, messages)
        return iter(())


Message: TypeAlias = tuple[Sequence[MessagePart], int]
"""The parts of a message, and its rows."""


def deliver(outlet: Outlet, index: int, messages: Callable[[Sender], Iterable[Message]]) -> None:
    """In a worker: send all that a task makes.

    `messages` is to call the sender's `check` now and then between messages. Raises: whatever makes
    Spark start the task again.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    with Sender(outlet, index, context.taskAttemptId()) as sender:
        if sender.complete:
            return
        try:
            for message, rows in messages(sender):
                sender.send(message, rows)
        except SparkportError as error:
            sender.fail(error)
            raise
        sender.end()
