"""Transactions: one snapshot, all or nothing, and an end in any case."""

from __future__ import annotations

import string

import pyarrow as pa
import pytest
from tests.memory.bank import Bank
from tests.memory.statements import CTX, catalog_with, delete, ids_of, insert, rows_of, update

from sparkport.catalog import (
    AddColumnOptions,
    Constraints,
    Context,
    DropTableOptions,
    ScanOptions,
    TransactionState,
)
from sparkport.errors import (
    Conflict,
    ConstraintViolation,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    TransactionNotActive,
)
from sparkport.memory import MemoryCatalog, MemorySchema, MemorySettings, MemoryTable


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_ids_are_printable_ascii_and_never_repeat(bank: Bank) -> None:
    ids = {bank.catalog.begin_transaction(CTX) for _ in range(1000)}
    assert len(ids) == 1000
    assert all(
        len(each) >= 20 and set(each) <= set(string.ascii_letters + string.digits + "-_")
        for each in ids
    )


def test_a_transaction_sees_its_own_changes_and_others_do_not(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 50, "rowid": 0}], ctx)
    insert(bank.savings, [{"id": 3, "amount": 50}], ctx)
    delete(bank.savings, [0], ctx)
    assert bank.amounts(ctx) == ([50, 200], [2000, 50])
    assert bank.amounts() == ([100, 200], [1000, 2000])
    bank.commit(ctx)
    assert bank.amounts() == ([50, 200], [2000, 50])


def test_changes_build_upon_each_other(bank: Bank) -> None:
    ctx = bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 1}], ctx)
    new = ids_of(bank.giro, ctx)[-1]
    update(bank.giro, [{"amount": 2, "rowid": new}, {"amount": 3, "rowid": 0}], ctx)
    update(bank.giro, [{"amount": 4, "rowid": new}], ctx)
    delete(bank.giro, [0], ctx)
    with pytest.raises(NotFound, match="row id 0 does not exist"):
        update(bank.giro, [{"amount": 5, "rowid": 0}], ctx)
    insert(bank.savings, [{"id": 9, "amount": 9}])
    insert(bank.giro, [{"id": 8, "amount": 8}])
    bank.commit(ctx)
    assert [(r["id"], r["amount"]) for r in rows_of(bank.giro)] == [(2, 200), (3, 4), (8, 8)]
    assert ids_of(bank.giro) == sorted(ids_of(bank.giro))


def test_changes_of_several_tables_are_one_version_each_and_one_moment(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 0, "rowid": 0}], ctx)
    update(bank.giro, [{"amount": 1, "rowid": 0}], ctx)
    update(bank.savings, [{"amount": 0, "rowid": 0}], ctx)
    bank.commit(ctx)
    assert bank.giro.current.number == bank.savings.current.number == 1
    assert bank.giro.current.sequence == bank.savings.current.sequence


def test_rollback_undoes_everything(bank: Bank) -> None:
    ctx = bank.begin()
    delete(bank.giro, [0, 1], ctx)
    bank.rollback(ctx)
    assert bank.amounts() == ([100, 200], [1000, 2000])
    assert bank.state(ctx) is TransactionState.ABORTED


def test_a_conflict_in_one_table_rolls_back_all(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 50, "rowid": 0}], ctx)
    update(bank.savings, [{"amount": 1050, "rowid": 0}], ctx)
    update(bank.savings, [{"amount": 7, "rowid": 0}])
    with pytest.raises(
        Conflict, match=r"row 0 of table s\.savings was changed by another statement"
    ):
        bank.commit(ctx)
    assert bank.amounts() == ([100, 200], [7, 2000])
    assert bank.state(ctx) is TransactionState.ABORTED
    with pytest.raises(TransactionNotActive):
        bank.commit(ctx)


def test_changes_of_other_rows_do_not_conflict(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 1, "rowid": 0}], ctx)
    update(bank.giro, [{"amount": 2, "rowid": 1}])
    insert(bank.giro, [{"id": 3, "amount": 3}])
    insert(bank.giro, [{"id": 4, "amount": 4}], ctx)
    bank.commit(ctx)
    assert bank.amounts()[0] == [1, 2, 3, 4]


def test_rows_inserted_earlier_and_committed_later_are_found_by_their_ids(bank: Bank) -> None:
    bank.schema.add_table(table := MemoryTable("t", pa.table({"n": [0]})))
    ctx = bank.begin()
    insert(table, [{"n": 1}, {"n": 2}], ctx)
    insert(table, [{"n": 3}])
    insert(table, [{"n": 4}, {"n": 5}])
    assert [len(ids) for ids in (ids_of(table), ids_of(table, ctx))] == [4, 3]
    bank.commit(ctx)
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]
    update(table, [{"n": -row_id, "rowid": row_id} for row_id in range(6)])
    assert [row["n"] for row in rows_of(table)] == [0, -1, -2, -3, -4, -5]
    delete(table, [1, 3])
    assert ids_of(table) == [0, 2, 4, 5]


