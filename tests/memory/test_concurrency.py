"""Many threads at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from tests.memory.statements import (
    CTX,
    catalog_with,
    delete,
    ids_of,
    insert,
    rows_of,
    staged,
    typed,
    update,
)

from sparkport.catalog import AddColumnOptions, Constraints, Context, Operation, ScanOptions
from sparkport.errors import Conflict, ConstraintViolation, SparkportError
from sparkport.memory import MemoryTable

THREADS = 8


def _at_once(work: Callable[[int], None], threads: int = THREADS) -> None:
    barrier = threading.Barrier(threads)

    def run(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(run, number) for number in range(threads)]:
            future.result()


def test_inserts_of_many_threads_are_all_there_once() -> None:
    table = MemoryTable("t", pa.schema([("thread", pa.int64()), ("n", pa.int64())]))

    def work(thread: int) -> None:
        for n in range(50):
            insert(table, [{"thread": thread, "n": n}])

    _at_once(work)
    rows = {(row["thread"], row["n"]) for row in rows_of(table)}
    assert len(rows) == len(rows_of(table)) == THREADS * 50
    assert table.current.number == THREADS * 50
    ids = ids_of(table)
    assert ids == sorted(set(ids))


def test_updates_of_different_rows_never_conflict() -> None:
    table = MemoryTable("t", pa.table({"n": [0] * THREADS}))

    def work(thread: int) -> None:
        for n in range(1, 51):
            update(table, [{"n": n, "rowid": thread}])

    _at_once(work)
    assert [row["n"] for row in rows_of(table)] == [50] * THREADS


def test_of_updates_of_one_row_none_is_lost() -> None:
    table = MemoryTable("t", pa.table({"n": [0]}))
    succeeded = []

    def work(thread: int) -> None:
        for _ in range(50):
            (before,) = rows_of(table)
            try:
                _update_if_unchanged(table, before["n"])
                succeeded.append(thread)
            except Conflict:
                pass

    _at_once(work)
    assert rows_of(table) == [{"n": len(succeeded)}]
    assert succeeded


def _update_if_unchanged(table: MemoryTable, seen: int) -> None:
    write = staged(table, Operation.UPDATE)
    (now,) = rows_of(table)
    if now["n"] != seen:
        write.abort()
        raise Conflict("seen too early")
    write.apply(typed(table, [{"n": seen + 1, "rowid": 0}]))
    if table.current.segments[0].columns[0][0].as_py() != seen:
        write.abort()
        raise Conflict("seen too late")
    write.commit()


def test_a_row_changed_since_the_statement_began_conflicts() -> None:
    table = MemoryTable("t", pa.table({"n": [0, 0, 0]}))
    for operation in (Operation.UPDATE, Operation.DELETE):
        write = staged(table, operation)
        update(table, [{"n": 1, "rowid": 0}])
        batch = typed(
            table, [{"rowid": 0}] if operation is Operation.DELETE else [{"n": 5, "rowid": 0}]
        )
        write.apply(batch)
        with pytest.raises(Conflict, match="row 0 of table t was changed by another statement"):
            write.commit()
    write = staged(table, Operation.UPDATE)
    delete(table, [1])
    write.apply(typed(table, [{"n": 5, "rowid": 1}]))
    with pytest.raises(Conflict, match="row 1"):
        write.commit()
    assert [row["n"] for row in rows_of(table)] == [1, 0]


def test_a_table_altered_since_the_statement_began_conflicts() -> None:
    table = MemoryTable("t", pa.table({"n": [0]}))
    write = staged(table, Operation.INSERT)
    write.apply(typed(table, [{"n": 1}]))
    table.add_column(CTX, pa.schema([("b", pa.int64())]), AddColumnOptions())
    with pytest.raises(Conflict, match="was altered while the statement ran"):
        write.commit()
    assert len(rows_of(table)) == 1


def test_one_of_many_inserts_of_one_key_succeeds() -> None:
    constraints = Constraints(primary_key=("id",))
    table = MemoryTable("t", pa.schema([("id", pa.int64())]), constraints=constraints)
    outcomes: list[str] = []

    def work(thread: int) -> None:
        for n in range(20):
            try:
                insert(table, [{"id": n}])
                outcomes.append("stored")
            except ConstraintViolation:
                outcomes.append("refused")

    _at_once(work)
    assert sorted(row["id"] for row in rows_of(table)) == list(range(20))
    assert outcomes.count("stored") == 20
    assert outcomes.count("refused") == 20 * (THREADS - 1)


def test_readers_see_whole_statements_only() -> None:
    table = MemoryTable("t", pa.table({"n": [0] * 100}))
    stop = threading.Event()
    torn = []

    def read() -> None:
        while not stop.is_set():
            values = {v for b in table.scan(CTX, ScanOptions()) for v in b.column("n").to_pylist()}
            if len(values) != 1:
                torn.append(values)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(1, 100):
        update(table, [{"n": n, "rowid": row_id} for row_id in range(100)])
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn


def test_transfers_between_tables_keep_the_sum_in_every_snapshot() -> None:
    catalog, tables = catalog_with(
        left=pa.table({"n": [100] * 4}), right=pa.table({"n": [100] * 4})
    )
    left, right = tables["left"], tables["right"]
    stop = threading.Event()
    sums: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            ctx = Context(transaction_id=catalog.begin_transaction(CTX))
            sums.add(sum(row["n"] for table in (left, right) for row in rows_of(table, ctx)))

    def transfer(thread: int) -> None:
        for n in range(30):
            ctx = Context(transaction_id=catalog.begin_transaction(CTX))
            row = (thread + n) % 4
            taken, given = (rows_of(table, ctx)[row]["n"] for table in (left, right))
            try:
                update(left, [{"n": taken - 1, "rowid": row}], ctx)
                update(right, [{"n": given + 1, "rowid": row}], ctx)
                catalog.commit_transaction(ctx, ctx.transaction_id or "")
            except Conflict:
                catalog.rollback_transaction(ctx, ctx.transaction_id or "")

    reader = threading.Thread(target=read)
    reader.start()
    _at_once(transfer, 4)
    stop.set()
    reader.join()
    assert sums == {800}
    assert left.current.number > 0


def test_columns_are_added_while_others_write() -> None:
    table = MemoryTable("t", pa.table({"n": [0]}))
    conflicts = []

    def work(thread: int) -> None:
        for n in range(20):
            try:
                if thread == 0:
                    table.add_column(CTX, pa.schema([(f"c{n}", pa.int64())]), AddColumnOptions())
                else:
                    row: dict[str, object] = {
                        name: n for name in table.arrow_schema.names if name != "rowid"
                    }
                    insert(table, [row])
            except SparkportError as error:
                conflicts.append(error)

    _at_once(work, 4)
    assert len(table.arrow_schema.names) == 22
    assert len(rows_of(table)) + len(conflicts) == 61
