"""What an Iceberg type is in Arrow, when nobody has declared anything else, and in Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from sparkport.errors import Unsupported
from sparkport.spark.iceberg.identifiers import quoted

__all__ = ["map_of", "natural_type", "spark_type"]

_PLAIN: Mapping[type[IcebergType], tuple[pa.DataType, str | None]] = {
    BooleanType: (pa.bool_(), "boolean"),
    IntegerType: (pa.int32(), "int"),
    LongType: (pa.int64(), "bigint"),
    FloatType: (pa.float32(), "float"),
    DoubleType: (pa.float64(), "double"),
    DateType: (pa.date32(), "date"),
    TimeType: (pa.time64("us"), None),
    TimestampType: (pa.timestamp("us"), "timestamp_ntz"),
    TimestamptzType: (pa.timestamp("us", "UTC"), "timestamp"),
    TimestampNanoType: (pa.timestamp("ns"), None),
    TimestamptzNanoType: (pa.timestamp("ns", "UTC"), None),
    StringType: (pa.string(), "string"),
    UUIDType: (pa.uuid(), "string"),
    BinaryType: (pa.binary(), "binary"),
    UnknownType: (pa.null(), "void"),
    # In Iceberg's files they are WKB, which is what DuckDB calls BLOB until a field's metadata says
    # more.
    GeometryType: (pa.binary(), None),
    GeographyType: (pa.binary(), None),
}
"""Arrow's type, and Spark's name of what it reads; None where it refuses the whole table (Iceberg
1.12).
"""


def natural_type(iceberg_type: IcebergType) -> pa.DataType:
    """What a column of another engine's table shows, and as what its files are read.

    Whether NULLs are allowed inside is not said: DuckDB does not ask. Raises: Unsupported, naming
    the type.
    """
    match iceberg_type:
        case StructType():
            return pa.struct(
                [
                    pa.field(field.name, natural_type(field.field_type))
                    for field in iceberg_type.fields
                ]
            )
        case ListType():
            return pa.list_(pa.field("element", natural_type(iceberg_type.element_type)))
        case MapType():
            return map_of(
                natural_type(iceberg_type.key_type),
                pa.field("value", natural_type(iceberg_type.value_type)),
            )
        case DecimalType():
            return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
        case FixedType():
            return pa.binary(len(iceberg_type))
        case _ if type(iceberg_type) in _PLAIN:
            return _PLAIN[type(iceberg_type)][0]
        case _:
            raise Unsupported(f"columns of Iceberg's type {iceberg_type} cannot be shown in DuckDB")


def map_of(keys: pa.DataType, values: pa.Field) -> pa.DataType:
    """Keys are never NULL."""
    return pa.map_(pa.field("key", keys, nullable=False), values)


def spark_type(iceberg_type: IcebergType) -> str:
    """The type as Spark SQL spells it. Raises: Unsupported, naming the type, where Spark cannot
    read it.
    """
    match iceberg_type:
        case StructType():
            fields = (
                f"{quoted(field.name)}: {spark_type(field.field_type)}"
                for field in iceberg_type.fields
            )
            return f"struct<{', '.join(fields)}>"
        case ListType():
            return f"array<{spark_type(iceberg_type.element_type)}>"
        case MapType():
            return (
                f"map<{spark_type(iceberg_type.key_type)}, {spark_type(iceberg_type.value_type)}>"
            )
        case DecimalType():
            return f"decimal({iceberg_type.precision},{iceberg_type.scale})"
        case FixedType():
            return "binary"
        case _:
            _, name = _PLAIN.get(type(iceberg_type), (None, None))
            if name is None:
                raise Unsupported(f"Spark has no type for columns of Iceberg's type {iceberg_type}")
            return name
