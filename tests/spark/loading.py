"""Tables of the lake with given rows: created by the lake, filled by Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkport.catalog import Context, CreateTableOptions
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.types.declared import encode

__all__ = ["load"]


def load(lake: LakeCatalog, namespace: str, name: str, rows: pa.Table, folder: Path) -> None:
    """Create a table with the columns of `rows`, and insert them."""
    ctx = Context()
    schema = lake.schema(ctx, namespace)
    assert schema is not None
    state = schema.create_table(ctx, name, rows.schema, CreateTableOptions()).state  # type: ignore[attr-defined]
    columns = [
        encode(rows.column(field.name).combine_chunks(), declared, field.field_type)
        for field, declared in zip(state.schema.fields, state.definition.columns, strict=True)
    ]
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(columns, names=rows.column_names), path)
    lake.spark.read.parquet(str(path)).writeTo(state.identifier.sql).append()
