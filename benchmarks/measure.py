"""Timing, memory of a process, and the table of results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Line", "best_rates", "print_table", "resident_megabytes", "seconds"]


@dataclass(frozen=True)
class Line:
    """One result, with its target and whether it was met."""

    what: str
    measured: str
    target: str
    met: bool


def seconds(action: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def best_rates(
    actions: Sequence[Callable[[], float]], rounds: int = 5, before: Callable[[], object] = lambda: None
) -> list[float]:
    """The best rate of each action, which returns how much it did; in alternation, after a round to warm up.

    `before` is run before each, and not measured.
    """
    best = [0.0] * len(actions)
    for number in range(rounds + 1):
        for index, action in enumerate(actions):
            before()
            start = time.perf_counter()
            amount = action()
            if number:
                best[index] = max(best[index], amount / (time.perf_counter() - start))
    return best


def resident_megabytes(pid: int) -> float:
    """The memory a process holds now that nobody else could use: anonymous pages, without mapped files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory")


def print_table(lines: Sequence[Line]) -> None:
    """Print the results as a Markdown table."""
    print("| what | measured | target | |\n|---|---|---|---|")
    for line in lines:
        print(f"| {line.what} | {line.measured} | {line.target} | {'met' if line.met else '**missed**'} |")
