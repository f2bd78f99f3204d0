"""Deleted positions of a data file: delete vectors (version 3), position deletes (version 2)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg.locations import open_parquet, storage_at
from sparkport.spark.iceberg.parts import DeleteVector, FilePart
from sparkport.spark.iceberg.positions import among, array_of, between, bitmap_of

__all__ = ["VECTOR_MAGIC", "DeletedPositions", "deleted_bitmap", "deleted_positions", "read_vector"]

VECTOR_MAGIC = bytes.fromhex("d1d33964")


class DeletedPositions:
    """Which rows of a file are deleted. Positions are sorted and unique."""

    def __init__(self, positions: BitMap64) -> None:
        self._values = array_of(positions)

    def __len__(self) -> int:
        return len(self._values)

    def kept(self, start: int, rows: int) -> pa.BooleanArray | None:
        """A mask of the rows from `start` on: TRUE for those that remain; None if all do."""
        gone = between(self._values, start, start + rows - 1)
        if not len(gone):
            return None
        if len(gone) == rows:
            return pa.repeat(False, rows)
        return pc.invert(pc.is_in(pa.arange(start, start + rows), value_set=gone))

    def kept_of(self, positions: pa.Array) -> pa.BooleanArray:
        """A mask of some positions: TRUE for those that remain."""
        return pc.invert(among(positions, self._values))


def deleted_positions(part: FilePart, properties: Mapping[str, str]) -> DeletedPositions | None:
    """The deleted rows of a part; None if there are none.

    Raises: OSError, ValueError, ArrowInvalid for damaged files.
    """
    found = deleted_bitmap(part, properties)
    return DeletedPositions(found) if found else None


def deleted_bitmap(part: FilePart, properties: Mapping[str, str]) -> BitMap64:
    """The deleted positions as a bitmap, which the caller may change.

    Raises: OSError, ValueError, ArrowInvalid for damaged files.
    """
    if part.vector is not None:
        return read_vector(part.vector, properties)
    return _read_position_deletes(part, properties)


def read_vector(vector: DeleteVector, properties: Mapping[str, str]) -> BitMap64:
    """The positions in a `deletion-vector-v1` blob. Raises: OSError; ValueError if it is damaged.

    Layout, by the Puffin specification: length of the next two parts (big-endian), magic, 64-bit
    roaring bitmap, CRC-32 of magic and bitmap (big-endian).
    """
    storage, key = storage_at(vector.path, properties), (vector.path, vector.offset, vector.length)
    bitmap = None if storage.is_local else _bitmaps.find(key, None)
    if bitmap is None:
        bitmap = _bitmap_in(storage.read(*key))
        if not storage.is_local:
            _bitmaps.add(key, bitmap, len(bitmap))
    return BitMap64.deserialize(bitmap)


def _bitmap_in(blob: bytes) -> bytes:
    length = int.from_bytes(blob[:4], "big")
    content = blob[4 : 4 + length]
    if len(blob) != length + 8 or content[:4] != VECTOR_MAGIC:
        raise ValueError("not a delete vector")
    if zlib.crc32(content) != int.from_bytes(blob[-4:], "big"):
        raise ValueError("the delete vector's checksum is wrong")
    return content[4:]


_bitmaps: Cache[tuple[str, int, int], bytes] = Cache(16 * 1024 * 1024)
"""What was fetched from stores, by the place in a file. Such files never change."""


def _read_position_deletes(part: FilePart, properties: Mapping[str, str]) -> BitMap64:
    found = BitMap64()
    for path in part.position_deletes:
        with open_parquet(path, properties) as file:
            for batch in file.iter_batches(columns=["file_path", "pos"], use_threads=False):
                own = pc.equal(batch.column("file_path"), part.path)
                found |= bitmap_of(batch.column("pos").filter(own))
    return found
