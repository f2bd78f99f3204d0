"""Iceberg's manifest lists and manifests, of format versions 1 to 3.

Strategy: PyIceberg's Avro reader with our own read schema, because its classes drop what version 3
added: first row ids and the locations of delete vectors. Values that entries inherit from their
manifest are filled in here. These files never change, so they are cached by path: a table of ten
thousand files is planned from memory the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    PARTITION_FIELD_SUMMARY_TYPE,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StructType

from sparkport.engine.cache import Cache

__all__ = [
    "DATA",
    "EQUALITY_DELETES",
    "Manifest",
    "ManifestEntry",
    "POSITION_DELETES",
    "ROW_ID_FIELD",
    "Summary",
    "added_files",
    "emptied_manifests",
    "is_remembered",
    "read_manifest",
    "read_manifest_list",
    "remember",
]

ROW_ID_FIELD = 2147483540
"""The reserved field id of `_row_id`, where a file holds it."""

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

_ADDED, _DELETED = 1, 2
_REMEMBERED_BYTES = 256 * 1024 * 1024
_REFERENCE = 8
"""Bytes that an object takes which is in memory anyway."""
_List: TypeAlias = "tuple[tuple[Manifest, ...], tuple[str, ...]]"
"""The manifests of a list that have live files, and the paths of those that have none."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a manifest list says of one partition field; bounds are as Iceberg serialises them."""

    contains_null: bool
    contains_nan: bool | None
    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A line of a manifest list. `summaries` are in the order of the partition spec's fields."""

    path: str
    length: int
    spec_id: int
    holds_deletes: bool
    sequence_number: int
    min_sequence_number: int
    """The lowest of its files."""
    snapshot_id: int
    """The snapshot that added it."""
    file_counts: tuple[int, int, int]
    """Files that it adds, keeps and removes. Tables of version 1 need not tell."""
    row_counts: tuple[int, int, int]
    first_row_id: int | None
    summaries: tuple[Summary, ...] | None
    encrypted: bool


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A live file of a manifest, with what it inherits.

    Mappings are by field id, and empty where nothing is known.
    """

    snapshot_id: int | None
    sequence_number: int
    content: int
    path: str
    format: str
    """In upper case."""
    partition: Mapping[int, Any]
    """By the partition field's id; days, microseconds and the like are integers."""
    rows: int
    size: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    encrypted: bool
    split_offsets: tuple[int, ...]
    first_row_id: int | None
    referenced_data_file: str | None
    content_offset: int | None
    content_length: int | None
    spec_id: int = 0
    file_sequence_number: int = 0
    """Number of the commit that added the file, also where its rows are older."""
    sort_order_id: int | None = None


def read_manifest_list(io: FileIO, path: str) -> tuple[Manifest, ...]:
    """The manifests of a snapshot that have live files.

    Raises: OSError, or ValueError for a file that is not a manifest list.
    """
    return _list(io, path)[0]


def emptied_manifests(io: FileIO, path: str) -> tuple[str, ...]:
    """The paths of the manifests of a snapshot that have no live files, only removed ones.

    Raises: OSError, or ValueError for a file that is not a manifest list.
    """
    return _list(io, path)[1]


def _list(io: FileIO, path: str) -> _List:
    known = _lists.find(path, None)
    if known is not None:
        return known
    emptied: list[str] = []
    live = tuple(_manifests(io, path, emptied.append))
    return _add_list(path, live, tuple(emptied))


def _add_list(path: str, live: tuple[Manifest, ...], emptied: tuple[str, ...]) -> _List:
    return _lists.add(path, (live, emptied), sum(map(_memory_of, live)) + 200 * len(emptied))


def read_manifest(io: FileIO, manifest: Manifest) -> tuple[ManifestEntry, ...]:
    """The live files of a manifest, in its order.

    Raises: OSError, or ValueError for a file that is not a manifest.
    """
    # After an upgrade to version 3, the next manifest list assigns old manifests their first row
    # ids.
    key = _key(manifest)
    known = _entries.find(key, None)
    if known is not None:
        return known
    entries = tuple(_live_entries(io, manifest))
    return _entries.add(key, entries, sum(map(_memory_of, entries)))


