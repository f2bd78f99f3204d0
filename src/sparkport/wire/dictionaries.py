"""What the dictionaries of an incoming stream cost: they outlive their messages, and nothing makes
clients send rows too.
"""

from __future__ import annotations

from sparkport.errors import LimitExceeded
from sparkport.wire.inflation import Dictionary

__all__ = ["MOST_BYTES", "Dictionaries"]

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of all dictionaries that one stream has at a time."""
_OVERHEAD = 1024
"""What a message costs besides its bytes, however few they are."""


class Dictionaries:
    """Those of one stream. Not thread-safe."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        self._waiting: list[tuple[Dictionary, int]] = []
        self.held_bytes = 0
        """Of those that count, and of those that wait for the next batch, with which Arrow reads
        them.
        """

    def add(self, dictionary: Dictionary, size: int) -> None:
        """Raises: LimitExceeded."""
        size += _OVERHEAD
        if self.held_bytes + size > MOST_BYTES:
            raise LimitExceeded(
                f"the dictionaries of this stream would take more than {MOST_BYTES / 1e6:.0f} MB, which is all that is "
                "allowed at once: send columns of so many different values as plain ones"
            )
        self._waiting.append((dictionary, size))
        self.held_bytes += size

    def settle(self) -> None:
        """A batch has come: what waited counts, in place of what it replaces."""
        if self._waiting:
            for dictionary, size in self._waiting:
                before = self._read.get(dictionary.id, 0) if dictionary.is_delta else 0
                self._read[dictionary.id] = before + size
            self._waiting = []
            self.held_bytes = sum(self._read.values())
