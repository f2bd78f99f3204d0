"""Where a table wants its data files to be, and how they are written."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.locations import (
    LocationProvider,
    ObjectStoreLocationProvider,
    SimpleLocationProvider,
)
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    LongType,
    MapType,
    NestedField,
    UnknownType,
)

from sparkport.engine.cache import Cache
from sparkport.errors import ConstraintViolation
from sparkport.spark.iceberg.data_format import (
    DATA_FORMAT,
    DATA_SUFFIX,
    FIELD_ID,
    wants_other_format,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import reachable, storage_at
from sparkport.spark.iceberg.metrics import described_columns, has_usual_metrics
from sparkport.spark.iceberg.parquet_output import (
    LAST_UPDATED,
    ROW_ID,
    ParquetOutput,
    ParquetStyle,
    file_schema,
    relabelled,
    style_of,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.iceberg.types.nested import fields_inside
from sparkport.spark.write.java_files import partition_values
from sparkport.spark.write.partitioning import Partitioning, Values, partitioning_of

__all__ = ["FileLayout", "layout_of"]

_ROW_IDS = tuple(
    NestedField(int(field.metadata[FIELD_ID]), field.name, LongType())
    for field in (ROW_ID, LAST_UPDATED)
)
_JAVA_ONLY = ("write.location-provider.impl", "encryption.key-id")
_FILE_BYTES = 512 * 1024 * 1024
_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of a row group in memory.

Three at a time of Iceberg's 128 MB would be too much for a server.
"""


@dataclass(frozen=True, slots=True, eq=False)
class FileLayout:
    """How data files of a table are written."""

    identifier: Identifier
    io: FileIO
    columns: pa.Schema
    """The columns of the files."""
    stored_types: tuple[pa.DataType, ...]
    """The types of the columns in rows that come from elsewhere."""
    style: ParquetStyle
    spec_id: int
    partitioning: Partitioning
    file_bytes: int
    """The size at which a file is complete."""
    group_bytes: int
    """About how many bytes of rows in memory make a row group."""
    places: LocationProvider
    has_partition_folders: bool
    fields: tuple[NestedField, ...]
    """The fields of the files."""
    schema: Schema
    """The table's columns."""
    is_described: bool
    """Whether the metrics that the table wants of a file are known here, and not only to Java."""

    def described(self, file: ParquetOutput, size: int, values: Values) -> Mapping[str, Any]:
        """A finished file in Iceberg's JSON form; empty unless `is_described`."""
        if not self.is_described:
            return {}
        ids = [each.field.field_id for each in self.partitioning.fields]
        return {
            "spec-id": self.spec_id,
            "content": "data",
            "file-path": file.location,
            "file-format": DATA_FORMAT,
            "partition": partition_values(
                self.schema,
                [each.field for each in self.partitioning.fields],
                dict(zip(ids, values, strict=True)),
            ),
            "file-size-in-bytes": size,
            "record-count": file.rows,
            "sort-order-id": UNSORTED_SORT_ORDER_ID,
            **described_columns(file.metadata, self.fields),
        }

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows of stored types, with columns by name, to the files' schema.

        Raises: ConstraintViolation.
        """
        arrays = []
        for field, stored in zip(self.columns, self.stored_types, strict=True):
            position = rows.schema.get_field_index(field.name)
            array = rows.column(position) if position >= 0 else pa.nulls(rows.num_rows, stored)
            if array.null_count and not field.nullable:
                raise ConstraintViolation(
                    f"NOT NULL constraint failed: {self.identifier.name}.{field.name}"
                )
            if not array.type.equals(stored):
                array = array.cast(stored)
            arrays.append(relabelled(array, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def new_location(self, statement: str, values: Values) -> str:
        """A location for a new file of a statement."""
        name = f"{statement}-{uuid.uuid4().hex[:16]}{DATA_SUFFIX}"
        folder = self.partitioning.folder(values) if self.has_partition_folders else ""
        return self.places.new_data_location(f"{folder}/{name}" if folder else name)

    def new_file(self, location: str) -> ParquetOutput:
        """Open a new file. Raises: OSError."""
        storage = storage_at(location, self.io.properties)
        return ParquetOutput(storage, location, self.columns, self.style)


_layouts: Cache[tuple[Hashable, ...], tuple[FileLayout | None]] = Cache(2000)


def layout_of(state: TableState, *, with_row_ids: bool = False) -> FileLayout | None:
    """How new data files of a table are written; None where only Spark can write them."""
    metadata = state.metadata
    key = (
        state.identifier,
        state.definition,
        state.io,
        metadata.location,
        metadata.default_spec_id,
        metadata.default_sort_order_id,
        frozenset(metadata.properties.items()),
        with_row_ids,
    )
    known = _layouts.find(key, None)
    if known is None:
        known = _layouts.add(key, (_layout(state, with_row_ids=with_row_ids),))
    return known[0]


def _layout(state: TableState, *, with_row_ids: bool) -> FileLayout | None:
    metadata, properties = state.metadata, state.metadata.properties
    style, partitioning = style_of(properties), partitioning_of(state)
    if (
        state.io is None
        or style is None
        or partitioning is None
        or metadata.default_sort_order_id != UNSORTED_SORT_ORDER_ID
        or wants_other_format(properties)
        or any(name in properties for name in _JAVA_ONLY)
        or not all(_is_writable(each.field_type) for each in state.schema.fields)
    ):
        return None
    in_store = properties.get("write.object-storage.enabled", "").lower() == "true"
    places = (ObjectStoreLocationProvider if in_store else SimpleLocationProvider)(
        metadata.location, properties
    )
    columns = file_schema(state.schema, with_row_ids=with_row_ids)
    if not reachable(places.data_path, state.io.properties) or not len(columns):
        return None
    known = tuple(
        each for each in state.schema.fields if not isinstance(each.field_type, UnknownType)
    )
    own = [natural_type(each.field_type) for each in known]
    fields = (*known, *_ROW_IDS) if with_row_ids else known
    return FileLayout(
        identifier=state.identifier,
        io=state.io,
        columns=columns,
        stored_types=(*own, ROW_ID.type, LAST_UPDATED.type) if with_row_ids else tuple(own),
        style=style,
        spec_id=metadata.default_spec_id,
        partitioning=partitioning,
        file_bytes=_number(properties, "write.target-file-size-bytes", _FILE_BYTES),
        group_bytes=min(
            _GROUP_BYTES, _number(properties, "write.parquet.row-group-size-bytes", _GROUP_BYTES)
        ),
        places=places,
        has_partition_folders=not in_store
        or properties.get("write.object-storage.partitioned-paths", "true").lower() == "true",
        fields=fields,
        schema=state.schema,
        is_described=has_usual_metrics(fields, properties),
    )


@lru_cache(maxsize=1000)
def _is_writable(kind: IcebergType) -> bool:
    """Whether Arrow can write a type.

    It does not mark bytes as geometries. It writes what is below a NULL as a value, which fails
    where that is required.
    """
    match kind:
        case GeometryType() | GeographyType():
            return False
        case MapType():
            return (
                not kind.value_required
                and _is_writable(kind.key_type)
                and _is_writable(kind.value_type)
            )
        case _:
            return all(
                not each.required and _is_writable(each.field_type) for each in fields_inside(kind)
            )


def _number(properties: Mapping[str, str], name: str, usual: int) -> int:
    try:
        return max(1, int(properties.get(name, usual)))
    except ValueError:
        return usual
