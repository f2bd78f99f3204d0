"""Avro files of a schema of Iceberg's, for metadata that many commits write.

Strategy: PyIceberg's writer takes longer to prepare for a schema than to write a few records. Here
a schema is prepared once. Records are encoded one by one, so that a caller can keep what it has
encoded: most lines of a manifest list are those of the list before.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

__all__ = ["AvroOutput"]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_Encoder: TypeAlias = Callable[[bytearray, Any], None]


class AvroOutput:
    """Writes files of one schema. Thread-safe."""

    def __init__(self, schema: Schema, name: str) -> None:
        """`name` is that of the records."""
        converted = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
        self._about = {"avro.schema": json.dumps(converted), "avro.codec": "deflate"}
        self._encode = _struct(schema.fields)

    def encoded(self, record: Sequence[Any]) -> bytes:
        """A record: the values of the schema's fields, in their order. Structs are sequences."""
        out = bytearray()
        self._encode(out, record)
        return bytes(out)

    def content(self, records: Sequence[bytes], about: Mapping[str, str]) -> bytes:
        """A file with encoded records, and what is said about it."""
        out, sync = bytearray(_MAGIC), os.urandom(_SYNC_BYTES)
        said = {**about, **self._about}
        _number(out, len(said))
        for key, value in said.items():
            _text(out, key)
            _text(out, value)
        out += b"\x00"
        out += sync
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        block = compressor.compress(b"".join(records)) + compressor.flush()
        _number(out, len(records))
        _bytes(out, block)
        out += sync
        return bytes(out)


def _number(out: bytearray, value: int) -> None:
    """Zigzag, seven bits in each byte, the lowest first."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _bytes(out: bytearray, value: bytes) -> None:
    _number(out, len(value))
    out += value


def _text(out: bytearray, value: str) -> None:
    _bytes(out, value.encode())


def _boolean(out: bytearray, value: bool) -> None:
    out.append(value)


def _encoder(kind: IcebergType) -> _Encoder:
    match kind:
        case IntegerType() | LongType():
            return _number
        case StringType():
            return _text
        case BinaryType():
            return _bytes
        case BooleanType():
            return _boolean
        case StructType():
            return _struct(kind.fields)
        case ListType():
            return _list(_field(kind.element_field))
        case MapType():
            return _map(_field(kind.key_field), _field(kind.value_field))
        case _:
            raise NotImplementedError(f"metadata have no {kind}")


def _field(field: NestedField) -> _Encoder:
    encode = _encoder(field.field_type)
    return encode if field.required else _optional(encode)


def _optional(encode: _Encoder) -> _Encoder:
    def optional(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            encode(out, value)

    return optional


def _struct(fields: Sequence[NestedField]) -> _Encoder:
    encoders = [_field(each) for each in fields]

    def struct(out: bytearray, values: Sequence[Any]) -> None:
        for encode, value in zip(encoders, values, strict=True):
            encode(out, value)

    return struct


def _list(encode: _Encoder) -> _Encoder:
    def listed(out: bytearray, values: Sequence[Any]) -> None:
        if values:
            _number(out, len(values))
            for value in values:
                encode(out, value)
        out.append(0)

    return listed


def _map(encode_key: _Encoder, encode_value: _Encoder) -> _Encoder:
    def mapped(out: bytearray, values: Mapping[Any, Any]) -> None:
        if values:
            _number(out, len(values))
            for key, value in values.items():
                encode_key(out, key)
                encode_value(out, value)
        out.append(0)

    return mapped
