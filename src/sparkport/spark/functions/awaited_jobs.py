"""Spark jobs of statements that write: they have ended before their callers go on."""

from __future__ import annotations

from collections.abc import Callable

from sparkport.catalog import Context
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.lake.lake import Lake

__all__ = ["run_job"]


def run_job(
    lake: Lake, ctx: Context, title: str, action: Callable[[], object], share: float = 1.0
) -> None:
    """Have Spark run something, until it ends or the caller leaves.

    `share` is how much of a statement that is, for the caller's progress bar. When this returns or
    raises, Spark writes no more. Raises: what the action raises.
    """
    job = start_job(lake.spark.sparkContext, ctx, title, action)
    ctx.on_cancel(job.cancel)

    def meanwhile() -> None:
        lake.relay.make_room()
        ctx.report_progress(share * job.fraction())

    try:
        job.result(meanwhile=meanwhile)
    except BaseException:
        job.stop()  # else it might write after all that it has written was removed
        raise
