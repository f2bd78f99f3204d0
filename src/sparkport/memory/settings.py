"""Settings of a memory catalog, and where it gets the time from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from sparkport.settings import MEMORY, setting

__all__ = ["MemorySettings"]


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Limits of a memory catalog, or of a table that stands alone."""

    max_versions: int | None = setting(
        1_000,
        MEMORY,
        "how many versions of each table can be travelled to, the present one included; 0 for any "
        "number",
        "N",
        least=0,
        optional=True,
    )
    """None is any number."""
    max_history_bytes: int | None = setting(
        256 * 1024 * 1024,
        MEMORY,
        "how many megabytes the older versions of a table may hold that the present one does not "
        "need; beyond, the oldest are no longer kept, but for what open transactions see; 0 for "
        "any number",
        "MB",
        least=0,
        optional=True,
    )
    """None is any number."""
    partitions: int = setting(4, MEMORY, "into how many parts a scan is divided at most", "N")
    partition_rows: int = setting(131_072, MEMORY, "a part has at least so many rows", "N")
    pin_seconds: float = setting(
        600.0,
        MEMORY,
        "how long a scan may take from its planning to its last stream, when the version it reads "
        "is no longer kept",
        "SECONDS",
        least=0,
    )
    max_pins: int = setting(
        1_000, MEMORY, "how many plans of scans are remembered for that, for each table", "N"
    )
    max_pinned_bytes: int = setting(
        1024 * 1024 * 1024,
        MEMORY,
        "how many megabytes these plans may hold that the present version of the table does not "
        "need; beyond, the oldest are forgotten, but never the latest",
        "MB",
    )
    transaction_idle_seconds: float = setting(
        3_600.0,
        MEMORY,
        "roll back a transaction that was not used for so long, and forget it after as long again",
        "SECONDS",
    )
    max_transactions: int = setting(
        100_000,
        MEMORY,
        "how many transactions without pending changes are remembered; DuckDB begins one for every "
        "statement",
        "N",
    )
    max_writing_transactions: int = setting(
        1_000, MEMORY, "how many transactions may have pending changes at once", "N"
    )
    statistics: bool = setting(
        True,
        MEMORY,
        "let DuckDB's optimiser ask for the bounds of columns, and thus skip scans that would find "
        "nothing",
    )
    statistics_rows: int = setting(
        5_000_000,  # below, asking takes longer than what it saves (decision 0034)
        MEMORY,
        "let it ask about tables with at least so many rows when it attaches; it asks twice for "
        "each column of every statement",
        "N",
        least=0,
    )
    now: Callable[[], datetime] = _utc_now
    """The time that versions are stamped with."""
    monotonic: Callable[[], float] = time.monotonic
    """A clock in seconds, for everything that expires."""

    def __post_init__(self) -> None:
        if self.max_versions is not None and self.max_versions < 1:
            raise ValueError("max_versions must be at least 1: the present version is one")
        if self.max_history_bytes is not None and self.max_history_bytes < 0:
            raise ValueError("max_history_bytes must be at least 0")
        if self.partitions < 1 or self.partition_rows < 1:
            raise ValueError("partitions and partition_rows must be at least 1")
