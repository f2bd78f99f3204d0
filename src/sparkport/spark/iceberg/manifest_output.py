"""New manifests and manifest lists, of format version 3 and for tables without partitions.

PyIceberg's own writers end with version 2. Its schemas of version 3 are complete.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, data_file_with_partition
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from sparkport.spark.iceberg.avro_output import AvroOutput
from sparkport.spark.iceberg.manifests import DATA, POSITION_DELETES, Manifest, ManifestEntry

__all__ = ["Status", "added_entry", "manifest_content", "manifest_list_content"]

_VERSION: Final = 3
_FILE_TYPE = data_file_with_partition(StructType(), _VERSION)
_ENTRIES = AvroOutput(
    Schema(
        NestedField(0, "status", IntegerType(), required=True),
        NestedField(1, "snapshot_id", LongType(), required=False),
        NestedField(3, "sequence_number", LongType(), required=False),
        NestedField(4, "file_sequence_number", LongType(), required=False),
        NestedField(2, "data_file", _FILE_TYPE, required=True),
    ),
    "manifest_entry",
)
_LIST_SCHEMA = MANIFEST_LIST_FILE_SCHEMAS[_VERSION]
_LISTS = AvroOutput(_LIST_SCHEMA, "manifest_file")
_MOST_LINES = 10_000
"""Lines of manifest lists that are kept as they are written."""


class Status(Enum):
    """What a snapshot does with a file of a manifest."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


def manifest_content(
    lines: Sequence[tuple[Status, ManifestEntry]],
    snapshot_id: int,
    schema: Mapping[str, Any],
    spec_id: int,
    *,
    holds_deletes: bool,
) -> bytes:
    """A manifest that a snapshot adds. The schema is in Iceberg's JSON form.

    What entries of added files do not say they inherit from the manifest list: sequence numbers and
    first row ids.
    """
    about = {
        "schema": json.dumps(schema),
        "partition-spec": "[]",
        "partition-spec-id": str(spec_id),
        "format-version": str(_VERSION),
        "content": "deletes" if holds_deletes else "data",
    }
    records = [_ENTRIES.encoded(_entry(status, entry, snapshot_id)) for status, entry in lines]
    return _ENTRIES.content(records, about)


def _entry(status: Status, entry: ManifestEntry, snapshot_id: int) -> tuple[Any, ...]:
    if status is Status.ADDED:
        return status.value, snapshot_id, None, None, _file(entry, None)
    of = snapshot_id if status is Status.DELETED else entry.snapshot_id
    numbers = (entry.sequence_number, entry.file_sequence_number)
    return status.value, of, *numbers, _file(entry, entry.first_row_id)


def _file(entry: ManifestEntry, first_row_id: int | None) -> tuple[Any, ...]:
    values = {
        "content": entry.content,
        "file_path": entry.path,
        "file_format": entry.format,
        "partition": (),
        "record_count": entry.rows,
        "file_size_in_bytes": entry.size,
        "column_sizes": _map(entry.column_sizes),
        "value_counts": _map(entry.value_counts),
        "null_value_counts": _map(entry.null_counts),
        "nan_value_counts": _map(entry.nan_counts),
        "lower_bounds": _map(entry.lower_bounds),
        "upper_bounds": _map(entry.upper_bounds),
        "split_offsets": list(entry.split_offsets) or None,
        "sort_order_id": entry.sort_order_id,
        "first_row_id": first_row_id,
        "referenced_data_file": entry.referenced_data_file,
        "content_offset": entry.content_offset,
        "content_size_in_bytes": entry.content_length,
    }
    return tuple(values.get(field.name) for field in _FILE_TYPE.fields)


def _map(known: Mapping[int, Any]) -> dict[int, Any] | None:
    return dict(known) or None


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
    return _LISTS.content(list(map(_line, manifests)), about)


@functools.lru_cache(maxsize=_MOST_LINES)
def _line(manifest: Manifest) -> bytes:
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
            (each.contains_null, each.contains_nan, each.lower, each.upper)
            for each in manifest.summaries
        ],
        "first_row_id": manifest.first_row_id,
    }
    return _LISTS.encoded([values.get(field.name) for field in _LIST_SCHEMA.fields])


def added_entry(
    described: Mapping[str, Any],
    snapshot_id: int,
    sequence_number: int,
    first_row_id: int | None = None,
) -> ManifestEntry:
    """What a reader finds of a file, in Iceberg's JSON form, that a snapshot adds."""
    return ManifestEntry(
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        content=_CONTENTS[described["content"]],
        path=described["file-path"],
        format=described["file-format"].upper(),
        partition={},
        rows=described["record-count"],
        size=described["file-size-in-bytes"],
        column_sizes=_by_id(described, "column-sizes"),
        value_counts=_by_id(described, "value-counts"),
        null_counts=_by_id(described, "null-value-counts"),
        nan_counts={},
        lower_bounds=_bytes_by_id(described, "lower-bounds"),
        upper_bounds=_bytes_by_id(described, "upper-bounds"),
        encrypted=False,
        split_offsets=tuple(described.get("split-offsets", ())),
        first_row_id=first_row_id,
        referenced_data_file=described.get("referenced-data-file"),
        content_offset=described.get("content-offset"),
        content_length=described.get("content-size-in-bytes"),
        spec_id=described["spec-id"],
        file_sequence_number=sequence_number,
        sort_order_id=described.get("sort-order-id"),
    )


_CONTENTS = {"data": DATA, "position-deletes": POSITION_DELETES}


def _by_id(described: Mapping[str, Any], name: str) -> dict[int, Any]:
    """A map of Iceberg's JSON form of files, which has keys and values in two lists."""
    known = described.get(name)
    return {} if known is None else dict(zip(known["keys"], known["values"], strict=True))


def _bytes_by_id(described: Mapping[str, Any], name: str) -> dict[int, bytes]:
    return {key: bytes.fromhex(value) for key, value in _by_id(described, name).items()}
