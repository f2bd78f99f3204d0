"""The streams of a scan: what a ticket carries, so that any server can read it without planning.

A stream names the state that it was planned on, and its files. Their paths are relative to the
table's folder, where they are in it. Two kinds of tickets leave the files out, so that the server
plans again: those that would be too large, and those of callers who may not see every row and
column. For them, names of files and values of partitions could tell of the rest.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Any

from sparkport.engine.cache import Cache
from sparkport.errors import BadRequest, Conflict
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.iceberg.parts import DeleteVector, FilePart
from sparkport.spark.iceberg.table_state import TableState

__all__ = ["NO_SNAPSHOT", "FileSource", "Stream", "packed", "parts_of", "table_uuid", "unpacked"]

NO_SNAPSHOT = -1
_HEAD = struct.Struct("<16sqiHHB")
_MOST_BYTES = 256 * 1024
_LEVEL = 1


class FileSource(IntEnum):
    """Where the files of a stream are found."""

    CARRIED = 0
    """In the stream itself."""
    PLAN = 1
    """By planning again: they are a share of the plan."""
    REST_OF_PLAN = 2
    """By planning again: they are a share of what DuckDB cannot read by itself."""
    SPARK = 3
    """By Spark, which alone can read the table."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a scan, as it was planned."""

    table_uuid: bytes
    snapshot_id: int
    schema_id: int
    index: int
    count: int
    """How many streams the scan has."""
    source: FileSource
    files: bytes = b""
    """The files that the stream reads, if it carries them: `parts_of` decodes it."""


def packed(
    state: TableState, groups: Sequence[Sequence[FilePart]], source: FileSource, *, carried: bool
) -> list[bytes]:
    """The streams of a scan, each with its group of files where `carried` says so."""
    snapshot = NO_SNAPSHOT if state.snapshot is None else state.snapshot.snapshot_id
    own = (table_uuid(state), snapshot, state.schema.schema_id)
    streams = []
    for index, group in enumerate(groups):
        body = _encoded(state, group) if carried and source is not FileSource.SPARK else None
        kind = source if body is None else FileSource.CARRIED
        streams.append(_HEAD.pack(*own, index, len(groups), kind) + (body or b""))
    return streams


def unpacked(state: TableState, partition: bytes) -> Stream:
    """The stream that a partition of a table names. Raises: BadRequest."""
    try:
        table, snapshot, schema, index, count, source = _HEAD.unpack(partition[: _HEAD.size])
        files = partition[_HEAD.size :]
        return Stream(table, snapshot, schema, index, count, FileSource(source), files)
    except (struct.error, ValueError) as error:
        raise BadRequest(f"the partition is not one of table {state.identifier}") from error


def parts_of(state: TableState, stream: Stream) -> tuple[FilePart, ...]:
    """The files that a stream carries. Raises: Conflict when the table has moved since."""
    known = _decoded.find((state, stream.files), None)
    if known is not None:
        return known
    folders = _folders(state)
    moved, parts = json.loads(zlib.decompress(stream.files))
    if moved != _checksum(folders):
        raise Conflict(
            f"table {state.identifier} has moved since the query was planned: run it again"
        )
    decoded = tuple(_part(folders, fields) for fields in parts)
    return _decoded.add((state, stream.files), decoded, len(stream.files))


_decoded: Cache[tuple[TableState, bytes], tuple[FilePart, ...]] = Cache(
    1024 * 1024, unused_seconds=60.0
)
"""What `parts_of` has returned, weighed by the bytes of its streams."""


def table_uuid(state: TableState) -> bytes:
    return state.metadata.table_uuid.bytes


def _encoded(state: TableState, parts: Sequence[FilePart]) -> bytes | None:
    """The files as bytes; None if there are too many, or if JSON cannot hold one of the values."""
    try:
        folders = _folders(state)
        text = json.dumps([_checksum(folders), [_fields(folders, part) for part in parts]])
    except TypeError:
        return None
    body = zlib.compress(text.encode(), _LEVEL)
    return body if len(body) <= _MOST_BYTES else None


def _fields(folders: Sequence[str], part: FilePart) -> list[Any]:
    vector = part.vector
    return [
        _relative(folders, part.path),
        part.rows,
        part.size,
        part.first_row_id,
        part.may_hold_row_ids,
        None if vector is None else [_relative(folders, vector.path), *astuple(vector)[1:]],
        [_relative(folders, path) for path in part.position_deletes],
        part.partition,
        part.row_groups,
        part.split_offsets,
        part.bytes,
    ]


def _part(folders: Sequence[str], fields: list[Any]) -> FilePart:
    path, rows, size, first, may_hold, vector, deletes, partition, groups, offsets, read = fields
    return FilePart(
        path=_absolute(folders, path),
        rows=rows,
        size=size,
        first_row_id=first,
        may_hold_row_ids=may_hold,
        vector=None
        if vector is None
        else DeleteVector(_absolute(folders, vector[0]), vector[1], vector[2], vector[3]),
        position_deletes=tuple(_absolute(folders, each) for each in deletes),
        partition=tuple((field_id, value) for field_id, value in partition),
        row_groups=None if groups is None else (groups[0], groups[1]),
        split_offsets=tuple(offsets),
        bytes=read,
    )


def _checksum(folders: Sequence[str]) -> int:
    return zlib.crc32(folders[0].encode())


def _folders(state: TableState) -> tuple[str, ...]:
    """The table's folder, in each spelling that paths of a local folder have."""
    location = str(state.metadata.location).rstrip("/") + "/"
    local = local_path(location)
    if local is None:
        return (location,)
    return tuple(f"{prefix}{str(local).rstrip('/')}/" for prefix in ("", "file:", "file://"))


def _relative(folders: Sequence[str], path: str) -> str:
    """A path relative to one of the folders, behind that folder's number.

    A path elsewhere stays as it is: no URI begins with a digit.
    """
    for number, folder in enumerate(folders):
        if path.startswith(folder):
            return f"{number}:{path[len(folder) :]}"
    return path


def _absolute(folders: Sequence[str], path: str) -> str:
    number, colon, rest = path.partition(":")
    return folders[int(number)] + rest if colon and number.isdigit() else path
