"""Fair shares of the cluster: a FAIR pool of Spark for each principal with running jobs.

Spark gives every pool an equal part, so that many jobs of one principal do not starve those of
another. A pool stays for ever once it has had a job, so there is a fixed number of pools, which are
lent. Work in the background has a pool of its own, which gets what the others leave.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["BACKGROUND", "make_fair", "pool_of"]

_log = logging.getLogger(__name__)

_POOLS = 64
"""The last pool is for principals who find all others taken."""

BACKGROUND = "sparkport-background"
"""The pool of jobs that nobody waits for."""

_lock = threading.Lock()
_lent: dict[str | None, tuple[int, int]] = {}
"""The pool lent to each principal, and the number of its jobs."""


@contextmanager
def pool_of(principal: str | None) -> Iterator[str]:
    """The pool of a principal, its own while it has jobs. None stands for all without a name."""
    with _lock:
        number, jobs = _lent.get(principal) or (_free(), 0)
        _lent[principal] = (number, jobs + 1)
    try:
        yield f"sparkport-{number}"
    finally:
        with _lock:
            number, jobs = _lent.pop(principal)
            if jobs > 1:
                _lent[principal] = (number, jobs - 1)


def _free() -> int:
    taken = {number for number, _ in _lent.values()}
    return next((number for number in range(_POOLS - 1) if number not in taken), _POOLS - 1)


def make_fair(spark_context: SparkContext, name: str) -> None:
    """Make a pool that shares fairly among its own jobs; Spark's default would run them in turn."""
    jvm_context = spark_context._jsc.sc()
    with _lock:
        try:
            if jvm_context.getPoolForName(name).isDefined():
                return
            root = jvm_context.taskScheduler().rootPool()
            scheduler = spark_context._jvm.org.apache.spark.scheduler  # type: ignore[union-attr]  # there is one
            fair = scheduler.SchedulingMode.FAIR()
            if root.schedulingMode().equals(fair):
                # Spark compares running tasks by weight: a pool without weight always comes last.
                weight = 0 if name == BACKGROUND else 1
                root.addSchedulable(scheduler.Pool(name, fair, 0, weight))
        except Exception:  # noqa: BLE001 - these are not Spark's public interface, and the job can do without
            _log.warning("the pool %s could not be made fair to its own jobs", name, exc_info=True)
