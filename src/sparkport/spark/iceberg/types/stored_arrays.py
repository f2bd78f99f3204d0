"""Arrays of declared types ↔ arrays of stored types, nested to any depth.

Strategy: the two types are walked together. Where they are equal the array passes unchanged. A type
without parts is converted by its `Storage`; a nested type by its children. Values below a NULL, and
in members of a union that are not chosen, are arbitrary: they are dropped first, so that they are
never refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from sparkport.engine.encodings import convert_array
from sparkport.engine.leaf_encodings import first_refused
from sparkport.engine.nested_arrays import null_mask, struct_children, union_tags
from sparkport.engine.types import type_name
from sparkport.errors import BadRequest, PreconditionFailed, SparkportError
from sparkport.spark.iceberg.types.natural_types import natural_type
from sparkport.spark.iceberg.types.stored_values import interval_from_parts, parts_of_interval
from sparkport.spark.iceberg.types.type_tags import storage_of, type_tag_of

__all__ = ["STORED_BY_OTHERS", "decode", "encode", "tag_position"]

STORED_BY_OTHERS = "that another engine has stored: correct it there"
"""Ends the message about a stored value that its column's type lacks."""

_Convert: TypeAlias = Callable[[pa.Array, IcebergType, pa.DataType, str], pa.Array]


def decode(array: pa.Array, iceberg_type: IcebergType, field: pa.Field) -> pa.Array:
    """Convert stored values, in any encoding of `natural_type`, to the declared type.

    Returns the same object where nothing is to do. Raises: PreconditionFailed for a value that the
    declared type cannot hold, which another engine has written.
    """
    if array.type.equals(field.type):
        return array
    natural = natural_type(iceberg_type)
    if not array.type.equals(natural):
        # Spark's encodings: UUIDs as text, other names of zones, NOT NULL inside.
        array = convert_array(array, natural, field.name, from_duckdb=False)
    return _decoded(array, iceberg_type, field.type, field.name)


def encode(array: pa.Array, field: pa.Field, iceberg_type: IcebergType) -> pa.Array:
    """Convert declared values to `natural_type`, as they are stored.

    Returns the same object where nothing is to do. Raises: BadRequest, naming the column and the
    value, for a value that cannot be stored.
    """
    if not array.type.equals(field.type):
        array = convert_array(array, field.type, field.name, from_duckdb=False)
    return _encoded(array, iceberg_type, field.type, field.name)


# ---------------------------------------------------------------------------------------- decoding


def _decoded(
    array: pa.Array, iceberg_type: IcebergType, declared: pa.DataType, path: str
) -> pa.Array:
    if array.type.equals(declared):
        return array
    match declared.id:
        case lib.Type_SPARSE_UNION:
            return _union_from_struct(array, iceberg_type, declared, path)
        case lib.Type_INTERVAL_MONTH_DAY_NANO:
            return interval_from_parts(struct_children(array))
        case lib.Type_FIXED_SIZE_LIST:
            lists = _rebuilt(
                array, iceberg_type, declared, pa.list_(declared.value_field), path, _decoded
            )
            return _tried(
                partial(_of_fixed_size, target=declared), lists, _refuse_stored(declared, path)
            )
        case lib.Type_STRUCT | lib.Type_LIST | lib.Type_MAP:
            return _rebuilt(array, iceberg_type, declared, declared, path, _decoded)
    type_tag = type_tag_of(declared)
    storage = storage_of(type_tag) if type_tag is not None else None
    if storage is None or storage.type != iceberg_type:
        return convert_array(array, declared, path, from_duckdb=False)
    plain = _tried(storage.decode, array, _refuse_stored(declared, path))
    return (
        pa.ExtensionArray.from_storage(declared, plain)
        if isinstance(declared, pa.BaseExtensionType)
        else plain
    )


def _of_fixed_size(lists: pa.Array, target: pa.DataType) -> pa.Array:
    if not pc.all(pc.equal(pc.list_value_length(lists), target.list_size), min_count=0).as_py():
        raise ValueError("a list of another size")
    return lists.cast(target)


def _union_from_struct(
    array: pa.Array, iceberg_type: IcebergType, declared: pa.DataType, path: str
) -> pa.Array:
    """A union from a struct. A NULL becomes the first member's: a union is never NULL (DuckDB)."""
    assert isinstance(iceberg_type, StructType)
    members = [declared.field(position) for position in range(declared.num_fields)]
    children = {
        field.name: (child, field)
        for child, field in zip(struct_children(array), iceberg_type.fields, strict=True)
    }
    tags, _ = children[iceberg_type.fields[tag_position(iceberg_type, declared)].name]
    tags = tags.fill_null(0)
    _tried(partial(_check_tags, members=len(members)), tags, _refuse_stored(declared, path))
    decoded = [
        _decoded(
            children[member.name][0],
            children[member.name][1].field_type,
            member.type,
            f"{path}.{member.name}",
        )
        for member in members
    ]
    names, codes = [member.name for member in members], list(declared.type_codes)
    return pa.UnionArray.from_sparse(tags.cast(pa.int8()), decoded, names, codes)


def _check_tags(tags: pa.Array, members: int) -> pa.Array:
    found = pc.min_max(tags).as_py()
    if len(tags) and not 0 <= found["min"] <= found["max"] < members:
        raise ValueError("no member has this tag")
    return tags


def tag_position(stored: StructType, declared: pa.DataType) -> int:
    """The position of the tag in a struct that stores a union: the field that is not a member."""
    names = {declared.field(position).name for position in range(declared.num_fields)}
    return next(position for position, field in enumerate(stored.fields) if field.name not in names)


# ---------------------------------------------------------------------------------------- encoding


