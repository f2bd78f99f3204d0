"""Whether Spark runs jobs, and waiting until that changes: Spark reports it late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["SOON", "running", "wait_for"]

SOON = 30.0


def running(spark: Any) -> int:
    """The number of running jobs."""
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


def wait_for(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    """Wait for a condition; whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not (fulfilled := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return fulfilled
