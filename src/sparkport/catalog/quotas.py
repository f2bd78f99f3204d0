"""How much of the server one caller may use at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import pyarrow as pa

from sparkport.errors import LimitExceeded

__all__ = ["HELD_BYTES", "STAGED_BYTES", "Quotas", "StagedBytes", "bytes_of"]

STAGED_BYTES, HELD_BYTES = "staged_bytes", "held_bytes"
_BATCH_BYTES = 1024
"""What a batch costs besides the bytes of its values, of which one of NULLs may have none."""
_SMALL_BYTES = 1024 * 1024


def bytes_of(batch: pa.RecordBatch) -> int:
    """What a batch counts as. Of a small one that is part of something larger it may be more than
    its own.
    """
    size = batch.get_total_buffer_size()  # its exact size takes forty times as long to find out
    return int(size if size < _SMALL_BYTES else batch.nbytes) + _BATCH_BYTES


class Quotas:
    """What is left for a caller of the things that the server has only so many of. This one has no
    limits. Thread-safe.
    """

    def hold(self, what: str, amount: int = 1) -> AbstractContextManager[None]:
        """Take so many, such as `spark_jobs`, `transactions` or `staged_bytes`, and give them back
        at the end of the block.

        Raises: LimitExceeded, which says what there are too many of, and whose.
        """
        return nullcontext()


class StagedBytes:
    """What one statement has received, and how much of it stays in memory. Used by one thread;
    closed when it has ended.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._received = _Growing(quotas, STAGED_BYTES)
        self._held = _Growing(quotas, HELD_BYTES)

    def add(self, amount: int) -> None:
        """Raises: LimitExceeded."""
        self._received.add(amount)

    def hold(self, amount: int) -> None:
        """So much of what was added stays in memory. Raises: LimitExceeded."""
        self._held.add(amount)

    def close(self) -> None:
        """Give it all back."""
        self._received.close()
        self._held.close()


class _Growing:
    """A large statement takes in advance what it will need next, so that it is not counted batch by
    batch.
    """

    _STEP = 4 * 1024 * 1024

    def __init__(self, quotas: Quotas, what: str) -> None:
        self._quotas = quotas
        self._what = what
        self._taken = ExitStack()
        self._needed = 0
        self._counted = 0

    def add(self, amount: int) -> None:
        self._needed += amount
        if self._needed <= self._counted:
            return
        missing = self._needed - self._counted
        try:
            self._take(max(missing, min(self._counted, self._STEP)))
        except LimitExceeded:
            self._take(missing)

    def _take(self, amount: int) -> None:
        self._taken.enter_context(self._quotas.hold(self._what, amount))
        self._counted += amount

    def close(self) -> None:
        self._taken.close()
