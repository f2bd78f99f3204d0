"""Rows that were deleted or updated while they were copied to other files.

Strategy: what others delete meanwhile is in the delete vectors of the old files. What is new there
is looked up in the new files by the ids of the rows, and is deleted there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyroaring import BitMap64

from sparkport.spark.care.rewritten_rows import row_ids_at
from sparkport.spark.iceberg.deletes import deleted_bitmap, read_vector
from sparkport.spark.iceberg.parts import DeleteVector
from sparkport.spark.iceberg.plan import DataFile, plan_files
from sparkport.spark.iceberg.positions import array_of, bitmap_of
from sparkport.spark.iceberg.read import file_errors
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Located, WrittenFile, part_of
from sparkport.spark.write.locate import positions_in

__all__ = ["CarriedDeletes", "GaveUp"]


class GaveUp(Exception):
    """The files cannot replace the old ones any more. The message says why."""


class CarriedDeletes:
    """What has been deleted of the new files' rows since they were read. For one thread."""

    def __init__(
        self, state: TableState, files: Sequence[DataFile], written: Sequence[WrittenFile]
    ) -> None:
        """`state` is what was read, `files` are its files that `written` shall replace."""
        self._state = state
        self._written = written
        self._vectors: dict[str, DeleteVector | None] = {
            each.part.path: each.part.vector for each in files
        }
        """The vector of each old file that is taken into account."""
        self._gone: dict[str, BitMap64] = {}
        """Deleted positions of new files, by path."""

    def catch_up(self, now: TableState) -> tuple[DataFile, ...]:
        """Take a later state of the table into account. Returns the old files as they are there.

        Raises: GaveUp when one is gone, or others have deleted rows by values; PreconditionFailed
        when files are missing or damaged.
        """
        present = plan_files(now, self._vectors.keys())
        if present is None or any(each.part.position_deletes for each in present):
            raise GaveUp("others have deleted rows in a way that only Spark understands")
        if len(present) != len(self._vectors):
            raise GaveUp("others have replaced some of the files")
        ids = [pa.array([], pa.int64())]
        for file in present:
            if file.part.vector != self._vectors[file.part.path]:
                ids.append(row_ids_at(now, file, self._new_deletes(now, file)))
                self._vectors[file.part.path] = file.part.vector
        wanted = bitmap_of(pa.concat_arrays(ids))
        if wanted:
            self._delete(wanted)
        return present

    def _new_deletes(self, now: TableState, file: DataFile) -> pa.Array:
        known = self._vectors[file.part.path]
        with file_errors(str(now.identifier)):
            deleted = deleted_bitmap(file.part, now.file_properties)
            if known is not None:
                before = read_vector(known, now.file_properties)
                if not before <= deleted:
                    # Which the new files lack: the table was rolled back.
                    raise GaveUp("others have brought back rows that were deleted")
                deleted -= before
        return array_of(deleted)

    def _delete(self, row_ids: BitMap64) -> None:
        wanted, found = array_of(row_ids), 0
        for file in self._written:
            properties = self._state.file_properties
            positions, _ = positions_in(self._state, part_of(file), wanted, properties)
            if len(positions):
                self._gone[file.path] = self._gone.get(file.path, BitMap64()) | bitmap_of(positions)
                found += len(positions)
        if found != len(row_ids):
            raise GaveUp("deleted rows are not found in the new files")

    def located(self) -> Iterator[Located]:
        """The deleted rows of the new files."""
        specs = self._state.metadata.specs()
        for file in self._written:
            if file.path in self._gone:
                positions = array_of(self._gone[file.path])
                fields = specs[file.spec_id].fields
                partition = {
                    field.field_id: value
                    for field, value in zip(fields, file.partition or (), strict=True)
                }
                yield Located(part_of(file), positions, positions, file.spec_id, partition)
