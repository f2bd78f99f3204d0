"""Avro files are what PyIceberg's writer writes, and its reader reads."""

from __future__ import annotations

import pytest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from sparkport.spark.iceberg.avro_output import AvroOutput

_INNER = StructType(
    NestedField(11, "flag", BooleanType(), required=True),
    NestedField(12, "raw", BinaryType(), required=False),
)
_SCHEMA = Schema(
    NestedField(1, "number", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "inner", _INNER, required=True),
    NestedField(4, "list", ListType(41, LongType(), element_required=True), required=False),
    NestedField(5, "empty", StructType(), required=True),
    NestedField(
        6, "map", MapType(61, IntegerType(), 62, BinaryType(), value_required=True), required=False
    ),
)
_NUMBERS = (0, 1, -1, 63, 64, -64, -65, 127, 128, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))


@pytest.mark.parametrize("number", _NUMBERS)
def test_records_are_encoded_as_pyiceberg_encodes_them(number, tmp_path):
    plain = [number, "snow \N{SNOWMAN}", (True, b"\x00\xff"), [number, 0], (), {1: b"", -7: b"x"}]
    none = [number, None, (False, None), None, (), None]
    bare = [number, "", (False, b""), [], (), {}]
    output = AvroOutput(_SCHEMA, "record")
    encoded = []
    for values in (plain, none, bare):
        record = Record(*values)
        record._data[2], record._data[4] = Record(*values[2]), Record()
        assert output.encoded(values) == _by_pyiceberg(record)
        encoded.append(output.encoded(values))
    path = tmp_path / "file.avro"
    path.write_bytes(output.content(encoded, {"about": "it"}))
    with AvroFile[Record](PyArrowFileIO().new_input(str(path))) as file:
        assert file.header.meta["about"] == "it"
        assert [row[0] for row in file] == [number] * 3


def _by_pyiceberg(record: Record) -> bytes:
    import io

    stream = io.BytesIO()
    construct_writer(_SCHEMA).write(BinaryEncoder(stream), record)
    return stream.getvalue()
