"""Files that DuckDB reads with a filter give the rows that Arrow gives."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from tests.spark.tables import NUMBERED, Table, numbered
from tests.spark.test_deletes import write_vector

from sparkport.catalog.filters import Filter
from sparkport.errors import Cancelled, PreconditionFailed
from sparkport.spark.iceberg import filtered_files, part_reader
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.filtered_files import FilteredFiles, in_equal_batches
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.testing.local import LocalDuckDB
from sparkport.wire.filters import decode_filter

NAN = float("nan")
FAR = 2**63 - 1
DAY = datetime.date(2020, 1, 1)

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DoubleType()),
    NestedField(5, "n", DecimalType(12, 2)),
    NestedField(6, "wide", DecimalType(38, 5)),
    NestedField(7, "s", StringType()),
    NestedField(8, "b", BinaryType()),
    NestedField(9, "t", BooleanType()),
    NestedField(10, "y", DateType()),
    NestedField(11, "w", TimestampType()),
    NestedField(12, "z", TimestamptzType()),
)
TYPES = {
    "i": "INTEGER",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(12, 2)",
    "wide": "DECIMAL(38, 5)",
    "s": "VARCHAR",
    "b": "BLOB",
    "t": "BOOLEAN",
    "y": "DATE",
    "w": "TIMESTAMP",
    "z": "TIMESTAMP WITH TIME ZONE",
}
LONG = "long " * 2000


def rows(count: int, chance: random.Random) -> pa.Table:
    def some(*values: Any) -> list[Any]:
        return [None if chance.random() < 0.1 else chance.choice(values) for _ in range(count)]

    def times(zone: str | None) -> pa.Array:
        found = some(0, 1, -1, FAR, -FAR, -(2**63), 1_600_000_000_000_000, -62_135_596_800_000_000)
        return pa.array(found, pa.int64()).view(pa.timestamp("us", zone))

    return pa.table(
        {
            "i": pa.array(some(*range(-5, 50), 2**31 - 1, -(2**31)), pa.int32()),
            "l": pa.array(some(0, 1, 7, FAR, -FAR, -(2**63), 2**40), pa.int64()),
            "f": pa.array(some(0.0, -0.0, NAN, 1.5, 1e30, float("inf"), -2.25), pa.float32()),
            "d": pa.array(some(0.0, -0.0, NAN, 1.1, -1e300, float("-inf"), 7.0), pa.float64()),
            "n": pa.array(some(*(Decimal(n) / 100 for n in range(-9, 30))), pa.decimal128(12, 2)),
            "wide": pa.array(some(Decimal(10) ** 32, Decimal("0.00001")), pa.decimal128(38, 5)),
            "s": pa.array(some("", "a", "A", "ä", "a\0b", "\N{SNOWMAN}", LONG, f"{LONG}x", "it's")),
            "b": pa.array(some(b"", b"a", b"\xff\x00", b"a\0")),
            "t": pa.array(some(True, False)),
            "y": pa.array(some(DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31))),
            "w": times(None),
            "z": times("UTC"),
        }
    )


CONDITIONS = [
    "i = 7",
    "i > 40 AND l IS NOT NULL",
    "i IN (1, 2, 3, NULL)",
    f"i IN ({', '.join(map(str, range(3, 303)))})",
    f"l IN ({', '.join(map(str, range(7, 10_007)))}) AND i > 3",
    "i NOT IN (1, 2)",
    "i <> 7 OR s = 'a'",
    "NOT (i < 7)",
    "l >= 9223372036854775807",
    "l BETWEEN 1 AND 1099511627776",
    "f = 0",
    "f > 1",
    "f = 'nan'::FLOAT",
    "f < -2",
    "d = 0.0",
    "d = -0.0::DOUBLE",
    "d <> 0",
    "d > 5",
    "d >= 'nan'::DOUBLE",
    "NOT (d <= 7)",
    "d IN (7, 'nan'::DOUBLE)",
    "n = 0.07",
    "n < 0",
    "n BETWEEN -0.05 AND 0.05",
    "wide > 1",
    "wide = 100000000000000000000000000000000",
    "s = ''",
    "s = 'a'",
    "s > 'a'",
    "s < 'b' AND i > 5",
    f"s = '{LONG}x'",
    f"s > '{LONG}'",
    "s = 'it''s'",
    "s COLLATE NOCASE = 'a'",
    "s LIKE 'lo%'",
    "lower(s) = 'a' AND i > 3",
    "s IS NULL",
    "s IS DISTINCT FROM 'a'",
    "b = 'a'::BLOB",
    "b > '\\xFE'::BLOB",
    "t",
    "NOT t",
    "t IS NULL",
    "y = DATE '2020-01-01'",
    "y > DATE '5000-01-01' OR y IS NULL",
    "w = TIMESTAMP 'infinity'",
    "w > TIMESTAMP '2020-01-01'",
    "w < TIMESTAMP '1970-01-01 00:00:00.000001'",
    "z >= TIMESTAMPTZ '1970-01-01 00:00:00+00'",
    "z = TIMESTAMPTZ '-infinity'",
    "i + 1 = 8",
    "i = 7 AND rowid < 500",
    "rowid = 3",
    "i = l",
    "d < d AND i = 4",
    "w = z",
    "w <= w",
    "d = d OR s IS NULL",
    "cast(s AS INTEGER) = 3 AND i = 4",
]


@pytest.fixture(autouse=True)
def _for_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are."""
    monkeypatch.setattr(part_reader, "_MANY_ROWS", 1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each query of DuckDB, how many files it reads."""
    counts: list[int] = []
    by_duckdb = FilteredFiles._by_duckdb

    def counting(self: FilteredFiles) -> Any:
        counts.append(len(self._parts))
        return by_duckdb(self)

    monkeypatch.setattr(FilteredFiles, "_by_duckdb", counting)
    return counts


def pushed(condition: str, types: dict[str, str] = TYPES) -> Filter:
    found = decode_filter(LocalDuckDB.shared(False).filter_json(condition, types))
    assert found is not None
    return found


def read(
    state: TableState,
    row_filter: Filter,
    columns: tuple[str, ...] | None = None,
    parts: tuple[FilePart, ...] | None = None,
    *,
    duckdb: bool = True,
    check: Callable[[], None] = lambda: None,
    **how: Any,
) -> pa.Table:
    request = read_request(state, columns, row_filter, **how)
    if not duckdb:
        request = replace(request, folder=None)
    if parts is None:
        parts = plan_scan(state, columns, row_filter).parts
    batches = list(read_parts(request, parts, check, use_threads=len(parts) > 1))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def shown(table: pa.Table) -> list[str]:
    """The rows as text, by which NaN and -0.0 are told apart; times as their numbers."""
    arrays = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    plain = pa.table(arrays, names=table.column_names)
    return sorted(str(row) for row in plain.to_pylist())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> TableState:
    """Files of every writer's way, with deleted rows in one of them."""
    folder = tmp_path_factory.mktemp("it's")
    table = Table(folder, SCHEMA)
    chance = random.Random(17)
    ways: list[dict[str, Any]] = [
        {"row_group_size": 100},
        {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
        {"write_page_index": True, "compression": "none"},
        {"store_decimal_as_integer": True, "write_statistics": False},
    ]
    entries = [table.write(rows(700, chance), **way) for way in ways]
    table.append(*entries, first_row_id=0)
    return table.state()


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda text: text[:40])
def test_every_condition_keeps_the_rows_that_arrow_keeps(mixed: TableState, condition: str) -> None:
    columns = (*TYPES, "rowid")
    row_filter = pushed(condition)

    assert shown(read(mixed, row_filter, columns)) == shown(
        read(mixed, row_filter, columns, duckdb=False)
    )


def test_random_conjunctions_keep_the_same_rows(mixed: TableState) -> None:
    chance = random.Random(4)
    for _ in range(40):
        some = [f"({each})" for each in chance.sample(CONDITIONS, chance.randint(2, 4))]
        row_filter = pushed(chance.choice([" AND ", " OR "]).join(some))
        columns = tuple(chance.sample([*TYPES, "rowid"], chance.randint(1, 4)))
        one = read(mixed, row_filter, columns)
        other = read(mixed, row_filter, columns, duckdb=False)
        assert shown(one) == shown(other), row_filter


def test_files_that_are_alike_are_read_together(mixed: TableState, asked: list[int]) -> None:
    read(mixed, pushed("i = 7"))
    assert asked == [3, 1]  # one stores decimals in another way


def test_many_constants_cost_no_rows(mixed: TableState) -> None:
    wanted = range(7, 10_007)
    found = read(mixed, pushed(f"i IN ({', '.join(map(str, wanted))})"), ("i",))["i"].to_pylist()
    expected = read(mixed, pushed("i BETWEEN 7 AND 10006"), ("i",), duckdb=False)["i"].to_pylist()
    assert sorted(each for each in found if each in wanted) == sorted(expected)


def test_deleted_rows_stay_away_and_row_ids_follow_positions(
    tmp_path: Path, asked: list[int]
) -> None:
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(300)), table.write(numbered(300, 300)), first_row_id=1000)
    state = table.state()
    row_filter = pushed("id >= 290 AND id < 310", {"id": "BIGINT", "name": "VARCHAR"})
    first, second = plan_scan(state, None, row_filter).parts
    vector = write_vector(tmp_path / "v.puffin", [0, 291, 299])
    parts = (replace(first, vector=vector), second)

    found = read(state, row_filter, ("id", "rowid"), parts)

    assert asked == [2]
    wanted = [number for number in range(290, 310) if number not in (291, 299)]
    assert found["id"].to_pylist() == wanted
    assert found["rowid"].to_pylist() == [number + 1000 for number in wanted]