def added_files(io: FileIO, path: str) -> set[str]:
    """The paths of the files that the commit has added which wrote a manifest.

    Raises: OSError, or ValueError for a file that is not a manifest.
    """
    place = _FILE_FIELDS.index("file_path")
    with AvroFile[Record](io.new_input(path), _ENTRY_SCHEMA) as rows:
        return {str(row[4][place]) for row in rows if row[0] == _ADDED}


def remember(
    path: str,
    manifests: tuple[Manifest, ...],
    entries: Mapping[Manifest, tuple[ManifestEntry, ...]],
) -> None:
    """Spare readers a manifest list that was just written, and the files of new manifests."""
    known = set(manifests)
    emptied = tuple(each.path for each in entries if each not in known)
    # The manifests are those of the list before, but for the new ones.
    size = sum(map(_memory_of, entries)) + _REFERENCE * len(manifests)
    _lists.add(path, (manifests, emptied), size)
    for manifest, files in entries.items():
        _entries.add(_key(manifest), files, sum(map(_memory_of, files)))


def is_remembered(manifest: Manifest) -> bool:
    """Whether `read_manifest` has its files already."""
    return _entries.find(_key(manifest), None) is not None


def _key(manifest: Manifest) -> tuple[str, int, int | None]:
    return manifest.path, manifest.sequence_number, manifest.first_row_id


def _manifests(
    io: FileIO, path: str, skip: Callable[[str], None] = lambda path: None
) -> Iterator[Manifest]:
    """The manifests that have live files; `skip` is told the paths of the others."""
    with AvroFile[Record](io.new_input(path), _LIST_SCHEMA) as rows:
        for row in rows:
            values = _by_name(_LIST_FIELDS, row)
            if values["added_files_count"] == 0 and values["existing_files_count"] == 0:
                skip(values["manifest_path"])
                continue
            summaries = values["partitions"]
            yield Manifest(
                path=values["manifest_path"],
                length=values["manifest_length"],
                spec_id=values["partition_spec_id"],
                holds_deletes=values["content"] == 1,
                sequence_number=values["sequence_number"],
                min_sequence_number=values["min_sequence_number"],
                snapshot_id=values["added_snapshot_id"],
                file_counts=_counts(values, "files"),
                row_counts=_counts(values, "rows"),
                first_row_id=values["first_row_id"],
                summaries=None
                if summaries is None
                else tuple(Summary(*(summary[i] for i in range(4))) for summary in summaries),
                encrypted=values["key_metadata"] is not None,
            )


def _counts(values: Mapping[str, Any], what: str) -> tuple[int, int, int]:
    added, existing, deleted = (
        values[f"{each}_{what}_count"] or 0 for each in ("added", "existing", "deleted")
    )
    return added, existing, deleted


def _live_entries(io: FileIO, manifest: Manifest) -> Iterator[ManifestEntry]:
    next_row_id = manifest.first_row_id
    with AvroFile[Record](io.new_input(manifest.path), _ENTRY_SCHEMA) as rows:
        partition_ids = _partition_ids(rows.schema)
        for row in rows:
            status, snapshot_id, sequence_number, file = row[0], row[1], row[2], row[4]
            if status == _DELETED:
                continue
            if sequence_number is None:
                sequence_number = manifest.sequence_number
            values = _by_name(_FILE_FIELDS, file)
            first_row_id = values["first_row_id"]
            if manifest.first_row_id is None or values["content"] != DATA:
                # Java does the same: if the manifest list has no first row id, the files' own are
                # ignored.
                first_row_id = None
            elif first_row_id is None and next_row_id is not None:
                first_row_id = next_row_id
                next_row_id += values["record_count"]
            yield ManifestEntry(
                snapshot_id=snapshot_id,
                sequence_number=sequence_number,
                content=values["content"],
                path=values["file_path"],
                format=values["file_format"].upper(),
                partition={
                    field_id: values["partition"][position]
                    for position, field_id in enumerate(partition_ids)
                },
                rows=values["record_count"],
                size=values["file_size_in_bytes"],
                column_sizes=values["column_sizes"] or {},
                value_counts=values["value_counts"] or {},
                null_counts=values["null_value_counts"] or {},
                nan_counts=values["nan_value_counts"] or {},
                lower_bounds=values["lower_bounds"] or {},
                upper_bounds=values["upper_bounds"] or {},
                encrypted=values["key_metadata"] is not None,
                split_offsets=tuple(values["split_offsets"] or ()),
                first_row_id=first_row_id,
                referenced_data_file=values["referenced_data_file"],
                content_offset=values["content_offset"],
                content_length=values["content_size_in_bytes"],
                spec_id=manifest.spec_id,
                file_sequence_number=manifest.sequence_number if row[3] is None else row[3],
                sort_order_id=values["sort_order_id"],
            )


