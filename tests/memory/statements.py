"""Statements as the service runs them, for tests of the memory backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import Context, DMLOptions, Operation, ScanOptions, StagedWrite, TimePoint
from sparkport.memory import MemoryCatalog, MemoryTable

CTX = Context()


def rows_of(
    table: MemoryTable, ctx: Context = CTX, *, version: int | None = None
) -> list[dict[str, Any]]:
    """All rows that this request sees, without their ids."""
    point = None if version is None else TimePoint("version", str(version))
    batches = list(table.scan(ctx, ScanOptions(time_point=point)))
    return [
        {k: v for k, v in row.items() if k != "rowid"}
        for batch in batches
        for row in batch.to_pylist()
    ]


def ids_of(table: MemoryTable, ctx: Context = CTX) -> list[int]:
    batches = table.scan(ctx, ScanOptions(columns=("rowid",)))
    return [row_id for batch in batches for row_id in batch.column("rowid").to_pylist()]


def typed(table: MemoryTable, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of some columns in the table's types; the row id may be among them."""
    names = list(rows[0])
    fields = pa.schema([table.arrow_schema.field(name) for name in names])
    return pa.RecordBatch.from_pylist(
        list(rows), schema=pa.schema([field.with_nullable(True) for field in fields])
    )


def staged(
    table: MemoryTable, operation: Operation, ctx: Context = CTX, *, returning: bool = False
) -> StagedWrite:
    return table.stage(ctx, operation, DMLOptions(returning=returning))


def insert(table: MemoryTable, rows: Sequence[dict[str, Any]], ctx: Context = CTX) -> int:
    return _run(table, Operation.INSERT, rows, ctx)


def update(table: MemoryTable, rows: Sequence[dict[str, Any]], ctx: Context = CTX) -> int:
    return _run(table, Operation.UPDATE, rows, ctx)


def delete(table: MemoryTable, row_ids: Sequence[int], ctx: Context = CTX) -> int:
    return _run(table, Operation.DELETE, [{"rowid": row_id} for row_id in row_ids], ctx)


def _run(
    table: MemoryTable, operation: Operation, rows: Sequence[dict[str, Any]], ctx: Context
) -> int:
    write = staged(table, operation, ctx)
    if rows:
        try:
            write.apply(typed(table, rows))
        except BaseException:
            write.abort()
            raise
    return write.commit()


def catalog_with(**tables: pa.Table) -> tuple[MemoryCatalog, dict[str, MemoryTable]]:
    """A catalog with a schema `s` that holds the given tables."""
    catalog = MemoryCatalog("memory")
    schema = catalog.add_schema("s")
    made = {name: MemoryTable(name, data) for name, data in tables.items()}
    for table in made.values():
        schema.add_table(table)
    return catalog, made
