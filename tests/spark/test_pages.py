"""Pages that are read by themselves hold what Arrow reads from the whole file."""

from __future__ import annotations

import datetime
import itertools
import random
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)
from tests.spark.tables import Table, compare, read, rows_of, where

from sparkport.catalog.filters import (
    ColumnRef,
    Conjunction,
    ConjunctionKind,
    DuckType,
    Expression,
    Filter,
    Operator,
    OperatorKind,
)
from sparkport.spark.iceberg import file_reader, page_index
from sparkport.spark.iceberg.bounds import Bounds, bounds_in_pages
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.page_index import PageBounds, pages_of
from sparkport.spark.iceberg.pages import Span, read_pages, windows
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.thrift import ThriftReader, binary, i32, i64, list_of, thrift_struct

ROWS = 30_000
SPANS: list[Span] = [(0, 1), (999, 1002), (7_000, 12_345), (29_999, 30_000)]
DAY = datetime.date(2020, 1, 1)


def rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "i": pa.array([None if n % 7 == 0 else n for n in numbers], pa.int32()),
            "l": pa.array([n * 10**9 for n in numbers], pa.int64()),
            "u": pa.array([n % 256 for n in numbers], pa.uint8()),
            "f": pa.array([float("nan") if n % 5 == 0 else n / 3 for n in numbers], pa.float32()),
            "d": pa.array([-0.0 if n % 2 else n / 7 for n in numbers], pa.float64()),
            "n": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
            "wide": pa.array([Decimal(n) ** 5 for n in numbers], pa.decimal128(38, 0)),
            'say "s"': pa.array([f"text {n} \N{SNOWMAN}" for n in numbers]),
            "few": pa.array([f"{n % 10}" for n in numbers]),
            "b": pa.array([None if n % 3 == 0 else bytes([n % 256, 0xFF]) for n in numbers]),
            "fixed": pa.array([n.to_bytes(16, "big") for n in numbers], pa.binary(16)),
            "t": pa.array([n % 3 == 0 for n in numbers]),
            "y": pa.array([DAY + datetime.timedelta(days=n % 9000) for n in numbers], pa.date32()),
            "w": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("us")),
            "z": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("us", "UTC")),
            "ns": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("ns")),
            "nothing": pa.nulls(ROWS, pa.int64()),
            "sparse": pa.array([n if n in (5, 20_000) else None for n in numbers], pa.int64()),
        }
    )


def _open(path: Path) -> DataFile:
    return DataFile(str(path), {}, path.stat().st_size)


def _shown(table: pa.Table) -> str:
    """Python's own times have no nanoseconds; NaN and -0.0 are told by their text."""
    number = table.schema.get_field_index("ns")
    return str(table.set_column(number, "ns", table.column(number).cast(pa.int64())).to_pylist())


WAYS = list(itertools.product(["1.0", "2.0"], [True, False], [True, False], ["zstd", "none"]))


@pytest.mark.parametrize(("version", "has_index", "dictionary", "compression"), WAYS)
def test_every_type_is_read_as_arrow_reads_it(
    tmp_path: Path, version: str, has_index: bool, dictionary: bool, compression: str
) -> None:
    path = tmp_path / "it's [here]*.parquet"
    pq.write_table(
        rows(),
        path,
        data_page_version=version,
        use_dictionary=dictionary,
        compression=compression,
        write_page_index=has_index,
        max_rows_per_page=1000,
    )
    whole = pq.read_table(path)
    with _open(path) as file:
        found = read_pages(file, 0, range(len(whole.schema)), SPANS)
        single = read_pages(file, 0, [7, 0], [(3, 4), (20_001, 20_002)])

    assert found is not None
    wanted = pa.concat_tables([whole.slice(first, end - first) for first, end in SPANS])
    assert found.schema.equals(whole.schema)
    assert _shown(pa.Table.from_batches([found])) == _shown(wanted)
    assert single is not None
    assert single.to_pylist() == [
        {'say "s"': "text 3 \N{SNOWMAN}", "i": 3},
        {'say "s"': "text 20001 \N{SNOWMAN}", "i": 20_001},
    ]


def test_every_row_group_has_pages_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(), path, row_group_size=10_000, write_page_index=True)
    with _open(path) as file:
        found = [read_pages(file, group, [1], [(17, 19)]) for group in range(3)]
    assert [each and each.column(0).to_pylist() for each in found] == [
        [n * 10**9 for n in (start + 17, start + 18)] for start in (0, 10_000, 20_000)
    ]


def test_columns_with_others_inside_are_left_to_arrow(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "l": [[1], [2, 3]],
            "s": [{"a": 1, "b": {"c": 2}}, None],
            "e": pa.array([7, 8]),
            "m": pa.array([[(1, 2)], []], pa.map_(pa.int64(), pa.int64())),
        }
    )
    pq.write_table(table, path, write_page_index=True)
    with _open(path) as file:
        assert [pages_of(file, 0, [leaf]) is None for leaf in range(6)] == [
            *(True, True, True, False, True, True)
        ]
        found = read_pages(file, 0, [3], [(1, 2)])
    assert found is not None
    assert found.to_pylist() == [{"e": 8}]


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(), path, write_page_index=True)
    with _open(path) as file:
        assert file.metadata.num_rows == ROWS
        path.unlink()
        with pytest.raises(FileNotFoundError):
            read_pages(file, 0, [0], [(0, 1)])


