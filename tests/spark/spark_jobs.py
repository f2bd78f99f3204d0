"""Whether Spark has something to do, and waiting until that changes: it tells late, and the machine
may be slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["SOON", "running", "wait_for"]

SOON = 30.0


def running(spark: Any) -> int:
    """How many jobs are under way."""
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


def wait_for(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    """Whether it was fulfilled in time."""
    deadline = time.monotonic() + seconds
    while not (fulfilled := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return fulfilled
