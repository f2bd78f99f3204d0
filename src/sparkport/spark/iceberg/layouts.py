"""How local data files are laid out: what must be known of a file before DuckDB may read it.

Files of one layout have the same columns, so that they are read together. The layout of a file is
remembered, because data files never change. Layouts are few, so they are compared by identity.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg.locations import is_pattern, local_path, open_parquet
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.projection import FileField, file_fields

__all__ = ["Layout", "layout_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The columns of a file, and which of them DuckDB reads just as Arrow does."""

    fields: tuple[FileField, ...]
    names: tuple[str, ...]
    plain: tuple[bool, ...]
    """Whether DuckDB reads a field into the Arrow type and the values that Arrow reads."""


def layout_of(part: FilePart, name_mapping: str | None) -> Layout | None:
    """The layout of a file; None where only Arrow should read it.

    Raises: OSError, ValueError, ArrowException for files that are missing or damaged.
    """
    path = local_path(part.path)
    if path is None or is_pattern(path):
        return None
    key = part.path, part.size, name_mapping
    known = _layouts.find(key, _UNKNOWN)
    if not isinstance(known, _Unknown):
        return known
    with open_parquet(part.path, {}, part.size) as file:
        return _layouts.add(key, _layout(file, name_mapping))


def _layout(file: pq.ParquetFile, name_mapping: str | None) -> Layout | None:
    metadata = file.metadata
    if not _TRUSTED.match(metadata.created_by or ""):
        return None
    # All that follows is found from these. The first line names an object in memory.
    _, _, columns = str(metadata.schema).partition("\n")
    key = columns, (metadata.metadata or {}).get(b"ARROW:schema"), name_mapping
    with _lock:
        if key not in _interned:
            if len(_interned) >= _MOST_LAYOUTS:
                _interned.clear()
            _interned[key] = _new_layout(file, name_mapping)
        return _interned[key]


def _new_layout(file: pq.ParquetFile, name_mapping: str | None) -> Layout | None:
    names = tuple(file.schema_arrow.names)
    if len({name.lower() for name in names} | _VIRTUAL) < len(names) + len(_VIRTUAL):
        return None  # DuckDB does not tell names by their case, and has some of its own
    fields = file_fields(file.schema_arrow, name_mapping)
    plain = tuple(
        not field.children
        and _reads_alike(field.type, file.metadata.schema.column(field.leaves[0]))
        for field in fields
    )
    return Layout(fields, names, plain)


def _reads_alike(kind: pa.DataType, column: pq.ColumnSchema) -> bool:
    if column.physical_type == "INT96" or column.logical_type.type not in _LOGICAL:
        return False
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us" and kind.tz in {None, "UTC"})
    return kind in _TYPES or bool(pa.types.is_decimal128(kind))


_TYPES = frozenset(
    {
        *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32()),
    }
)
_LOGICAL = frozenset({"NONE", "INT", "STRING", "DATE", "TIMESTAMP", "DECIMAL"})
_VIRTUAL = frozenset({"file_row_number", "file_index", "filename"})
_TRUSTED = re.compile(
    r"parquet-cpp-arrow version|parquet-mr version 1\.[1-9]\d|DuckDB version|parquet-rs version"
)
"""Writers whose bounds are ordered as DuckDB thinks. It also believes those of older ones, which
ordered text by signed bytes.
"""


class _Unknown:
    """Stands for a layout that is not remembered."""


_UNKNOWN = _Unknown()
_MOST_LAYOUTS = 1000
_interned: dict[tuple[str, bytes | None, str | None], Layout | None] = {}
_lock = threading.Lock()
_layouts: Cache[tuple[str, int, str | None], Layout | None] = Cache(100_000)
