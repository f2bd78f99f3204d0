"""What can be chosen about a memory catalog, and where it gets the time from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

__all__ = ["MemorySettings"]


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Limits of a memory catalog, or of a table that stands alone."""

    max_versions: int | None = 1_000
    """How many versions of each table can be travelled to, the present one included; None keeps all
    of them, for ever.
    """
    partitions: int = 4
    """Into how many parts a scan is divided at most."""
    partition_rows: int = 131_072
    """A part has at least so many rows."""
    pin_seconds: float = 600.0
    """How long a scan may take from its planning to its last stream, when the version it reads is
    no longer kept.
    """
    max_pins: int = 1_000
    """How many plans of scans are remembered for that, for each table."""
    transaction_idle_seconds: float = 3_600.0
    """A transaction that nobody has used for so long is rolled back; after as long again it is
    forgotten.
    """
    max_transactions: int = 100_000
    """How many transactions without pending changes are remembered; DuckDB begins one for every
    statement.
    """
    max_writing_transactions: int = 1_000
    """How many transactions may have pending changes at once."""
    statistics: bool = True
    """Whether DuckDB's optimiser may ask for the bounds of columns, and thus skip scans that would
    find nothing.
    """
    now: Callable[[], datetime] = _utc_now
    """The time that versions are stamped with."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds, for everything that expires."""

    def __post_init__(self) -> None:
        if self.max_versions is not None and self.max_versions < 1:
            raise ValueError("max_versions must be at least 1: the present version is one")
        if self.partitions < 1 or self.partition_rows < 1:
            raise ValueError("partitions and partition_rows must be at least 1")
