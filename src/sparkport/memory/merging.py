"""Putting segments together, so that a table has few of them, whatever statements it has seen.

Two neighbours outside of the end of a table have more than `WINDOW_ROWS` rows, or more than
`WINDOW_BYTES`, together. At the end, where INSERTs add, each is larger than the next. A table of n
rows therefore has at most about n / 2048 + 14 segments, or one for each half megabyte if that is
more. A table that is only read and added to has one for each `SEGMENT_ROWS` rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.memory.segments import SEGMENT_ROWS, Segment, joined

__all__ = [
    "MERGE_BYTES",
    "WINDOW_BYTES",
    "WINDOW_ROWS",
    "appended",
    "inserted",
    "merged_neighbours",
    "window_rows",
]

MERGE_BYTES = 64 * 1024 * 1024
"""Segments are not merged beyond this size, so that 32-bit offsets of strings cannot overflow."""
WINDOW_ROWS = 4096
"""Rows that a change of few rows copies, instead of a whole segment.

Segments are not cut into smaller pieces, unless these rows have more than `WINDOW_BYTES`.
"""
WINDOW_BYTES = 1024 * 1024
_FEWEST_ROWS = 8


def window_rows(segment: Segment) -> int:
    """How many rows of a segment a change of one of them copies; a power of two."""
    if segment.rows <= _FEWEST_ROWS:
        return _FEWEST_ROWS
    fitting = WINDOW_BYTES * segment.rows // max(segment.nbytes, 1)
    if fitting >= WINDOW_ROWS:
        return WINDOW_ROWS
    return max(_FEWEST_ROWS, 1 << (fitting.bit_length() - 1) if fitting else 1)


def appended(segments: Sequence[Segment], added: Iterable[Segment]) -> tuple[Segment, ...]:
    """Append segments whose row ids are higher than all others.

    Small segments at the end are merged with what is added, like digits of a binary counter: a
    thousand INSERTs of one row leave about ten segments, and in the long run no INSERT copies much
    more than it adds.
    """
    result = list(segments)
    for segment in added:
        run, rows = [segment], segment.rows
        while result and result[-1].rows <= rows and result[-1].rows + rows <= SEGMENT_ROWS:
            if result[-1].nbytes + sum(part.nbytes for part in run) > MERGE_BYTES:
                break
            rows += result[-1].rows
            run.append(result.pop())
        if result and result[-1].rows < rows:  # no later INSERT comes past the larger one
            result = merged_neighbours(result, [len(result) - 1])
        result.append(joined(run[::-1]))
    return tuple(result)


def inserted(segments: Sequence[Segment], added: Sequence[Segment]) -> tuple[Segment, ...]:
    """Add segments in the order of their row ids, which may have been reserved long before."""
    if not added or not segments or added[0].first_id > segments[-1].last_id:
        return appended(segments, added)
    result = list(segments)
    for segment in added:
        index = bisect_right(result, segment.first_id, key=attrgetter("first_id"))
        if index and result[index - 1].last_id > segment.first_id:
            result[index - 1 : index] = _split(result[index - 1], segment.first_id)
        result.insert(index, segment)
        result = merged_neighbours(result, [index])
    return tuple(result)


def _split(segment: Segment, row_id: int) -> Iterator[Segment]:
    before = pc.less(segment.row_ids(), pa.scalar(row_id, pa.int64())).true_count
    yield segment.slice(0, before)
    yield segment.slice(before, segment.rows - before)


def merged_neighbours(segments: Sequence[Segment], places: Iterable[int]) -> list[Segment]:
    """Merge the segments at some places with their neighbours while they are small together.

    `places` ascend. A segment that has vanished is given as the place where it was. Copies at most
    a window for each place, and looks at no other segments.
    """
    result: list[Segment] = []
    done = 0
    for place in places:
        place = min(place, len(segments) - 1)
        if place < done:
            continue
        result.extend(segments[done:place])
        run = _Run(segments[place])
        while result and run.takes(result[-1]):
            run.parts.appendleft(result.pop())
        done = place + 1
        while done < len(segments) and run.takes(segments[done]):
            run.parts.append(segments[done])
            done += 1
        try:
            result.append(joined(run.parts))
        except pa.ArrowInvalid:  # dictionaries that would need wider indices together
            result.extend(run.parts)
    result.extend(segments[done:])
    return result


class _Run:
    """Neighbours that are to be merged."""

    def __init__(self, first: Segment) -> None:
        self.parts = deque([first])
        self._rows = first.rows
        self._bytes: int | None = None

    def takes(self, segment: Segment) -> bool:
        """Count a segment in, if they are small together."""
        if self._rows + segment.rows > WINDOW_ROWS:
            return False
        if self._bytes is None:  # only found out where it matters
            self._bytes = self.parts[0].nbytes
        if self._bytes + segment.nbytes > WINDOW_BYTES:
            return False
        self._rows += segment.rows
        self._bytes += segment.nbytes
        return True
