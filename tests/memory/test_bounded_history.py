"""Old versions are forgotten, but not those that are still being read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.memory_of import buffer_bytes, promised
from tests.memory.statements import CTX, delete, insert, rows_of, update

from sparkport.catalog import AddColumnOptions, Context, RemoveColumnOptions, ScanOptions
from sparkport.cli.commands import parser
from sparkport.config import load_config
from sparkport.errors import Conflict, NotFound, TransactionNotActive
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable

MEGABYTE = 1024 * 1024
ROWS = 4_000
"""Fewer than a window: an UPDATE of any of them copies the column."""
COLUMN_BYTES = 8 * ROWS


def table_of(settings: MemorySettings | None = None) -> tuple[MemoryCatalog, MemoryTable]:
    catalog = MemoryCatalog("c", settings=settings)
    table = MemoryTable("t", pa.table({"v": [0]}))
    catalog.add_schema("s").add_table(table)
    return catalog, table


def test_history_is_bounded_unless_told_otherwise() -> None:
    assert MemorySettings().max_versions == 1_000
    _, table = table_of()
    for number in range(2_000):
        insert(table, [{"v": number}])
    assert rows_of(table, version=1_001)[-1] == {"v": 1_000}
    assert len(table.history._versions) <= 1_517
    assert len(rows_of(table)) == 2_001


def test_a_snapshot_that_is_still_read_does_not_make_every_commit_look_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, table = table_of(MemorySettings(max_versions=10))
    ctx = Context(transaction_id=catalog.begin_transaction(CTX))
    assert rows_of(table, ctx) == [{"v": 0}]
    asked: list[int] = []
    open_pins = table.ledger.open_pins

    def counting() -> set[int]:
        asked.append(1)
        return open_pins()

    monkeypatch.setattr(table.ledger, "open_pins", counting)
    for number in range(420):
        insert(table, [{"v": number}])
    assert len(asked) <= 20
    assert rows_of(table, ctx) == [{"v": 0}]
    catalog.rollback_transaction(CTX, ctx.transaction_id or "")
    for number in range(22):
        insert(table, [{"v": number}])
    assert len(table.history._versions) < 40


def numbers(settings: MemorySettings | None = None) -> tuple[MemoryCatalog, MemoryTable]:
    """A table whose column takes `COLUMN_BYTES`, all of which an UPDATE replaces."""
    catalog = MemoryCatalog("c", settings=settings)
    table = MemoryTable("t", pa.table({"v": pa.array([0] * ROWS, pa.int64())}))
    catalog.add_schema("s").add_table(table)
    return catalog, table


def first_of(table: MemoryTable, ctx: Context = CTX, *, version: int | None = None) -> int:
    value = rows_of(table, ctx, version=version)[0]["v"]
    assert isinstance(value, int)
    return value


def count_up(table: MemoryTable, numbers: range) -> None:
    for number in numbers:
        update(table, [{"v": number, "rowid": 0}])


def test_versions_are_kept_by_the_bytes_that_only_they_hold() -> None:
    _, table = numbers(MemorySettings(max_history_bytes=5 * COLUMN_BYTES))
    count_up(table, range(1, 101))
    assert [first_of(table, version=number) for number in range(95, 101)] == list(range(95, 101))
    with pytest.raises(
        NotFound, match=r"version 94 of table s\.t is no longer kept: the oldest is 9"
    ):
        rows_of(table, version=94)
    assert len(table.history._versions) <= 8, "they are freed, a quarter of the bytes late at most"
    assert buffer_bytes(table.history._versions) <= 8 * COLUMN_BYTES


def test_versions_that_hold_nothing_of_their_own_are_kept_by_count() -> None:
    _, table = numbers(MemorySettings(max_history_bytes=0, max_versions=30))
    for number in range(60):
        insert(table, [{"v": number}] * (1 << (12 - number // 5)))  # never merged with the others
    assert len(promised(table)) < 30
    table.rename_column(CTX, "v", "w")
    table.rename_column(CTX, "w", "v")
    number = table.current.number
    assert first_of(table, version=number - 2) == 0


def test_a_change_that_replaces_more_than_may_be_held_leaves_no_older_version() -> None:
    _, table = numbers(MemorySettings(max_history_bytes=COLUMN_BYTES - 1))
    delete(table, range(ROWS))
    assert rows_of(table) == []
    with pytest.raises(NotFound, match="no longer kept: the oldest is 1"):
        rows_of(table, version=0)
    assert buffer_bytes(table.history._versions) == 0


def test_any_number_of_versions_and_bytes_may_be_kept() -> None:
    _, table = numbers(MemorySettings(max_versions=None, max_history_bytes=None))
    count_up(table, range(1, 1_201))
    assert [first_of(table, version=number) for number in (0, 1, 600, 1_200)] == [0, 1, 600, 1_200]


def test_altering_a_table_counts_only_the_columns_that_it_replaces() -> None:
    _, table = numbers()
    table.add_column(CTX, pa.schema({"w": pa.int64()}), AddColumnOptions())
    table.rename_column(CTX, "v", "x")
    assert (table.current.nbytes, table.current.retired) == (2 * COLUMN_BYTES, 0)
    table.remove_column(CTX, "x", RemoveColumnOptions())
    assert (table.current.nbytes, table.current.retired) == (COLUMN_BYTES, COLUMN_BYTES)


def test_an_open_transaction_keeps_its_version_and_no_others() -> None:
    catalog, table = numbers(MemorySettings(max_versions=3, max_history_bytes=2 * COLUMN_BYTES))
    open_ones = []
    for number in range(1, 101):
        count_up(table, range(number, number + 1))
        if number in (20, 50):
            ctx = Context(transaction_id=catalog.begin_transaction(CTX))
            assert first_of(table, ctx) == number
            open_ones.append((number, ctx))
    assert [first_of(table, ctx) for _, ctx in open_ones] == [20, 50]
    with pytest.raises(NotFound, match="no longer kept"):
        rows_of(table, version=50)
    old = [version.number for version in table.history._versions if version.number < 90]
    assert old == [20, 50]
    for _, ctx in open_ones:
        catalog.rollback_transaction(CTX, ctx.transaction_id or "")
    count_up(table, range(101, 105))
    assert table.history._versions[0].number > 90


def test_a_transaction_keeps_its_version_of_tables_that_it_has_not_read_yet() -> None:
    catalog, table = numbers(MemorySettings(max_versions=1, max_history_bytes=0))
    other = MemoryTable("other", pa.table({"v": [7]}))
    schema = catalog.schema(CTX, "s")
    schema.add_table(other)  # type: ignore[union-attr]
    count_up(table, range(1, 11))
    ctx = Context(transaction_id=catalog.begin_transaction(CTX))
    assert rows_of(other, ctx) == [{"v": 7}]
    count_up(table, range(11, 101))
    assert first_of(table, ctx) == 10


def test_a_running_scan_goes_on_although_its_version_is_no_longer_kept() -> None:
    _, table = numbers(MemorySettings(max_versions=1, max_history_bytes=0))
    batches = iter(table.scan(CTX, ScanOptions(batch_size=1_000)))
    assert next(batches).column("v")[0].as_py() == 0
    count_up(table, range(1, 101))
    delete(table, range(ROWS))
    assert sum(batch.num_rows for batch in batches) == ROWS - 1_000


def test_plans_of_scans_are_forgotten_by_the_bytes_that_only_they_hold() -> None:
    settings = MemorySettings(
        max_versions=1, max_history_bytes=0, max_pinned_bytes=5 * COLUMN_BYTES
    )
    _, table = numbers(settings)
    plans = []
    for number in range(20):
        (plan,) = table.partitions(CTX, ScanOptions())
        plans.append(plan)
        count_up(table, range(number + 1, number + 2))
    readable = []
    for number, plan in enumerate(plans):
        try:
            (batch,) = table.scan(CTX, ScanOptions(partition=plan))
        except Conflict:
            continue
        assert batch.column("v")[0].as_py() == number
        readable.append(number)
    assert readable == [15, 16, 17, 18, 19]


def test_the_latest_plan_is_remembered_whatever_it_holds() -> None:
    settings = MemorySettings(max_versions=1, max_history_bytes=0, max_pinned_bytes=1)
    _, table = numbers(settings)
    (plan,) = table.partitions(CTX, ScanOptions())
    count_up(table, range(1, 101))
    (batch,) = table.scan(CTX, ScanOptions(partition=plan))
    assert batch.column("v")[0].as_py() == 0


def test_an_expired_plan_is_forgotten_by_the_next_commit() -> None:
    now = 0.0
    settings = MemorySettings(
        max_versions=1, max_history_bytes=0, pin_seconds=10, monotonic=lambda: now
    )
    _, table = numbers(settings)
    (plan,) = table.partitions(CTX, ScanOptions())
    count_up(table, range(1, 3))
    assert list(table.scan(CTX, ScanOptions(partition=plan)))
    now = 11.0
    count_up(table, range(3, 4))
    with pytest.raises(Conflict, match="run it again"):
        table.scan(CTX, ScanOptions(partition=plan))


def test_inserts_leave_no_trace_for_later_writers_to_examine() -> None:
    _, table = table_of()
    first = table.current
    for number in range(50):
        insert(table, [{"v": number}])
    assert list(first.log.later(None)) == []
    update(table, [{"v": -1, "rowid": 0}])
    assert [entry.row_ids.to_pylist() for entry in first.log.later(None)] == [[0]]  # type: ignore[union-attr]


def test_the_bounds_are_settings() -> None:
    given = ["--memory-max-versions", "7", "--memory-max-history-mb", "3"]
    flags = vars(parser().parse_args(["serve", *given, "--memory-max-pinned-mb", "2"]))
    config = load_config({k: v for k, v in flags.items() if k.startswith("memory_")}, {})
    assert config.memory == MemorySettings(
        max_versions=7, max_history_bytes=3 * MEGABYTE, max_pinned_bytes=2 * MEGABYTE
    )
    anything = load_config({}, {"SPARKPORT_MEMORY_MAX_HISTORY_MB": "0"})
    assert anything.memory.max_history_bytes is None
    assert MemorySettings().max_history_bytes == 256 * MEGABYTE
    with pytest.raises(ValueError, match="max_history_bytes must be at least 0"):
        MemorySettings(max_history_bytes=-1)


def test_statements_that_duckdb_never_ends_do_not_keep_every_version() -> None:
    clock = [0.0]
    catalog, table = table_of(MemorySettings(max_versions=5, monotonic=lambda: clock[0]))
    contexts = []
    for number in range(1, 101):
        contexts.append(Context(transaction_id=catalog.begin_transaction(CTX)))
        rows_of(table, contexts[-1])
        insert(table, [{"v": number}])
        clock[0] += 10.0
    assert len(table.history._versions) <= 5 + 5 + 6 + 18 + 1, "promised, idle, in use, spare"
    assert len(rows_of(table, contexts[-1])) == 100
    with pytest.raises(TransactionNotActive, match="aborted"):
        catalog.commit_transaction(CTX, contexts[0].transaction_id or "")
