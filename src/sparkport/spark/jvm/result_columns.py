"""The columns of a query's result, with distinct names and in types that DuckDB has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog.names import folded
from sparkport.spark.iceberg.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_type", "distinct_names", "presentable", "presented"]


def presented(rows: DataFrame) -> tuple[DataFrame, pa.Schema]:
    """The rows with distinct names and in types that DuckDB has, and their Arrow schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names = distinct_names(rows.columns)
    if names != rows.columns:
        rows = rows.toDF(*names)
    shown = [presentable(field.dataType) for field in rows.schema]
    if any(kind != field.dataType for kind, field in zip(shown, rows.schema, strict=True)):
        rows = rows.select(
            *(
                rows[quoted(name)].cast(kind).alias(name)
                for name, kind in zip(names, shown, strict=True)
            )
        )
    schema: pa.Schema = to_arrow_schema(rows.schema)
    return rows, pa.schema([pa.field(field.name, field.type) for field in schema])


def distinct_names(names: Iterable[str]) -> list[str]:
    """Names that DuckDB tells apart: the second `a` becomes `a_1`, as in DuckDB itself."""
    taken: set[bytes] = set()
    found = []
    for position, name in enumerate(names):
        base = name or f"column{position}"
        candidate, number = base, 0
        while folded(candidate) in taken:
            number += 1
            candidate = f"{base}_{number}"
        taken.add(folded(candidate))
        found.append(candidate)
    return found


def presentable(kind: DataType) -> DataType:
    """The nearest type that DuckDB has. Types that only Spark has, such as VARIANT, become text."""
    from pyspark.sql import types

    match kind:
        case types.ArrayType():
            element = presentable(kind.elementType)
            return kind if element == kind.elementType else types.ArrayType(element)
        case types.MapType():
            key, value = presentable(kind.keyType), presentable(kind.valueType)
            return (
                kind
                if (key, value) == (kind.keyType, kind.valueType)
                else types.MapType(key, value)
            )
        case types.StructType() if kind.fields:
            return _presentable_struct(kind)
        case types.NullType():
            return types.IntegerType()  # as DuckDB does with a bare NULL
        case types.UserDefinedType():
            return presentable(kind.sqlType())
        case _ if type(kind) in _known():
            return kind
        case _:
            return types.StringType()


def _presentable_struct(kind: StructType) -> StructType:
    from pyspark.sql import types

    names = distinct_names(kind.names)
    shown = [presentable(field.dataType) for field in kind.fields]
    if names == kind.names and shown == [field.dataType for field in kind.fields]:
        return kind
    # Spark does not trust a cast to keep NOT NULL.
    return types.StructType(
        [types.StructField(name, each) for name, each in zip(names, shown, strict=True)]
    )


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type for a Spark type; for a type that DuckDB lacks, that of `presentable`."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(presentable(kind))


def _known() -> frozenset[type]:
    from pyspark.sql import types

    return frozenset(
        {
            *(
                types.BooleanType,
                types.ByteType,
                types.ShortType,
                types.IntegerType,
                types.LongType,
            ),
            *(
                types.FloatType,
                types.DoubleType,
                types.DecimalType,
                types.StringType,
                types.BinaryType,
            ),
            *(
                types.DateType,
                types.TimestampType,
                types.TimestampNTZType,
                types.TimeType,
                types.DayTimeIntervalType,
            ),
        }
    )
