"""An Iceberg table of the lake."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparkport.catalog import (
    AddColumnOptions,
    AddFieldOptions,
    ColumnStatistics,
    ConstrainedTable,
    Constraints,
    Context,
    Directly,
    DirectTable,
    DMLOptions,
    DynamicSchemaTable,
    DynamicTable,
    FramedTable,
    Framing,
    Operation,
    RecordReader,
    RemoveColumnOptions,
    RemoveFieldOptions,
    ScanOptions,
    SchemaRequest,
    StagedTable,
    StagedWrite,
    StatisticsTable,
    TimePoint,
)
from sparkport.spark.ddl import alter as ddl
from sparkport.spark.ddl import fields as columns
from sparkport.spark.ddl import retype
from sparkport.spark.iceberg.column_statistics import column_statistics
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.history import state_at
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan import routes
from sparkport.spark.scan.routes import FramedReader
from sparkport.spark.write import statements

__all__ = ["LakeTable"]


class LakeTable(
    StagedTable,
    FramedTable,
    DirectTable,
    DynamicSchemaTable,
    DynamicTable,
    ConstrainedTable,
    StatisticsTable,
):
    """A table as a request sees it: `state` is what its transaction reads."""

    def __init__(self, lake: Lake, state: TableState) -> None:
        self._lake = lake
        self.state = state

    @property
    def identifier(self) -> Identifier:
        return self.state.identifier

    @property
    def name(self) -> str:
        return self.state.identifier.name

    @property
    def comment(self) -> str:
        return self.state.definition.comment

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.state.definition.arrow_schema

    @property
    def constraints(self) -> Constraints:
        return self.state.definition.constraints

    # Reading.

    def schema_for_request(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        return self._at(ctx, request.time_point).definition.arrow_schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        return routes.read(self._lake, ctx, self._at(ctx, options.time_point), options)

    def scan_framed(self, ctx: Context, options: ScanOptions, framing: Framing) -> FramedReader:
        return routes.read_framed(
            self._lake, ctx, self._at(ctx, options.time_point), options, framing
        )

    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        streams = routes.partitions(self._lake, ctx, self._at(ctx, options.time_point), options)
        self._lake.transactions.plans(ctx.transaction_id, len(streams))
        return streams

    def directly(self, ctx: Context, options: ScanOptions) -> Directly | None:
        return routes.directly(self._lake, ctx, self._at(ctx, options.time_point), options)

    def as_planned(self, ctx: Context, partition: bytes) -> LakeTable:
        state = routes.planned_state(self._lake, self.state, partition)
        return self if state is self.state else LakeTable(self._lake, state)

    def estimated_rows(self, ctx: Context, options: ScanOptions) -> int | None:
        return routes.estimated_rows(self._at(ctx, options.time_point))

    @property
    def offers_statistics(self) -> bool:
        settings = self._lake.settings
        return (
            settings.statistics
            and (routes.estimated_rows(self.state) or 0) >= settings.statistics_rows
        )

    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        if not self._lake.transactions.is_active(ctx.transaction_id):
            return None  # the scan that follows may read other rows
        return column_statistics(self.state, column)

    def _at(self, ctx: Context, point: TimePoint | None) -> TableState:
        if point is None or point.is_latest:
            return self.state
        then = state_at(self._lake, self._lake.current(self.identifier), point, ctx.check)
        self._lake.transactions.travels(ctx.transaction_id, then)
        return then

    # Changing rows.

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        return statements.stage(self._lake, ctx, self.state, operation, options)

    # Changing the columns.

    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        ddl.add_column(self._lake, ctx, self.identifier, column_schema, options)

    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        ddl.remove_column(self._lake, self.identifier, name, options)

    def rename_column(self, ctx: Context, old_name: str, new_name: str) -> None:
        ddl.rename_column(self._lake, self.identifier, old_name, new_name)

    def set_default(self, ctx: Context, column: str, expression: str) -> None:
        ddl.set_default(self._lake, self.identifier, column, expression)

    def set_not_null(self, ctx: Context, column: str) -> None:
        ddl.set_not_null(self._lake, ctx, self.identifier, column)

    def drop_not_null(self, ctx: Context, column: str) -> None:
        ddl.drop_not_null(self._lake, self.identifier, column)

    def change_column_type(self, ctx: Context, column_schema: pa.Schema, expression: str) -> None:
        retype.change_column_type(self._lake, ctx, self.identifier, column_schema, expression)

    def add_constraint(self, ctx: Context, constraint: str) -> None:
        ddl.add_constraint(self._lake, ctx, self.identifier, constraint)

    def add_field(
        self, ctx: Context, path: Sequence[str], column_schema: pa.Schema, options: AddFieldOptions
    ) -> None:
        columns.add_field(self._lake, self.identifier, path, column_schema, options)

    def remove_field(self, ctx: Context, path: Sequence[str], options: RemoveFieldOptions) -> None:
        columns.remove_field(self._lake, self.identifier, path, options)

    def rename_field(self, ctx: Context, path: Sequence[str], new_name: str) -> None:
        columns.rename_field(self._lake, self.identifier, path, new_name)