def test_renamed_promoted_and_added_columns_are_found_by_their_ids(
    tmp_path: Path, asked: list[int]
) -> None:
    old = Schema(
        NestedField(1, "a", IntegerType()),
        NestedField(2, "b", FloatType()),
        NestedField(3, "c", StringType()),
        NestedField(4, "n", DecimalType(9, 2)),
    )
    new = Schema(
        NestedField(1, "c", LongType()),
        NestedField(2, "a", DoubleType()),
        NestedField(3, "b", StringType()),
        NestedField(4, "n", DecimalType(18, 2)),
        NestedField(5, "added", StringType(), initial_default="new"),
    )
    table = Table(tmp_path, new, file_schema=old)
    values = {
        "a": pa.array(range(100), pa.int32()),
        "b": pa.array([number / 4 for number in range(100)], pa.float32()),
        "c": [f"c{number}" for number in range(100)],
        "n": pa.array([Decimal(number) for number in range(100)], pa.decimal128(9, 2)),
    }
    entry = {**table.write(pa.table(values)), "lower_bounds": {}, "upper_bounds": {}}
    table.append(entry, first_row_id=0)
    state = table.state()
    types = {"c": "BIGINT", "a": "DOUBLE", "b": "VARCHAR", "n": "DECIMAL(18,2)", "added": "VARCHAR"}

    for condition, queries in {
        "c = 7": 1,
        "c > 5000000000": 0,  # bounds rule it out
        "c IN (3, 4, 5000000000)": 1,
        "a > 20.1 AND c < 90": 1,
        "a = 1.75": 0,
        "b = 'c7'": 1,
        "n = 7 AND b < 'c9'": 1,
        "added = 'new' AND c < 3": 1,
        "added IS NULL AND c < 3": 1,
        "added = 'new'": 0,
    }.items():
        asked.clear()
        row_filter = pushed(condition, types)
        found = shown(read(state, row_filter, tuple(types)))
        assert found == shown(read(state, row_filter, tuple(types), duckdb=False)), condition
        assert len(asked) == queries, condition