def _encoded(
    array: pa.Array, iceberg_type: IcebergType, declared: pa.DataType, path: str
) -> pa.Array:
    target = natural_type(iceberg_type)
    if declared.equals(target):
        return array
    match declared.id:
        case lib.Type_SPARSE_UNION:
            return _struct_from_union(array, iceberg_type, declared, path)
        case lib.Type_INTERVAL_MONTH_DAY_NANO:
            return pa.StructArray.from_arrays(
                parts_of_interval(array), fields=list(target), mask=null_mask(array)
            )
        case lib.Type_STRUCT | lib.Type_LIST | lib.Type_MAP | lib.Type_FIXED_SIZE_LIST:
            return _rebuilt(array, iceberg_type, declared, target, path, _encoded)
    type_tag = type_tag_of(declared)
    storage = storage_of(type_tag) if type_tag is not None else None
    if storage is None or storage.type != iceberg_type:
        return convert_array(array, target, path, from_duckdb=False)
    plain = array.storage if isinstance(declared, pa.BaseExtensionType) else array
    return _tried(storage.encode, plain, _refuse_sent(declared, path))


def _struct_from_union(
    array: pa.Array, iceberg_type: IcebergType, declared: pa.DataType, path: str
) -> pa.Array:
    assert isinstance(iceberg_type, StructType)
    tags = union_tags(array)
    rows = pa.arange(0, len(array))
    members = {declared.field(position).name: position for position in range(declared.num_fields)}
    children = []
    for field in iceberg_type.fields:
        position = members.get(field.name)
        if position is None:
            children.append(tags.cast(pa.int32()))
            continue
        chosen = pc.if_else(pc.equal(tags, position), rows, pa.scalar(None, pa.int64()))
        member = array.field(position).take(chosen)
        children.append(_encoded(member, field.field_type, member.type, f"{path}.{field.name}"))
    return pa.StructArray.from_arrays(children, fields=list(natural_type(iceberg_type)))


# ----------------------------------------------------------------------------------- nested arrays


def _rebuilt(
    array: pa.Array,
    iceberg_type: IcebergType,
    declared: pa.DataType,
    target: pa.DataType,
    path: str,
    convert: _Convert,
) -> pa.Array:
    """Convert the children of structs, lists or maps, and put them together as `target`."""
    match iceberg_type:
        case StructType():
            children = [
                convert(
                    child, field.field_type, declared.field(position).type, f"{path}.{field.name}"
                )
                for position, (child, field) in enumerate(
                    zip(struct_children(array), iceberg_type.fields, strict=True)
                )
            ]
            return pa.StructArray.from_arrays(children, fields=list(target), mask=null_mask(array))
        case ListType():
            offsets, elements = _elements(array)
            elements = convert(
                elements, iceberg_type.element_type, declared.value_type, f"{path}[]"
            )
            return pa.ListArray.from_arrays(offsets, elements, type=target, mask=null_mask(array))
        case MapType():
            offsets, entries = _elements(_lists_of_entries(array))
            keys, items = struct_children(entries)
            keys = convert(keys, iceberg_type.key_type, declared.key_type, f"{path}.key")
            items = convert(items, iceberg_type.value_type, declared.item_type, f"{path}.value")
            return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=null_mask(array))
        case _:
            raise TypeError(f"{iceberg_type} is not nested")


def _elements(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The start of each list, and the elements of all of them; a NULL has none.

    `flatten` cannot make arrays of extension types (pyarrow 26), so elements are taken by their
    indices.
    """
    ends = pc.cumulative_sum(pc.list_value_length(lists).fill_null(0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    fixed = lists.type.id == lib.Type_FIXED_SIZE_LIST
    kind = pa.list_(pa.int64(), lists.type.list_size) if fixed else pa.list_(pa.int64())
    own, numbers = lists.buffers()[: 1 if fixed else 2], pa.arange(0, len(lists.values))
    used = pa.Array.from_buffers(
        kind, len(lists), own, offset=lists.offset, children=[numbers]
    ).flatten()
    if not len(used):
        return offsets, lists.values.slice(0, 0)
    first, last = used[0].as_py(), used[-1].as_py()
    whole = len(used) == last - first + 1
    return offsets, lists.values.slice(first, len(used)) if whole else lists.values.take(used)


def _lists_of_entries(array: pa.Array) -> pa.Array:
    """A map as a list of pairs, which Arrow's functions for lists accept."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        array.buffers()[:2],
        array.null_count,
        array.offset,
        children=[entries],
    )


# ---------------------------------------------------------------------------------------- refusals


def _tried(
    convert: Callable[[pa.Array], pa.Array],
    array: pa.Array,
    refuse: Callable[[str], SparkportError],
) -> pa.Array:
    try:
        return convert(array)
    except (ValueError, pa.ArrowException) as error:
        raise refuse(_shown(first_refused(convert, array))) from error


def _shown(value: pa.Scalar | None) -> str:
    if value is None:
        return "that is there"
    try:
        return str(value.as_py())[:100]
    except (ValueError, OverflowError):  # a year that Python's own types do not have
        return str(value.cast(pa.string()).as_py())


def _refuse_sent(declared: pa.DataType, path: str) -> Callable[[str], SparkportError]:
    message = f"column {path} is {type_name(declared)}, and"
    return lambda value: BadRequest(
        f"{message} the value {value} cannot be stored in it",
        without_values=f"{message} one of the values cannot be stored in it",
    )


def _refuse_stored(declared: pa.DataType, path: str) -> Callable[[str], SparkportError]:
    def error(value: str) -> SparkportError:
        message = f"column {path} is {type_name(declared)}, which cannot hold"
        remedy = STORED_BY_OTHERS
        return PreconditionFailed(
            f"{message} the value {value} {remedy}", without_values=f"{message} a value {remedy}"
        )

    return error
