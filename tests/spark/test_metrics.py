"""Metrics of a file's columns, value by value: ours, PyIceberg's, and those of Iceberg's Java."""

from __future__ import annotations

import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.spark.tables import Table

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.types.declared import natural_type
from sparkport.spark.write.layout import layout_of

_LAST = "\U0010ffff"
_DAYS, _MICROS = 2**31, 2**63
_STRUCT = StructType(NestedField(11, "a", LongType()), NestedField(12, "s", StringType()))
_OPTIONAL = {"element_required": False}

_CASES: dict[str, tuple[IcebergType, list[list[Any]]]] = {
    "booleans": (BooleanType(), [[True, None, False]]),
    "integers": (IntegerType(), [[-(2**31), 2**31 - 1, None]]),
    "longs": (LongType(), [[-(2**63), 2**63 - 1]]),
    "only NULL": (LongType(), [[None, None]]),
    "a row group of NULL": (LongType(), [[None], [5]]),
    "floats": (FloatType(), [[0.1, -math.inf, math.inf]]),
    "zeros": (DoubleType(), [[0.0, -0.0]]),
    "a positive zero": (DoubleType(), [[0.0]]),
    "a negative zero": (DoubleType(), [[-0.0]]),
    "only NaN": (DoubleType(), [[math.nan]]),
    "NaN among others": (DoubleType(), [[math.nan, 1.0]]),
    "a row group of NaN": (DoubleType(), [[math.nan], [1.0], [math.nan]]),
    "decimals of 4 bytes": (DecimalType(9, 2), [[Decimal("-1.28"), Decimal("9999999.99")]]),
    "decimals of 8 bytes": (DecimalType(18, 3), [[Decimal("-0.129"), Decimal("0.128")]]),
    "decimals of 16 bytes": (
        DecimalType(38, 38), [[Decimal(f"{sign}0.{'9' * 38}") for sign in "-+"]]
    ),
    "decimals of row groups": (
        DecimalType(38, 10), [[Decimal(-1), Decimal(2)], [Decimal(-3), Decimal(1)]]
    ),
    "days": (DateType(), [[-1, 0]]),
    "days of all years": (DateType(), [[-_DAYS, _DAYS - 1]]),
    "times": (TimeType(), [[0, 86_399_999_999]]),
    "timestamps": (TimestampType(), [[-62_135_596_800_000_000, 253_402_300_799_999_999]]),
    "infinite timestamps": (TimestampType(), [[-_MICROS + 1, _MICROS - 1]]),
    "timestamps with zones": (TimestamptzType(), [[-1, 1], [-5, 0]]),
    "infinite timestamps with zones": (TimestamptzType(), [[-_MICROS + 1, _MICROS - 1]]),
    "nanoseconds": (TimestampNanoType(), [[-1, 1]]),
    "nanoseconds with zones": (TimestamptzNanoType(), [[-_MICROS, _MICROS - 1]]),
    "texts": (StringType(), [["b", "a", "", None]]),
    "texts of 16 and 17": (StringType(), [["x" * 16, "y" * 17]]),
    "texts of wide characters": (StringType(), [["😀" * 17, "\uffff"], ["\uffff"]]),
    "text before the surrogates": (StringType(), [["\ud7ff" * 17]]),
    "text of the last character": (StringType(), [[_LAST * 17]]),
    "text that carries": (StringType(), [["y" + _LAST * 17]]),
    "long text": (StringType(), [["x" * 5000, "a"]]),
    "a row group of long text": (StringType(), [["z" * 5000], ["a"]]),
    "bytes": (BinaryType(), [[b"\xff", b"\x00", b"", None]]),
    "bytes that carry": (BinaryType(), [[b"\x01" + b"\xff" * 17]]),
    "bytes that cannot": (BinaryType(), [[b"\xff" * 17]]),
    "UUIDs": (UUIDType(), [[uuid.UUID(int=1).bytes, uuid.UUID(int=2**127 + 1).bytes]]),
    "fixed bytes": (FixedType(20), [[b"\x00" * 20, b"\xff" * 20]]),
    "structs": (_STRUCT, [[{"a": 1, "s": "x" * 20}, {"a": -1, "s": None}, None]]),
    "lists": (ListType(11, LongType(), **_OPTIONAL), [[[1, None], [], None]]),
    "maps": (
        MapType(11, StringType(), 12, LongType(), value_required=False), [[[("a", 1), ("b", None)]]]
    ),
    "lists of structs": (ListType(13, _STRUCT, **_OPTIONAL), [[[{"a": 1, "s": "x"}]]]),
    "lists in structs": (
        StructType(NestedField(11, "a", ListType(12, LongType(), **_OPTIONAL))), [[{"a": [1]}]]
    ),
}  # fmt: skip