def test_nested_columns_and_unknown_writers_are_left_to_arrow(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = StructType(NestedField(3, "x", LongType()))
    table = Table(tmp_path, Schema(NestedField(1, "id", LongType()), NestedField(2, "r", inside)))
    kind = pa.struct([pa.field("x", pa.int64(), metadata={b"PARQUET:field_id": b"3"})])
    values = {"id": range(100), "r": pa.array([{"x": n} for n in range(100)], kind)}
    table.append(table.write(pa.table(values)), first_row_id=0)
    state, types = table.state(), {"id": "BIGINT", "r": "STRUCT(x BIGINT)"}

    found = read(state, pushed("id = 7", types), ("id", "r"))
    assert found.to_pylist() == [{"id": 7, "r": {"x": 7}}]
    assert read(state, pushed("r.x = 7", types), ("id",)).to_pylist() == [{"id": 7}]
    assert asked == []
    assert read(state, pushed("id = 7 AND r.x = 7", types), ("id",)).to_pylist() == [{"id": 7}]
    assert asked == []
    assert read(state, pushed("id = 7", types), ("id",)).to_pylist() == [{"id": 7}]
    assert asked == [1]


def test_names_that_duckdb_confuses_are_left_to_arrow(tmp_path: Path, asked: list[int]) -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "file_index", LongType()))
    table = Table(tmp_path, schema)
    table.append(table.write(pa.table({"a": range(50), "file_index": range(50, 100)})))
    types = {"a": "BIGINT", "file_index": "BIGINT"}
    found = read(table.state(), pushed("file_index = 57", types), ("a", "file_index"))
    assert found.to_pylist() == [{"a": 7, "file_index": 57}]
    assert asked == []


