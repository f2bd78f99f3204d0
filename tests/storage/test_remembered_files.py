"""What came from a store is not fetched again, as long as there is room for it."""

from __future__ import annotations

import uuid
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.parts.faults import FaultProxy
from tests.parts.s3 import S3Server

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg import locations
from sparkport.spark.iceberg.deletes import VECTOR_MAGIC, read_vector
from sparkport.spark.iceberg.locations import open_parquet
from sparkport.spark.iceberg.parts import DeleteVector
from sparkport.spark.iceberg.s3_storage import S3Storage


@pytest.fixture
def options(s3: S3Server, proxy: FaultProxy) -> dict[str, str]:
    return s3.options(proxy.endpoint())


@pytest.fixture
def location(s3: S3Server) -> str:
    return f"s3://{s3.bucket}/{uuid.uuid4().hex}"


def _written(options: dict[str, str], location: str, rows: int) -> int:
    table = pa.table({f"c{n}": pa.array(range(n, rows + n)) for n in range(4)})
    storage = S3Storage(options)
    with storage.create(location) as sink:
        pq.write_table(table, sink, compression="none", use_dictionary=False)
    return storage.size(location)


def _read(options: dict[str, str], location: str, size: int) -> int:
    with open_parquet(location, options, size) as file:
        return int(file.read(["c1"]).num_rows)


def test_a_footer_is_fetched_once(
    options: dict[str, str], location: str, proxy: FaultProxy
) -> None:
    size = _written(options, location, 100_000)
    proxy.forget()
    assert _read(options, location, size) == 100_000
    first = proxy.operations().count("GetObject")
    proxy.forget()
    assert _read(options, location, size) == 100_000
    assert proxy.operations().count("GetObject") == first - 1


def test_a_small_file_is_fetched_once(
    options: dict[str, str], location: str, proxy: FaultProxy
) -> None:
    size = _written(options, location, 10)
    proxy.forget()
    assert [_read(options, location, size) for _ in range(3)] == [10, 10, 10]
    assert proxy.operations() == ["GetObject"]


def test_a_file_of_another_size_is_another_one(
    options: dict[str, str], location: str, proxy: FaultProxy
) -> None:
    assert _read(options, location, _written(options, location, 10)) == 10
    assert _read(options, location, _written(options, location, 500)) == 500


def test_little_is_remembered(
    options: dict[str, str], location: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "_small_files", Cache(10_000))
    names = [f"{location}/{number}" for number in range(20)]
    sizes = [_written(options, name, 10) for name in names]
    assert sum(sizes) > 20_000
    for _ in range(2):
        proxy.forget()
        assert {_read(options, *each) for each in zip(names, sizes, strict=True)} == {10}
        assert len(proxy.operations()) == 20


def test_a_delete_vector_is_fetched_once_and_is_everybodys_own(
    options: dict[str, str], location: str, proxy: FaultProxy
) -> None:
    content = VECTOR_MAGIC + BitMap64([1, 5]).serialize()
    blob = len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")
    S3Storage(options).write(location, blob)
    vector = DeleteVector(location, 0, len(blob), 2)
    proxy.forget()
    found = read_vector(vector, options)
    found.add(7)
    assert list(read_vector(vector, options)) == [1, 5]
    assert proxy.operations() == ["GetObject"]
