"""What the versions of a table hold: the bytes that only older ones do, and arrays cut in pieces.

A change replaces some segments. New ones often show parts of arrays that the old ones had: what an
UPDATE does not touch is sliced, not copied. So the bytes that nothing but older versions need are
those of the arrays that have gone, less those that live on in slices.

A slice keeps the whole array in memory. When less than a quarter of what an array showed is still
shown, the slices are copied, so that the rest can be freed. Such a copy comes after three times as
many bytes were replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_not

import pyarrow as pa

from sparkport.engine.gathered import POOL
from sparkport.memory.segments import LazyColumns, Segment

__all__ = ["Holdings", "Replaced", "difference"]

_THIN = 4
_WASTED_BYTES = 256 * 1024
"""Less than this is not worth copying a slice for."""

Segments = tuple[Segment, ...]


def difference(before: Segments, after: Segments) -> tuple[Segments, Segments]:
    """The segments that a change has replaced, and those it has put in their place.

    Most changes are in one place, so identities are compared from both ends, in C.
    """
    shorter = min(len(before), len(after))
    first = next(compress(count(), map(is_not, before, after)), shorter)
    last = next(compress(count(), map(is_not, reversed(before), reversed(after))), shorter)
    last = min(last, shorter - first)
    out, into = before[first : len(before) - last], after[first : len(after) - last]
    if not (same := set(out).intersection(into)):
        return out, into
    return (
        tuple(segment for segment in out if segment not in same),
        tuple(segment for segment in into if segment not in same),
    )


@dataclass(slots=True)
class _Cut:
    """An array of which the current version shows pieces."""

    shown: int = 0
    """Bytes of the pieces."""
    whole: int = 0
    """Bytes that were shown before any of them were replaced."""
    pieces: dict[int, pa.Array] = field(default_factory=dict)
    """The pieces by their identity."""

    @property
    def is_thin(self) -> bool:
        return self.shown * _THIN < self.whole and self.whole - self.shown > _WASTED_BYTES


@dataclass(frozen=True, slots=True)
class Replaced:
    """What has come of a change."""

    segments: Segments
    """The segments of the new version, with thin pieces copied."""
    retired: int
    """Bytes of the version before that the new one does not show."""
    grown: int
    """By how many bytes the new version is larger."""


class Holdings:
    """Follows what the current version of a table shows. Used under the ledger's lock."""

    def __init__(self) -> None:
        self._cuts: dict[int, _Cut] = {}
        """By the address of their memory."""

    def replaced(self, before: Segments, after: Segments) -> Replaced:
        """Follow a change of the current version.

        The work depends on what has changed, not on the length of the history.
        """
        out, into = difference(before, after)
        retired, thin = self._follow(out, into)
        grown = sum([each.nbytes for each in into]) - sum([each.nbytes for each in out])
        if thin:
            copied = _with_copies(after, thin)
            more, _ = self._follow(*difference(after, copied))
            return Replaced(copied, retired + more, grown)
        return Replaced(after, retired, grown)

    def _follow(self, out: Segments, into: Segments) -> tuple[int, dict[int, pa.Array]]:
        """Returns the retired bytes, and pieces that should be copied."""
        gone = _arrays(out)
        come = _arrays(segment for segment in into if segment.shares)
        retired = sum(segment.nbytes for segment in out if not _is_read(segment))
        touched: dict[int, _Cut] = {}
        for identity in gone.keys() - come.keys():
            array, size = gone[identity]
            retired += size
            if not come and not self._cuts:
                continue
            key = _address(array)
            cut = touched[key] = self._cuts.setdefault(key, _Cut())
            if cut.pieces.pop(identity, None) is None:
                cut.whole += size
            else:
                cut.shown -= size
        for identity in come.keys() - gone.keys():
            array, size = come[identity]
            if (known := self._cuts.get(_address(array))) is not None:
                retired -= size
                known.shown += size
                known.pieces[identity] = array
        thin: dict[int, pa.Array] = {}
        for key, cut in touched.items():
            if not cut.pieces:
                del self._cuts[key]
            elif cut.is_thin:
                thin.update(cut.pieces)
        return max(0, retired), thin


def _is_read(segment: Segment) -> bool:
    return not isinstance(segment.columns, LazyColumns) or segment.columns.is_read


def _arrays(segments: Iterable[Segment]) -> dict[int, tuple[pa.Array, int]]:
    """Columns and their bytes, but for those that nobody has read: they share nothing."""
    return {
        id(column): (column, segment.column_bytes(position))
        for segment in segments
        if _is_read(segment)
        for position, column in enumerate(segment.columns)
    }


def _address(array: pa.Array) -> int:
    """Names the memory of an array; slices of the same array have the same. 0 if it has none."""
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            return int(buffer.address)
    return 0


def _with_copies(segments: Sequence[Segment], arrays: dict[int, pa.Array]) -> Segments:
    result = []
    for segment in segments:
        if segment.shares and any(id(column) in arrays for column in segment.columns):
            segment = segment.with_columns(
                pa.concat_arrays([column], POOL) if id(column) in arrays else column
                for column in segment.columns
            )
        result.append(segment)
    return tuple(result)
