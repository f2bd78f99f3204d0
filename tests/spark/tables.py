"""Iceberg tables made by hand, without Spark: Parquet files, manifests and metadata.

They contain whatever a test wants.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_LIST_FILE_SCHEMAS, data_file_with_partition
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import FloatType, IntegerType, LongType, NestedField, PrimitiveType, StringType

from sparkport.catalog.filters import (
    ColumnRef,
    Comparison,
    ComparisonKind,
    Constant,
    DuckType,
    Filter,
)
from sparkport.spark.iceberg.definition import define
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState

IO = StorageIO(dict)
BIGINT, VARCHAR = DuckType("BIGINT"), DuckType("VARCHAR")
NUMBERED = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


def with_field_ids(table: pa.Table, ids: Mapping[str, int]) -> pa.Table:
    """Top-level columns with the ids that Iceberg's writers leave in Parquet."""
    fields = [
        each.with_metadata({b"PARQUET:field_id": str(ids[each.name]).encode()})
        if each.name in ids
        else each
        for each in table.schema
    ]
    return table.cast(pa.schema(fields))


@dataclass
class Lines:
    """The entries of a manifest."""

    entries: list[dict[str, Any]]
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    content: int = 0
    sequence_number: int = 1
    first_row_id: int | None = None
    summaries: list[Record] | None = None


@dataclass
class Table:
    """A table that a test builds. Files are written at once, metadata by `state`."""

    folder: Path
    schema: Schema
    version: TableVersion = 3
    properties: dict[str, str] = field(default_factory=dict)
    specs: list[PartitionSpec] = field(default_factory=lambda: [UNPARTITIONED_PARTITION_SPEC])
    manifests: list[Lines] = field(default_factory=list)
    file_schema: Schema | None = None
    """The schema of the files, if it is not the table's."""
    operation: str = "append"

    def write(
        self, rows: pa.Table, name: str = "", *, row_group_size: int | None = None, **how: Any
    ) -> dict[str, Any]:
        """Write a data file, and return the entry for it, with all metrics."""
        path = f"{self.folder}/{name or uuid.uuid4()}.parquet"
        schema = self.file_schema or self.schema
        ids = {each.name: each.field_id for each in schema.fields}
        pq.write_table(with_field_ids(rows, ids), path, row_group_size=row_group_size, **how)
        entry = data_entry(path, rows.num_rows, size=Path(path).stat().st_size)
        for each in schema.fields:
            if each.name in rows.column_names and isinstance(each.field_type, PrimitiveType):
                _measure(entry, each, rows.column(each.name))
        return entry

    def append(self, *entries: dict[str, Any], **how: Any) -> None:
        self.manifests.append(Lines(list(entries), **how))

    def state(self) -> TableState:
        listed = [self._manifest(lines) for lines in self.manifests]
        manifest_list = f"{self.folder}/snap-{uuid.uuid4()}.avro"
        schema = MANIFEST_LIST_FILE_SCHEMAS[self.version]
        _write_avro(manifest_list, schema, "manifest_file", listed)
        snapshot = {
            "snapshot-id": 1,
            "sequence-number": 9,
            "timestamp-ms": 1_700_000_000_000,
            "manifest-list": manifest_list,
            "summary": {"operation": self.operation},
            "schema-id": self.schema.schema_id,
            **({"first-row-id": 0, "added-rows": 1} if self.version >= 3 else {}),
        }
        metadata = {
            "format-version": self.version,
            "table-uuid": str(uuid.uuid4()),
            "location": str(self.folder),
            "last-sequence-number": 9,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": self.schema.highest_field_id,
            "schemas": [json.loads(self.schema.model_dump_json())],
            "schema": json.loads(self.schema.model_dump_json()),
            "current-schema-id": self.schema.schema_id,
            "partition-specs": [json.loads(spec.model_dump_json()) for spec in self.specs],
            "partition-spec": [],
            "default-spec-id": self.specs[-1].spec_id,
            "last-partition-id": 1100,
            "properties": self.properties,
            "current-snapshot-id": 1,
            "snapshots": [snapshot],
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            **({"next-row-id": 10_000} if self.version >= 3 else {}),
        }
        parsed = TableMetadataUtil.parse_raw(json.dumps(metadata))
        definition = define(parsed.schema(), parsed.properties)
        identifier = Identifier("lake", ("a",), "t")
        return TableState(
            identifier, parsed, "", IO, parsed.schema(), parsed.current_snapshot(), definition
        )

    def _manifest(self, lines: Lines) -> Record:
        path = f"{self.folder}/manifest-{uuid.uuid4()}.avro"
        partition = lines.spec.partition_type(self.schema)
        file_type = data_file_with_partition(partition, self.version)
        fields = [
            NestedField(0, "status", IntegerType(), required=True),
            NestedField(1, "snapshot_id", LongType(), required=False),
            *(
                [NestedField(3, "sequence_number", LongType(), required=False)]
                if self.version > 1
                else []
            ),
            NestedField(2, "data_file", file_type, required=True),
        ]
        records = []
        for entry in lines.entries:
            values = {"content": 0, "block_size_in_bytes": 1, **entry}
            values["partition"] = Record(*entry.get("partition", ()))
            file = Record(*(values.get(each.name) for each in DATA_FILE_TYPE[self.version].fields))
            sequence = [entry.get("sequence_number")] if self.version > 1 else []
            records.append(Record(entry.get("status", 1), 1, *sequence, file))
        _write_avro(path, Schema(*fields), "manifest_entry", records)
        values = {
            "manifest_path": path,
            "manifest_length": len(IO.new_input(path)),
            "partition_spec_id": lines.spec.spec_id,
            "content": lines.content,
            "sequence_number": lines.sequence_number,
            "min_sequence_number": lines.sequence_number,
            "added_snapshot_id": 1,
            "added_files_count": len(lines.entries),
            "existing_files_count": 0,
            "deleted_files_count": 0,
            "added_rows_count": 0,
            "existing_rows_count": 0,
            "deleted_rows_count": 0,
            "partitions": lines.summaries,
            "first_row_id": lines.first_row_id,
        }
        return Record(
            *(values.get(each.name) for each in MANIFEST_LIST_FILE_SCHEMAS[self.version].fields)
        )


