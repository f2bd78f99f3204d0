"""The natural Arrow type and the Spark SQL type of an Iceberg type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from sparkport.engine.type_table import ICEBERG_TYPES, IcebergRow
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.identifiers import quoted

__all__ = ["map_of", "named_type", "natural_type", "spark_type"]


@cache
def named_type(name: str) -> IcebergType:
    """The Iceberg type without parts of a name, such as "long" or "decimal(20, 0)"."""
    field = {"id": 1, "name": "", "type": name, "required": False}
    return NestedField.model_validate(field).field_type


_PLAIN: Mapping[type[IcebergType], IcebergRow] = {
    type(named_type(name)): row for name, row in ICEBERG_TYPES.items()
}


def natural_type(iceberg_type: IcebergType) -> pa.DataType:
    """The Arrow type in which another engine's columns are shown and files are read.

    Fields inside are nullable: DuckDB ignores NOT NULL there. Raises: Unsupported, naming the type.
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
            return _PLAIN[type(iceberg_type)].arrow
        case _:
            raise Unsupported(f"columns of Iceberg's type {iceberg_type} cannot be shown in DuckDB")


def map_of(keys: pa.DataType, values: pa.Field) -> pa.DataType:
    """A map type. Keys are never NULL."""
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
            row = _PLAIN.get(type(iceberg_type))
            if row is None or row.spark is None:
                raise Unsupported(f"Spark has no type for columns of Iceberg's type {iceberg_type}")
            return row.spark
