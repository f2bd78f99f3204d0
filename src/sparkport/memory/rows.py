"""Finding, replacing and removing rows by their ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.engine.arrays import is_ascending, take_values
from sparkport.memory.merging import WINDOW_BYTES, WINDOW_ROWS, merged_neighbours, window_rows
from sparkport.memory.segments import Segment, ramp, shifted, with_ids

__all__ = [
    "MissingRow",
    "find_missing",
    "removed",
    "replaced",
    "take_rows",
]

_SHRUNK_BYTES = WINDOW_BYTES // 4
"""An UPDATE that makes a segment smaller than this merges it with its neighbours."""


class MissingRow(LookupError):
    """No row has the id `row_id`."""

    def __init__(self, row_id: int) -> None:
        super().__init__(row_id)
        self.row_id = row_id


@dataclass(frozen=True, slots=True)
class _Located:
    """Ids `start` to before `stop` of a list are in segment `index`, at `positions`."""

    index: int
    positions: pa.Array
    start: int
    stop: int


def _locate(segments: Sequence[Segment], ids: pa.Array) -> Iterator[_Located]:
    """Find rows by ascending ids. Raises: MissingRow."""
    for index, start, stop in _spans(segments, ids):
        segment, wanted = segments[index], ids.slice(start, stop - start)
        if segment.ids is None:
            positions = shifted(wanted, -segment.first_id)
        else:
            positions = pc.index_in(wanted, value_set=segment.ids).cast(pa.int64())
            if positions.null_count:
                raise MissingRow(int(wanted[pc.index(positions.is_null(), True).as_py()].as_py()))
        yield _Located(index, positions, start, stop)


def _spans(segments: Sequence[Segment], ids: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Assign ascending ids to segments: yields (segment's index, first id, id after the last).

    Raises: MissingRow for an id that is in no segment's range.
    """
    if len(ids) == 0:
        return
    values = memoryview(ids.buffers()[1]).cast("q")[ids.offset : ids.offset + len(ids)]
    start = 0
    while start < len(values):
        index = bisect_right(segments, values[start], key=attrgetter("first_id")) - 1
        if index < 0 or (last := segments[index].last_id) < values[start]:
            raise MissingRow(values[start])
        stop = bisect_right(values, last, start)
        yield index, start, stop
        start = stop


def find_missing(segments: Sequence[Segment], ids: pa.Array) -> int | None:
    """An id that no row has, of ids in any order; None when all exist."""
    ids = ids if is_ascending(ids) else ids.take(pc.sort_indices(ids))
    try:
        if all(segments[index].ids is None for index, _, _ in _spans(segments, ids)):
            return None  # these ranges have no gaps
        for _ in _locate(segments, ids):
            pass
    except MissingRow as missing:
        return missing.row_id
    return None


def take_rows(segments: Sequence[Segment], ids: pa.Array, columns: Sequence[int]) -> list[pa.Array]:
    """The values of some columns for the rows with the given ids, in the order of the ids.

    Raises: MissingRow.
    """
    if not columns:
        return []
    order = None if is_ascending(ids) else pc.sort_indices(ids)
    located = list(_locate(segments, ids if order is None else ids.take(order)))
    result = []
    for column in columns:
        parts = [
            take_values(segments[found.index].columns[column], found.positions) for found in located
        ]
        values = pa.concat_arrays(parts) if parts else _empty(segments, column)
        result.append(values if order is None else take_values(values, pc.sort_indices(order)))
    return result


def replaced(
    segments: Sequence[Segment], ids: pa.Array, values: Mapping[int, pa.Array]
) -> tuple[Segment, ...]:
    """Give rows new values in some columns; `ids` ascend and are distinct. Raises: MissingRow."""

    def rewrite(segment: Segment, found: _Located, first: int, rows: int) -> Segment:
        source = _merge_order(found.positions, first, rows)
        old = segment.slice(first, rows)
        columns = list(old.columns)
        for column, given in values.items():
            new = given.slice(found.start, found.stop - found.start)
            columns[column] = (
                new
                if len(new) == rows
                else take_values(pa.concat_arrays([columns[column], new]), source)
            )
        result = old.with_columns(columns)
        result.sizes.update(
            {column: size for column, size in old.sizes.items() if column not in values}
        )
        return result

    return _changed(segments, ids, rewrite, _has_shrunk)


def _has_shrunk(old: Segment, new: Segment | None) -> bool:
    """Whether an UPDATE has made a segment small.

    Others stay as they are: merging them would copy columns that are not updated.
    """
    return (
        new is not None
        and new.rows < WINDOW_ROWS
        and old.nbytes > _SHRUNK_BYTES
        and new.nbytes <= _SHRUNK_BYTES
    )


def removed(segments: Sequence[Segment], ids: pa.Array) -> tuple[Segment, ...]:
    """Leave rows out; `ids` ascend and are distinct. Raises: MissingRow."""

    def rewrite(segment: Segment, found: _Located, first: int, rows: int) -> Segment | None:
        if len(found.positions) == rows:
            return None
        gaps = pc.inverse_permutation(
            shifted(found.positions, -first), max_index=rows - 1
        ).is_null()
        kept = pc.indices_nonzero(gaps)
        columns = tuple(take_values(column.slice(first, rows), kept) for column in segment.columns)
        return with_ids(columns, segment.row_ids(first, rows).take(kept))

    return _changed(segments, ids, rewrite, lambda old, new: True)


def _changed(
    segments: Sequence[Segment],
    ids: pa.Array,
    rewrite: Callable[[Segment, _Located, int, int], Segment | None],
    may_merge: Callable[[Segment, Segment | None], bool],
) -> tuple[Segment, ...]:
    """Apply `rewrite` to the windows around the given rows; everything else stays as it is.

    What `rewrite` returns is merged with its neighbours if `may_merge` says so of the old segment
    and the new one.
    """
    result: list[Segment] = []
    places: list[int] = []
    done = 0
    for found in _locate(segments, ids):
        result.extend(segments[done : found.index])
        done = found.index + 1
        segment = segments[found.index]
        window = window_rows(segment)
        first = found.positions[0].as_py() // window * window
        stop = (found.positions[-1].as_py() // window + 1) * window
        if segment.rows - stop < window:
            stop = segment.rows
        if first:
            result.append(segment.slice(0, first))
        new = rewrite(segment, found, first, stop - first)
        if may_merge(segment, new):
            places.append(len(result))
        if new is not None:
            result.append(new)
        if stop < segment.rows:
            result.append(segment.slice(stop, segment.rows - stop))
    result.extend(segments[done:])
    return tuple(merged_neighbours(result, places) if places and result else result)


def _merge_order(positions: pa.Array, first: int, rows: int) -> pa.Array:
    """Indices that merge new values into old ones.

    They index `rows` old values followed by the new ones, which belong at `positions`.
    """
    new = pc.inverse_permutation(shifted(positions, -first), max_index=rows - 1)
    return pc.coalesce(shifted(new, rows), ramp(0, rows))


def _empty(segments: Sequence[Segment], column: int) -> pa.Array:
    return segments[0].columns[column].slice(0, 0) if segments else pa.nulls(0)
