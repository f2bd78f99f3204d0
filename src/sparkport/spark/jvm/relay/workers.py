"""Tasks of Sparkport in Spark's Python workers: by which Python, and of which version."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.worker_python import PYTHON, own_version

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["Task", "run_by_workers"]

Task = Callable[[int, Iterable[Any]], Iterator[None]]
"""It gets the number of a partition and what is in it, and returns nothing."""

_PATH = os.pathsep.join(filter(None, sys.path))


def run_by_workers(rows: RDD[Any], task: Task) -> None:
    """Run a task for each partition, and wait until all have ended.

    In local mode it is run by this interpreter with all modules that this process finds, whatever
    the session says of Python; the session is not changed.
    """
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    shipped = _Shipped(own_version(), dumps(task))
    mapped: Any = rows.mapPartitionsWithIndex(shipped)
    mapped.ctx = _Context(rows.context)
    # Counting is the leanest action: only numbers come back.
    mapped._jrdd.count()


class _Context:
    """A SparkContext with another Python for its workers. PySpark asks it for those."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.environment = dict(context.environment)
        if str(context.master).startswith("local"):
            self.pythonExec = sys.executable
            others = self.environment.get("PYTHONPATH")
            self.environment["PYTHONPATH"] = f"{_PATH}{os.pathsep}{others}" if others else _PATH
        else:
            # Not by `getConf`, which copies all settings from the JVM one by one.
            self.pythonExec = context._conf.get(PYTHON) or context.pythonExec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A task as it travels. Another version of Sparkport may not even be able to unpack it."""

    version: str
    task: bytes

    def __call__(self, index: int, rows: Iterable[Any]) -> Iterator[None]:
        if own_version() != self.version:
            raise PreconditionFailed(
                f"the Python of Spark's executors has Sparkport {own_version()}, and the "
                f"server has {self.version}: make their environment again with `sparkport pack`"
            )
        task: Task = pickle.loads(self.task)  # noqa: S301 - from the server, by way of Spark
        return task(index, rows)
