"""Where rows are, by their ids: in which data files, at which positions.

Strategy: in most files the ids follow from positions, so a range of ids is a range of rows, and no
file is opened. Rows that are not found this way were rewritten. They are looked for in files that
hold a column of ids, and only that column is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import LongType
from pyroaring import BitMap64

from sparkport.errors import Unsupported
from sparkport.spark.iceberg.bounds import bounds_in_row_group, bounds_of_row_ids
from sparkport.spark.iceberg.deletes import deleted_bitmap
from sparkport.spark.iceberg.locations import open_parquet
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import DataFile, plan_rows
from sparkport.spark.iceberg.positions import array_of, between, bitmap_of, numbers_of
from sparkport.spark.iceberg.projection import file_fields
from sparkport.spark.iceberg.read import file_errors
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Located, Location

__all__ = ["changed_since", "divided", "locate", "positions_in", "same_snapshot"]

_Keeps: TypeAlias = Callable[[pq.RowGroupMetaData, int], bool]
"""Whether to read a row group; its second argument is the position of the group's first row."""

_LAST_UPDATED_FIELD = 2147483539
"""The reserved field id of `_last_updated_sequence_number`, where a file holds it."""


def locate(state: TableState, row_ids: pa.Array, properties: Mapping[str, str]) -> Location:
    """Where the rows with these ids are; the ids ascend and are distinct.

    Raises: Unsupported where only Spark can read the files; PreconditionFailed when files are
    missing or damaged.
    """
    files = plan_rows(state, numbers_of(row_ids))
    if files is None:
        raise Unsupported(
            f"rows of table {state.identifier} cannot be found by their ids: only Spark can read "
            "its files"
        )
    search = _Search(row_ids, _Columns(state, properties))
    with file_errors(str(state.identifier)):
        for file in files:
            if not file.part.may_hold_row_ids:
                search.by_position(file)
        # The newest first: rewritten rows are most often looked for soon after.
        for file in sorted(files, key=lambda file: -file.entry.sequence_number):
            if file.part.may_hold_row_ids:
                search.in_column(file)
        return search.location()


def positions_in(
    state: TableState, part: FilePart, row_ids: pa.Array, properties: Mapping[str, str]
) -> tuple[pa.Array, pa.Array]:
    """The ascending positions of rows in a file with a column of ids, and the ids there.

    The given ids ascend and are distinct. Rows that are not in the file are left out. Raises:
    PreconditionFailed when the file is missing or damaged.
    """
    with file_errors(str(state.identifier)):
        return _in_column(_Columns(state, properties), part, row_ids)


def divided(location: Location, wanted: Sequence[pa.Array]) -> list[Location]:
    """The location of each of some sets of rows, from the location of all of them together.

    Each set is of ascending and distinct ids, none of them negative.
    """
    found = [(each, bitmap_of(each.row_ids)) for each in location.found]
    missing = bitmap_of(location.missing)
    result = []
    for own in map(bitmap_of, wanted):
        places = []
        for each, ids in found:
            common = own & ids
            if len(common) == len(ids):
                places.append(each)
            elif common:
                kept = pc.is_in(each.row_ids, value_set=array_of(common))
                positions, row_ids = each.positions.filter(kept), each.row_ids.filter(kept)
                places.append(replace(each, positions=positions, row_ids=row_ids))
        result.append(Location(tuple(places), array_of(own & missing)))
    return result


def same_snapshot(base: TableState, now: TableState) -> bool:
    """Whether two states of a table have the same rows in the same places."""
    return (
        base.snapshot is not None
        and now.snapshot is not None
        and bool(base.snapshot.snapshot_id == now.snapshot.snapshot_id)
    )


def changed_since(
    base: TableState,
    now: TableState,
    location: Location,
    properties: Mapping[str, str],
    before: Location | None = None,
) -> int | None:
    """The id of a row that was changed, deleted or added between two states; None if there is none.

    `location` is where the rows are in the later state. `before` is where they are in the earlier
    state, if that is known and none is missing there. A row that was only moved to another file is
    not changed. Rows that are in neither state are not looked at.

    Raises: Unsupported where only Spark can read the files; PreconditionFailed when files are
    missing or damaged.
    """
    if same_snapshot(base, now):
        return None
    if before is not None:
        if len(location.missing):
            return int(location.missing[0].as_py())
    else:
        deleted = locate(base, location.missing, properties)
        if deleted.found:
            return int(deleted.found[0].row_ids[0].as_py())
        before = locate(base, _sorted_ids(location.found), properties)
        if len(before.missing):
            return int(before.missing[0].as_py())
    moved = _others(location.found, before.found)
    if not moved:
        return None
    ids, updated = _updates(now, moved, properties)
    old_ids, old_updated = _updates(base, _others(before.found, location.found), properties)
    assert ids.equals(old_ids)
    changed = ids.filter(pc.not_equal(updated, old_updated))
    return int(changed[0].as_py()) if len(changed) else None


