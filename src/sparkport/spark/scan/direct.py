"""Files that DuckDB may read by itself (route 4).

This is for clients that can reach the storage, where the administrator allows it. Only files
qualify whose plain read gives exactly the table's rows. DuckDB matches columns by name and type
(airport §5.8), so the file must have every wanted column under its present name, and in the type
that is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
from pyarrow import lib
from pyiceberg.types import NestedField

from sparkport.catalog import FunctionCall
from sparkport.spark.iceberg.data_format import FIELD_ID
from sparkport.spark.iceberg.locations import is_pattern, local_path, open_parquet
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.storage import scheme_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import needs_decoding

__all__ = ["direct_calls", "qualifies"]

_ALIKE = frozenset(
    {
        *(lib.Type_BOOL, lib.Type_INT32, lib.Type_INT64, lib.Type_FLOAT, lib.Type_DOUBLE),
        *(
            lib.Type_STRING,
            lib.Type_BINARY,
            lib.Type_DATE32,
            lib.Type_TIMESTAMP,
            lib.Type_DECIMAL128,
        ),
    }
)
"""Types that DuckDB reads from Parquet just as it gets them from us."""

_READ_BY_DUCKDB = frozenset({"", "file", "s3", "s3a", "s3n", "gs", "gcs", "abfss"})
"""Schemes that DuckDB knows, with its extensions httpfs and azure."""


def qualifies(
    state: TableState, part: FilePart, names: Sequence[str], properties: Mapping[str, str]
) -> bool:
    """Whether a plain read of the file gives the rows of a part, in the wanted columns."""
    if (
        part.vector is not None
        or part.position_deletes
        or part.row_groups is not None
        or is_pattern(part.path)
        or scheme_of(part.path) not in _READ_BY_DUCKDB
    ):
        return False
    definition = state.definition
    try:
        held = _held(part.path, tuple(sorted(properties.items())))
    except (OSError, pa.ArrowException):
        return False  # the reader will report what is wrong with it
    for name in names:
        position = definition.position(name)
        if position is None or not _alike(
            state.schema.fields[position], definition.columns.field(position), part, held
        ):
            return False
    return True


def _alike(
    column: NestedField,
    declared: pa.Field,
    part: FilePart,
    held: Mapping[str, tuple[int, pa.DataType]],
) -> bool:
    if declared.type.id not in _ALIKE or needs_decoding(column.field_type, declared):
        return False
    found = held.get(declared.name)
    if found is not None:
        return found[0] == column.field_id and _same(found[1], declared.type)
    # DuckDB reads NULLs where a file lacks the column. So the file must not have it under another
    # name, nor the column a default or a partition value.
    if column.initial_default is not None or any(
        field_id == column.field_id for field_id, _ in part.partition
    ):
        return False
    return all(field_id != column.field_id for field_id, _ in held.values())


def _same(held: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_timestamp(held) and pa.types.is_timestamp(declared):
        return held.unit == declared.unit and (held.tz is None) == (declared.tz is None)
    return bool(held == declared)


@lru_cache(maxsize=10_000)
def _held(path: str, properties: tuple[tuple[str, str], ...]) -> dict[str, tuple[int, pa.DataType]]:
    """The columns of a file by name, with Iceberg's ids. Cached, because files never change."""
    with open_parquet(path, dict(properties)) as file:
        return {
            field.name: (int((field.metadata or {}).get(FIELD_ID, b"-1")), field.type)
            for field in file.schema_arrow
        }


def direct_calls(parts: Sequence[FilePart], groups: int) -> list[FunctionCall]:
    """What DuckDB is to read: the files in a few groups of about the same size, a call for each."""
    found: list[list[str]] = [[] for _ in range(max(1, groups))]
    sizes = [0] * len(found)
    for part in sorted(parts, key=lambda part: (-part.bytes, part.path)):
        smallest = sizes.index(min(sizes))
        found[smallest].append(local_path(part.path) or part.path)
        sizes[smallest] += part.bytes
    # Files may differ in columns that are not wanted, and lack some that are. Names of folders are
    # ignored: DuckDB would take `day=null` for a value of the column.
    options = {"union_by_name": True, "hive_partitioning": False}
    return [FunctionCall("read_parquet", (group,), options) for group in found if group]
