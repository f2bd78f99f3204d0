"""How much of the server one caller may use at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

__all__ = ["Quotas"]


class Quotas:
    """What is left for a caller of the things that the server has only so many of. This one has no limits. Thread-safe."""

    def hold(self, what: str, amount: int = 1) -> AbstractContextManager[None]:
        """Take so many, such as `spark_jobs` or `staged_bytes`, and give them back at the end of the block.

        Raises: LimitExceeded, which says what there are too many of, and whose.
        """
        return nullcontext()