def _sorted_ids(located: Sequence[Located]) -> pa.Array:
    return array_of(bitmap_of(_together([each.row_ids for each in located])))


def _others(located: Sequence[Located], others: Sequence[Located]) -> list[Located]:
    """The rows that are not at the same places in `others`."""
    positions = {each.part.path: each.positions for each in others}
    left = []
    for each in located:
        same = positions.get(each.part.path)
        if same is None:
            left.append(each)
        elif not same.equals(each.positions):
            kept = pc.invert(pc.is_in(each.positions, value_set=same))
            if kept.true_count:
                left.append(
                    replace(
                        each,
                        positions=each.positions.filter(kept),
                        row_ids=each.row_ids.filter(kept),
                    )
                )
    return left


def _updates(
    state: TableState, located: Sequence[Located], properties: Mapping[str, str]
) -> tuple[pa.Array, pa.Array]:
    """Ascending row ids, and for each row the number of the commit that wrote its values."""
    columns = _Columns(state, properties)
    ids, numbers = [], []
    with file_errors(str(state.identifier)):
        for each in located:
            own = columns.at(each.part, _LAST_UPDATED_FIELD, each.positions)
            ids.append(each.row_ids)
            # A row without a number of its own has that of the commit that added the file.
            numbers.append(own.fill_null(each.sequence_number))
    every = _together(ids)
    order = pc.array_sort_indices(every)
    return every.take(order), _together(numbers).take(order)


class _Search:
    """Looks for rows, file by file."""

    def __init__(self, row_ids: pa.Array, columns: _Columns) -> None:
        self._row_ids = row_ids
        self._columns = columns
        self._found: list[Located] = []
        self._negative = between(row_ids, None, -1)
        """Negative ids, which no row has, and which do not fit into bitmaps."""
        self._left: BitMap64 | None = None
        """Ids that are not found yet; computed when needed."""
        self._new: list[pa.Array] = []
        """Ids that were found, but are not removed from `_left` yet."""
        self._count = 0
        """Number of rows that were found."""

    def location(self) -> Location:
        return Location(tuple(self._found), pa.concat_arrays([self._negative, self._missing()]))

    def by_position(self, file: DataFile) -> None:
        first = file.part.first_row_id
        if first is None:
            return
        ids = between(self._row_ids, first, first + file.part.rows - 1)
        if not len(ids):
            return
        positions = pc.subtract(ids, first)
        if file.part.vector is not None or file.part.position_deletes:
            positions = array_of(bitmap_of(positions) - self._deleted(file))
            ids = pc.add(positions, first)
        self._add(file, positions, ids)

    def in_column(self, file: DataFile) -> None:
        """Find rows in a file that may have a column of ids.

        An id in the column wins over the id by position, unless it is NULL.
        """
        bounds = bounds_of_row_ids(file.entry, may_hold_row_ids=True)
        ids = between(self._missing(), bounds.lower, bounds.upper)
        if not len(ids):
            return
        if not self._columns.has(file.part, ROW_ID_FIELD):
            self.by_position(file)
            return
        positions, found = _in_column(self._columns, file.part, ids)
        deleted = self._deleted(file) & bitmap_of(positions)
        if deleted:
            kept = pc.invert(pc.is_in(positions, value_set=array_of(deleted)))
            positions, found = positions.filter(kept), found.filter(kept)
        self._add(file, positions, found)

    def _deleted(self, file: DataFile) -> BitMap64:
        return deleted_bitmap(file.part, self._columns.properties)

    def _add(self, file: DataFile, positions: pa.Array, ids: pa.Array) -> None:
        if len(ids):
            entry = file.entry
            self._found.append(
                Located(
                    file.part,
                    positions,
                    ids,
                    entry.spec_id,
                    entry.partition,
                    file.replaced,
                    entry.sequence_number,
                )
            )
            self._new.append(ids)
            self._count += len(ids)

    def _missing(self) -> pa.Array:
        if self._count == len(self._row_ids):
            return self._row_ids[:0]
        if self._left is None:
            self._left = bitmap_of(self._row_ids[len(self._negative) :])
        if self._new:
            self._left -= bitmap_of(_together(self._new))
            self._new = []
        return array_of(self._left)