def data_entry(path: str, rows: int, **values: Any) -> dict[str, Any]:
    """An entry of a manifest, by the names of the specification; without metrics unless given."""
    return {
        "file_path": path,
        "file_format": "PARQUET",
        "record_count": rows,
        "file_size_in_bytes": values.pop("size", 1000),
        **values,
    }


def _measure(entry: dict[str, Any], column: NestedField, values: pa.ChunkedArray) -> None:
    def note(kind: str, value: Any) -> None:
        entry.setdefault(kind, {})[column.field_id] = value

    note("value_counts", len(values))
    note("null_value_counts", values.null_count)
    note("column_sizes", values.nbytes)
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values).fill_null(False)
        note("nan_value_counts", pc.sum(nan).as_py() or 0)
        values = values.filter(pc.invert(nan))
    if pa.types.is_nested(values.type) or values.null_count == len(values):
        return
    bounds = pc.min_max(values)
    note("lower_bounds", _serialised(column, bounds["min"]))
    note("upper_bounds", _serialised(column, bounds["max"]))


def _serialised(column: NestedField, value: pa.Scalar) -> bytes:
    kind = column.field_type
    assert isinstance(kind, PrimitiveType)
    if pa.types.is_temporal(value.type):
        value = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64())
    plain = value.as_py()
    return to_bytes(kind, float(plain) if isinstance(kind, FloatType) else plain)


def _write_avro(path: str, schema: Schema, name: str, records: Sequence[Record]) -> None:
    with AvroOutputFile[Record](IO.new_output(path), schema, name) as output:
        output.write_block(list(records))


def numbered(count: int, first: int = 0) -> pa.Table:
    """Rows of `NUMBERED`."""
    ids = list(range(first, first + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def compare(name: str, kind: str, value: Any, type_: DuckType = BIGINT) -> Comparison:
    return Comparison(ComparisonKind(kind), ColumnRef(name, type_), Constant(type_, value))


def where(name: str, kind: str, value: Any, type_: DuckType = BIGINT) -> Filter:
    return Filter((compare(name, kind, value, type_),))


def read(
    state: TableState,
    columns: Sequence[str] | None = None,
    row_filter: Filter | None = None,
    **how: Any,
) -> list[pa.RecordBatch]:
    """Plan and read the whole table in this process."""
    request = read_request(state, columns, row_filter, **how)
    plan = plan_scan(state, columns, row_filter)
    assert plan.readable
    return list(read_parts(request, plan.parts, lambda: None))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
