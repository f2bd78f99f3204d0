"""Reads data files one after the other for one request: which row groups, columns and rows.

Strategy: there are two lots of columns. Those of the filter are read first and give a mask. The
others are read only from row groups in which a row matches, and decoded only for the matching rows.
Without a filter there is only the second lot.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema

from sparkport.catalog.filters import ROWID
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.databases import Check
from sparkport.engine.filters import Evaluator
from sparkport.spark.iceberg.conditions import Condition
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.deletes import deleted_positions
from sparkport.spark.iceberg.file_reader import FileReader, without_columns
from sparkport.spark.iceberg.lots import Lot, ReadColumn
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.pruning import condition_of, prunable_columns
from sparkport.spark.iceberg.types.declared import needs_decoding

if TYPE_CHECKING:
    from sparkport.spark.iceberg.read import ReadRequest

__all__ = ["PartReader"]


class PartReader:
    """Reads parts for one request. For one thread."""

    def __init__(
        self, request: ReadRequest, check: Check | None = None, *, use_threads: bool = False
    ) -> None:
        """`check` ends the evaluation of the filter by raising. Another thread calls it."""
        self._properties = request.properties
        self.name_mapping = request.name_mapping
        self.batch_rows = request.batch_rows
        self.use_threads = use_threads
        stored = {
            each.field_id: each for each in Schema.model_validate_json(request.schema_json).fields
        }
        columns = {
            declared.name: ReadColumn(
                stored[field_id], declared, needs_decoding(stored[field_id].field_type, declared)
            )
            for field_id, declared in zip(request.field_ids, request.columns, strict=True)
        }
        self.filtered = Lot((), False)
        self.evaluator: Evaluator | None = None
        self.matches_nothing = False
        self.condition: Condition | None = None
        if request.filter is not None:
            kinds = {field_id: stored[field_id].field_type for field_id in request.field_ids}
            self.condition = condition_of(
                request.filter,
                prunable_columns(
                    request.columns, request.field_ids, kinds, has_row_ids=request.has_row_ids
                ),
            )
            names = request.filter.columns
            lot = Lot(
                tuple(column for name, column in columns.items() if name in names),
                request.has_row_ids and ROWID in names,
            )
            evaluator = Evaluator(
                request.filter, lot.arrow_schema, ROWID_NAME if lot.has_row_id else None, check
            )
            if evaluator.conditions and lot:
                self.evaluator, self.filtered = evaluator, lot
            elif evaluator.conditions:
                # A filter without columns gives the same for all rows. It is evaluated once here,
                # because a batch without columns cannot say how many rows it has.
                mask = evaluator.mask(without_columns(1))
                self.matches_nothing = mask is not None and not mask.true_count
        wanted = Lot(tuple(columns[name] for name in request.wanted), request.wants_row_id)
        self.rest = Lot(
            tuple(column for column in wanted.columns if column not in self.filtered.columns),
            wanted.has_row_id and not self.filtered.has_row_id,
        )
        self.arrow_schema = wanted.arrow_schema

    def read(self, part: FilePart) -> Generator[pa.RecordBatch | None, None, None]:
        """The rows of a part; None where nothing matched, so that the caller can stop.

        Raises: OSError, ValueError, ArrowException for files that are missing or damaged.
        """
        if self.matches_nothing:
            return
        deleted = deleted_positions(part, self._properties)
        if self._needs_file(part):
            with DataFile(part.path, self._properties, part.size) as file:
                yield from FileReader(self, part, deleted, file).read()
        else:
            yield from FileReader(self, part, deleted, None).read()

    def read_at(
        self, part: FilePart, positions: pa.Array
    ) -> Generator[pa.RecordBatch | None, None, None]:
        """The rows at ascending positions of a whole file, deleted or not.

        The request has no filter. Raises: OSError, ValueError, ArrowException for files that are
        missing or damaged.
        """
        if self._needs_file(part):
            with DataFile(part.path, self._properties, part.size) as file:
                yield from FileReader(self, part, None, file).read_at(positions)
        else:
            yield from FileReader(self, part, None, None).read_at(positions)

    def _needs_file(self, part: FilePart) -> bool:
        """Whether the file must be opened: row counts and row ids by position do without."""
        if self.filtered.columns or self.rest.columns or part.row_groups is not None:
            return True
        return part.may_hold_row_ids and (self.filtered.has_row_id or self.rest.has_row_id)