def _in_column(columns: _Columns, part: FilePart, ids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The positions of wanted rows in a file with a column of ids, and the ids there."""
    indices, matches = [], []
    for start, own in columns.row_ids(part, ids):
        places, known = _matching(own, ids)
        indices.append(pc.add(places, start))
        matches.append(known)
    return _together(indices), _together(matches)


def _matching(own: pa.Array, ids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The positions in a column of row ids where wanted ids are, and these ids."""
    ascend = not own.null_count and pc.all(pc.less(own[:-1], own[1:])).as_py()
    if not ascend:
        mask = pc.is_in(own, value_set=ids)
        return pc.indices_nonzero(mask).cast(pa.int64()), own.filter(mask)
    wanted = between(ids, own[0].as_py(), own[-1].as_py())
    indices = pc.search_sorted(own, wanted).cast(pa.int64())
    hits = pc.equal(own.take(indices), wanted)
    return indices.filter(hits), wanted.filter(hits)


def _together(arrays: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())


class _Columns:
    """Reads Iceberg's own columns of data files, without the others."""

    def __init__(self, state: TableState, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self._settings = tuple(sorted(properties.items()))
        self._name_mapping = state.metadata.properties.get("schema.name-mapping.default")

    def has(self, part: FilePart, field_id: int) -> bool:
        return self._leaf(part, field_id) is not None

    def row_ids(self, part: FilePart, ids: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """The row ids of a file in steps, each with its position.

        Row groups without wanted ids are skipped.
        """
        leaf = self._leaf(part, ROW_ID_FIELD)
        assert leaf is not None

        def may_match(group: pq.RowGroupMetaData, _: int) -> bool:
            bounds = bounds_in_row_group(group.column(leaf).statistics, LongType())
            return bounds.has_null or len(between(ids, bounds.lower, bounds.upper)) > 0

        small = part.rows <= _SMALL
        steps = (
            [(0, _small_column(part.path, part.size, leaf, self._settings))]
            if small
            else self._read(part, leaf, may_match)
        )
        for start, own in steps:
            if own.null_count and part.first_row_id is not None:
                first = part.first_row_id + start
                own = pc.coalesce(own, pa.arange(first, first + len(own)))
            yield start, own

    def at(self, part: FilePart, field_id: int, positions: pa.Array) -> pa.Array:
        """The values at ascending positions; NULLs where the file lacks the column."""
        leaf = self._leaf(part, field_id)
        if leaf is None:
            return pa.nulls(len(positions), pa.int64())

        def holds_some(group: pq.RowGroupMetaData, start: int) -> bool:
            return len(between(positions, start, start + group.num_rows - 1)) > 0

        return _together(
            [
                values.take(pc.subtract(between(positions, start, start + len(values) - 1), start))
                for start, values in self._read(part, leaf, holds_some)
            ]
        )

    def _leaf(self, part: FilePart, field_id: int) -> int | None:
        leaves = _reserved_leaves(part.path, part.size, self._name_mapping, self._settings)
        return leaves.get(field_id)

    def _read(self, part: FilePart, leaf: int, keeps: _Keeps) -> Iterator[tuple[int, pa.Array]]:
        with open_parquet(part.path, self.properties, part.size) as file:
            yield from _column(file, leaf, keeps)


def _column(file: pq.ParquetFile, leaf: int, keeps: _Keeps) -> Iterator[tuple[int, pa.Array]]:
    """The values of some row groups in steps, each with its position."""
    start = 0
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        position, start = start, start + group.num_rows
        if not keeps(group, position):
            continue
        for batch in file.reader.iter_batches(
            _STEP, row_groups=[index], column_indices=[leaf], use_threads=False
        ):
            yield position, batch.column(0)
            position += batch.num_rows


@functools.lru_cache(maxsize=1024)
def _small_column(
    path: str, size: int, leaf: int, properties: tuple[tuple[str, str], ...]
) -> pa.Array:
    """All values of a column of a small file, cached: small changes read them often."""
    with open_parquet(path, dict(properties), size) as file:
        return _together([values for _, values in _column(file, leaf, lambda *_: True)])


@functools.lru_cache(maxsize=10_000)
def _reserved_leaves(
    path: str, size: int, name_mapping: str | None, properties: tuple[tuple[str, str], ...]
) -> Mapping[int, int]:
    """Which leaf columns of a file are Iceberg's own, by field id; cached."""
    with open_parquet(path, dict(properties), size) as file:
        fields = file_fields(file.schema_arrow, name_mapping)
    return {
        each.field_id: each.leaves[0]
        for each in fields
        if each.field_id in {ROW_ID_FIELD, _LAST_UPDATED_FIELD}
    }


_SMALL = 8192
"""Most rows of a file whose ids are cached."""
_STEP = 1024 * 1024
"""Rows that are examined at a time."""
