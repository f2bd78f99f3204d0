"""What a statement does to a table, as a value.

A change can be applied to any version that has the same columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sparkport.memory.merging import inserted
from sparkport.memory.rows import removed, replaced
from sparkport.memory.segments import Segment, count_rows

__all__ = ["Deleted", "Inserted", "SegmentChange", "Updated"]


class SegmentChange(ABC):
    """What a statement does to the rows of a table."""

    @property
    @abstractmethod
    def touched(self) -> pa.Array | None:
        """The ids of the rows that are updated or removed, ascending; None when there are none."""

    @abstractmethod
    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """The segments after the change. All touched rows must be in `segments`."""


@dataclass(frozen=True, slots=True)
class Inserted(SegmentChange):
    """New rows. The commit gives them their ids."""

    segments: tuple[Segment, ...]

    @property
    def touched(self) -> None:
        return None

    @property
    def rows(self) -> int:
        return count_rows(self.segments)

    def numbered(self, first_id: int) -> Inserted:
        """These rows with consecutive ids from `first_id`."""
        segments = []
        for segment in self.segments:
            segments.append(replace(segment, first_id=first_id, ids=None))
            first_id += segment.rows
        return Inserted(tuple(segments))

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return inserted(segments, self.segments)


@dataclass(frozen=True, slots=True)
class Updated(SegmentChange):
    """New values of some columns, by position, for rows given by ascending, distinct ids."""

    row_ids: pa.Array
    values: Mapping[int, pa.Array]

    @property
    def touched(self) -> pa.Array:
        return self.row_ids

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return replaced(segments, self.row_ids, self.values)


@dataclass(frozen=True, slots=True)
class Deleted(SegmentChange):
    """Rows to be removed, given by ascending, distinct ids."""

    row_ids: pa.Array

    @property
    def touched(self) -> pa.Array:
        return self.row_ids

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return removed(segments, self.row_ids)
