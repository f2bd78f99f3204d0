"""AT (VERSION => n) and AT (TIMESTAMP => …)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, delete, insert, rows_of, update

from sparkport.catalog import AddColumnOptions, ScanOptions, SchemaRequest, TimePoint
from sparkport.errors import BadRequest, NotFound
from sparkport.memory import MemorySettings, MemoryTable

START = datetime(2024, 1, 15, 10, 30, tzinfo=timezone.utc)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> MemoryTable:
    """A table with four versions, a minute apart."""
    table = MemoryTable("t", pa.table({"a": [1, 2]}), settings=MemorySettings(now=clock))
    for change in (
        lambda: insert(table, [{"a": 3}]),
        lambda: table.add_column(CTX, pa.schema([("b", pa.string())]), AddColumnOptions()),
        lambda: delete(table, [0]),
    ):
        clock.now += timedelta(minutes=1)
        change()
    return table


def _at(table: MemoryTable, text: str) -> list[object]:
    point = TimePoint("timestamp", text)
    return [
        row["a"]
        for batch in table.scan(CTX, ScanOptions(time_point=point))
        for row in batch.to_pylist()
    ]


def test_a_version_is_the_table_after_so_many_changes_of_data_or_columns(
    table: MemoryTable,
) -> None:
    assert rows_of(table, version=0) == [{"a": 1}, {"a": 2}]
    assert rows_of(table, version=1) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert rows_of(table, version=2) == [{"a": n, "b": None} for n in (1, 2, 3)]
    assert rows_of(table, version=3) == [{"a": 2, "b": None}, {"a": 3, "b": None}]


def test_a_snapshot_is_a_version_too(table: MemoryTable) -> None:
    point = TimePoint("snapshot", "1")
    assert sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(time_point=point))) == 3


def test_the_arrow_schema_is_that_of_the_time(table: MemoryTable) -> None:
    def names(version: str) -> list[str]:
        request = SchemaRequest(time_point=TimePoint("version", version))
        return list(table.schema_for_request(CTX, request).names)

    assert names("1") == ["a", "rowid"]
    assert names("2") == ["a", "b", "rowid"]
    assert table.schema_for_request(CTX, SchemaRequest()) is table.arrow_schema


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("2024-01-15T10:30:00Z", 2),
        ("2024-01-15 10:30:00", 2),
        ("2024-01-15 10:31:00", 3),
        ("2024-01-15 10:30:59.999999", 2),
        ("2024-01-15 10:30:59.9999999", 2),
        ("2024-01-15 10:33:00+00", 2),
        ("2024-01-15 12:31:00+02", 3),
        ("2024-01-15 16:01:00+05:30", 3),
        ("2024-01-15 07:01:00-0330", 3),
        ("2024-01-15T10:31:00.5Z", 3),
        ("2024-01-15 10:31", 3),
        ("2024-01-16", 2),
    ],
)
def test_both_notations_of_timestamps_are_read_and_without_zone_they_are_utc(
    table: MemoryTable, text: str, rows: int
) -> None:
    assert len(_at(table, text)) == rows


def test_a_time_before_the_table_existed_is_not_found(table: MemoryTable) -> None:
    with pytest.raises(
        NotFound, match="did not exist at 2024-01-15: it was created at 2024-01-15 10:30"
    ):
        _at(table, "2024-01-15")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2024-13-01", "2024-01-15 25:00:00", "infinity", "2024-01-15 1+99"]
)
def test_a_timestamp_that_cannot_be_read_is_a_bad_request(table: MemoryTable, text: str) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        _at(table, text)


@pytest.mark.parametrize(
    ("text", "error"), [("4", NotFound), ("-1", NotFound), ("abc", BadRequest), ("", BadRequest)]
)
def test_a_version_that_does_not_exist(
    table: MemoryTable, text: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        table.scan(CTX, ScanOptions(time_point=TimePoint("version", text)))


def test_a_clock_that_goes_back_does_not_reorder_history(table: MemoryTable, clock: Clock) -> None:
    clock.now = START - timedelta(days=1)
    insert(table, [{"a": 9, "b": None}])
    assert _at(table, "2024-01-15 10:33:00") == [2, 3, 9]


def test_a_statement_that_changes_nothing_makes_no_version(table: MemoryTable) -> None:
    assert insert(table, []) == 0
    assert update(table, []) == 0
    assert delete(table, []) == 0
    assert table.current.number == 3


def test_versions_beyond_the_limit_are_no_longer_kept() -> None:
    clock = Clock()
    table = MemoryTable(
        "t", pa.table({"a": [0]}), settings=MemorySettings(max_versions=3, now=clock)
    )
    for n in range(1, 101):
        clock.now += timedelta(minutes=1)
        update(table, [{"a": n, "rowid": 0}])
    assert [rows_of(table, version=n)[0]["a"] for n in (98, 99, 100)] == [98, 99, 100]
    with pytest.raises(NotFound, match="version 97 of table t is no longer kept: the oldest is 98"):
        rows_of(table, version=97)
    with pytest.raises(NotFound, match="no longer kept as it was at"):
        _at(table, "2024-01-15 10:31:00")
    assert len(table.history._versions) < 30


def test_old_versions_share_the_rows_that_did_not_change() -> None:
    rows = 1_000_000
    table = MemoryTable("t", pa.table({"a": pa.arange(0, rows), "b": pa.arange(0, rows)}))
    allocated = pa.total_allocated_bytes()
    for n in range(100):
        update(table, [{"a": 0, "rowid": n * 10_000}])
    assert pa.total_allocated_bytes() - allocated < 100 * 4096 * 8 * 2.5
    assert next(iter(table.scan(CTX, ScanOptions()))).num_rows >= 4096
