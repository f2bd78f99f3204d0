"""Delete vectors of format version 3: the deleted rows of data files, in a Puffin file per commit.

Its layout, by the Puffin specification and as Iceberg's BaseDVFileWriter writes it: magic, blobs,
and a footer of magic, JSON that says what is where, its length, flags, magic. For the layout of the
blobs see `read_vector`.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.locations import ObjectStoreLocationProvider, SimpleLocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from sparkport.errors import NotWritable
from sparkport.spark.iceberg.deletes import VECTOR_MAGIC, deleted_bitmap
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.manifests import ManifestEntry
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.iceberg.positions import bitmap_of
from sparkport.spark.iceberg.read import file_errors
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Located, WrittenVector
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.java_files import java_content_files, partition_values

__all__ = ["WrittenVector", "described_deletes", "java_delete_files", "write_vectors"]

_PUFFIN = b"PFA1"
_ROW_POSITION = 2147483645
"""The reserved field id of a row's position, which vectors contain."""


def write_vectors(
    state: TableState, removed: Sequence[Located], staging: Staging, properties: Mapping[str, str]
) -> list[WrittenVector]:
    """Write a vector for each of the data files: rows to be deleted, and those already deleted.

    All vectors are in one Puffin file. This process must be able to reach the table's storage.
    Raises: PreconditionFailed when the present delete files are missing or damaged, or the storage
    takes no new files; LimitExceeded when it is full; PermissionDenied; NotWritable.
    """
    if not removed:
        return []
    _expect_writable_partitions(state, removed)
    content, blobs = bytearray(_PUFFIN), []
    for located in removed:
        with file_errors(str(state.identifier)):
            positions = deleted_bitmap(located.part, properties) | bitmap_of(located.positions)
        blob = _content(positions)
        blobs.append(_Blob(len(content), len(blob), len(positions), located))
        content += blob
    content += _footer(blobs)
    path = _new_location(state, staging)
    staging.will_write(path)
    with writing(state.identifier):
        storage_at(path, properties).write(path, bytes(content))
    return [each.written(state.metadata, path, len(content)) for each in blobs]


def _expect_writable_partitions(state: TableState, removed: Sequence[Located]) -> None:
    """Refuse partitions of a dropped column.

    Iceberg does not know their types any more, and takes a vector in another partition for damage.
    Raises: NotWritable.
    """
    columns, specs = state.metadata.schema().field_ids, state.metadata.specs()
    lost = {
        spec_id: [each.field_id for each in spec.fields if each.source_id not in columns]
        for spec_id, spec in specs.items()
    }
    for located in removed:
        if any(located.partition.get(field_id) is not None for field_id in lost[located.spec_id]):
            raise NotWritable(
                f"rows of table {state.identifier} are in partitions of a column that was dropped, "
                "where they cannot be changed: run Iceberg's procedure rewrite_data_files on it in "
                "Spark first"
            )


@dataclass(frozen=True, slots=True)
class _Blob:
    offset: int
    length: int
    rows: int
    located: Located

    def written(self, metadata: TableMetadata, path: str, size: int) -> WrittenVector:
        place, of = (path, "PUFFIN", size, self.rows), self.located
        partition = _partition(metadata, of.spec_id, of.partition)
        vector = _described(*place, of.spec_id, partition, of.part.path, self.offset, self.length)
        return WrittenVector(
            path, vector, tuple(described_deletes(metadata, entry) for entry in of.replaced)
        )

    def in_footer(self) -> dict[str, Any]:
        return {
            "type": "deletion-vector-v1",
            "fields": [_ROW_POSITION],
            # Not known yet, for which the specification prescribes -1.
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": self.offset,
            "length": self.length,
            "properties": {
                "referenced-data-file": self.located.part.path,
                "cardinality": str(self.rows),
            },
        }


def _partition(
    metadata: TableMetadata, spec_id: int, partition: Mapping[int, Any]
) -> Sequence[Any]:
    return partition_values(metadata.schema(), metadata.specs()[spec_id].fields, partition)


def _content(positions: BitMap64) -> bytes:
    positions.run_optimize()
    content = VECTOR_MAGIC + positions.serialize()
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def _footer(blobs: Sequence[_Blob]) -> bytes:
    contents = {
        "blobs": [each.in_footer() for each in blobs],
        "properties": {"created-by": "Sparkport"},
    }
    payload = json.dumps(contents).encode()
    flags = bytes(4)
    return _PUFFIN + payload + len(payload).to_bytes(4, "little") + flags + _PUFFIN


def _new_location(state: TableState, staging: Staging) -> str:
    location, properties = state.metadata.location, state.metadata.properties
    in_store = properties.get("write.object-storage.enabled", "").lower() == "true"
    places = (ObjectStoreLocationProvider if in_store else SimpleLocationProvider)(
        location, properties
    )
    return places.new_data_location(f"{staging.id}-{uuid.uuid4().hex[:16]}-deletes.puffin")


def described_deletes(metadata: TableMetadata, entry: ManifestEntry) -> Mapping[str, Any]:
    """A delete file of the table in Iceberg's JSON form of files."""
    partition = _partition(metadata, entry.spec_id, entry.partition)
    place = (entry.path, entry.format, entry.size, entry.rows, entry.spec_id, partition)
    return _described(
        *place, entry.referenced_data_file, entry.content_offset, entry.content_length
    )


def _described(
    path: str,
    file_format: str,
    size: int,
    rows: int,
    spec_id: int,
    partition: Sequence[Any],
    data_file: str | None,
    offset: int | None,
    length: int | None,
) -> Mapping[str, Any]:
    said = {
        "spec-id": spec_id,
        "content": "position-deletes",
        "file-path": path,
        "file-format": file_format,
        "partition": partition,
        "file-size-in-bytes": size,
        "record-count": rows,
        "referenced-data-file": data_file,
        "content-offset": offset,
        "content-size-in-bytes": length,
    }
    return {name: value for name, value in said.items() if value is not None}


def java_delete_files(
    lake: Lake, table: Any, written: Sequence[WrittenVector]
) -> tuple[list[Any], list[Any]]:
    """The vectors as org.apache.iceberg.DeleteFile objects, and those that they replace.

    `table` is an org.apache.iceberg.Table. The results are for RowDelta's addDeletes and
    removeDeletes, with validateFromSnapshot of the snapshot in which the rows were located.
    """
    added = [each.described for each in written]
    replaced = [described for each in written for described in each.replaced]
    files = java_content_files(lake, table, [*added, *replaced])
    return files[: len(added)], files[len(added) :]
