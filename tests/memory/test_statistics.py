"""Statistics of a table in memory: what DuckDB would find, for the rows a transaction sees."""

from __future__ import annotations

import threading
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.memory.bank import Bank
from tests.memory.statements import CTX, delete, insert, rows_of, update

from sparkport.catalog import ColumnStatistics, Context, ScanOptions
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable, statistics
from sparkport.memory.segments import SEGMENT_ROWS

NAN, INFINITY = float("nan"), float("inf")
_OPTIONS = ScanOptions(columns=("rowid",))


def _opaque(name: str, width: int, values: list[bytes | None]) -> pa.Array:
    storage = pa.binary(width)
    return pa.ExtensionArray.from_storage(
        pa.opaque(storage, name, "DuckDB"), pa.array(values, storage)
    )


def _huge(values: list[int | None]) -> pa.Array:
    return _opaque(
        "hugeint",
        16,
        [None if v is None else v.to_bytes(16, "little", signed=True) for v in values],
    )


def _uhuge(values: list[int | None]) -> pa.Array:
    return _opaque(
        "uhugeint", 16, [None if v is None else v.to_bytes(16, "little") for v in values]
    )


def _stored(data_type: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(data_type, pa.array(values, data_type.storage_type))


def _units(data_type: pa.DataType, values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type)


COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([True, None, True]),
    "bool8": _stored(pa.bool8(), [1, 0, None]),
    "int8": pa.array([-128, 127, 0], pa.int8()),
    "int64": pa.array([2**63 - 1, None, -(2**63)]),
    "uint8": pa.array([255, 7, 255], pa.uint8()),
    "uint64": pa.array([2**64 - 1, 2**63, 5], pa.uint64()),
    "float": pa.array([1.5, NAN, -INFINITY], pa.float32()),
    "double": pa.array([INFINITY, -2.5, None]),
    "zeros": pa.array([0.0, -0.0, 0.0]),
    "decimal": pa.array([Decimal("1.1"), Decimal("-2.2"), None], pa.decimal128(38, 4)),
    "decimal32": pa.array([Decimal("9.5"), Decimal("10.5"), Decimal("-1.5")], pa.decimal32(5, 1)),
    "decimal64": pa.array([Decimal("9.5"), Decimal("10.5"), None], pa.decimal64(12, 1)),
    "hugeint": _huge([-1, 0, 256, 255, -(2**127), 2**127 - 1]),
    "hugeint_negative": _huge([-1, -256, -(2**100)]),
    "uhugeint": _uhuge([2**127, 2**127 - 1, 2**128 - 1, 1]),
    "uhugeint_low": _uhuge([7, None, 300]),
    "uhugeint_high": _uhuge([2**128 - 1, 2**127]),
    "uuid": _stored(pa.uuid(), [b"\x80" + b"\0" * 15, b"\x7f" + b"\xff" * 15, b"\0" * 16]),
    "string": pa.array(["b", "é", "", "\U0010ffff", None]),
    "large_string": pa.array(["b", "a\0", "a"], pa.large_string()),
    "string_view": pa.array(["b", "a" * 40, None], pa.string_view()),
    "json": _stored(pa.json_(), ["1", "[2]", '{"a":3}']),
    "dictionary": pa.array(["b", "a", "b", None]).dictionary_encode(),
    "date32": _units(pa.date32(), [0, 2**31 - 1, -(2**31) + 1]),
    "date64": _units(pa.date64(), [0, 86_400_000, -86_400_000]),
    "time32": _units(pa.time32("ms"), [5, 86_399_999, None]),
    "time64": _units(pa.time64("us"), [5, 86_399_999_999, None]),
    "time_ns": _units(pa.time64("ns"), [5, 86_399_999_999_999, None]),
    "timestamp_s": _units(pa.timestamp("s"), [5, -5, None]),
    "timestamp_ms": _units(pa.timestamp("ms"), [5, -5, None]),
    "timestamp": _units(pa.timestamp("us"), [2**63 - 1, -(2**63) + 1, 0]),
    "timestamp_ns": _units(pa.timestamp("ns"), [1, -1, None]),
    "timestamptz": _units(pa.timestamp("us", "America/New_York"), [5, -5, None]),
}


