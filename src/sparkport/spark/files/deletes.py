"""The deleted positions of a data file: delete vectors of version 3, position delete files of version 2."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sparkport.spark.files.locations import open_parquet, read_range
from sparkport.spark.files.parts import DeleteVector, FilePart

__all__ = ["DeletedPositions", "deleted_positions", "read_vector"]

_MAGIC = bytes.fromhex("d1d33964")


class DeletedPositions:
    """Which rows of a file are gone. Positions are sorted and unique."""

    def __init__(self, positions: array[int]) -> None:
        self._positions = positions
        self._values = pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions)])

    def __len__(self) -> int:
        return len(self._positions)

    def kept(self, start: int, rows: int) -> pa.BooleanArray | None:
        """TRUE for those of the rows from `start` on that are not deleted; None if that is all of them."""
        first = bisect_left(self._positions, start)
        last = bisect_left(self._positions, start + rows, first)
        if first == last:
            return None
        if last - first == rows:
            return pa.repeat(False, rows)
        return pc.invert(pc.is_in(pa.arange(start, start + rows), value_set=self._values.slice(first, last - first)))


def deleted_positions(part: FilePart, properties: Mapping[str, str]) -> DeletedPositions | None:
    """None if no row is deleted. Raises: OSError, ValueError, ArrowInvalid for damaged files."""
    if part.vector is not None:
        positions = read_vector(part.vector, properties)
    elif part.position_deletes:
        positions = _read_position_deletes(part, properties)
    else:
        return None
    return DeletedPositions(positions) if positions else None


def read_vector(vector: DeleteVector, properties: Mapping[str, str]) -> array[int]:
    """The positions in a `deletion-vector-v1` blob. Raises: OSError; ValueError if it is damaged.

    Its layout, by the Puffin specification: length of the next two (big-endian), magic, 64-bit roaring bitmap, CRC-32
    of magic and bitmap (big-endian).
    """
    blob = read_range(vector.path, vector.offset, vector.length, properties)
    length = int.from_bytes(blob[:4], "big")
    content = blob[4 : 4 + length]
    if len(blob) != length + 8 or content[:4] != _MAGIC:
        raise ValueError("not a delete vector")
    if zlib.crc32(content) != int.from_bytes(blob[-4:], "big"):
        raise ValueError("the delete vector's checksum is wrong")
    positions: array[int] = BitMap64.deserialize(content[4:]).to_array()
    return array("q", positions.tobytes()) if positions.typecode != "q" else positions


def _read_position_deletes(part: FilePart, properties: Mapping[str, str]) -> array[int]:
    found = BitMap64()
    for path in part.position_deletes:
        with open_parquet(path, properties) as file:
            for batch in file.iter_batches(columns=["file_path", "pos"], use_threads=False):
                own = pc.equal(batch.column("file_path"), part.path)
                found.update(batch.column("pos").filter(own).to_pylist())
    return array("q", found.to_array().tobytes())