@pytest.mark.parametrize("condition", ["x = 0", "x = -0.0::DOUBLE", "x IN (0, 7)", "x < 1"])
def test_zeros_of_both_signs_are_found_whatever_a_bloom_filter_says(
    tmp_path: Path, condition: str
) -> None:
    path = tmp_path / "bloom.parquet"
    with duckdb.connect() as database:
        database.execute(
            "COPY (SELECT CASE WHEN i % 3 = 0 THEN -0.0::DOUBLE ELSE 1.5 END AS x FROM range(9000) "
            f"t(i)) TO '{path}' (FORMAT parquet, FIELD_IDS {{x: 1}})"
        )
    table = Table(tmp_path, Schema(NestedField(1, "x", DoubleType())))
    entry = {
        "file_path": str(path),
        "file_format": "PARQUET",
        "record_count": 9000,
        "file_size_in_bytes": path.stat().st_size,
    }
    table.append(entry)
    assert read(table.state(), pushed(condition, {"x": "DOUBLE"})).num_rows == 3000


def test_arrow_reads_on_where_duckdb_fails(tmp_path: Path, asked: list[int]) -> None:
    """The third of four files has text that is not UTF-8, which DuckDB refuses to read."""
    table = Table(tmp_path, NUMBERED)
    table.append(*(table.write(numbered(100, 100 * part)) for part in range(4)), first_row_id=0)
    state = table.state()
    row_filter = pushed("id >= 0", {"id": "BIGINT", "name": "VARCHAR"})
    parts = plan_scan(state, None, row_filter).parts
    _make_text_bad(Path(parts[2].path))
    parts = tuple(replace(part, size=Path(part.path).stat().st_size) for part in parts)

    found = read(state, row_filter, ("id", "name", "rowid"), parts, batch_rows=64)

    assert asked == [4]
    assert found["id"].to_pylist() == list(range(400))
    assert found["rowid"].to_pylist() == list(range(400))


