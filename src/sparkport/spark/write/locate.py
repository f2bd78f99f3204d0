"""Where rows are, by their ids: in which data files, at which positions.

Strategy: in most files the ids follow from positions, so a range of ids is a range of rows, and no
file is opened. Rows that are not found this way were rewritten. They are looked for in files that
hold a column of ids, and only that column is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sparkport.errors import Unsupported
from sparkport.spark.iceberg.bounds import bounds_of_row_ids
from sparkport.spark.iceberg.deletes import deleted_bitmap
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import DataFile, plan_rows
from sparkport.spark.iceberg.positions import array_of, between, bitmap_of, numbers_of
from sparkport.spark.iceberg.read import file_errors
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Located, Location
from sparkport.spark.write.reserved_columns import LAST_UPDATED_FIELD, ReservedColumns

__all__ = ["changed_since", "divided", "locate", "positions_in", "same_snapshot"]


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
    search = _Search(row_ids, ReservedColumns(state, properties))
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
        return _in_column(ReservedColumns(state, properties), part, row_ids)


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
    columns = ReservedColumns(state, properties)
    ids, numbers = [], []
    with file_errors(str(state.identifier)):
        for each in located:
            own = columns.at(each.part, LAST_UPDATED_FIELD, each.positions)
            ids.append(each.row_ids)
            # A row without a number of its own has that of the commit that added the file.
            numbers.append(own.fill_null(each.sequence_number))
    every = _together(ids)
    order = pc.array_sort_indices(every)
    return every.take(order), _together(numbers).take(order)


class _Search:
    """Looks for rows, file by file."""

    def __init__(self, row_ids: pa.Array, columns: ReservedColumns) -> None:
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


def _in_column(
    columns: ReservedColumns, part: FilePart, ids: pa.Array
) -> tuple[pa.Array, pa.Array]:
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
