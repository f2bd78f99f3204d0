"""Arrow types from their spelling, and arrays that pyarrow cannot build by itself."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pyarrow as pa

from sparkport.engine.encodings import convert_array

HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
TIME_TZ = pa.opaque(pa.binary(8), "time_tz", "DuckDB")
BIT = pa.opaque(pa.binary(), "bit", "DuckDB")
BIGNUM = pa.opaque(pa.binary(), "bignum", "DuckDB")

_LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
_SIMPLE = {
    "date32[day]": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "null": pa.null(),
    "month_day_nano_interval": pa.month_day_nano_interval(),
    "extension<arrow.uuid>": pa.uuid(),
    "extension<arrow.bool8>": pa.bool8(),
    "extension<arrow.json>": pa.json_(),
}


def parse_type(text: str) -> pa.DataType:
    """The type that pyarrow prints as `text`."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    if found := re.fullmatch(
        r"extension<arrow\.opaque\[storage_type=(.*), type_name=(\w+), vendor_name=DuckDB]>", text
    ):
        return pa.opaque(parse_type(found[1]), found[2], "DuckDB")
    if found := re.fullmatch(r"decimal128\((\d+), (\d+)\)", text):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"(timestamp|time64)\[(\w+)(?:, tz=(.*))?]", text):
        return pa.timestamp(found[2], found[3]) if found[1] == "timestamp" else pa.time64(found[2])
    if found := re.fullmatch(r"fixed_size_binary\[(\d+)]", text):
        return pa.binary(int(found[1]))
    if found := re.fullmatch(r"fixed_size_list<(.*)>\[(\d+)]", text):
        return pa.list_(_field(found[1]), int(found[2]))
    if found := re.fullmatch(r"(\w+)<(.*)>", text):
        kind, parts = found[1], _split(found[2])
        if kind in _LISTS:
            return _LISTS[kind](_field(found[2]))
        if kind == "struct":
            return pa.struct([_field(part) for part in parts])
        if kind == "map":
            return pa.map_(parse_type(parts[0]), parse_type(parts[1]))
        if kind == "sparse_union":
            return pa.sparse_union([_field(part.rsplit("=", 1)[0]) for part in parts])
    return getattr(pa, text)()


def _field(text: str) -> pa.Field:
    name, _, data_type = text.partition(": ")
    return pa.field(name, parse_type(data_type))


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<[(") - (character in ">])")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 2
    return [*parts, text[start:]]


def array_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Build as `pa.array`, also for extension types inside nested types, and for unions.

    Of a union the last member is used.
    """
    if data_type.id == pa.lib.Type_SPARSE_UNION:
        members = [data_type.field(index) for index in range(data_type.num_fields)]
        children = [pa.nulls(len(values), member.type) for member in members[:-1]]
        tags = pa.array([data_type.type_codes[-1]] * len(values), pa.int8())
        names = [member.name for member in members]
        return pa.UnionArray.from_sparse(
            tags, [*children, pa.array(values, members[-1].type)], names
        )
    storage = _storage(data_type)
    array = pa.array([_storage_value(value, data_type) for value in values], storage)
    return array if storage.equals(data_type, check_metadata=True) else array.cast(data_type)


def _storage(data_type: pa.DataType) -> pa.DataType:
    if isinstance(data_type, pa.BaseExtensionType):
        return data_type.storage_type
    match data_type.id:
        case pa.lib.Type_LIST:
            return pa.list_(_storage_field(data_type.value_field))
        case pa.lib.Type_FIXED_SIZE_LIST:
            return pa.list_(_storage_field(data_type.value_field), data_type.list_size)
        case pa.lib.Type_MAP:
            return pa.map_(_storage(data_type.key_type), _storage(data_type.item_type))
        case pa.lib.Type_STRUCT:
            return pa.struct([_storage_field(field) for field in data_type])
        case _:
            return data_type


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storage(field.type))


def _storage_value(value: Any, data_type: pa.DataType) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case bool() if data_type == pa.bool8():
            return int(value)
        case list() if data_type.id == pa.lib.Type_MAP:
            return [(key, _storage_value(item, data_type.item_type)) for key, item in value]
        case list():
            return [_storage_value(item, data_type.value_type) for item in value]
        case dict():
            return {
                name: _storage_value(item, data_type.field(name).type)
                for name, item in value.items()
            }
        case _:
            return value


def converted(array: pa.Array, target: pa.DataType, **options: bool) -> list[Any]:
    """The values after conversion, of the whole and of every slice, which must agree."""
    result = convert_array(array, target, "v", **options)
    result.validate(full=True)
    assert result.type.equals(target, check_metadata=True)
    values = in_python(result)
    for start in range(len(array) + 1):
        part = convert_array(array.slice(start, 2), target, "v", **options)
        part.validate(full=True)
        assert in_python(part) == values[start : start + 2]
    return values


def in_python(array: pa.Array) -> list[Any]:
    # Python's own types end at microseconds.
    nanoseconds = array.type in (pa.timestamp("ns"), pa.time64("ns"))
    values: list[Any] = (array.view(pa.int64()) if nanoseconds else array).to_pylist()
    return values
