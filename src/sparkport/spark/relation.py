"""Views, and tables of other formats than Iceberg, which only Spark can read and write."""

from __future__ import annotations

import pyarrow as pa

from sparkport.catalog import (
    Context,
    DMLOptions,
    FramedTable,
    Framing,
    Operation,
    RecordReader,
    ScanOptions,
    StagedTable,
    StagedWrite,
    UnalterableTable,
)
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.other_formats import why_fixed
from sparkport.spark.scan.relation_scan import is_row_id, read_relation, read_relation_framed
from sparkport.spark.scan.routes import FramedReader
from sparkport.spark.write.relation_inserts import stage_insert

__all__ = ["RelationTable"]


class RelationTable(StagedTable, FramedTable, UnalterableTable):
    """A view or a table of any format, read by Spark. Rows can be added to tables."""

    def __init__(self, lake: Lake, entry: CatalogEntry, comment: str = "") -> None:
        self._lake = lake
        self.entry = entry
        self._comment = comment

    @property
    def name(self) -> str:
        return self.entry.identifier.name

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._lake.relation_schema(self.entry)

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        columns = self.arrow_schema
        names = (
            tuple(columns.names)
            if options.columns is None
            else options.columns or (columns.names[-1],)  # the row id, which costs nothing
        )
        return read_relation(self._lake, ctx, self.entry.identifier, columns, names, options.filter)

    def scan_framed(self, ctx: Context, options: ScanOptions, framing: Framing) -> FramedReader:
        columns, row_filter = self.arrow_schema, options.filter
        return read_relation_framed(
            self._lake, ctx, self.entry.identifier, columns, row_filter, framing
        )

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        columns = pa.schema([field for field in self.arrow_schema if not is_row_id(field)])
        return stage_insert(self._lake, ctx, self.entry, columns, operation, options)

    def why_unalterable(self, ctx: Context) -> str:
        return why_fixed(self._lake, self.entry)
