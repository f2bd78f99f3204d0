"""Versions that planned scans are going to read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from sparkport.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sparkport.memory.versions import Version

__all__ = ["Pins"]

_PARTS = 16
"""The bytes are counted again when a sixteenth of the most have been retired."""


class Pins:
    """The versions that scans were planned for, the last planned last. Thread-safe.

    A stream that has begun holds its version by itself. A pin is for the streams of a plan that
    begin later. Pins are dropped when they are too old, too many, or hold too many bytes, the
    oldest first; the streams that have not begun are then refused.
    """

    def __init__(self) -> None:
        self._pinned: OrderedDict[int, tuple[Version, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._counted = 0
        """The retired bytes of the table when bytes were last counted."""

    def add(self, version: Version, current: Version, settings: MemorySettings) -> None:
        """Keep a version readable by its serial for a while."""
        now = settings.monotonic()
        with self._lock:
            self._pinned[version.serial] = (version, now + settings.pin_seconds)
            self._pinned.move_to_end(version.serial)
            while len(self._pinned) > settings.max_pins:
                self._pinned.popitem(last=False)
            self._expire(now)
            if version is not current:
                self._drop_bytes(current, settings.max_pinned_bytes)

    def find(self, serial: int) -> Version | None:
        entry = self._pinned.get(serial)
        return None if entry is None else entry[0]

    def follow(self, current: Version, settings: MemorySettings) -> None:
        """Drop what has become too much as `current` was committed."""
        if not self._pinned:
            return
        most = settings.max_pinned_bytes
        with self._lock:
            self._expire(settings.monotonic())
            if current.retired - self._counted > most // _PARTS:
                self._drop_bytes(current, most)

    def _expire(self, now: float) -> None:
        while self._pinned and next(iter(self._pinned.values()))[1] <= now:
            self._pinned.popitem(last=False)

    def _drop_bytes(self, current: Version, most: int) -> None:
        """Drop the oldest pins while all of them hold more than `most` bytes; never the last."""
        self._counted = current.retired
        held = [version.held_beside(current) for version, _ in self._pinned.values()]
        total = sum(held)
        for size in held[:-1]:
            if total <= most:
                break
            self._pinned.popitem(last=False)
            total -= size
