"""The one cache: values that cost something to make, bounded by weight and by time.

`functools.lru_cache` remembers pure functions of small arguments; this remembers all else.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Cache"]

Key = TypeVar("Key")
Value = TypeVar("Value")
Missing = TypeVar("Missing")


class Cache(Generic[Key, Value]):
    """Values by key, of a limited total weight; the longest unused go first. Thread-safe."""

    def __init__(
        self, most: int, unused_seconds: float = 600.0, *, kept_by_use: bool = True
    ) -> None:
        """Forget values `unused_seconds` after their last use.

        Where `kept_by_use` is False, forget them so long after they were made.
        """
        self._unused_seconds = unused_seconds
        self._kept_by_use = kept_by_use
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[Value, int, float]] = OrderedDict()
        """Values with their weight and the time of their last use, in the order of that time."""
        self._most = most
        self._weight = 0

    def find(self, key: Key, missing: Missing) -> Value | Missing:
        with self._lock:
            if key not in self._known:
                return missing
            value, weight, since = self._known[key]
            now = time.monotonic()
            if self._kept_by_use:
                self._known[key] = value, weight, now
                self._known.move_to_end(key)
            elif since < now - self._unused_seconds:
                return missing
            return value

    def add(self, key: Key, value: Value, weight: int = 1) -> Value:
        """Remember a value, and return the value that is remembered.

        If two threads add a value under a key, the first counts. The value added last stays,
        whatever its weight.
        """
        with self._lock:
            if key not in self._known:
                self._known[key] = value, weight, time.monotonic()
                self._weight += weight
            kept = self._known[key][0]
            self._forget_old()
        return kept

    def replace(self, key: Key, value: Value, weight: int = 1) -> None:
        """Remember a value in place of the value under the key."""
        with self._lock:
            if key in self._known:
                self._weight -= self._known.pop(key)[1]
            self._known[key] = value, weight, time.monotonic()
            self._weight += weight
            self._forget_old()

    def _forget_old(self) -> None:
        oldest_kept = time.monotonic() - self._unused_seconds
        while len(self._known) > 1:
            _, weight, since = next(iter(self._known.values()))
            if self._weight <= self._most and since >= oldest_kept:
                break
            self._known.popitem(last=False)
            self._weight -= weight
