"""Timing, memory of a process, and the table of results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Comparison", "Line", "compare", "print_table", "resident_megabytes", "seconds"]


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


@dataclass(frozen=True)
class Comparison:
    """The rates of competitors that ran in turns: round by round, since what else the machine does
    changes quickly.
    """

    rates: list[list[float]]

    def ratio(self, first: int, second: int) -> float:
        """How the first compares with the second in the median round."""
        return statistics.median(rates[first] / rates[second] for rates in self.rates)

    def rate(self, index: int) -> float:
        """The median rate of one of them."""
        return statistics.median(rates[index] for rates in self.rates)


def compare(
    actions: Sequence[Callable[[], float]],
    rounds: int = 9,
    before: Callable[[], object] = lambda: None,
) -> Comparison:
    """Run actions in turns, after a round to warm up. Each returns how much it did; `before` each
    is not measured.
    """
    rates: list[list[float]] = []
    for _ in range(rounds + 1):
        rates.append([])
        for action in actions:
            before()
            start = time.perf_counter()
            amount = action()
            rates[-1].append(amount / (time.perf_counter() - start))
    return Comparison(rates[1:])


def resident_megabytes(pid: int) -> float:
    """The memory a process holds now that nobody else could use: anonymous pages, without mapped
    files.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory")


def print_table(lines: Sequence[Line]) -> None:
    """Print the results as a Markdown table."""
    print("| what | measured | target | |\n|---|---|---|---|")
    for line in lines:
        print(
            f"| {line.what} | {line.measured} | {line.target} | "
            f"{'met' if line.met else '**missed**'} |"
        )
