"""The rows in which two states of a table differ, by their row ids.

Strategy: files that both states have, with the same delete vectors, hold no difference and are not
opened. In the other files, the ids show which rows are only in one state. A row that is in both,
but not in the same place, was updated, or only moved, as compaction does.
`_last_updated_sequence_number` shows whether it was written since; if so, its values are compared.
So only what changed is read, and rows that were written are read twice.

Memory: ids are kept in bitmaps, which take little space where ids are close together. In addition,
each row that was written takes 16 bytes, twice. Rows stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from sparkport.catalog.rowid import ROWID_NAME
from sparkport.errors import PreconditionFailed, Unsupported
from sparkport.spark.functions.row_hashes import RowHashes
from sparkport.spark.iceberg.deletes import deleted_bitmap
from sparkport.spark.iceberg.locations import open_parquet
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD, read_manifest, read_manifest_list
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.positions import array_of, bitmap_of
from sparkport.spark.iceberg.projection import file_fields
from sparkport.spark.iceberg.read import (
    ReadRequest,
    as_stored,
    file_errors,
    read_parts,
    read_positions,
    read_request,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.history import ancestors_of

__all__ = ["ChangedRows"]

_LAST_UPDATED_FIELD = 2147483539
"""The reserved field id of `_last_updated_sequence_number`, where a file holds it."""
_STEP = 1_048_576
"""Rows whose sequence numbers are read at a time."""


@dataclass(slots=True, eq=False)
class _Piece:
    """Rows of a data file that are in this place in only one of the states."""

    part: FilePart
    positions: BitMap64 | None
    """Positions of the rows in the file; None for all that are not deleted."""
    ids: BitMap64
    """The ids of those rows, once they have been read."""


class ChangedRows:
    """Compares two states of a table; for one thread.

    `metadata` are the present ones, which know how the states are related. `later` is the state
    whose columns are shown. All methods raise: Unsupported where only Spark can read the files;
    PreconditionFailed when a file is missing or damaged, or is older than the table's row ids; what
    `check` raises.
    """

    def __init__(
        self,
        before: TableState,
        after: TableState,
        later: TableState,
        metadata: TableMetadata,
        properties: Mapping[str, str],
        check: Callable[[], None],
    ) -> None:
        self._before, self._after, self._later, self._metadata = before, after, later, metadata
        self._properties = properties
        self._check = check
        self._table = str(later.identifier)
        self._gone, self._come = self._pieces()
        self._both = BitMap64()
        self._unchanged = BitMap64()
        if self._gone and self._come:
            self._compare()

    @property
    def rows(self) -> int:
        """An upper bound of the number of rows that are read."""
        return sum(
            piece.part.rows if piece.positions is None else len(piece.positions)
            for piece in self._all
        )

    @property
    def _all(self) -> list[_Piece]:
        return [*self._gone, *self._come]

    def read(
        self, columns: Sequence[str], batch_rows: int
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield batches of the columns and `rowid`, and for each row what has happened to it."""
        request = self._request([*columns, ROWID_NAME], batch_rows)
        for pieces, alone, updated in (
            (self._gone, "delete", "update_before"),
            (self._come, "insert", "update_after"),
        ):
            for piece in pieces:
                if self._unchanged and piece.ids <= self._unchanged:
                    continue
                for batch in self._rows_of(request, piece):
                    ids = batch.column(batch.num_columns - 1)
                    dropped = _members(ids, self._unchanged)
                    if dropped is not None:
                        batch, ids = (
                            batch.filter(pc.invert(dropped)),
                            ids.filter(pc.invert(dropped)),
                        )
                    if batch.num_rows:
                        yield (
                            batch,
                            _kinds(_members(ids, self._both), alone, updated, batch.num_rows),
                        )

    # ----------------------------------------------------------------------- where they may differ

    def _pieces(self) -> tuple[list[_Piece], list[_Piece]]:
        """Rows that only the first state has in their place, and those that only the second has."""
        old, new = self._parts(self._before), self._parts(self._after)
        gone = [_Piece(part, None, BitMap64()) for path, part in old.items() if path not in new]
        come = [_Piece(part, None, BitMap64()) for path, part in new.items() if path not in old]
        for path, part in old.items():
            now = new.get(path)
            if now is None or (part.vector, part.position_deletes) == (
                now.vector,
                now.position_deletes,
            ):
                continue
            self._check()
            with file_errors(self._table):
                deleted, deleted_now = (
                    deleted_bitmap(each, self._properties) for each in (part, now)
                )
            # For a file older than the table's row ids, only the later state has the ids.
            first = part.first_row_id if now.first_row_id is None else now.first_row_id
            whole = replace(part, vector=None, position_deletes=(), first_row_id=first)
            if deleted_now - deleted:
                gone.append(_Piece(whole, deleted_now - deleted, BitMap64()))
            if deleted - deleted_now:
                come.append(_Piece(whole, deleted - deleted_now, BitMap64()))
        return gone, come

    def _parts(self, state: TableState) -> dict[str, FilePart]:
        plan = plan_scan(state, None, None)
        if not plan.readable:
            raise Unsupported(
                f"the changed rows of table {self._table} cannot be found: only Spark can read its "
                "files; compare the versions with spark_sql('SELECT … VERSION AS OF …')"
            )
        return {part.path: part for part in plan.parts}

    def _request(self, columns: Sequence[str], batch_rows: int) -> ReadRequest:
        return read_request(
            self._later, columns, batch_rows=batch_rows, properties=self._properties
        )

    def _rows_of(self, request: ReadRequest, piece: _Piece) -> Iterator[pa.RecordBatch]:
        if piece.positions is None:
            batches = read_parts(request, [piece.part], self._check, use_threads=True)
        else:
            places = [(piece.part, array_of(piece.positions))]
            batches = read_positions(request, places, self._check, use_threads=True)
        for batch in batches:
            if batch.column(batch.num_columns - 1).null_count:
                raise PreconditionFailed(
                    f"one of the versions is from before table {self._table} had row ids, by which "
                    "rows are compared"
                )
            yield batch

    # ----------------------------------------------------------------------------- whether they do

    def _compare(self) -> None:
        """Find the rows that both states have, and those among them that are equal in both."""
        request = self._request([ROWID_NAME], _STEP)
        for piece in self._all:
            for batch in self._rows_of(request, piece):
                piece.ids |= bitmap_of(batch.column(0))
        self._both = _union(self._gone) & _union(self._come)
        touched = self._touched() if self._both else BitMap64()
        differing = self._differing(touched) if touched else BitMap64()
        self._unchanged = self._both - differing

    def _touched(self) -> BitMap64:
        """Rows of both states that were written since the states had the same past."""
        snapshots = [
            None if state.snapshot is None else state.snapshot.snapshot_id
            for state in (self._before, self._after)
        ]
        pasts = [ancestors_of(self._metadata, each) for each in snapshots]
        common = next((each for each in pasts[1] if each in set(pasts[0])), None)
        if common is None:
            return self._both  # nothing proves that any row is equal
        found = BitMap64()
        for state, pieces, snapshot in zip(
            (self._before, self._after), (self._gone, self._come), snapshots, strict=True
        ):
            if snapshot != common:  # it has younger rows
                limit = self._metadata.snapshot_by_id(common)
                assert limit is not None
                found |= self._written_after(state, pieces, limit.sequence_number or 0)
        return found & self._both

    def _written_after(self, state: TableState, pieces: Sequence[_Piece], limit: int) -> BitMap64:
        """Ids of rows that a later commit wrote; deleted rows may be among them."""
        concerned = [piece for piece in pieces if piece.ids & self._both]
        numbers = _sequence_numbers(state, {piece.part.path for piece in concerned})
        mapping = state.metadata.properties.get("schema.name-mapping.default")
        found = BitMap64()
        for piece in concerned:
            with file_errors(self._table), open_parquet(piece.part.path, self._properties) as file:
                of_file = numbers[piece.part.path]
                leaves = {
                    each.field_id: each.leaves[0]
                    for each in file_fields(file.schema_arrow, mapping)
                }
                if _LAST_UPDATED_FIELD in leaves:
                    for ids, own in self._numbers(file, piece.part, leaves):
                        found |= bitmap_of(
                            ids.filter(pc.greater(pc.fill_null(own, of_file), limit))
                        )
                elif of_file > limit:
                    found |= piece.ids
        return found

    def _numbers(
        self, file: pq.ParquetFile, part: FilePart, leaves: Mapping[int | None, int]
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Ids of a file's rows, and the numbers of the commits that wrote their values.

        NULL stands for the number of the file.
        """
        wanted = sorted(
            leaves[each] for each in (ROW_ID_FIELD, _LAST_UPDATED_FIELD) if each in leaves
        )
        groups = list(range(file.metadata.num_row_groups))
        start = 0
        for batch in file.reader.iter_batches(
            _STEP, row_groups=groups, column_indices=wanted, use_threads=False
        ):
            self._check()
            columns = dict(zip(wanted, batch.columns, strict=True))
            ids = columns.get(leaves.get(ROW_ID_FIELD, -1), pa.nulls(batch.num_rows, pa.int64()))
            if ids.null_count and part.first_row_id is not None:
                first = part.first_row_id + start
                ids = pc.coalesce(ids, pa.arange(first, first + batch.num_rows))
            start += batch.num_rows
            yield ids, columns[leaves[_LAST_UPDATED_FIELD]]

    def _differing(self, touched: BitMap64) -> BitMap64:
        """Rows of `touched` whose values, in the columns that are shown, differ."""
        columns = self._later.definition.columns.names
        request = as_stored(self._request([*columns, ROWID_NAME], 131_072), self._later)
        with RowHashes(len(columns)) as hashes:
            for side, pieces in enumerate((self._gone, self._come)):
                for piece in pieces:
                    if not piece.ids & touched:
                        continue
                    for batch in self._rows_of(request, piece):
                        mask = _members(batch.column(len(columns)), touched)
                        if mask is not None:
                            hashes.add(side, batch.filter(mask))
            return bitmap_of(hashes.differing())


def _union(pieces: Sequence[_Piece]) -> BitMap64:
    found = BitMap64()
    for piece in pieces:
        found |= piece.ids
    return found


def _members(ids: pa.Array, wanted: BitMap64) -> pa.BooleanArray | None:
    """A mask of the ids that are wanted; None if there are none."""
    own = bitmap_of(ids) & wanted if wanted else None
    if not own:
        return None
    return (
        pa.repeat(True, len(ids))
        if len(own) == len(ids)
        else pc.is_in(ids, value_set=array_of(own))
    )


def _kinds(updates: pa.BooleanArray | None, alone: str, updated: str, rows: int) -> pa.Array:
    return pa.repeat(alone, rows) if updates is None else pc.if_else(updates, updated, alone)


def _sequence_numbers(state: TableState, paths: set[str]) -> dict[str, int]:
    """For each file, the number of the commit that added it."""
    assert state.io is not None
    assert state.snapshot is not None
    return {
        entry.path: entry.sequence_number
        for manifest in read_manifest_list(state.io, state.snapshot.manifest_list)
        if not manifest.holds_deletes
        for entry in read_manifest(state.io, manifest)
        if entry.path in paths
    }