_JAVA_DIFFERS = {
    "UUIDs": "engines do not agree on their order, so we keep no bounds",
    "a row group of long text": "Java's bounds leave the long text out, and rows are lost",
}
_PYICEBERG_DIFFERS = {
    "days of all years": OverflowError,
    "infinite timestamps": OverflowError,
    "infinite timestamps with zones": OverflowError,
    "nanoseconds": ValueError,
    "nanoseconds with zones": ValueError,
    "text before the surrogates": UnicodeEncodeError,
    "text that carries": "its upper bound is one, but not the least",
    "a row group of long text": "as in Java",
    "bytes that carry": "as with text",
    "UUIDs": "as in Java",
    "structs": "it keeps no bounds of fields",
    "lists": "it counts elements, which Java does not",
    "maps": "likewise",
    "lists of structs": "likewise",
    "lists in structs": "likewise",
}
"""Where PyIceberg differs. An error is one that would end a statement.

When this list becomes short, decision 0024 is worth another look.
"""
_MAPS = ("column-sizes", "value-counts", "null-value-counts", "lower-bounds", "upper-bounds")


def _written(folder: Path, name: str) -> tuple[dict[str, Any], str, Schema]:
    """Our metrics of a file with a column of the case's values, its path, and its schema."""
    kind, groups = _CASES[name]
    schema, stored = Schema(NestedField(1, "c", kind)), natural_type(kind)
    layout = layout_of(Table(folder, schema).state())
    assert layout is not None
    file = layout.new_file(str(folder / "file.parquet"))
    for group in groups:
        column = pa.array(group, _NUMBERS.get(type(kind), stored)).view(stored)
        rows = pa.RecordBatch.from_arrays([column], names=["c"])
        file.write(pa.Table.from_batches([layout.fitted(rows)]))
    return dict(layout.described(file, file.finish(), ())), file.location, schema


_NUMBERS: dict[type[IcebergType], pa.DataType] = {
    DateType: pa.int32(),
    **dict.fromkeys((TimeType, TimestampType, TimestamptzType), pa.int64()),
    **dict.fromkeys((TimestampNanoType, TimestamptzNanoType), pa.int64()),
}


def _by_id(described: dict[str, Any]) -> dict[str, dict[int, Any]]:
    return {
        name: dict(zip(described[name]["keys"], described[name]["values"], strict=True))
        for name in _MAPS
    }


def _of_pyiceberg(path: str, schema: Schema) -> dict[str, dict[int, Any]]:
    found = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(path),
        compute_statistics_plan(schema, {}),
        parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    return {
        name: {
            key: value.hex() if isinstance(value, bytes) else value
            for key, value in found[name.replace("-", "_")].items()
        }
        for name in _MAPS
    }


@pytest.mark.parametrize("name", _CASES)
def test_pyiceberg_finds_what_we_find_but_for_what_is_known(tmp_path: Path, name: str) -> None:
    ours, path, schema = _written(tmp_path, name)
    known = _PYICEBERG_DIFFERS.get(name)
    if isinstance(known, type):
        with pytest.raises(known):
            _of_pyiceberg(path, schema)
    else:
        assert (_by_id(ours) == _of_pyiceberg(path, schema)) is (known is None)


def test_java_finds_what_we_find_but_for_what_is_known(lake: LakeCatalog, tmp_path: Path) -> None:
    iceberg = lake._lake.gateway.jvm.org.apache.iceberg
    spec = iceberg.PartitionSpec.unpartitioned()
    for name in _CASES:
        folder = tmp_path / name
        folder.mkdir()
        ours, path, _ = _written(folder, name)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(
            iceberg.Files.localInput(path), iceberg.MetricsConfig.getDefault()
        )
        builder = iceberg.DataFiles.builder(spec).withPath(path).withFormat("parquet")
        file = builder.withFileSizeInBytes(1).withMetrics(metrics).build()
        theirs = json.loads(iceberg.ContentFileParser.toJson(file, spec).lower())
        assert (_by_id(ours) == _by_id(theirs)) is (name not in _JAVA_DIFFERS), name