def test_all_reads_see_the_snapshot_of_the_first(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 1, "rowid": 0}])
    assert bank.amounts(ctx)[0] == [1, 200], "before the first read nothing is pinned"
    update(bank.giro, [{"amount": 2, "rowid": 0}])
    update(bank.savings, [{"amount": 2, "rowid": 0}])
    delete(bank.savings, [1])
    assert bank.amounts(ctx) == ([1, 200], [1000, 2000])
    assert bank.amounts() == ([2, 200], [2])


def test_a_snapshot_outlives_a_bounded_history() -> None:
    bank = Bank(MemorySettings(max_versions=1))
    ctx = bank.begin()
    rows_of(bank.giro, ctx)
    for n in range(100):
        update(bank.savings, [{"amount": n, "rowid": 0}])
    assert bank.amounts(ctx) == ([100, 200], [1000, 2000])
    bank.rollback(ctx)
    for n in range(100):
        update(bank.savings, [{"amount": n, "rowid": 0}])
    assert len(bank.savings.history._versions) < 30


def test_partitions_show_the_changes_of_the_transaction(bank: Bank) -> None:
    ctx = bank.begin()
    update(bank.giro, [{"amount": 1, "rowid": 0}], ctx)
    (partition,) = bank.giro.partitions(ctx, ScanOptions())
    bank.rollback(ctx)
    (batch,) = bank.giro.scan(CTX, ScanOptions(partition=partition))
    assert batch.column("amount").to_pylist() == [1, 200]


def test_committing_and_rolling_back_are_idempotent(bank: Bank) -> None:
    ctx = bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 3}], ctx)
    for _ in range(3):
        bank.commit(ctx)
    bank.rollback(ctx)
    assert bank.state(ctx) is TransactionState.COMMITTED
    assert len(bank.amounts()[0]) == 3
    other = bank.begin()
    for _ in range(3):
        bank.rollback(other)
    assert bank.state(other) is TransactionState.ABORTED


def test_a_finished_transaction_takes_no_more_changes_and_a_committed_one_can_still_read(
    bank: Bank,
) -> None:
    ctx = bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 3}], ctx)
    bank.commit(ctx)
    with pytest.raises(TransactionNotActive, match=r"is not active \(state: committed\)"):
        insert(bank.giro, [{"id": 4, "amount": 4}], ctx)
    assert len(rows_of(bank.giro, ctx)) == 3
    other = bank.begin()
    bank.rollback(other)
    with pytest.raises(TransactionNotActive):
        rows_of(bank.giro, other)


def test_an_unknown_transaction_is_not_found(bank: Bank) -> None:
    ctx = Context(transaction_id="never")
    assert bank.state(ctx) is None
    bank.rollback(ctx)
    for use in (
        lambda: bank.commit(ctx),
        lambda: rows_of(bank.giro, ctx),
        lambda: delete(bank.giro, [0], ctx),
    ):
        with pytest.raises(NotFound):
            use()


def test_what_fails_in_a_statement_leaves_the_transaction_as_it_was(bank: Bank) -> None:
    table = MemoryTable(
        "t", pa.schema([("id", pa.int64())]), constraints=Constraints(primary_key=("id",))
    )
    bank.schema.add_table(table)
    ctx = bank.begin()
    insert(table, [{"id": 1}], ctx)
    with pytest.raises(ConstraintViolation, match="Duplicate key"):
        insert(table, [{"id": 1}], ctx)
    insert(table, [{"id": 2}], ctx)
    bank.commit(ctx)
    assert rows_of(table) == [{"id": 1}, {"id": 2}]


def test_a_key_that_another_transaction_has_taken_meanwhile_rolls_back(bank: Bank) -> None:
    table = MemoryTable(
        "t", pa.schema([("id", pa.int64())]), constraints=Constraints(primary_key=("id",))
    )
    bank.schema.add_table(table)
    first, second = bank.begin(), bank.begin()
    insert(table, [{"id": 1}], first)
    insert(table, [{"id": 1}], second)
    bank.commit(second)
    with pytest.raises(ConstraintViolation, match='Duplicate key "id: 1"'):
        bank.commit(first)
    assert bank.state(first) is TransactionState.ABORTED
    assert rows_of(table) == [{"id": 1}]


def test_a_key_can_be_freed_and_taken_again_in_one_transaction(bank: Bank) -> None:
    data = pa.table({"id": [1, 2]})
    table = MemoryTable("t", data, constraints=Constraints(primary_key=("id",)))
    bank.schema.add_table(table)
    ctx = bank.begin()
    delete(table, [0], ctx)
    insert(table, [{"id": 1}], ctx)
    insert(table, [{"id": 5}], ctx)
    delete(table, [ids_of(table, ctx)[-1]], ctx)
    insert(table, [{"id": 7}])
    bank.commit(ctx)
    assert sorted(row["id"] for row in rows_of(table)) == [1, 2, 7]


def test_a_transaction_sees_the_columns_it_has_altered(bank: Bank) -> None:
    ctx = bank.begin()
    rows_of(bank.giro, ctx)
    bank.giro.add_column(ctx, pa.schema([("note", pa.string())]), AddColumnOptions())
    assert rows_of(bank.giro, ctx)[0] == {"id": 1, "amount": 100, "note": None}