def _make_text_bad(path: Path) -> None:
    table = pq.read_table(path)
    names = [f"n{number}".encode() for number in table["id"].to_pylist()]
    names[50] = b"\xff\xfe"
    bad = pa.array(names).cast(pa.binary()).view(pa.string())
    pq.write_table(table.set_column(1, table.schema.field(1), bad), path, row_group_size=10)


def test_a_fault_in_the_middle_costs_no_row_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtered_files, "_FETCHED_ROWS", 100)
    table = Table(tmp_path, NUMBERED)
    table.append(
        *(table.write(numbered(5000, 5000 * part), row_group_size=2000) for part in range(2)),
        first_row_id=0,
    )
    state = table.state()
    by_duckdb = FilteredFiles._by_duckdb

    def faulty(self: FilteredFiles) -> Any:
        for number, batch in enumerate(by_duckdb(self)):
            if number == 2:
                raise duckdb.Error("a fault")
            yield batch

    monkeypatch.setattr(FilteredFiles, "_by_duckdb", faulty)
    row_filter = pushed("id >= 1 AND id <> 7", {"id": "BIGINT", "name": "VARCHAR"})
    found = read(state, row_filter, ("id", "rowid"), batch_rows=1000)
    assert found["id"].to_pylist() == [n for n in range(1, 10_000) if n != 7]
    assert found["rowid"].to_pylist() == found["id"].to_pylist()


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    table = Table(tmp_path, NUMBERED)
    table.append(*(table.write(numbered(100, 100 * part)) for part in range(3)))
    state = table.state()
    row_filter = pushed("id >= 0", {"id": "BIGINT", "name": "VARCHAR"})
    read(state, row_filter)
    Path(plan_scan(state, None, row_filter).parts[1].path).unlink()
    with pytest.raises(PreconditionFailed, match="is missing"):
        read(state, row_filter)


def test_nobody_who_left_is_read_for(tmp_path: Path, asked: list[int]) -> None:
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(1000)))

    def gone() -> None:
        if asked:
            raise Cancelled("the client has gone")

    with pytest.raises(Cancelled):
        read(table.state(), pushed("id = 7", {"id": "BIGINT", "name": "VARCHAR"}), check=gone)


def test_the_parts_of_a_file_hold_every_row_once(tmp_path: Path, asked: list[int]) -> None:
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(4000), row_group_size=500), first_row_id=0)
    state = table.state()
    row_filter = pushed("id <> 7", {"id": "BIGINT", "name": "VARCHAR"})
    (whole,) = plan_scan(state, None, row_filter).parts
    with DataFile(whole.path, {}, whole.size) as file:
        groups = file.metadata.num_row_groups
    cut = [replace(whole, row_groups=(0, 3)), replace(whole, row_groups=(3, None))]
    found = [read(state, row_filter, ("id", "rowid"), (part,)) for part in cut]

    assert groups == 8
    assert asked == [1, 1]
    assert [len(each) for each in found] == [1499, 2500]
    together = pa.concat_tables(found)
    assert together["id"].to_pylist() == [n for n in range(4000) if n != 7]
    assert together["rowid"].to_pylist() == together["id"].to_pylist()


@pytest.mark.parametrize("cuts", [[1000], [1, 999], [300, 300, 400], [64] * 15 + [40]])
def test_batches_do_not_depend_on_how_rows_were_read(cuts: list[int]) -> None:
    batch = pa.record_batch({"a": range(1000)})
    pieces, start = [], 0
    for length in cuts:
        pieces.append(batch.slice(start, length))
        start += length
    found = [each for each in in_equal_batches(iter([None, *pieces]), 64) if each is not None]
    assert [each.num_rows for each in found] == [64] * 15 + [40]
    assert pa.Table.from_batches(found)["a"].to_pylist() == list(range(1000))
