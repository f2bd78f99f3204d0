"""Finding the columns of a table in a data file by Iceberg's field ids.

Their names and places in the file do not matter.

Strategy: the file's values are converted to the stored Arrow type of the table's column
(`natural_type`): nested fields are reordered, added and left out, types promoted. Where file and
table agree, which is nearly always, arrays pass unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from sparkport.spark.iceberg.data_format import FIELD_ID
from sparkport.spark.iceberg.types.declared import natural_type

__all__ = ["FileField", "ColumnSource", "file_fields", "sources_of"]

Adapt: TypeAlias = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class FileField:
    """A field of a data file; `field_id` is None where it belongs to no column."""

    field_id: int | None
    type: pa.DataType
    children: tuple[FileField, ...]
    leaves: tuple[int, ...]
    """The positions of the file's leaf columns that it consists of."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of a column come from: a top-level field of the file, or a constant."""

    position: int | None
    """The field's position among the file's top-level fields; None for a constant."""
    adapt: Adapt | None = None
    """Converts the file's type to the stored type; None where they are equal."""
    constant: pa.Scalar | None = None
    """NULL, the default or the partition's value, for a file that lacks the column."""


def file_fields(file_schema: pa.Schema, name_mapping: str | None) -> tuple[FileField, ...]:
    """The top-level fields of a Parquet file.

    Their ids are the file's own, else from the name mapping, else their positions.
    """
    leaf = iter(range(1 << 31))
    if any(map(_has_ids, file_schema)):
        return tuple(_file_field(field, _own_id(field), None, leaf) for field in file_schema)
    if name_mapping is not None:
        names = json.loads(name_mapping)
        return tuple(_file_field(field, *_mapped(field.name, names), leaf) for field in file_schema)
    return tuple(
        _file_field(field, position, [], leaf)
        for position, field in enumerate(file_schema, start=1)
    )


def _file_field(
    field: pa.Field, field_id: int | None, names: Sequence[Any] | None, leaf: Iterator[int]
) -> FileField:
    """`names` is what a name mapping says of the children; None if fields have their own ids."""
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    children = []
    for name, child in _children(kind):
        child_id, child_names = (_own_id(child), None) if names is None else _mapped(name, names)
        children.append(_file_field(child, child_id, child_names, leaf))
    leaves = tuple(own for child in children for own in child.leaves) if children else (next(leaf),)
    return FileField(field_id, field.type, tuple(children), leaves)


def _children(kind: pa.DataType) -> Iterator[tuple[str, pa.Field]]:
    """Nested fields, under the names that name mappings use."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield field.name, field
    elif pa.types.is_map(kind):
        yield "key", kind.key_field
        yield "value", kind.item_field
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        yield "element", kind.value_field


def _own_id(field: pa.Field) -> int | None:
    value = (field.metadata or {}).get(FIELD_ID)
    return None if value is None else int(value)


def _has_ids(field: pa.Field) -> bool:
    return _own_id(field) is not None or any(_has_ids(child) for _, child in _children(field.type))


def _mapped(name: str, names: Sequence[Any]) -> tuple[int | None, Sequence[Any]]:
    found: Mapping[str, Any] = next(
        (entry for entry in names if name in entry.get("names", ())), {}
    )
    return found.get("field-id"), found.get("fields", ())


def sources_of(
    wanted: Sequence[NestedField], fields: Sequence[FileField], partition: Mapping[int, Any]
) -> list[ColumnSource]:
    """Where each of the table's columns is in the file.

    Raises: ValueError for a type that does not fit.
    """
    positions = {field.field_id: position for position, field in enumerate(fields)}
    sources = []
    for field in wanted:
        position = positions.get(field.field_id)
        if position is not None:
            sources.append(ColumnSource(position, _adapter(fields[position], field.field_type)))
        elif field.field_id in partition:
            kind = natural_type(field.field_type)
            sources.append(
                ColumnSource(None, constant=pa.array([partition[field.field_id]], kind)[0])
            )
        else:
            sources.append(ColumnSource(None, constant=_default(field)))
    return sources


def _default(field: NestedField) -> pa.Scalar:
    """A column's value in files written before it was added (version 3); NULL without a default."""
    kind = natural_type(field.field_type)
    default = field.initial_default
    if isinstance(default, str) and isinstance(field.field_type, FloatType | DoubleType):
        default = float(default)  # JSON has no infinities, so Iceberg writes them as names
    elif default is not None and isinstance(field.field_type, PrimitiveType):
        default = from_json(field.field_type, default)
    if default is not None and isinstance(field.field_type, StructType | ListType | MapType):
        default = None
    return pa.array([default], kind)[0]


def _adapter(field: FileField, wanted: IcebergType) -> Adapt | None:
    kind = natural_type(wanted)
    match wanted:
        case StructType() if pa.types.is_struct(field.type):
            return _struct_adapter(field, wanted, kind)
        case ListType() if len(field.children) == 1:
            return _list_adapter(field, wanted, kind)
        case MapType() if pa.types.is_map(field.type):
            return _map_adapter(field, wanted, kind)
        case _ if field.type.equals(kind):
            return None
        case PrimitiveType() if not field.children:
            return lambda array: _cast(array, kind)
        case _:
            raise ValueError(f"a column of type {wanted} is stored as {field.type}")


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    # Not safe for times: the nanoseconds of other writers are cut off, as Spark does it.
    return array.cast(kind, safe=not pa.types.is_timestamp(kind))


def _struct_adapter(field: FileField, wanted: StructType, kind: pa.DataType) -> Adapt | None:
    sources = sources_of(wanted.fields, field.children, {})
    if field.type.equals(kind) and all(
        source.position == position and source.adapt is None
        for position, source in enumerate(sources)
    ):
        return None

    def adapt(array: pa.StructArray) -> pa.StructArray:
        children = [values_of(source, len(array), array.field) for source in sources]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)

    return adapt


def _list_adapter(field: FileField, wanted: ListType, kind: pa.DataType) -> Adapt | None:
    element = _adapter(field.children[0], wanted.element_type)
    if element is None and pa.types.is_list(field.type):
        return None if field.type.equals(kind) else lambda array: array.cast(kind)

    def adapt(array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        values = array.values if element is None else element(array.values)
        validity, offsets = array.buffers()[:2]
        return pa.Array.from_buffers(
            kind, len(array), [validity, offsets], array.null_count, array.offset, [values]
        )

    return adapt


def _map_adapter(field: FileField, wanted: MapType, kind: pa.DataType) -> Adapt | None:
    key, value = (
        _adapter(field.children[0], wanted.key_type),
        _adapter(field.children[1], wanted.value_type),
    )
    if key is None and value is None:
        return None if field.type.equals(kind) else lambda array: array.cast(kind)

    def adapt(array: pa.MapArray) -> pa.MapArray:
        keys = array.keys if key is None else key(array.keys)
        values = array.items if value is None else value(array.items)
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[kind.key_field, kind.item_field]
        )
        validity, offsets = array.buffers()[:2]
        return pa.Array.from_buffers(
            kind, len(array), [validity, offsets], array.null_count, array.offset, [entries]
        )

    return adapt


def values_of(source: ColumnSource, rows: int, column: Callable[[int], pa.Array]) -> pa.Array:
    """A column's values in a batch of the file; `column` gives the batch's fields by position."""
    if source.position is None:
        assert source.constant is not None
        if not source.constant.is_valid:
            return pa.nulls(rows, source.constant.type)
        return pa.repeat(source.constant, rows)
    array = column(source.position)
    return array if source.adapt is None else source.adapt(array)