def _partition_ids(file_schema: Schema) -> tuple[int, ...]:
    """The ids of the partition's fields, as the file has them.

    So neither old specs nor promotions matter.
    """
    partition = file_schema.find_type(_PARTITION)
    return (
        tuple(field.field_id for field in partition.fields)
        if isinstance(partition, StructType)
        else ()
    )


def _by_name(names: Sequence[str], record: Record) -> dict[str, Any]:
    return {name: record[position] for position, name in enumerate(names)}


_PARTITION = 102
# Field 135, the columns of equality deletes, is unused here, but PyIceberg cannot skip a list.
_FILE_IDS = (
    134,
    100,
    101,
    _PARTITION,
    103,
    104,
    108,
    109,
    110,
    137,
    125,
    128,
    131,
    132,
    135,
    140,
    142,
    143,
    144,
    145,
)
_FILE_TYPE = StructType(
    *(field for field in DATA_FILE_TYPE[3].fields if field.field_id in _FILE_IDS)
)
_FILE_FIELDS = tuple(field.name for field in _FILE_TYPE.fields)

_ENTRY_SCHEMA = Schema(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(1, "snapshot_id", LongType(), required=False),
    NestedField(3, "sequence_number", LongType(), required=False),
    NestedField(4, "file_sequence_number", LongType(), required=False),
    NestedField(2, "data_file", _FILE_TYPE, required=True),
)

_LIST_SCHEMA = Schema(
    NestedField(500, "manifest_path", MANIFEST_LIST_FILE_SCHEMAS[3].find_type(500), required=True),
    NestedField(501, "manifest_length", LongType(), required=True),
    NestedField(502, "partition_spec_id", IntegerType(), required=True),
    # Version 1 has neither field: its files are data, from before there were sequence numbers.
    NestedField(517, "content", IntegerType(), required=True, initial_default=0),
    NestedField(515, "sequence_number", LongType(), required=True, initial_default=0),
    NestedField(516, "min_sequence_number", LongType(), required=True, initial_default=0),
    NestedField(503, "added_snapshot_id", LongType(), required=True),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
    NestedField(506, "deleted_files_count", IntegerType(), required=False),
    NestedField(512, "added_rows_count", LongType(), required=False),
    NestedField(513, "existing_rows_count", LongType(), required=False),
    NestedField(514, "deleted_rows_count", LongType(), required=False),
    NestedField(
        507,
        "partitions",
        ListType(508, PARTITION_FIELD_SUMMARY_TYPE, element_required=True),
        required=False,
    ),
    NestedField(519, "key_metadata", MANIFEST_LIST_FILE_SCHEMAS[3].find_type(519), required=False),
    NestedField(520, "first_row_id", LongType(), required=False),
)
_LIST_FIELDS = tuple(field.name for field in _LIST_SCHEMA.fields)


def _memory_of(item: ManifestEntry | Manifest) -> int:
    """A rough estimate, in bytes."""
    if isinstance(item, Manifest):
        return 500 + 200 * len(item.summaries or ())
    counts = (
        len(item.column_sizes)
        + len(item.value_counts)
        + len(item.null_counts)
        + len(item.nan_counts)
    )
    return 1500 + 60 * counts + 130 * (len(item.lower_bounds) + len(item.upper_bounds))


_lists: Cache[str, _List] = Cache(_REMEMBERED_BYTES // 8)
_entries: Cache[tuple[str, int, int | None], tuple[ManifestEntry, ...]] = Cache(_REMEMBERED_BYTES)
