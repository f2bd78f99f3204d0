"""Remembering what was made of files that never change, for as long as somebody asks for it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["RecentlyUsed"]

Key = TypeVar("Key")
Value = TypeVar("Value")
Missing = TypeVar("Missing")


class RecentlyUsed(Generic[Key, Value]):
    """Values by key, of a limited weight together; the longest unused are forgotten first.
    Thread-safe.
    """

    def __init__(self, most: int, unused_seconds: float = 600.0) -> None:
        """What nobody has asked for in so long is forgotten: of a table that is often written to,
        nearly everything.
        """
        self._unused_seconds = unused_seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[Value, int, float]] = OrderedDict()
        """With their weight and the time of their last use, in its order."""
        self._most = most
        self._weight = 0

    def find(self, key: Key, missing: Missing) -> Value | Missing:
        with self._lock:
            if key not in self._known:
                return missing
            value, weight, _ = self._known.pop(key)
            self._known[key] = value, weight, time.monotonic()
            return value

    def add(self, key: Key, value: Value, weight: int = 1) -> Value:
        """What is known from now on: of two that make the same at once the first one counts. The
        last one added stays.
        """
        with self._lock:
            now = time.monotonic()
            if key not in self._known:
                self._known[key] = value, weight, now
                self._weight += weight
            kept = self._known[key][0]
            while len(self._known) > 1:
                _, weight, used = next(iter(self._known.values()))
                if self._weight <= self._most and used >= now - self._unused_seconds:
                    break
                self._known.popitem(last=False)
                self._weight -= weight
        return kept
