"""Deleted positions: delete vectors in Puffin files, and position delete files."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from sparkport.spark.iceberg.deletes import deleted_positions, read_vector
from sparkport.spark.iceberg.parts import DeleteVector, FilePart


def write_vector(path, positions, *, magic=b"\xd1\xd3\x39\x64", checksum=None, before=b"PFA1"):
    content = magic + BitMap64(positions).serialize()
    crc = zlib.crc32(content) if checksum is None else checksum
    blob = len(content).to_bytes(4, "big") + content + crc.to_bytes(4, "big")
    path.write_bytes(before + blob + b"a footer")
    return DeleteVector(str(path), len(before), len(blob), len(positions))


@pytest.mark.parametrize(
    "positions",
    [[0], [1, 5, 70_000], [2**33, 2**33 + 1], list(range(10_000)), list(range(0, 200_000, 3))],
    ids=["one", "few", "beyond 32 bits", "run", "dense"],
)
def test_positions_come_back(tmp_path, positions):
    assert list(read_vector(write_vector(tmp_path / "v.puffin", positions), {})) == positions


def test_a_vector_that_spark_wrote(tmp_path):
    # DELETE … WHERE id < 10, then UPDATE of 20 to 25, by Spark 4.1 and Iceberg 1.12.
    blob = bytes.fromhex(
        "00000023d1d339640100000000000000000000003b3000000100000f00020000000900140005002aa038a5"
    )
    (tmp_path / "v.puffin").write_bytes(blob)
    vector = DeleteVector(str(tmp_path / "v.puffin"), 0, len(blob), 16)
    assert list(read_vector(vector, {})) == [*range(10), *range(20, 26)]


@pytest.mark.parametrize("damage", [{"magic": b"oops"}, {"checksum": 1}])
def test_a_damaged_vector_is_refused(tmp_path, damage):
    with pytest.raises(ValueError, match="vector"):
        read_vector(write_vector(tmp_path / "v.puffin", [1], **damage), {})


def test_a_vector_cut_short_is_refused(tmp_path):
    vector = write_vector(tmp_path / "v.puffin", [1, 2])
    with pytest.raises(ValueError, match="short"):
        read_vector(DeleteVector(vector.path, vector.offset, vector.length + 1000, 2), {})


def kept(deleted, start, rows):
    mask = deleted.kept(start, rows)
    assert mask is not None
    return mask.to_pylist()


def test_masks_cover_the_rows_they_are_asked_for(tmp_path):
    part = FilePart("a", 100, 1, vector=write_vector(tmp_path / "v.puffin", [3, 4, 10, 11, 12, 99]))
    deleted = deleted_positions(part, {})
    assert deleted is not None
    assert deleted.kept(0, 3) is None
    assert deleted.kept(13, 80) is None
    assert kept(deleted, 2, 4) == [True, False, False, True]
    assert kept(deleted, 10, 3) == [False, False, False]
    assert kept(deleted, 98, 2) == [True, False]


def test_position_delete_files_name_rows_of_several_files(tmp_path):
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    pq.write_table(pa.table({"file_path": ["a", "b", "a"], "pos": [7, 1, 2]}), paths[0])
    pq.write_table(pa.table({"file_path": ["a"], "pos": [2]}), paths[1])
    deleted = deleted_positions(FilePart("a", 10, 1, position_deletes=tuple(paths)), {})
    assert deleted is not None
    assert len(deleted) == 2
    assert kept(deleted, 0, 10) == [position not in {2, 7} for position in range(10)]


def test_a_file_that_no_delete_names_has_all_its_rows(tmp_path):
    path = str(tmp_path / "d.parquet")
    pq.write_table(pa.table({"file_path": ["b"], "pos": [1]}), path)
    assert deleted_positions(FilePart("a", 10, 1, position_deletes=(path,)), {}) is None
    assert deleted_positions(FilePart("a", 10, 1), {}) is None