def table_of(
    *parts: pa.Array, catalog: MemoryCatalog | None = None, **options: Any
) -> tuple[MemoryTable, Context]:
    """A table with the column `v`, with a segment for each array, and a transaction."""
    catalog = catalog or MemoryCatalog("c")
    arrow_schema = pa.schema([("v", parts[0].type)])
    batches = [pa.RecordBatch.from_arrays([part], schema=arrow_schema) for part in parts]
    table = MemoryTable("t", pa.Table.from_batches(batches, schema=arrow_schema), **options)
    catalog.add_schema("s").add_table(table)
    return table, Context(transaction_id=catalog.begin_transaction(CTX))


def statistics_of(*parts: pa.Array) -> ColumnStatistics:
    table, ctx = table_of(*parts)
    found = table.column_statistics(ctx, "v")
    assert found is not None
    return found


def check(found: ColumnStatistics, *parts: pa.Array, exact: bool = True) -> None:
    """Compare with what DuckDB computes from the same values."""
    data_type = parts[0].type
    bounds = pa.table(
        {"low": _bound(found.minimum, data_type), "high": _bound(found.maximum, data_type)}
    )
    rows = pa.table({"v": pa.chunked_array(parts)})
    low, high = ("IS NOT DISTINCT FROM",) * 2 if exact else ("<=", ">=")
    is_float = pa.types.is_floating(data_type)
    connection = _duckdb()
    connection.register("rows", rows)
    connection.register("bounds", bounds)
    query = f"""
        SELECT (SELECT low FROM bounds) {low} {"nullif(min(v), 'NaN')" if is_float else "min(v)"},
            (SELECT high FROM bounds) {high} max(v),
            count(*) > count(v), count(v) > 0, count(DISTINCT v)
        FROM rows"""
    answer = connection.sql(query).fetchall()[0]
    assert answer == (True, True, found.has_null, found.has_not_null, found.distinct_count)
    if pa.types.is_string(data_type):
        query = (
            "SELECT coalesce(max(strlen(v)), 0), coalesce(bool_or(strlen(v) > length(v)), false)"
            " FROM rows"
        )
        assert connection.sql(query).fetchall() == [
            (found.max_string_length, found.contains_unicode)
        ]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _bound(scalar: Any, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    storage = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    array = pa.nulls(1, storage) if scalar is None else pa.repeat(scalar, 1)
    if array.type != storage:
        array = array.cast(storage)
    return pa.ExtensionArray.from_storage(data_type, array) if storage is not data_type else array


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_type_as_duckdb_finds_it(kind: str) -> None:
    column = COLUMNS[kind]
    check(statistics_of(column), column)
    check(statistics_of(column.slice(0, 1), column.slice(1)), column)
    check(statistics_of(column.slice(1, 1)), column.slice(1, 1))


@pytest.mark.parametrize("kind", COLUMNS)
def test_nothing_but_nulls_and_nothing_at_all(kind: str) -> None:
    data_type = COLUMNS[kind].type
    nulls = statistics_of(pa.nulls(3, data_type))
    assert (nulls.minimum, nulls.maximum, nulls.has_null, nulls.has_not_null) == (
        None,
        None,
        True,
        False,
    )
    nothing = statistics_of(pa.nulls(0, data_type))
    assert (nothing.minimum, nothing.maximum, nothing.has_null, nothing.has_not_null) == (
        None,
        None,
        False,
        False,
    )
    check(
        statistics_of(pa.nulls(3, data_type), COLUMNS[kind]), pa.nulls(3, data_type), COLUMNS[kind]
    )


VALUES: dict[str, tuple[Any, Any]] = {
    "double": (
        st.floats(allow_nan=False) | st.sampled_from([NAN, -0.0]),
        lambda values: pa.array(values, pa.float64()),
    ),
    "float": (
        st.floats(allow_nan=False, width=32) | st.just(NAN),
        lambda values: pa.array(values, pa.float32()),
    ),
    "string": (st.text(max_size=10), lambda values: pa.array(values, pa.string())),
    "int64": (st.integers(-(2**63), 2**63 - 1), lambda values: pa.array(values, pa.int64())),
    "decimal": (
        st.decimals(-(10**12), 10**12, places=2),
        lambda values: pa.array(values, pa.decimal128(38, 2)),
    ),
    "hugeint": (st.integers(-(2**127), 2**127 - 1) | st.integers(-300, 300), _huge),
    "uhugeint": (st.integers(0, 2**128 - 1) | st.integers(0, 300), _uhuge),
    "uuid": (st.binary(min_size=16, max_size=16), lambda values: _stored(pa.uuid(), values)),
    "timestamp": (st.integers(-(2**62), 2**62), lambda values: _units(pa.timestamp("ns"), values)),
    "bool8": (st.integers(0, 1), lambda values: _stored(pa.bool8(), values)),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_values_in_any_segments(kind: str, data: st.DataObject) -> None:
    values, make = VALUES[kind]
    parts = [
        make(part)
        for part in data.draw(
            st.lists(st.lists(st.none() | values, max_size=8), min_size=1, max_size=4)
        )
    ]
    check(statistics_of(*parts), *parts)


def test_bounds_hold_when_all_is_nan() -> None:
    found = statistics_of(pa.array([NAN, NAN, None]))
    assert found.minimum is None
    assert found.maximum.as_py() != found.maximum.as_py()
    mixed = statistics_of(pa.array([NAN]), pa.array([1.0, 2.0]))
    assert mixed.minimum.as_py() == 1.0
    assert mixed.maximum.as_py() != mixed.maximum.as_py()


def test_long_text_leaves_little_behind() -> None:
    column = pa.array(["b" * 1_000_000, "\U0010ffff" * 63 + "x" * 1_000_000])
    table, ctx = table_of(column)
    found = table.column_statistics(ctx, "v")
    assert found is not None
    assert found.max_string_length == 1_000_000 + 63 * 4
    assert len(found.minimum.as_py()) == len(found.maximum.as_py()) == 64
    check(
        ColumnStatistics(
            found.minimum, found.maximum, False, True, 2, True, found.max_string_length
        ),
        column,
        exact=False,
    )
    (summary,) = table.current.segments[0].summaries.values()
    assert summary.bounds is not None
    assert summary.bounds.nbytes < 1_000
    assert summary.distinct is None


def test_text_that_is_not_utf_8_has_no_bounds() -> None:
    broken = pa.array([b"a", b"\xff\xfe"], pa.binary()).view(pa.string())
    found = statistics_of(broken, pa.array(["b"]))
    assert (found.minimum, found.maximum) == (None, None)
    assert found.contains_unicode
    assert found.max_string_length == 2


@pytest.mark.parametrize(
    "column",
    [
        _opaque("time_tz", 8, [b"\1" * 8, None]),
        pa.array([[1], None]),
        pa.array([{"a": 1}, None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    ],
    ids=["time_tz", "list", "struct", "map"],
)
def test_types_without_bounds_tell_about_nulls(column: pa.Array) -> None:
    found = statistics_of(column)
    assert (found.minimum, found.maximum, found.has_null, found.has_not_null) == (
        None,
        None,
        True,
        True,
    )


def test_distinct_values_are_counted_over_all_segments() -> None:
    assert (
        statistics_of(
            pa.array([1, 2, None]), pa.array([2, 3]), pa.array([None], pa.int64())
        ).distinct_count
        == 3
    )
    few = pa.array([number % 1_000 for number in range(SEGMENT_ROWS)])
    assert statistics_of(few, few).distinct_count == 1_000


def test_too_many_distinct_values_are_not_counted_and_not_kept() -> None:
    table, ctx = table_of(pa.array(range(SEGMENT_ROWS)))
    found = table.column_statistics(ctx, "v")
    assert found is not None
    assert (found.distinct_count, found.minimum.as_py(), found.maximum.as_py()) == (
        0,
        0,
        SEGMENT_ROWS - 1,
    )
    assert table.current.segments[0].summaries[0].distinct is None


# --------------------------------------------------------------------------------------- the cache


def test_an_insert_looks_only_at_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = MemoryCatalog("c")
    table, ctx = table_of(pa.array(range(10_000)), catalog=catalog)
    looked_at: list[int] = []
    summarised = statistics.summarised

    def counting(column: pa.Array, data_type: pa.DataType) -> statistics.Summary:
        looked_at.append(len(column))
        return summarised(column, data_type)

    monkeypatch.setattr(statistics, "summarised", counting)
    first = table.column_statistics(ctx, "v")
    assert table.column_statistics(ctx, "v") is first
    assert looked_at == [10_000]
    for number in range(8):
        insert(table, [{"v": 20_000 + number}])
        fresh = Context(transaction_id=catalog.begin_transaction(CTX))
        found = table.column_statistics(fresh, "v")
        assert found is not None
        assert found.maximum.as_py() == 20_000 + number
    assert 10_000 not in looked_at[1:]
    assert sum(looked_at[1:]) <= 8 * 4
    assert table.column_statistics(ctx, "v") is first


# -------------------------------------------------------------------------- which rows it is about


def highest(bank: Bank, ctx: Context) -> int:
    found = bank.giro.column_statistics(ctx, "amount")
    assert found is not None
    assert found.maximum.as_py() == max(row["amount"] for row in rows_of(bank.giro, ctx))
    return int(found.maximum.as_py())


def test_a_transaction_is_told_about_its_own_snapshot_and_writes() -> None:
    bank = Bank()
    reader = bank.begin()
    assert highest(bank, reader) == 200
    insert(bank.giro, [{"id": 3, "amount": 300}])
    assert highest(bank, reader) == 200
    assert highest(bank, bank.begin()) == 300
    child = reader.with_transaction(bank.catalog.begin_transaction(CTX))
    insert(bank.giro, [{"id": 4, "amount": 250}], child)
    assert highest(bank, child) == 250
    assert highest(bank, reader) == 200
    bank.commit(child)
    assert highest(bank, reader) == 250
    writer = bank.begin()
    update(bank.giro, [{"amount": 999, "rowid": 0}], writer)
    assert highest(bank, writer) == 999
    bank.rollback(writer)
    delete(bank.giro, [0, 1, 2, 3])
    nothing = bank.giro.column_statistics(bank.begin(), "amount")
    assert nothing is not None
    assert not nothing.has_not_null
    assert highest(bank, reader) == 250


def test_nothing_is_said_when_the_scan_may_see_other_rows() -> None:
    bank = Bank()
    assert bank.giro.column_statistics(CTX, "amount") is None
    committed = bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 300}], committed)
    assert highest(bank, committed) == 300
    bank.commit(committed)
    assert bank.giro.column_statistics(committed, "amount") is None
    assert bank.giro.column_statistics(bank.begin(), "no such column") is None


def test_only_tables_with_transactions_offer_statistics() -> None:
    alone = MemoryTable("alone", pa.table({"a": [1]}))
    assert not alone.offers_statistics
    assert alone.column_statistics(CTX, "a") is None
    assert Bank().giro.offers_statistics
    assert not Bank(MemorySettings(statistics=False)).giro.offers_statistics
    assert not Bank(MemorySettings()).giro.offers_statistics, "it is too small to pay"
    table, _ = table_of(pa.array([1]), settings=MemorySettings(statistics=False))
    assert not table.offers_statistics


def test_statistics_and_scan_of_a_transaction_agree_while_others_write() -> None:
    bank = Bank()
    done = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        for number in range(300):
            insert(bank.giro, [{"id": number, "amount": 1_000 + number}])
            if number % 10 == 9:
                rows = [
                    row_id
                    for batch in bank.giro.scan(CTX, _OPTIONS)
                    for row_id in batch["rowid"].to_pylist()
                ]
                delete(bank.giro, rows[-5:])
        done.set()

    def read() -> None:
        try:
            while not done.is_set():
                highest(bank, bank.begin())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures[0]
    assert done.is_set()


# ----------------------------------------------------------------------------- prepared statements


def test_the_version_of_the_catalog_rises_with_every_commit_and_with_reads_of_the_past() -> None:
    bank = Bank()
    number = bank.catalog.version(CTX).number

    def rises() -> bool:
        nonlocal number
        before, number = number, bank.catalog.version(CTX).number
        return number > before

    reader = bank.begin()
    rows_of(bank.giro, reader)
    highest(bank, reader)
    assert not rises()
    insert(bank.giro, [{"id": 3, "amount": 300}])
    assert rises()
    assert not rises()
    # A plan made now would go on reading the past when the transaction has ended.
    highest(bank, reader)
    assert rises()
    rows_of(bank.giro, bank.begin())
    rows_of(bank.savings, reader)
    assert not rises()
    writer = bank.begin()
    update(bank.giro, [{"amount": 1, "rowid": 0}], writer)
    bank.catalog.version(CTX)
    rises()
    bank.commit(writer)
    assert rises()
    bank.giro.set_default(CTX, "amount", "5")
    assert rises()