def _index_of(path: Path) -> tuple[int, int]:
    """Where the index of the pages' places is in a file of one column."""
    with _open(path) as file:
        (pages,) = pages_of(file, 0, [0]) or []
    assert pages.chunk.offset_index is not None
    return pages.chunk.offset_index


def test_with_a_damaged_index_arrow_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows().select(["l"]), path, write_page_index=True, max_rows_per_page=1000)
    start, length = _index_of(path)
    good, chance = path.read_bytes(), random.Random(1)
    answers = []
    for number in range(300):
        changed = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            changed[start + chance.randrange(length)] = chance.randrange(256)
        damaged = tmp_path / f"{number}.parquet"
        damaged.write_bytes(changed)
        with _open(damaged) as file:
            found = read_pages(file, 0, [0], [(12_000, 12_002)])
        answers.append(found and found.column(0).to_pylist())
        damaged.unlink()
    assert answers.count(None) > 100
    assert answers.count([12_000 * 10**9, 12_001 * 10**9]) > 0
    assert all(each is None or len(each) == 2 for each in answers)


def test_dictionaries_in_a_store_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows().select(["few"]), path, write_page_index=True, max_rows_per_page=1000)
    content, asked = memoryview(path.read_bytes()), []

    def read(file: DataFile, ranges: Any) -> list[memoryview]:
        asked.append(len(ranges))
        return [content[start : start + length] for start, length in ranges]

    monkeypatch.setattr(DataFile, "read", read)
    monkeypatch.setattr(DataFile, "is_local", False)
    for first in (5000, 9000):
        with _open(path) as file:
            found = read_pages(file, 0, [0], [(first, first + 2)])
        assert found is not None
        assert found.column(0).to_pylist() == ["0", "1"]
    assert asked == [2, 2, 1]  # both parts of the index; dictionary and page; page


def test_a_long_footer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(), path, row_group_size=1000, write_page_index=True)
    monkeypatch.setattr(page_index, "_MOST_CHUNKS", 100)
    with _open(path) as file:
        assert read_pages(file, 0, [0], [(0, 1)]) is None


def test_windows_hold_all_rows_once() -> None:
    spans: list[Span] = [(0, 5), (7, 8), (10, 31)]
    found = list(windows(spans, 10))
    assert found == [[(0, 5), (7, 8), (10, 14)], [(14, 24)], [(24, 31)]]
    assert list(windows([], 10)) == []


# ----------------------------------------------------------------------------------------- filters

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "x", DoubleType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "price", DecimalType(12, 2)),
    NestedField(6, "at", TimestampType()),
    NestedField(7, "wide", DecimalType(38, 0)),
    NestedField(8, "key", UUIDType()),
    NestedField(9, "yes", BooleanType()),
)


