"""Rows of small scans are remembered as long as they are the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.lake_tables import find

from sparkport.catalog import Context, ScanOptions
from sparkport.spark.iceberg.read import read_parts
from sparkport.spark.scan.recent_rows import recent_rows

BATCHES = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]
LARGE = pa.record_batch({"a": list(range(40_000))})


class Reader:
    def __init__(self, batches: list[pa.RecordBatch], fails: bool = False) -> None:
        self._batches = batches
        self._fails = fails
        self.asked = 0

    def __call__(self) -> Iterator[pa.RecordBatch]:
        self.asked += 1
        yield from self._batches
        if self._fails:
            raise OSError("the rest is gone")


def test_rows_are_read_once_under_a_key() -> None:
    reader, key = Reader(BATCHES), object()
    assert list(recent_rows(key, reader)) == BATCHES
    assert list(recent_rows(key, reader)) == BATCHES
    assert list(recent_rows(object(), reader)) == BATCHES
    assert reader.asked == 2


def test_many_rows_are_not_remembered() -> None:
    reader, key = Reader([LARGE, *BATCHES]), object()
    for _ in range(2):
        assert list(recent_rows(key, reader)) == [LARGE, *BATCHES]
    assert reader.asked == 2


def test_what_was_not_read_to_its_end_is_not_remembered() -> None:
    broken, key = Reader(BATCHES, fails=True), object()
    with pytest.raises(OSError, match="gone"):
        list(recent_rows(key, broken))
    stopped = recent_rows(key, Reader(BATCHES))
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]  # a generator
    assert list(recent_rows(key, Reader(BATCHES[:1]))) == BATCHES[:1]


def test_a_table_is_opened_once_until_it_changes(lake, namespace, monkeypatch) -> None:
    lake.spark.sql(
        f"CREATE TABLE {lake.spark_catalog}.{namespace}.t (a INT, b STRING) USING iceberg"
    )
    lake.spark.sql(f"INSERT INTO {lake.spark_catalog}.{namespace}.t VALUES (1, 'x'), (2, 'y')")
    opened = []

    def counted(*args, **options):
        opened.append(args)
        return read_parts(*args, **options)

    monkeypatch.setattr("sparkport.spark.scan.routes.read_parts", counted)

    def rows(*columns: str) -> list[tuple[object, ...]]:
        table = find(lake, namespace, "t")
        batches = table.scan(Context(), ScanOptions(columns=columns))
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    assert rows("a", "b") == rows("a", "b") == [(1, "x"), (2, "y")]
    assert len(opened) == 1
    assert rows("b") == [("x",), ("y",)]
    assert len(opened) == 2
    lake.spark.sql(f"DELETE FROM {lake.spark_catalog}.{namespace}.t WHERE a = 1")
    assert rows("a", "b") == rows("a", "b") == [(2, "y")]
