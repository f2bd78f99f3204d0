"""Statements on a lake in an object store, servers that die there, and what is in the store."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.spark.lake_tables import find

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.write.data_files import DataFileWriter
from sparkport.spark.write.sweep import sweep

__all__ = ["Server", "add", "delete", "objects", "rows_for", "sweep_now"]


def objects(source: LakeSource, inside: str = "") -> list[str]:
    """The names of all objects, without leases: the server renews its own at any time."""
    storage = storage_at(source.warehouse, source.options)
    return [
        each
        for each in storage.files_below(source.warehouse)
        if inside in each and "/lease-" not in each
    ]


def rows_for(table: Any, *ids: int) -> pa.RecordBatch:
    values = {"id": ids, "v": [10] * len(ids), "name": ["a"] * len(ids)}
    return pa.record_batch(values, schema=pa.schema(list(table.arrow_schema)[:3]))


def add(lake: LakeCatalog, namespace: str, *ids: int) -> None:
    table = find(lake, namespace, "t")
    write = table.stage(Context(), Operation.INSERT, DMLOptions())
    write.apply(rows_for(table, *ids))
    write.commit()


def delete(table: Any, row_id: int) -> Any:
    write = table.stage(Context(), Operation.DELETE, DMLOptions())
    name = table.arrow_schema.names[-1]
    write.apply(pa.record_batch({name: pa.array([row_id], pa.int64())}))
    return write


class Server:
    """Another server on the lake, which can die: its lock is free, and it removes nothing."""

    def __init__(self, catalog: LakeCatalog) -> None:
        self._lake: Lake = catalog._lake
        before = self._lake.staging
        self.area = StagingArea(before.root, store=before.store)
        self.id = self.area.prefix()

    def write(self, table: Any) -> str:
        """Write a row, and return the location of its file."""
        state = table.state
        writer = DataFileWriter(state, self.area.begin(state.identifier, state))
        writer.write(pa.table({"id": [7]}))
        (file,) = writer.finish()
        return file.path

    def die(self) -> None:
        in_store = self.area._in_store
        assert in_store is not None
        assert in_store._lease is not None
        in_store._lease.end(is_kept=True)
        assert self.area._life is not None
        self.area._life.end()


def sweep_now(lake: LakeCatalog) -> None:
    sweep(lake._lake.staging.root, lake._lake)
