"""What a load has done: counts, errors by code, and how long things took."""

from __future__ import annotations

import threading
from collections import Counter

_KEPT = 20_000


class Figures:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = {}
        self._counts: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        """By operation and code: those that were asked for, and conflicts."""
        self.wrong: list[str] = []
        """What was not asked for."""

    def done(self, operation: str, seconds: float) -> None:
        with self._lock:
            self._counts[operation] += 1
            kept = self._seconds.setdefault(operation, [])
            if len(kept) < _KEPT:
                kept.append(seconds)
            else:
                kept[self._counts[operation] % _KEPT] = seconds

    def expected(self, operation: str, code: str) -> None:
        with self._lock:
            self.errors[operation, code] += 1

    def unexpected(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    @property
    def total(self) -> int:
        with self._lock:
            return self._counts.total()

    def count(self, operation: str) -> int:
        return self._counts[operation]

    def table(self) -> str:
        """For people."""
        lines = [
            f"{'operation':<28}{'done':>8}{'p50 ms':>10}{'p99 ms':>10}  errors that were asked "
            f"for, and conflicts"
        ]
        for operation in sorted({*self._counts, *(each for each, _ in self.errors)}):
            seconds = sorted(self._seconds.get(operation, [0.0]))
            p50, p99 = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
            codes = [
                f"{code} {count}"
                for (each, code), count in sorted(self.errors.items())
                if each == operation
            ]
            done = self._counts[operation]
            lines.append(
                f"{operation:<28}{done:>8}{p50 * 1000:>10.0f}{p99 * 1000:>10.0f}  "
                f"{', '.join(codes)}"
            )
        return "\n".join(lines)
