"""How much of the server a caller may use at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import pyarrow as pa

from sparkport.errors import LimitExceeded

__all__ = ["HELD_BYTES", "STAGED_BYTES", "Quotas", "StagedBytes", "bytes_of"]

STAGED_BYTES, HELD_BYTES = "staged_bytes", "held_bytes"
_BATCH_BYTES = 1024
"""Bytes that a batch costs besides its values: a batch of NULLs may have no bytes of values."""
_SMALL_BYTES = 1024 * 1024


def bytes_of(batch: pa.RecordBatch) -> int:
    """Return the bytes that a batch counts as; a slice may count as its whole buffer."""
    size = batch.get_total_buffer_size()  # the exact size takes forty times as long
    return int(size if size < _SMALL_BYTES else batch.nbytes) + _BATCH_BYTES


class Quotas:
    """The limits of a caller on what the server has little of. This class has none. Thread-safe."""

    def hold(self, what: str, amount: int = 1) -> AbstractContextManager[None]:
        """Hold an amount of `spark_jobs`, `transactions`, `staged_bytes` … during the block.

        Raises: LimitExceeded, which says what is exceeded, and whose limit it is.
        """
        return nullcontext()


class StagedBytes:
    """Counts the bytes that a statement has received, and those that it keeps in memory.

    Used by a single thread, and closed when the statement ends.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._received = _Growing(quotas, STAGED_BYTES)
        self._held = _Growing(quotas, HELD_BYTES)

    def add(self, amount: int) -> None:
        """Count received bytes. Raises: LimitExceeded."""
        self._received.add(amount)

    def hold(self, amount: int) -> None:
        """Count received bytes that stay in memory. Raises: LimitExceeded."""
        self._held.add(amount)

    def close(self) -> None:
        """Give everything back."""
        self._received.close()
        self._held.close()


class _Growing:
    """Takes a quota ahead of need, so that a large statement is not counted batch by batch."""

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
