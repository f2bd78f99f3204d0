"""A limit on the memory that the dictionaries of an incoming stream take.

Dictionaries outlive their messages, and a client may send them without ever sending rows.
"""

from __future__ import annotations

from sparkport.errors import LimitExceeded
from sparkport.wire.inflation import Dictionary

__all__ = ["MOST_BYTES", "Dictionaries"]

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of all dictionaries that a stream may hold at a time."""
_OVERHEAD = 1024
"""Bytes that a message costs besides its content, however short it is."""


class Dictionaries:
    """Counts the dictionaries of a stream. Not thread-safe."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        self._waiting: list[tuple[Dictionary, int]] = []
        self.held_bytes = 0
        """Bytes of the dictionaries in use, and of those that Arrow reads with the next batch."""

    def add(self, dictionary: Dictionary, size: int) -> None:
        """Count a dictionary that has arrived. Raises: LimitExceeded."""
        size += _OVERHEAD
        if self.held_bytes + size > MOST_BYTES:
            raise LimitExceeded(
                f"the dictionaries of this stream would take more than {MOST_BYTES / 1e6:.0f} MB, "
                "which is all that is allowed at once: send columns of so many different values as "
                "plain ones"
            )
        self._waiting.append((dictionary, size))
        self.held_bytes += size

    def batch_received(self) -> None:
        """After a batch: the dictionaries that waited for it replace or extend the earlier ones."""
        if self._waiting:
            for dictionary, size in self._waiting:
                before = self._read.get(dictionary.id, 0) if dictionary.is_delta else 0
                self._read[dictionary.id] = before + size
            self._waiting = []
            self.held_bytes = sum(self._read.values())
