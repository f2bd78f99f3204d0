"""The rows in which two versions of a table differ, as a table function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import Context, FunctionSignature, Parameter, ScanOptions
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.columns import DEFAULT
from sparkport.errors import Unsupported
from sparkport.spark.functions.changed_rows import ChangedRows
from sparkport.spark.functions.table_argument import FunctionOfTable, expect_point
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.result_columns import distinct_names
from sparkport.spark.lake.history import state_at

__all__ = ["TableChanges", "TableChangesSince"]

_CHANGE_TYPE, _ROW_ID = "_change_type", "_row_id"


class TableChanges(FunctionOfTable):
    """Rows that were inserted, deleted or updated between two versions.

    Each row comes once, whatever happened in between.
    """

    time_limit = None
    interruptible = False

    @property
    def name(self) -> str:
        return "table_changes"

    @property
    def comment(self) -> str:
        return (
            "The rows that differ between two versions of a table, each as AT takes it: number, "
            "snapshot id, tag; or a timestamp. _change_type is insert, delete, update_before or "
            "update_after, and _row_id tells which row it is. Without the second version: up to "
            "now."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                Parameter("from_version", None),
                Parameter("to_version", None),
            )
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        before, after, _ = self._versions(ctx, parameters)
        return _shown(_later(before, after))

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        before, after, now = self._versions(ctx, parameters)
        later = _later(before, after)
        shown, columns = _shown(later), later.definition.columns
        changed = ChangedRows(before, after, later, now.metadata, now.file_properties, ctx.check)
        wanted = (
            columns.names
            if options.columns is None
            else [each for each in columns.names if each in options.columns]
        )
        names = [*wanted, *shown.names[len(columns) :]]
        fields = pa.schema([shown.field(each) for each in names])
        done, expected = 0, max(1, changed.rows)
        for batch, kinds in changed.read(wanted, self._lake.settings.batch_rows):
            done += batch.num_rows
            ctx.report_progress(done / expected)
            values = [batch.column(each) for each in wanted]
            yield pa.RecordBatch.from_arrays(
                [*values, kinds, batch.column(ROWID_NAME)], schema=fields
            )

    def _versions(
        self, ctx: Context, parameters: Sequence[Any]
    ) -> tuple[TableState, TableState, TableState]:
        """Both versions, and the table as it is now.

        Raises: NotFound, BadRequest; Unsupported without row ids.
        """
        now = self._state(ctx, parameters)
        points = [expect_point(each, self.name) for each in parameters[1:]]
        before = state_at(self._lake, now, points[0], ctx.check)
        after = state_at(self._lake, now, points[1], ctx.check) if len(points) > 1 else now
        for state in (before, after):
            if not state.has_row_ids:
                raise Unsupported(
                    f"table {now.identifier} has no row ids at that version, and without them "
                    "nobody can tell an updated row from a new one: they come with Iceberg's "
                    "format version 3, unless a column is called rowid"
                )
        return before, after, now


class TableChangesSince(TableChanges):
    """Rows that were inserted, deleted or updated since a version."""

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("table", pa.string()), Parameter("from_version", None)))


def _shown(state: TableState) -> pa.Schema:
    columns = state.definition.columns
    kind, row_id = distinct_names([*columns.names, _CHANGE_TYPE, _ROW_ID])[len(columns) :]
    # A column that is NOT NULL now may be NULL in older rows.
    own = [field.with_nullable(True).with_metadata(_without_default(field)) for field in columns]
    return pa.schema([*own, pa.field(kind, pa.string()), pa.field(row_id, pa.int64())])


def _without_default(field: pa.Field) -> dict[bytes, bytes] | None:
    return {
        name: value for name, value in (field.metadata or {}).items() if name != DEFAULT
    } or None


def _later(before: TableState, after: TableState) -> TableState:
    """The state whose columns are shown: with them the files of both can be read."""

    old, new = (
        0 if each.snapshot is None else each.snapshot.sequence_number or 0
        for each in (before, after)
    )
    return before if old > new else after
