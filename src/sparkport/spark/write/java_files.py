"""Written files as Iceberg's Java objects."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from sparkport.spark.iceberg.civil_days import iso_day
from sparkport.spark.iceberg.data_format import DATA_FORMAT
from sparkport.spark.iceberg.types.java_spelling import loaded_schema
from sparkport.spark.lake.lake import Lake

__all__ = ["java_content_files", "java_file", "java_partition", "partition_values"]


def java_file(
    lake: Lake,
    table: Any,
    spec: Any,
    path: str,
    size: int,
    partition: Any | None,
    without_bounds: Sequence[int],
) -> Any:
    """The org.apache.iceberg.DataFile of a Parquet file, with metrics from the file itself.

    `table` is an org.apache.iceberg.Table, `spec` one of its org.apache.iceberg.PartitionSpec,
    `partition` an org.apache.iceberg.StructLike, or None where the spec has no fields. Columns in
    `without_bounds` get no bounds, whatever Java reads in the file.
    """
    iceberg = lake.gateway.jvm.org.apache.iceberg
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(
        table.io().newInputFile(path), iceberg.MetricsConfig.forTable(table)
    )
    for bounds in (metrics.lowerBounds(), metrics.upperBounds()):
        bounds.keySet().removeAll(list(without_bounds))
    builder = iceberg.DataFiles.builder(spec)
    builder.withPath(path).withFormat(DATA_FORMAT).withFileSizeInBytes(size).withMetrics(metrics)
    if partition is not None:
        builder.withPartition(partition)
    return builder.build()


def java_content_files(lake: Lake, table: Any, described: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Make org.apache.iceberg.ContentFile objects from Iceberg's JSON form of files.

    This takes two calls for each file. Ways with more calls are quick for one file, but take
    seconds for a thousand.
    """
    if not described:
        return []
    iceberg = lake.gateway.jvm.org.apache.iceberg
    parser, specs = iceberg.ContentFileParser, table.specs()
    plain = [
        {**each, "partition": [None if _is_odd(value) else value for value in each["partition"]]}
        for each in described
    ]
    tree = iceberg.util.JsonUtil.mapper().readTree(json.dumps(plain))
    for index, each in enumerate(described):
        for position, value in enumerate(each["partition"]):
            if _is_odd(value):  # JSON has no such numbers; Java's tree has
                tree.get(index).get("partition").set(position, value)
    return [parser.fromJson(tree.get(index), specs) for index in range(len(described))]


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def partition_values(
    schema: Schema, fields: Sequence[PartitionField], partition: Mapping[int, Any]
) -> list[Any]:
    """Convert partition values, as manifests have them, to Iceberg's JSON form of files.

    `fields` are those of the partition spec, in their order. The value of a column that the schema
    does not have any more is NULL: its type is not known.
    """
    found: list[Any] = []
    for field in fields:
        value = partition.get(field.field_id)
        if value is None or field.source_id not in schema.field_ids:
            found.append(None)
        else:
            kind = field.transform.result_type(schema.find_type(field.source_id))
            found.append(_single_value(kind, value))
    return found


def java_partition(lake: Lake, spec: Any, partition: Mapping[int, Any]) -> Any:
    """Make an org.apache.iceberg.StructLike of partition values, by the id of the partition field.

    The values are as manifests have them: dates as days, times and timestamps as microseconds. They
    go through Iceberg's JSON, as py4j does not tell a long from an int.
    """
    iceberg = lake.gateway.jvm.org.apache.iceberg
    kind = spec.partitionType()
    fields = loaded_schema(str(iceberg.SchemaParser.toJson(kind.asSchema()))).fields
    values = {
        str(each.field_id): _single_value(each.field_type, value)
        for each in fields
        # The value of a dropped column: Iceberg cannot write it any more.
        if (value := partition.get(each.field_id)) is not None
        and not isinstance(each.field_type, UnknownType)
    }
    odd = {key: value for key, value in values.items() if _is_odd(value)}
    tree = iceberg.util.JsonUtil.mapper().readTree(
        json.dumps({key: values[key] for key in values.keys() - odd.keys()})
    )
    for key, value in odd.items():
        tree.put(key, value)
    return iceberg.SingleValueParser.fromJson(kind, tree)


def _single_value(kind: IcebergType, value: Any) -> Any:
    """A value in Iceberg's JSON form (appendix D of its specification).

    This includes years that Python does not have.
    """
    match kind:
        case DateType():
            return iso_day(value)
        case TimeType():
            return _iso_time(value, 6)
        case TimestampType():
            return _iso_timestamp(value, 6)
        case TimestamptzType():
            return _iso_timestamp(value, 6) + "+00:00"
        case TimestampNanoType():
            return _iso_timestamp(value, 9)
        case TimestamptzNanoType():
            return _iso_timestamp(value, 9) + "+00:00"
        case DecimalType():
            return f"{value:f}"
        case UUIDType():
            return str(value)
        case BinaryType() | FixedType():
            return value.hex()
        case _:
            return value


def _iso_timestamp(value: int, digits: int) -> str:
    days, rest = divmod(value, 86_400 * 10**digits)
    return f"{iso_day(days)}T{_iso_time(rest, digits)}"


def _iso_time(value: int, digits: int) -> str:
    seconds, fraction = divmod(value, 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{fraction:0{digits}}"