def _clustered(count: int) -> pa.Table:
    """Columns of which neighbours are alike, with NULLs, NaNs, and whole pages of NULLs."""
    numbers = range(count)
    return pa.table(
        {
            "id": pa.array([None if 4000 <= n < 7000 or n % 97 == 0 else n for n in numbers]),
            "name": pa.array([f"{n // 50:06} \N{SNOWMAN}" + "x" * 80 for n in numbers]),
            "x": pa.array([float("nan") if n % 1013 == 0 else n / 10 for n in numbers]),
            "day": pa.array(
                [DAY + datetime.timedelta(days=n // 100) for n in numbers], pa.date32()
            ),
            "price": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
            "at": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("us")),
            "wide": pa.array([Decimal(n) * 10**20 for n in numbers], pa.decimal128(38, 0)),
            "key": pa.array([n.to_bytes(16, "big") for n in numbers], pa.binary(16)),
            "yes": pa.array([n // 1000 % 2 == 0 for n in numbers]),
        }
    )


@pytest.fixture(scope="module", params=["indexed", "plain"])
def clustered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("table")
    table = Table(folder, SCHEMA)
    how = {"write_page_index": request.param == "indexed", "max_rows_per_page": 500}
    entry = table.write(_clustered(20_000), row_group_size=10_000, **how)
    table.append(entry, first_row_id=0)
    return table.state()


def _conditions() -> list[Filter]:
    chance = random.Random(7)
    kinds = {
        "id": (DuckType("BIGINT"), lambda: chance.randrange(-5, 21_000)),
        "name": (DuckType("VARCHAR"), lambda: f"{chance.randrange(410):06} \N{SNOWMAN}"),
        "x": (DuckType("DOUBLE"), lambda: chance.randrange(-5, 21_000) / 10),
        "day": (DuckType("DATE"), lambda: chance.randrange(18_262, 18_470)),
        "at": (DuckType("TIMESTAMP"), lambda: chance.randrange(21_000) * 1_000_003),
        "yes": (DuckType("BOOLEAN"), lambda: chance.random() < 0.5),
    }
    found: list[Expression] = []
    for name, (kind, value) in kinds.items():
        found += [
            compare(name, sign, value(), kind)
            for sign in ("=", "<", ">", "<=", ">=", "<>")
            for _ in range(2)
        ]
    found += [
        Operator(test, (ColumnRef(name, kind),), DuckType("BOOLEAN"))
        for test in (OperatorKind.IS_NULL, OperatorKind.IS_NOT_NULL)
        for name, kind in (
            ("id", DuckType("BIGINT")),
            ("wide", DuckType("DECIMAL", 38, 0)),
            ("key", DuckType("UUID")),
        )
    ]
    pairs = [chance.sample(found, 2) for _ in range(30)]
    joined = [Conjunction(chance.choice(list(ConjunctionKind)), tuple(each)) for each in pairs]
    return [Filter((each,)) for each in [*found, *joined]]


def _read(state: TableState, row_filter: Filter, **how: Any) -> list[dict[str, Any]]:
    return rows_of(read(state, ["rowid", "name", "id"], row_filter, **how))


def test_the_same_rows_match_whether_pages_are_left_out_or_not(
    clustered: TableState, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = _conditions()
    expected = [_read(clustered, each) for each in conditions]
    assert sum(map(bool, expected)) > 30
    monkeypatch.setattr(file_reader, "_LARGE_GROUP", 1)
    for rows_at_once in (131_072, 700):
        found = [_read(clustered, each, batch_rows=rows_at_once) for each in conditions]
        assert found == expected


def test_only_the_pages_that_may_match_are_read(
    clustered: TableState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "_LARGE_GROUP", 1)
    asked: list[list[Span]] = []

    def noted(file: DataFile, group: int, leaves: Any, spans: Any) -> Any:
        asked.append(list(spans))
        return read_pages(file, group, leaves, spans)

    monkeypatch.setattr(file_reader, "read_pages", noted)
    assert [row["rowid"] for row in _read(clustered, where("id", "=", 12_345))] == [12_345]
    (part,) = plan_scan(clustered, None, None).parts
    with DataFile(part.path, {}, part.size) as file:
        (pages,) = pages_of(file, 1, [0]) or []
    if pages.bounds is None:
        assert asked == [[(2345, 2346)]]  # the columns that are not in the filter
    else:
        assert asked == [[(2000, 2500)], [(2345, 2346)]]


def test_bounds_of_another_length_than_the_type_has_are_none() -> None:
    column = pa.table({"id": pa.array(range(10))})
    sink = pa.BufferOutputStream()
    pq.write_table(column, sink)
    statistics = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0).column(0)
    known = PageBounds((3).to_bytes(8, "little"), (5).to_bytes(8, "little"), 0, False)
    assert bounds_in_pages(statistics.statistics, LongType(), [known]) == [Bounds(3, 5, False)]
    for lower in (b"", b"\1", bytes(9)):
        damaged = PageBounds(lower, bytes(8), 0, False)
        assert bounds_in_pages(statistics.statistics, LongType(), [known, damaged]) is None


@pytest.mark.parametrize("fails", [1, 2, 3, 4])
def test_where_pages_cannot_be_read_arrow_reads_on(
    clustered: TableState, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    condition = Filter((compare("id", ">", 12_000), compare("id", "<", 14_000)))
    expected = _read(clustered, condition)
    assert len(expected) == 1978
    monkeypatch.setattr(file_reader, "_LARGE_GROUP", 1)
    calls = itertools.count(1)

    def failing(file: DataFile, group: int, leaves: Any, spans: Any) -> Any:
        return None if next(calls) == fails else read_pages(file, group, leaves, spans)

    monkeypatch.setattr(file_reader, "read_pages", failing)
    assert _read(clustered, condition, batch_rows=700) == expected


# ------------------------------------------------------------------------------------------ thrift


def test_what_is_written_is_read() -> None:
    numbers = [0, 1, -1, 127, 128, -(2**31), 2**31 - 1]
    content = thrift_struct(
        {
            1: i32(-5),
            2: i64(2**62),
            3: binary(b"abc"),
            15: list_of([i64(each) for each in numbers]),
            16: list_of([binary(b"x" * 200)]),
        }
    )
    assert ThriftReader(content).struct() == {
        1: -5,
        2: 2**62,
        3: b"abc",
        15: numbers,
        16: [b"x" * 200],
    }


def test_garbage_is_refused() -> None:
    chance = random.Random(3)
    good = thrift_struct({1: list_of([binary(b"abc")] * 20), 2: i64(7)})
    for _ in range(2000):
        changed = bytearray(good)
        changed[chance.randrange(len(good))] = chance.randrange(256)
        with suppress(ValueError):
            ThriftReader(bytes(changed[: chance.randrange(len(good) + 1)])).struct()
    for content in (
        b"",
        b"\x19",
        b"\x19\xf1\xff\xff\xff\xff\xff\x0f",
        b"\x1c" * 100,
        b"\x16" + b"\xff" * 20,
    ):
        with pytest.raises(ValueError, match=r"content|deeply|long"):
            ThriftReader(content).struct()
