"""Values of columns as Iceberg's Java library takes them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sparkport.spark.iceberg.types.declared import encode
from sparkport.spark.lake.lake import Lake

__all__ = ["java_literal"]


def java_literal(lake: Lake, value: pa.Array, field: pa.Field, stored: IcebergType) -> Any | None:
    """The org.apache.iceberg.expressions.Literal of an array's only value.

    None where Iceberg has no literal for its type. Raises: BadRequest for a value that the column
    cannot hold.
    """
    jvm = lake.gateway.jvm
    literal = jvm.org.apache.iceberg.expressions.Expressions.lit
    found = encode(value, field, stored)[0]
    if isinstance(stored, FloatType | DoubleType) and not math.isfinite(found.as_py()):
        return None  # JSON has no such numbers, and engines differ in how they read them
    match stored:
        case BooleanType() | StringType():
            return literal(found.as_py())
        case IntegerType():
            return literal(jvm.java.lang.Integer.valueOf(found.as_py()))
        case LongType():
            return literal(jvm.java.lang.Long.valueOf(str(found.as_py())))
        case FloatType():
            return literal(jvm.java.lang.Float.valueOf(repr(found.as_py())))
        case DoubleType():
            return literal(found.as_py())
        case DecimalType():
            return literal(jvm.java.math.BigDecimal(str(found.as_py())))
        case BinaryType():
            return literal(jvm.java.nio.ByteBuffer.wrap(found.as_py()))
        case DateType():
            days = jvm.java.lang.Integer.valueOf(found.cast(pa.int32()).as_py())
            return literal(days).to(jvm.org.apache.iceberg.types.Types.DateType.get())
        case TimestampType() | TimestamptzType():
            micros = jvm.java.lang.Long.valueOf(str(found.cast(pa.int64()).as_py()))
            kind = jvm.org.apache.iceberg.types.Types.TimestampType
            return literal(micros).to(
                kind.withZone() if isinstance(stored, TimestamptzType) else kind.withoutZone()
            )
        case _:
            return None
