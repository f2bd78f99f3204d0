"""New manifests and manifest lists, of format version 3 and for tables without partitions.

PyIceberg's own writers end with version 2. Its Avro writer takes any schema, and its schemas of
version 3 are complete.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, data_file_with_partition
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from sparkport.spark.iceberg.manifests import DATA, Manifest, ManifestEntry

__all__ = ["added_entries", "manifest_content", "manifest_list_content"]

_VERSION: Final = 3
_ADDED = 1
_FILE_TYPE = data_file_with_partition(StructType(), _VERSION)
_ENTRY_SCHEMA = Schema(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(1, "snapshot_id", LongType(), required=False),
    NestedField(3, "sequence_number", LongType(), required=False),
    NestedField(4, "file_sequence_number", LongType(), required=False),
    NestedField(2, "data_file", _FILE_TYPE, required=True),
)
_LIST_SCHEMA = MANIFEST_LIST_FILE_SCHEMAS[_VERSION]


def manifest_content(
    files: Sequence[Mapping[str, Any]], snapshot_id: int, schema: Mapping[str, Any], spec_id: int
) -> bytes:
    """A manifest of data files that a snapshot adds.

    The files are in Iceberg's JSON form of files, and so is the table's schema. What the entries do
    not say they inherit from the manifest list: sequence numbers and first row ids.
    """
    entries = [Record(_ADDED, snapshot_id, None, None, _data_file(each)) for each in files]
    about = {
        "schema": json.dumps(schema),
        "partition-spec": "[]",
        "partition-spec-id": str(spec_id),
        "format-version": str(_VERSION),
        "content": "data",
    }
    return _avro(_ENTRY_SCHEMA, "manifest_entry", entries, about)


def _data_file(described: Mapping[str, Any]) -> Record:
    values = {
        "content": 0,
        "file_path": described["file-path"],
        "file_format": described["file-format"].upper(),
        "partition": Record(),
        "record_count": described["record-count"],
        "file_size_in_bytes": described["file-size-in-bytes"],
        "column_sizes": _by_id(described, "column-sizes"),
        "value_counts": _by_id(described, "value-counts"),
        "null_value_counts": _by_id(described, "null-value-counts"),
        "lower_bounds": _bytes_by_id(described, "lower-bounds"),
        "upper_bounds": _bytes_by_id(described, "upper-bounds"),
        "split_offsets": described["split-offsets"],
        "sort_order_id": described["sort-order-id"],
    }
    return Record(*(values.get(field.name) for field in _FILE_TYPE.fields))


def _by_id(described: Mapping[str, Any], name: str) -> dict[int, Any]:
    """A map of Iceberg's JSON form of files, which has keys and values in two lists."""
    known = described[name]
    return dict(zip(known["keys"], known["values"], strict=True))


def _bytes_by_id(described: Mapping[str, Any], name: str) -> dict[int, bytes]:
    return {key: bytes.fromhex(value) for key, value in _by_id(described, name).items()}


def manifest_list_content(manifests: Sequence[Manifest], snapshot: Mapping[str, Any]) -> bytes:
    """A manifest list of a snapshot, which is in Iceberg's JSON form of snapshots."""
    parent = snapshot.get("parent-snapshot-id")
    about = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot["sequence-number"]),
        "first-row-id": str(snapshot["first-row-id"]),
        "format-version": str(_VERSION),
    }
    return _avro(_LIST_SCHEMA, "manifest_file", list(map(_line, manifests)), about)


def _line(manifest: Manifest) -> Record:
    (added, existing, deleted), rows = manifest.file_counts, manifest.row_counts
    values = {
        "manifest_path": manifest.path,
        "manifest_length": manifest.length,
        "partition_spec_id": manifest.spec_id,
        "content": int(manifest.holds_deletes),
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.snapshot_id,
        "added_files_count": added,
        "existing_files_count": existing,
        "deleted_files_count": deleted,
        "added_rows_count": rows[0],
        "existing_rows_count": rows[1],
        "deleted_rows_count": rows[2],
        "partitions": None
        if manifest.summaries is None
        else [
            Record(each.contains_null, each.contains_nan, each.lower, each.upper)
            for each in manifest.summaries
        ],
        "first_row_id": manifest.first_row_id,
    }
    return Record(*(values.get(field.name) for field in _LIST_SCHEMA.fields))


def added_entries(
    files: Sequence[Mapping[str, Any]], manifest: Manifest
) -> tuple[ManifestEntry, ...]:
    """What a reader of `manifest_content` finds."""
    entries, first_row_id = [], manifest.first_row_id
    for file in files:
        entries.append(
            ManifestEntry(
                snapshot_id=manifest.snapshot_id,
                sequence_number=manifest.sequence_number,
                content=DATA,
                path=file["file-path"],
                format=file["file-format"].upper(),
                partition={},
                rows=file["record-count"],
                size=file["file-size-in-bytes"],
                column_sizes=_by_id(file, "column-sizes"),
                value_counts=_by_id(file, "value-counts"),
                null_counts=_by_id(file, "null-value-counts"),
                nan_counts={},
                lower_bounds=_bytes_by_id(file, "lower-bounds"),
                upper_bounds=_bytes_by_id(file, "upper-bounds"),
                encrypted=False,
                split_offsets=tuple(file["split-offsets"]),
                first_row_id=first_row_id,
                referenced_data_file=None,
                content_offset=None,
                content_length=None,
                spec_id=manifest.spec_id,
            )
        )
        if first_row_id is not None:
            first_row_id += file["record-count"]
    return tuple(entries)


def _avro(schema: Schema, name: str, records: list[Record], about: dict[str, str]) -> bytes:
    output = _Memory()
    with AvroOutputFile[Record](output, schema, name, metadata=about) as file:
        file.write_block(records)
    return output.content


class _Memory(OutputFile):
    """A file in memory."""

    content = b""

    def __init__(self) -> None:
        super().__init__("memory")

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        return cast(OutputStream, _Stream(self))


class _Stream(io.BytesIO):
    def __init__(self, file: _Memory) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        self._file.content = self.getvalue()
        super().close()