def test_a_table_created_after_the_snapshot_is_seen_as_it_was_found(bank: Bank) -> None:
    ctx = bank.begin()
    rows_of(bank.giro, ctx)
    insert(bank.giro, [{"id": 3, "amount": 3}])
    bank.schema.add_table(young := MemoryTable("young", pa.table({"n": [1]})))
    insert(young, [{"n": 2}])
    assert rows_of(young, ctx) == [{"n": 1}] or rows_of(young, ctx) == [{"n": 1}, {"n": 2}]
    seen = rows_of(young, ctx)
    insert(young, [{"n": 3}])
    assert rows_of(young, ctx) == seen


def test_altering_a_table_with_pending_changes_of_the_same_transaction_is_refused(
    bank: Bank,
) -> None:
    ctx = bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 3}], ctx)
    with pytest.raises(PreconditionFailed, match="uncommitted changes"):
        bank.giro.rename_column(ctx, "amount", "sum")


def test_pending_changes_conflict_with_a_table_that_was_altered_or_dropped(bank: Bank) -> None:
    ctx, other = bank.begin(), bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 3}], ctx)
    insert(bank.savings, [{"id": 3, "amount": 3}], other)
    bank.giro.rename_column(CTX, "amount", "sum")
    bank.schema.drop_table(CTX, "savings", DropTableOptions())
    with pytest.raises(Conflict, match=r"s\.giro was altered"):
        bank.commit(ctx)
    with pytest.raises(Conflict, match=r"s\.savings was dropped"):
        bank.commit(other)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_transaction_that_nobody_uses_is_rolled_back_and_later_forgotten() -> None:
    clock = Clock()
    bank = Bank(MemorySettings(transaction_idle_seconds=60, monotonic=clock))
    idle, busy, reader = bank.begin(), bank.begin(), bank.begin()
    insert(bank.giro, [{"id": 3, "amount": 3}], idle)
    rows_of(bank.giro, reader)
    clock.seconds = 50
    insert(bank.giro, [{"id": 4, "amount": 4}], busy)
    clock.seconds = 70
    assert bank.state(idle) is TransactionState.ABORTED
    assert bank.state(reader) is TransactionState.ABORTED
    assert bank.state(busy) is TransactionState.ACTIVE
    with pytest.raises(TransactionNotActive):
        bank.commit(idle)
    bank.commit(busy)
    assert bank.amounts()[0] == [100, 200, 4]
    clock.seconds = 1000
    assert bank.state(idle) is None
    assert bank.state(busy) is None


def test_the_number_of_transactions_is_bounded_and_those_with_changes_are_kept() -> None:
    bank = Bank(MemorySettings(max_transactions=100, max_writing_transactions=2))
    writers = [bank.begin(), bank.begin()]
    for n, ctx in enumerate(writers):
        insert(bank.giro, [{"id": 10 + n, "amount": n}], ctx)
    first = bank.begin()
    for _ in range(1000):
        bank.begin()
    assert bank.state(first) is None
    third = bank.begin()
    with pytest.raises(LimitExceeded, match="2 transactions have uncommitted changes"):
        insert(bank.giro, [{"id": 3, "amount": 3}], third)
    for ctx in writers:
        bank.commit(ctx)
    insert(bank.giro, [{"id": 3, "amount": 3}], third)
    bank.commit(third)
    assert len(bank.amounts()[0]) == 5


def test_what_finished_transactions_saw_is_freed() -> None:
    bank = Bank(MemorySettings(max_versions=1))
    table = MemoryTable("t", pa.table({"n": pa.arange(0, 100_000)}))
    bank.schema.add_table(table)
    allocated = pa.total_allocated_bytes()
    for n in range(200):
        ctx = bank.begin()
        update(table, [{"n": n, "rowid": m} for m in range(0, 100_000, 3000)], ctx)
        bank.commit(ctx)
    assert pa.total_allocated_bytes() - allocated < 40 * 800_000


def test_a_table_of_no_catalog_ignores_transactions() -> None:
    table = MemoryTable("t", pa.table({"n": [1]}))
    insert(table, [{"n": 2}], Context(transaction_id="of another catalog"))
    assert rows_of(table) == [{"n": 1}, {"n": 2}]


def test_a_schema_added_to_a_catalog_brings_its_tables_into_the_transactions() -> None:
    schema = MemorySchema("s")
    table = MemoryTable("t", pa.table({"n": [1]}))
    schema.add_table(table)
    insert(table, [{"n": 2}])
    catalog, _ = catalog_with()
    other = MemoryCatalog("other")
    other.add(schema)
    ctx = Context(transaction_id=other.begin_transaction(CTX))
    insert(table, [{"n": 3}], ctx)
    assert len(rows_of(table)) == 2
    assert [row["n"] for row in rows_of(table, version=0)] == [1]
    other.commit_transaction(ctx, ctx.transaction_id or "")
    assert len(rows_of(table)) == 3
    assert catalog.transaction_status(CTX, ctx.transaction_id or "") is None
