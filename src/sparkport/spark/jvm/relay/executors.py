"""Whether Spark has executors: a cluster without them keeps jobs waiting for ever."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sparkport.errors import CatalogFault

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ExecutorWatch"]

_SETTING = "spark.sparkport.executorSeconds"
_SECONDS = "60"
"""Longer than a cluster takes to start executors on demand."""
_INTERVAL = 1.0
"""Asking takes the JVM some milliseconds."""


class ExecutorWatch:
    """Watches the executors for one job. Not thread-safe."""

    def __init__(self, spark_context: SparkContext, title: str) -> None:
        """`title` names the job in errors."""
        self._spark_context = spark_context
        self._title = title
        self._asked = time.monotonic()
        self._missing_since: float | None = None

    def check(self) -> None:
        """Call this now and then while the job sends nothing.

        Raises: CatalogFault when there has been no executor for long.
        """
        now = time.monotonic()
        if now - self._asked < _INTERVAL:
            return
        self._asked = now
        if self._has_executors():
            self._missing_since = None
            return
        self._missing_since = self._missing_since or now
        if now - self._missing_since > float(
            self._spark_context.getConf().get(_SETTING, _SECONDS) or _SECONDS
        ):
            raise CatalogFault(
                f"{self._title}: Spark has no executor that could do this: have its workers "
                "started, and try again"
            )

    def _has_executors(self) -> bool:
        context: Any = self._spark_context._jsc.sc()
        # The driver is counted, too; in local mode it is the executor.
        return bool(context.isLocal()) or int(context.getExecutorMemoryStatus().size()) > 1
