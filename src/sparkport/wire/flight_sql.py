"""Flight SQL's commands and the Arrow schemas of their answers (FlightSql.proto).

A command is a `google.protobuf.Any` in a CMD descriptor: the name of a message, and the message.
The messages are small, and are decoded by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from sparkport.errors import BadRequest
from sparkport.wire.discovery import DiscoveryRequest
from sparkport.wire.protobuf import fields, integer, malformed, text, view

__all__ = [
    "FOREIGN_KEYS",
    "PRIMARY_KEYS",
    "SQL_INFO",
    "TYPE_INFO",
    "KeysRequest",
    "PackedCommand",
    "decode_cross_reference",
    "decode_get_catalogs",
    "decode_get_schemas",
    "decode_get_table_types",
    "decode_get_tables",
    "decode_keys",
    "decode_sql_info",
    "decode_type_info",
    "encode_sql_info",
    "unpack_command",
]

_PACKAGE = "arrow.flight.protocol.sql."


def _field(name: str, data_type: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, data_type, nullable=nullable)


PRIMARY_KEYS = pa.schema(
    [
        _field("catalog_name", pa.string(), nullable=True),
        _field("db_schema_name", pa.string(), nullable=True),
        _field("table_name", pa.string()),
        _field("column_name", pa.string()),
        _field("key_name", pa.string(), nullable=True),
        _field("key_sequence", pa.int32()),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        _field("pk_catalog_name", pa.string(), nullable=True),
        _field("pk_db_schema_name", pa.string(), nullable=True),
        _field("pk_table_name", pa.string()),
        _field("pk_column_name", pa.string()),
        _field("fk_catalog_name", pa.string(), nullable=True),
        _field("fk_db_schema_name", pa.string(), nullable=True),
        _field("fk_table_name", pa.string()),
        _field("fk_column_name", pa.string()),
        _field("key_sequence", pa.int32()),
        _field("fk_key_name", pa.string(), nullable=True),
        _field("pk_key_name", pa.string(), nullable=True),
        _field("update_rule", pa.uint8()),
        _field("delete_rule", pa.uint8()),
    ]
)
TYPE_INFO = pa.schema(
    [
        _field("type_name", pa.string()),
        _field("data_type", pa.int32()),
        _field("column_size", pa.int32(), nullable=True),
        _field("literal_prefix", pa.string(), nullable=True),
        _field("literal_suffix", pa.string(), nullable=True),
        _field("create_params", pa.list_(_field("item", pa.string())), nullable=True),
        _field("nullable", pa.int32()),
        _field("case_sensitive", pa.bool_()),
        _field("searchable", pa.int32()),
        _field("unsigned_attribute", pa.bool_(), nullable=True),
        _field("fixed_prec_scale", pa.bool_()),
        _field("auto_increment", pa.bool_(), nullable=True),
        _field("local_type_name", pa.string(), nullable=True),
        _field("minimum_scale", pa.int32(), nullable=True),
        _field("maximum_scale", pa.int32(), nullable=True),
        _field("sql_data_type", pa.int32()),
        _field("datetime_subcode", pa.int32(), nullable=True),
        _field("num_prec_radix", pa.int32(), nullable=True),
        _field("interval_precision", pa.int32(), nullable=True),
    ]
)
_INFO_MEMBERS: Mapping[str, pa.DataType] = {
    "string_value": pa.string(),
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": pa.int32(),
    "string_list": pa.list_(pa.field("string_data", pa.string())),
    "int32_to_int32_list_map": pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32()))),
}
SQL_INFO = pa.schema(
    [
        _field("info_name", pa.uint32()),
        pa.field(
            "value", pa.dense_union([pa.field(name, kind) for name, kind in _INFO_MEMBERS.items()])
        ),
    ]
)


class PackedCommand(NamedTuple):
    """A command's name, such as `CommandGetTables`, and its message, not decoded yet."""

    name: str
    message: memoryview


def unpack_command(command: bytes) -> PackedCommand | None:
    """Unpack a Flight SQL command; None for other commands, which may be any bytes.

    Raises: BadRequest.
    """
    type_url, message = "", memoryview(b"")
    try:
        for number, value in fields(memoryview(command)):
            if number == 1:
                type_url = text(value)
            elif number == 2:
                message = view(value)
    except BadRequest:
        if _PACKAGE.encode() in command:
            raise
        return None
    name = type_url.rpartition("/")[2]
    if not name.startswith(_PACKAGE):
        return None
    return PackedCommand(name.removeprefix(_PACKAGE), message)


