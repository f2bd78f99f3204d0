"""A few rows of a large row group, read by DuckDB, are the rows that Arrow reads."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkport.spark.iceberg.positional_read import rows_at, rows_between

ROWS = 100_000
POSITIONS = [0, 1, 2047, 2048, 65_535, 65_536, 99_999]


def table() -> pa.Table:
    numbers = range(ROWS)
    day = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "i": pa.array([None if n % 7 == 0 else n for n in numbers], pa.int32()),
            "l": pa.array([n * 10**9 for n in numbers], pa.int64()),
            "f": pa.array([float("nan") if n % 5 == 0 else n / 3 for n in numbers], pa.float32()),
            "d": pa.array([-0.0 if n % 2 else n / 7 for n in numbers], pa.float64()),
            "n": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
            'say "s"': pa.array([f"text {n} \N{SNOWMAN}" for n in numbers]),
            "b": pa.array([None if n % 3 == 0 else bytes([n % 256, 0xFF]) for n in numbers]),
            "t": pa.array([n % 3 == 0 for n in numbers]),
            "y": pa.array([day + datetime.timedelta(days=n % 9000) for n in numbers], pa.date32()),
            "w": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("us")),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("it's here") / "rows.parquet"
    pq.write_table(table(), place, row_group_size=ROWS)
    return str(place)


def test_every_type_is_read_as_arrow_reads_it(path):
    whole = pq.read_table(path)
    found = rows_at(path, pq.read_schema(path), list(range(len(whole.schema))), POSITIONS)

    assert found is not None
    assert found.schema.equals(whole.schema)
    assert str(found.to_pylist()) == str(whole.take(POSITIONS).to_pylist())


def test_neighbouring_rows_are_read_as_arrow_reads_them(path):
    whole = pq.read_table(path)
    found = rows_between(path, pq.read_schema(path), [0, 5], 65_000, 68_000)

    assert found is not None
    assert found.to_pylist() == whole.select([0, 5]).slice(65_000, 3_001).to_pylist()
    assert rows_between(path, pq.read_schema(path), [0], ROWS - 5, ROWS) is None


def test_columns_come_in_the_order_in_which_they_are_wanted(path):
    found = rows_at(f"file:{path}", pq.read_schema(path), [5, 0], [3])

    assert found is not None
    assert found.to_pylist() == [{'say "s"': "text 3 \N{SNOWMAN}", "i": 3}]


@pytest.mark.parametrize(
    "field",
    [
        pa.field("x", pa.timestamp("us", "UTC")),
        pa.field("x", pa.timestamp("ns")),
        pa.field("x", pa.list_(pa.int32())),
        pa.field("x", pa.struct([("a", pa.int32())])),
        pa.field("x", pa.uint8()),
    ],
)
def test_other_types_are_left_to_arrow(path, field):
    assert rows_at(path, pa.schema([field]), [0], [0]) is None


def test_what_duckdb_cannot_read_is_left_to_arrow(path, tmp_path):
    schema = pq.read_schema(path)
    assert rows_at(str(tmp_path / "missing.parquet"), schema, [0], [0]) is None
    assert rows_at("s3://bucket/rows.parquet", schema, [0], [0]) is None
    assert rows_at(path, schema, [0], [ROWS]) is None
    assert rows_at(path, pa.schema([("i", pa.int32()), ("I", pa.int32())]), [0], [0]) is None


@pytest.mark.parametrize("folder", ["[ab]", "a*", "a?"])
def test_a_path_is_a_path_and_no_pattern(tmp_path, folder):
    for name, value in ((folder, 1), ("a", 2), ("ab", 2)):
        (tmp_path / name).mkdir()
        pq.write_table(
            pa.table({"i": pa.array([value], pa.int32())}), tmp_path / name / "rows.parquet"
        )

    found = rows_at(
        str(tmp_path / folder / "rows.parquet"), pa.schema([("i", pa.int32())]), [0], [0]
    )

    assert found is None or found.to_pylist() == [{"i": 1}]


@pytest.mark.parametrize("folder", ["i=5", "i=null", "i=__HIVE_DEFAULT_PARTITION__"])
def test_what_folders_are_called_says_nothing_about_columns(tmp_path, folder):
    (tmp_path / folder).mkdir()
    place = tmp_path / folder / "rows.parquet"
    pq.write_table(pa.table({"i": pa.array([None, 5], pa.int32()), "s": ["x", "y"]}), place)

    found = rows_at(str(place), pq.read_schema(place), [0, 1], [0, 1])

    assert found is not None
    assert found.to_pylist() == [{"i": None, "s": "x"}, {"i": 5, "s": "y"}]
