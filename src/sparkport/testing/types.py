"""The Arrow types that the client reads, and the DuckDB types that they become (airport §13.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from sparkport.testing.failures import ProtocolViolation

__all__ = [
    "Line",
    "as_given_out",
    "difference",
    "duckdb_type",
    "given_out",
    "has_statistics",
    "quoted",
    "updates_in_place",
]

Line: TypeAlias = Literal["main", "v1.4"]
"""The two lines of the client (airport, opening table)."""

_Quote: TypeAlias = Callable[[str], str]

_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (kinds.is_boolean, "BOOLEAN"),
    (kinds.is_int8, "TINYINT"),
    (kinds.is_int16, "SMALLINT"),
    (kinds.is_int32, "INTEGER"),
    (kinds.is_int64, "BIGINT"),
    (kinds.is_uint8, "UTINYINT"),
    (kinds.is_uint16, "USMALLINT"),
    (kinds.is_uint32, "UINTEGER"),
    (kinds.is_uint64, "UBIGINT"),
    (kinds.is_float32, "FLOAT"),
    (kinds.is_float64, "DOUBLE"),
    (kinds.is_string, "VARCHAR"),
    (kinds.is_large_string, "VARCHAR"),
    (kinds.is_string_view, "VARCHAR"),
    (kinds.is_binary, "BLOB"),
    (kinds.is_large_binary, "BLOB"),
    (kinds.is_binary_view, "BLOB"),
    (kinds.is_fixed_size_binary, "BLOB"),
    (kinds.is_date, "DATE"),
    (kinds.is_time32, "TIME"),
    (kinds.is_duration, "INTERVAL"),
    (kinds.is_interval, "INTERVAL"),
    (kinds.is_null, '"NULL"'),
)
_TIMESTAMPS = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}
_OPAQUE = {
    "hugeint": "HUGEINT",
    "uhugeint": "UHUGEINT",
    "time_tz": "TIME WITH TIME ZONE",
    "bit": "BIT",
}
_OPAQUE["bignum"] = "BIGNUM"

_WITHOUT_STATISTICS = ("INTERVAL", "BIT", "BIGNUM", "UNION", "ENUM", "GEOMETRY", '"NULL"', "BLOB")

_NAME = b"ARROW:extension:name"
_METADATA = b"ARROW:extension:metadata"
_SIMPLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _quoted_where_needed(name: str) -> str:
    return name if _SIMPLE_NAME.fullmatch(name) else quoted(name)


def duckdb_type(
    field: pa.Field, line: Line, where: str, quote: _Quote = _quoted_where_needed
) -> str:
    """Return DuckDB's name for the type of a field of a catalog schema.

    Raises: ProtocolViolation for a type that breaks the loading of the whole schema (trap T9).
    """
    return _Reader(line, where, quote).field(field)


def has_statistics(duckdb_name: str) -> bool:
    """Whether the client can hold statistics of a column of that type (airport §4.9, trap T29).

    It fails on the others. It accepts bounds of a BLOB, but as text with escapes, so that they are
    wrong.
    """
    kind = duckdb_name.partition("(")[0]
    return duckdb_name.endswith("]") or kind not in _WITHOUT_STATISTICS


def updates_in_place(field: pa.Field) -> bool:
    """Whether DuckDB updates a column of that type alone, without the others (airport §7.2)."""
    kind = _storage(field.type)
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_struct(kind):
        return all(updates_in_place(kind.field(index)) for index in range(kind.num_fields))
    return not (kinds.is_nested(kind) or kinds.is_map(kind))


def given_out(kind: pa.DataType) -> pa.DataType:
    """The type in which DuckDB gives out values that it has read with this type.

    It has one type DECIMAL, which is decimal128 unless settings say otherwise (airport §13.1).
    """
    if kinds.is_decimal32(kind) or kinds.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if not kinds.is_nested(kind):
        return kind
    if kinds.is_struct(kind):
        return pa.struct([_given_out(kind.field(index)) for index in range(kind.num_fields)])
    if kinds.is_map(kind):
        return pa.map_(_given_out(kind.key_field), _given_out(kind.item_field))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(_given_out(kind.value_field), kind.list_size)
    for is_kind, make in _LISTS:
        if is_kind(kind):
            return make(_given_out(kind.value_field))
    return kind


def as_given_out(array: pa.Array) -> pa.Array:
    """The values in the type in which DuckDB gives them out."""
    kind = given_out(array.type)
    if kind == array.type:
        return array
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):  # Arrow has no cast of these
        values = [as_given_out(array.values)]
        buffers = array.buffers()[:3]
        return pa.Array.from_buffers(
            kind, len(array), buffers, array.null_count, array.offset, values
        )
    return array.cast(kind)


def _given_out(field: pa.Field) -> pa.Field:
    return field.with_type(given_out(field.type))


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (kinds.is_list, pa.list_),
    (kinds.is_large_list, pa.large_list),
    (kinds.is_list_view, pa.list_view),
    (kinds.is_large_list_view, pa.large_list_view),
)


class _Reader:
    def __init__(self, line: Line, where: str, quote: _Quote) -> None:
        self._line = line
        self._where = where
        self._quote = quote

    def field(self, field: pa.Field, nested: bool = False) -> str:
        kind, name, metadata = field.type, b"", b""
        if isinstance(kind, pa.BaseExtensionType):
            name, metadata, kind = (
                kind.extension_name.encode(),
                _serialized(kind),
                kind.storage_type,
            )
        elif field.metadata:
            name, metadata = field.metadata.get(_NAME, b""), field.metadata.get(_METADATA, b"")
        return self._extension(name.decode(), metadata, kind) or self._plain(kind, nested)

    def _extension(self, name: str, metadata: bytes, storage: pa.DataType) -> str | None:
        """Return the type of an extension that DuckDB knows on this storage; None for any other."""
        if (
            name == "arrow.uuid"
            and kinds.is_fixed_size_binary(storage)
            and storage.byte_width == 16
        ):
            return "UUID"
        if name == "arrow.bool8" and kinds.is_int8(storage):
            return "BOOLEAN"
        if name == "arrow.json" and _is_text(storage):
            return "JSON"
        if name == "arrow.opaque":
            described = self._object(metadata)
            if described.get("vendor_name") == "DuckDB":
                return _OPAQUE.get(str(described.get("type_name")))
        if name == "geoarrow.wkb" and _is_blob(storage):
            described = self._object(metadata) if metadata else {}
            if described.get("edges", "planar") != "planar":
                raise self._refused(f"geoarrow.wkb with edges {described['edges']!r}")
            return "GEOMETRY"
        return None

    def _object(self, metadata: bytes) -> dict[str, Any]:
        try:
            value = json.loads(metadata)
        except ValueError as error:
            raise self._refused(f"extension metadata that is no JSON: {metadata!r}") from error
        if not isinstance(value, dict):
            raise self._refused(f"extension metadata that is no JSON object: {metadata!r}")
        return value

    def _plain(self, kind: pa.DataType, nested: bool) -> str:
        for matches, name in _PLAIN:
            if matches(kind):
                return name
        if kinds.is_time64(kind):
            return "TIME_NS" if kind.unit == "ns" and self._line == "main" else "TIME"
        if kinds.is_timestamp(kind):
            return "TIMESTAMP WITH TIME ZONE" if kind.tz else _TIMESTAMPS[kind.unit]
        if kinds.is_decimal(kind) and not kinds.is_decimal256(kind) and kind.precision <= 38:
            return f"DECIMAL({kind.precision},{kind.scale})"
        if kinds.is_dictionary(kind):
            if nested:
                raise self._refused(
                    "a dictionary inside a nested type, of which the client shows the indices"
                )
            return self._plain(kind.value_type, nested)
        if kinds.is_run_end_encoded(kind):
            return self._plain(kind.value_type, nested)
        return self._nested(kind)

    def _nested(self, kind: pa.DataType) -> str:
        if kinds.is_fixed_size_list(kind):
            return f"{self.field(kind.value_field, nested=True)}[{kind.list_size}]"
        if _is_list(kind):
            return f"{self.field(kind.value_field, nested=True)}[]"
        if kinds.is_map(kind):
            key, item = (
                self.field(kind.key_field, nested=True),
                self.field(kind.item_field, nested=True),
            )
            return f"MAP({key}, {item})"
        if kinds.is_struct(kind) and kind.num_fields:
            return f"STRUCT({self._children(kind)})"
        if kinds.is_union(kind) and kind.mode == "sparse":
            return f"UNION({self._children(kind)})"
        raise self._refused(str(kind))

    def _children(self, kind: pa.DataType) -> str:
        children = (kind.field(index) for index in range(kind.num_fields))
        return ", ".join(
            f"{self._quote(child.name)} {self.field(child, nested=True)}" for child in children
        )

    def _refused(self, what: str) -> ProtocolViolation:
        return ProtocolViolation("T9", f"{self._where}: the client cannot read {what}")


def difference(actual: pa.Field, expected: pa.Field) -> str | None:
    """Describe how `actual` differs in type from `expected`, for buffers that are read unchecked.

    Returns None if it does not. Names, nullability and metadata of nested fields do not matter,
    except that they show when fields have changed places.
    """
    return next(_differences(actual, expected), None)


def _differences(actual: pa.Field, expected: pa.Field) -> Iterator[str]:
    if _extension_of(actual) != _extension_of(expected):
        yield f"{_shown(actual)} instead of {_shown(expected)}"
    got, due = _storage(actual.type), _storage(expected.type)
    if got.id != due.id:
        yield f"{got} instead of {due}"
        return
    if kinds.is_timestamp(due):
        same = got.unit == due.unit and bool(got.tz) == bool(due.tz)
    elif kinds.is_dictionary(due):
        same = got.index_type.equals(due.index_type)
        yield from _differences(pa.field("", got.value_type), pa.field("", due.value_type))
    elif kinds.is_run_end_encoded(due):
        same = got.run_end_type.equals(due.run_end_type)
        yield from _differences(pa.field("", got.value_type), pa.field("", due.value_type))
    elif kinds.is_fixed_size_list(due):
        same = got.list_size == due.list_size
        yield from _differences(got.value_field, due.value_field)
    elif _is_list(due):
        same = True
        yield from _differences(got.value_field, due.value_field)
    elif kinds.is_map(due):
        same = True
        yield from _differences(got.key_field, due.key_field)
        yield from _differences(got.item_field, due.item_field)
    elif kinds.is_struct(due) or kinds.is_union(due):
        same = got.num_fields == due.num_fields
        if kinds.is_union(due):
            same = same and got.mode == due.mode and got.type_codes == due.type_codes
        if same:
            yield from _children_differences(got, due)
    else:
        same = got.equals(due)
    if not same:
        yield f"{got} instead of {due}"


def _children_differences(got: pa.DataType, due: pa.DataType) -> Iterator[str]:
    names = [got.field(index).name for index in range(got.num_fields)]
    for index in range(due.num_fields):
        child, wanted = got.field(index), due.field(index)
        if child.name != wanted.name and wanted.name in names:
            yield f"field {wanted.name!r} of {due} has changed its place"
        yield from _differences(child, wanted)


def _extension_of(field: pa.Field) -> tuple[bytes, bytes]:
    if isinstance(field.type, pa.BaseExtensionType):
        return field.type.extension_name.encode(), _serialized(field.type)
    metadata = field.metadata or {}
    return metadata.get(_NAME, b""), metadata.get(_METADATA, b"") if _NAME in metadata else b""


def _serialized(kind: pa.BaseExtensionType) -> bytes:
    serialized: bytes = (
        kind.__arrow_ext_serialize__() if hasattr(kind, "__arrow_ext_serialize__") else b""
    )
    if not serialized and kind.extension_name == "arrow.opaque":
        return json.dumps({"type_name": kind.type_name, "vendor_name": kind.vendor_name}).encode()
    return serialized


def _shown(field: pa.Field) -> str:
    name = _extension_of(field)[0].decode()
    return f"{name} ({_storage(field.type)})" if name else str(field.type)


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    tests = (kinds.is_list, kinds.is_large_list, kinds.is_list_view, kinds.is_large_list_view)
    return any(test(kind) for test in tests)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    )


def _is_blob(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view)
    )
