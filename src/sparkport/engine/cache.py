"""The one cache: values that cost something to make, bounded by weight and by time.

A pure function of small arguments is remembered by `functools.lru_cache`; everything else by this.
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
    """Values by key, of a limited weight together; the longest unused are forgotten first.
    Thread-safe.
    """

    def __init__(
        self, most: int, unused_seconds: float = 600.0, *, kept_by_use: bool = True
    ) -> None:
        """Values are forgotten after `unused_seconds`: after their last use, or after they were
        made where `kept_by_use` is False.
        """
        self._unused_seconds = unused_seconds
        self._kept_by_use = kept_by_use
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[Value, int, float]] = OrderedDict()
        """With their weight and the time of their last use, in its order."""
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
        """Remember a value, and return what is remembered: of two that are made at once the first
        one counts. The last one added stays, whatever its weight.
        """
        with self._lock:
            if key not in self._known:
                self._known[key] = value, weight, time.monotonic()
                self._weight += weight
            kept = self._known[key][0]
            self._forget_old()
        return kept

    def replace(self, key: Key, value: Value, weight: int = 1) -> None:
        """Remember a value instead of the one that was known under the key."""
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
