"""Rows that were staged in a store are the same in Spark as those that were staged in a folder."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.parquet_output import STAGED, ParquetOutput
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.write.staged_rows import staged_rows

_MOMENT = datetime.datetime(2026, 11, 17, 6, 7, 8, 123456)
_UTC = datetime.timezone.utc
_ROWS = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i": pa.array([1, None, -3], pa.int32()),
        "l": pa.array([1, None, 2**62], pa.int64()),
        "f": pa.array([1.5, None, float("inf")], pa.float32()),
        "d": pa.array([1.5, None, -0.0]),
        "n": pa.array([Decimal("1.23"), None, Decimal("-9.99")], pa.decimal128(20, 2)),
        "s": pa.array(["a", None, "🦆"]),
        "x": pa.array([b"a", None, b""], pa.binary()),
        "day": pa.array([_MOMENT.date(), None, datetime.date(1, 1, 1)]),
        "t": pa.array([_MOMENT.replace(tzinfo=_UTC), None, None], pa.timestamp("us", "UTC")),
        "u": pa.array([_MOMENT, None, None], pa.timestamp("us")),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "map": pa.array([{"a": 1}, None, {}], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    }
)


def _staged(storage: Storage, folder: str, rows: pa.Table) -> list[str]:
    """Stage the rows in two files."""
    locations = [f"{folder}/{number}.parquet" for number in range(2)]
    for location, part in zip(locations, (rows.slice(0, 2), rows.slice(2)), strict=True):
        output = ParquetOutput(storage, location, rows.schema, STAGED)
        output.write(part)
        output.close()
    return locations


@pytest.mark.parametrize("are_given", [False, True])
def test_types_and_values(
    store: LakeCatalog, source: LakeSource, tmp_path: Path, are_given: bool
) -> None:
    far = f"{source.warehouse}/staged-{are_given}"
    here = _staged(LocalStorage(), str(tmp_path), _ROWS)
    there = _staged(storage_at(far, source.options), far, _ROWS)
    wanted = staged_rows(store.spark, here, {})
    found = staged_rows(store.spark, there, source.options, wanted.schema if are_given else None)
    assert found.schema == wanted.schema
    assert found.rdd.getNumPartitions() == 2
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))
    assert [row[0] for row in found.select("l").collect()] == [1, None, 2**62]


def test_intervals_are_staged_as_numbers(store: LakeCatalog, source: LakeSource) -> None:
    columns = store.spark.sql("SELECT INTERVAL '1' DAY AS i").schema
    rows = pa.table({"i": pa.array([86_400_000_000, None], pa.int64())})
    far = f"{source.warehouse}/staged-intervals"
    there = _staged(storage_at(far, source.options), far, rows)
    found = staged_rows(store.spark, there, source.options, columns).collect()
    assert {row[0] for row in found} == {datetime.timedelta(days=1), None}