@dataclass(frozen=True, slots=True)
class KeysRequest:
    """The table whose keys are wanted."""

    catalog: str | None = None
    schema: str | None = None
    table: str = ""


def decode_get_catalogs(message: memoryview) -> DiscoveryRequest:
    """Decode a command without fields. Raises: BadRequest."""
    _text_fields(message, {})
    return DiscoveryRequest()


decode_get_table_types = decode_get_catalogs


def decode_get_schemas(message: memoryview) -> DiscoveryRequest:
    """Decode CommandGetDbSchemas. Raises: BadRequest."""
    return DiscoveryRequest(**_text_fields(message, {1: "catalog", 2: "schema_pattern"}))


def decode_get_tables(message: memoryview) -> DiscoveryRequest:
    """Decode CommandGetTables. Raises: BadRequest."""
    texts = _text_fields(message, {1: "catalog", 2: "schema_pattern", 3: "table_pattern"})
    table_types: list[str] = []
    include_schema = False
    for number, value in fields(message):
        if number == 4:
            table_types.append(text(value))
        elif number == 5:
            include_schema = bool(integer(value))
    return DiscoveryRequest(**texts, table_types=tuple(table_types), include_schema=include_schema)


def decode_keys(message: memoryview) -> KeysRequest:
    """Decode CommandGetPrimaryKeys, …ImportedKeys or …ExportedKeys. Raises: BadRequest."""
    return KeysRequest(**_text_fields(message, {1: "catalog", 2: "schema", 3: "table"}))


def decode_cross_reference(message: memoryview) -> tuple[KeysRequest, KeysRequest]:
    """Return the table with the primary key, and the referring table. Raises: BadRequest."""
    parent = _text_fields(message, {1: "catalog", 2: "schema", 3: "table"})
    return KeysRequest(**parent), KeysRequest(
        **_text_fields(message, {4: "catalog", 5: "schema", 6: "table"})
    )


def decode_sql_info(message: memoryview) -> frozenset[int]:
    """Return the numbers of the infos that are wanted; empty means all. Raises: BadRequest."""
    wanted: set[int] = set()
    for number, value in fields(message):
        if number == 1:
            wanted.update([value] if isinstance(value, int) else _packed_integers(value))
    return frozenset(wanted)


def decode_type_info(message: memoryview) -> int | None:
    """Return the number of the type that is wanted; None means all. Raises: BadRequest."""
    wanted: int | None = None
    for number, value in fields(message):
        if number == 1:
            # A negative int32 is sent as 64 bits, of which the upper half is set.
            low = integer(value) & 0xFFFF_FFFF
            wanted = low - (1 << 32) if low >> 31 else low
    return wanted


def encode_sql_info(infos: Mapping[int, tuple[str, Any]]) -> pa.RecordBatch:
    """Encode a row for each info, by its number: the member of the union, and the value or None."""
    members: dict[str, list[Any]] = {name: [] for name in _INFO_MEMBERS}
    offsets: list[int] = []
    for member, value in infos.values():
        offsets.append(len(members[member]))
        members[member].append(value)
    codes = list(_INFO_MEMBERS)
    union = pa.UnionArray.from_dense(
        pa.array([codes.index(member) for member, _ in infos.values()], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values, _INFO_MEMBERS[name]) for name, values in members.items()],
        codes,
    )
    return pa.RecordBatch.from_arrays([pa.array(list(infos), pa.uint32()), union], schema=SQL_INFO)


def _text_fields(message: memoryview, names: Mapping[int, str]) -> dict[str, Any]:
    """Return text fields by the names given to their numbers. A later field replaces an earlier."""
    return {names[number]: text(value) for number, value in fields(message) if number in names}


def _packed_integers(values: memoryview) -> Iterator[int]:
    """Yield integers that protobuf has packed into one field. A clear high bit ends each."""
    value = shift = 0
    for byte in values:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
        elif shift > 63:
            raise malformed()
    if shift:
        raise malformed()
