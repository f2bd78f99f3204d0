"""Dividing a scan plan into pieces of about the same size, for streams and tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import ScanPlan

__all__ = ["OPENING", "divide"]


def divide(plan: ScanPlan, pieces: int) -> list[tuple[FilePart, ...]]:
    """Divide a plan into at most `pieces` pieces of about as many bytes, in order.

    Large files are cut.
    """
    pieces = max(1, pieces)
    units = [
        unit
        for part in plan.parts
        for unit in _cut(part, max(_SMALLEST_CUT, plan.bytes // (pieces * 2)))
    ]
    total = sum(_weight(unit) for unit in units)
    groups: list[list[FilePart]] = [[] for _ in range(pieces)]
    passed = 0
    for unit in units:
        middle = passed + _weight(unit) / 2
        groups[min(len(groups) - 1, int(middle * len(groups) / total))].append(unit)
        passed += _weight(unit)
    return [_joined(group) for group in groups if group]


def _weight(part: FilePart) -> int:
    return part.bytes + OPENING


def _cut(part: FilePart, most_bytes: int) -> Iterator[FilePart]:
    """Cut a file between row groups, as far as the manifest tells where they begin.

    The reader finds out how many row groups there really are.
    """
    begin, end = part.row_groups or (0, None)
    starts = (*part.split_offsets, part.size)
    last = (len(starts) - 1 if end is None else end) - 1
    if last <= begin or part.bytes <= most_bytes:
        yield part
        return
    share = part.bytes / max(1, starts[last + 1] - starts[begin])
    first, gathered = begin, 0.0
    for index in range(begin, last + 1):
        gathered += (starts[index + 1] - starts[index]) * share
        if gathered >= most_bytes or index == last:
            yield replace(
                part, row_groups=(first, end if index == last else index + 1), bytes=int(gathered)
            )
            first, gathered = index + 1, 0.0


def _joined(group: Sequence[FilePart]) -> tuple[FilePart, ...]:
    """Join neighbouring row groups of one file into one part again."""
    joined: list[FilePart] = []
    for part in group:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.path == part.path
            and last.row_groups is not None
            and part.row_groups is not None
        ):
            whole = (last.row_groups[0], part.row_groups[1])
            joined[-1] = replace(
                last,
                row_groups=None if whole == (0, None) else whole,
                bytes=last.bytes + part.bytes,
            )
        else:
            joined.append(part)
    return tuple(joined)


OPENING = 64 * 1024
"""The cost of opening a file, in bytes that could be read instead."""
_SMALLEST_CUT = 1024 * 1024
"""A piece of a file must have so many bytes to be worth opening the file once more."""
