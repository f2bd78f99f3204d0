"""Reads some rows of a file by their positions.

DuckDB skips the pages that hold none of them, which Arrow cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import lib

from sparkport.catalog.names import folded
from sparkport.engine.databases import FILES
from sparkport.spark.iceberg.locations import is_pattern, local_path

__all__ = ["MOST_ROWS", "rows_at", "rows_between"]

_log = logging.getLogger(__name__)

MOST_ROWS = 64
"""With more rows than this, most pages hold one of them."""
_ALIKE = frozenset(
    {
        *(lib.Type_BOOL, lib.Type_INT32, lib.Type_INT64, lib.Type_FLOAT, lib.Type_DOUBLE),
        *(lib.Type_STRING, lib.Type_BINARY, lib.Type_DATE32, lib.Type_DECIMAL128),
    }
)
"""Types for which DuckDB gives the same Arrow values. Timestamps without a time zone do, too."""


def rows_at(
    path: str, file_schema: pa.Schema, wanted: Sequence[int], positions: Sequence[int]
) -> pa.RecordBatch | None:
    """Top-level fields of a local Parquet file at ascending positions, as Arrow would read them.

    None where Arrow must read them.
    """
    return _rows_where(
        path, file_schema, wanted, f"IN ({', '.join(map(str, positions))})", len(positions)
    )


def rows_between(
    path: str, file_schema: pa.Schema, wanted: Sequence[int], first: int, last: int
) -> pa.RecordBatch | None:
    """Top-level fields of a local Parquet file from position `first` to `last`, both included.

    None where Arrow must read them.
    """
    return _rows_where(path, file_schema, wanted, f"BETWEEN {first} AND {last}", last - first + 1)


def _rows_where(
    path: str, file_schema: pa.Schema, wanted: Sequence[int], condition: str, count: int
) -> pa.RecordBatch | None:
    local = local_path(path)
    fields = [file_schema.field(index) for index in wanted]
    distinct = {folded(name) for name in file_schema.names}
    if local is None or is_pattern(local) or len(distinct) < len(file_schema):
        return None
    if not fields or not all(_is_alike(field.type) for field in fields):
        return None
    columns = ", ".join('"' + field.name.replace('"', '""') + '"' for field in fields)
    query = (
        f"SELECT {columns} FROM read_parquet({_text(local)}, file_row_number = true, "
        f"hive_partitioning = false)"
        f" WHERE file_row_number {condition} ORDER BY file_row_number"
    )
    try:
        with FILES.session() as cursor:
            found = cursor.sql(query).to_arrow_table().cast(pa.schema(fields)).combine_chunks()
    except Exception:  # noqa: BLE001 - then Arrow reads them, and says what is wrong
        _log.debug("rows not read by DuckDB", exc_info=True)
        return None
    return found.to_batches()[0] if found.num_rows == count else None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _is_alike(data_type: pa.DataType) -> bool:
    plain_timestamp = (
        pa.types.is_timestamp(data_type) and data_type.unit == "us" and data_type.tz is None
    )
    return data_type.id in _ALIKE or bool(plain_timestamp)
