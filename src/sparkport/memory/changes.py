"""What one statement does to a table, as a value that can be applied to any version with the same
columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sparkport.memory.rows import removed, replaced
from sparkport.memory.segments import Segment, count_rows, inserted

__all__ = ["Change", "Deleted", "Inserted", "Updated"]


class Change(ABC):
    """A change of rows."""

    @property
    @abstractmethod
    def touched(self) -> pa.Array | None:
        """The ids of existing rows that it changes or removes, ascending; None when it touches
        none.
        """

    @abstractmethod
    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """The rows afterwards. The touched rows must be there."""


@dataclass(frozen=True, slots=True)
class Inserted(Change):
    """New rows. Their ids are given in the commit, because only then is known what they will be."""

    segments: tuple[Segment, ...]

    @property
    def touched(self) -> None:
        return None

    @property
    def rows(self) -> int:
        return count_rows(self.segments)

    def numbered(self, first_id: int) -> Inserted:
        """The same rows with consecutive ids."""
        segments = []
        for segment in self.segments:
            segments.append(replace(segment, first_id=first_id, ids=None))
            first_id += segment.rows
        return Inserted(tuple(segments))

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return inserted(segments, self.segments)


@dataclass(frozen=True, slots=True)
class Updated(Change):
    """New values of some columns, by position, for rows given by ascending, distinct ids."""

    row_ids: pa.Array
    values: Mapping[int, pa.Array]

    @property
    def touched(self) -> pa.Array:
        return self.row_ids

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return replaced(segments, self.row_ids, self.values)


@dataclass(frozen=True, slots=True)
class Deleted(Change):
    """Rows to be removed, given by ascending, distinct ids."""

    row_ids: pa.Array

    @property
    def touched(self) -> pa.Array:
        return self.row_ids

    def applied(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return removed(segments, self.row_ids)
