"""Types of DuckDB's users ↔ types of Iceberg on Spark (decision 0008).

Strategy: `stored_schema` gives every declared Arrow type the nearest Iceberg type that Spark reads
and that loses nothing, and a type tag where Iceberg's type alone does not tell the declared type.
`declared_fields` reads both back. A type tag that no longer fits its column, because another engine
has changed it, is ignored. Text, bytes and lists have one Arrow type each here, whichever of their
encodings a client had: DuckDB does not tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count

import pyarrow as pa
from pyarrow import lib
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
    UUIDType,
)

from sparkport.catalog.names import folded
from sparkport.engine.type_table import row_of, storage_type
from sparkport.engine.types import fields_of, publishable_schema, type_name
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.types.natural_types import map_of, named_type, natural_type, spark_type
from sparkport.spark.iceberg.types.stored_arrays import decode, encode
from sparkport.spark.iceberg.types.stored_values import INTERVAL_PARTS
from sparkport.spark.iceberg.types.type_tags import (
    GEOMETRY,
    INTERVAL,
    TYPES_PROPERTY,
    array_type_tag,
    declared_by,
    geometry_metadata,
    geometry_type_tag,
    list_size,
    storage_of,
    type_tag_of,
    type_tags_in,
    union_members,
    union_type_tag,
    written_type_tags,
)

__all__ = [
    "TYPES_PROPERTY",
    "declared_fields",
    "decode",
    "encode",
    "natural_type",
    "needs_decoding",
    "order_preserving",
    "spark_type",
    "stored_field",
    "stored_schema",
    "type_tags_in",
    "written_type_tags",
]


def needs_decoding(iceberg_type: IcebergType, field: pa.Field) -> bool:
    """Whether stored values differ at all from the declared ones."""
    return not natural_type(iceberg_type).equals(field.type)


def order_preserving(iceberg_type: IcebergType, field: pa.Field) -> bool:
    """Whether stored and declared values have the same order, so that bounds hold for both.

    NaN is an exception: Iceberg leaves it out of the bounds of floats.
    """
    if isinstance(
        iceberg_type, StructType | ListType | MapType | UUIDType | UnknownType
    ) or geometry_type_tag(field):
        return False  # Java compared UUIDs as signed numbers for a long time
    if not needs_decoding(iceberg_type, field):
        return not isinstance(iceberg_type, GeometryType)
    type_tag = type_tag_of(field.type)
    storage = storage_of(type_tag) if type_tag is not None else None
    return storage is not None and storage.type == iceberg_type and storage.keeps_order


# ------------------------------------------------------------------------------------ from Iceberg


def declared_fields(schema: Schema, properties: Mapping[str, str]) -> list[pa.Field]:
    """The columns as users see them. Raises: Unsupported, naming the column and its type."""
    type_tags = type_tags_in(properties)
    return [_declared_column(field, type_tags) for field in schema.fields]


def _declared_column(field: NestedField, type_tags: Mapping[int, str]) -> pa.Field:
    try:
        return _declared_field(field, type_tags).with_nullable(not field.required)
    except Unsupported as error:
        raise Unsupported(f"column {field.name}: {error.message}") from error


def _declared_field(field: NestedField, type_tags: Mapping[int, str]) -> pa.Field:
    """A field as declared. It is always nullable: DuckDB ignores NOT NULL inside other types."""
    type_tag, stored = type_tags.get(field.field_id), field.field_type
    metadata = geometry_metadata(type_tag) if isinstance(stored, BinaryType) else None
    if isinstance(stored, GeometryType):
        metadata = geometry_metadata(f"{GEOMETRY} {json.dumps({'crs': stored.crs})}")
    return pa.field(field.name, _declared_type(stored, type_tag, type_tags), metadata=metadata)


def _declared_type(
    stored: IcebergType, type_tag: str | None, type_tags: Mapping[int, str]
) -> pa.DataType:
    match stored:
        case StructType():
            return _declared_struct(stored, type_tag, type_tags)
        case ListType():
            element, size = _declared_field(stored.element_field, type_tags), list_size(type_tag)
            return pa.list_(element) if size is None else pa.list_(element, size)
        case MapType():
            keys = _declared_field(stored.key_field, type_tags).type
            return map_of(keys, _declared_field(stored.value_field, type_tags))
        case _:
            storage = storage_of(type_tag) if type_tag is not None else None
            if type_tag is None or storage is None or storage.type != stored:
                return natural_type(stored)
            return declared_by(type_tag)


def _declared_struct(
    stored: StructType, type_tag: str | None, type_tags: Mapping[int, str]
) -> pa.DataType:
    if type_tag == INTERVAL and [field.field_type for field in stored.fields] == [
        kind for _, kind, _, _ in INTERVAL_PARTS
    ]:
        return pa.month_day_nano_interval()
    fields = {field.field_id: _declared_field(field, type_tags) for field in stored.fields}
    members = union_members(type_tag)
    if members is not None and _is_union(stored, members):
        return pa.sparse_union([fields[member] for member in members])
    return pa.struct(list(fields.values()))


def _is_union(stored: StructType, members: tuple[int, ...]) -> bool:
    """Whether the struct still holds the tag of a union, its members, and nothing else."""
    others = [field for field in stored.fields if field.field_id not in members]
    return (
        len(others) == 1
        and others[0].field_type == IntegerType()
        and len(stored.fields) == len(set(members)) + 1 == len(members) + 1
    )


# -------------------------------------------------------------------------------------- to Iceberg


def stored_schema(columns: pa.Schema, first_id: int = 1) -> tuple[Schema, dict[int, str]]:
    """The Iceberg schema of a new table, and the type tags of its fields by id.

    The ids are those that Iceberg itself assigns when it creates the table. Raises: Unsupported,
    naming column and type.
    """
    plain = publishable_schema(columns)
    ids, type_tags = count(first_id), dict[int, str]()
    own_ids = [next(ids) for _ in plain]
    fields = [
        _stored_column(field, own_id, ids, type_tags)
        for field, own_id in zip(plain, own_ids, strict=True)
    ]
    return Schema(*fields), type_tags


def stored_field(field: pa.Field, next_id: int) -> tuple[NestedField, dict[int, str]]:
    """A new column, or field of a struct, with ids from `next_id` on, as Iceberg assigns them.

    Raises: Unsupported, naming column and type.
    """
    (plain,) = publishable_schema(pa.schema([field]))
    ids, type_tags = count(next_id), dict[int, str]()
    return _stored_column(plain, next(ids), ids, type_tags), type_tags


def _stored_column(
    field: pa.Field, own_id: int, ids: Iterator[int], type_tags: dict[int, str]
) -> NestedField:
    try:
        stored = _stored_type(field, own_id, ids, type_tags)
    except Unsupported as error:
        raise Unsupported(f"column {field.name}: {error.message}") from error
    return NestedField(own_id, field.name, stored, required=not field.nullable)


def _stored_type(
    field: pa.Field, own_id: int, ids: Iterator[int], type_tags: dict[int, str]
) -> IcebergType:
    """The stored type. Siblings get their ids before their children do, as in Iceberg."""
    declared, children = field.type, fields_of(field.type)
    type_tag = geometry_type_tag(field) or type_tag_of(declared)
    if declared.id == lib.Type_FIXED_SIZE_LIST:
        type_tag = array_type_tag(declared.list_size)
    if type_tag is not None:
        type_tags[own_id] = type_tag
    storage = storage_of(type_tag) if type_tag is not None else None
    if storage is not None:
        return storage.type
    if type_tag == INTERVAL:
        return StructType(
            *(
                NestedField(next(ids), name, kind, required=False)
                for name, kind, _, _ in INTERVAL_PARTS
            )
        )
    if not children:
        return _stored_plain(declared)
    if declared.id == lib.Type_SPARSE_UNION:
        children = [pa.field(_tag_name(children), pa.int32()), *children]
    own_ids = [next(ids) for _ in children]
    if declared.id == lib.Type_SPARSE_UNION:
        type_tags[own_id] = union_type_tag(own_ids[1:])
    kinds = [
        _stored_type(child, child_id, ids, type_tags)
        for child, child_id in zip(children, own_ids, strict=True)
    ]
    match declared.id:
        case lib.Type_STRUCT | lib.Type_SPARSE_UNION:
            inside = zip(own_ids, children, kinds, strict=True)
            return StructType(
                *(NestedField(own, child.name, kind, required=False) for own, child, kind in inside)
            )
        case lib.Type_MAP:
            (key_id, value_id), (key, value) = own_ids, kinds
            return MapType(key_id, key, value_id, value, value_required=False)
        case _:
            return ListType(own_ids[0], kinds[0], element_required=False)


def _tag_name(members: list[pa.Field]) -> str:
    taken, name = {folded(member.name) for member in members}, "tag"
    while folded(name) in taken:
        name += "_"
    return name


def _stored_plain(declared: pa.DataType) -> IcebergType:
    row, plain = row_of(declared), storage_type(declared)
    if row is None or not row.iceberg:
        raise Unsupported(f"the lake has no type to keep {type_name(plain)} in")
    if row.name == "DECIMAL":
        return DecimalType(plain.precision, plain.scale)
    return named_type(row.iceberg)
