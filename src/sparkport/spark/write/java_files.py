"""Written files as Iceberg's Java knows them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
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
    """org.apache.iceberg.DataFile for a Parquet file, with metrics from the file itself.

    `table` is an org.apache.iceberg.Table, `spec` one of its org.apache.iceberg.PartitionSpec,
    `partition` an org.apache.iceberg.StructLike, or None where the spec has no fields. Of the
    columns `without_bounds` no bounds are kept, whatever Java makes of the file.
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
    """org.apache.iceberg.ContentFile of an org.apache.iceberg.Table, from what Iceberg's JSON says
    of each.

    With two calls for each file: others that take a moment for one file take seconds for a
    thousand.
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
    metadata: TableMetadata, spec_id: int, partition: Mapping[int, Any]
) -> list[Any]:
    """Values as manifests have them, by the partition field's id, as Iceberg's JSON of files has
    them, in their order.

    That of a column that was dropped is NULL: its type is not known any more.
    """
    schema = metadata.schema()
    found: list[Any] = []
    for field in metadata.specs()[spec_id].fields:
        value = partition.get(field.field_id)
        if value is None or field.source_id not in schema.field_ids:
            found.append(None)
        else:
            kind = field.transform.result_type(schema.find_type(field.source_id))
            found.append(_single_value(kind, value))
    return found


def java_partition(lake: Lake, spec: Any, partition: Mapping[int, Any]) -> Any:
    """org.apache.iceberg.StructLike of an org.apache.iceberg.PartitionSpec, from values by the
    partition field's id.

    They are as manifests have them: dates as days, times and timestamps as microseconds. By way of
    Iceberg's JSON, for py4j does not tell a long from an int.
    """
    iceberg = lake.gateway.jvm.org.apache.iceberg
    kind = spec.partitionType()
    fields = Schema.model_validate_json(str(iceberg.SchemaParser.toJson(kind.asSchema()))).fields
    values = {
        str(each.field_id): _single_value(each.field_type, value)
        for each in fields
        # That of a column that was dropped: Iceberg cannot write it any more.
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
    """A value as Iceberg has it in JSON (appendix D of its specification), also in years that
    Python does not have.
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
