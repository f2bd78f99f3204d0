"""INSERT, UPDATE and DELETE, batch by batch."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, delete, ids_of, insert, rows_of, staged, typed, update

from sparkport.catalog import Constraints, Operation, StagedWrite
from sparkport.errors import BadRequest, Conflict, ConstraintViolation, NotFound
from sparkport.memory import MemoryTable


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable("t", pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))


def test_nothing_is_visible_before_the_commit(table: MemoryTable) -> None:
    write = staged(table, Operation.INSERT)
    assert write.apply(typed(table, [{"a": 4, "b": "w"}])) is None
    assert len(rows_of(table)) == 3
    assert write.commit() == 1
    assert rows_of(table)[-1] == {"a": 4, "b": "w"}


def test_an_aborted_statement_leaves_nothing_behind(table: MemoryTable) -> None:
    for operation, row in (
        (Operation.INSERT, {"a": 4, "b": "w"}),
        (Operation.DELETE, {"rowid": 0}),
    ):
        write = staged(table, operation)
        write.apply(typed(table, [row]))
        write.abort()
        write.abort()
        with pytest.raises(Conflict, match="ended already"):
            write.commit()
    assert len(rows_of(table)) == 3
    assert table.current.number == 0


def test_a_million_rows_in_small_batches_become_few_segments() -> None:
    table = MemoryTable("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    data = pa.table({"n": pa.arange(0, 1_000_000), "s": pa.arange(0, 1_000_000).cast(pa.string())})
    write = staged(table, Operation.INSERT)
    for batch in data.to_batches(max_chunksize=2048):
        write.apply(batch)
    assert write.commit() == 1_000_000
    assert len(table.current.segments) == 8
    assert ids_of(table) == list(range(1_000_000))


def test_many_single_rows_become_few_segments() -> None:
    table = MemoryTable("t", pa.schema([("n", pa.int64())]))
    for n in range(1000):
        insert(table, [{"n": n}])
    assert len(table.current.segments) <= 10
    assert [row["n"] for row in rows_of(table)] == list(range(1000))
    assert [row["n"] for row in rows_of(table, version=500)] == list(range(500))


def test_row_ids_are_never_given_again(table: MemoryTable) -> None:
    insert(table, [{"a": 4, "b": "w"}])
    delete(table, [3])
    insert(table, [{"a": 5, "b": "v"}])
    assert ids_of(table) == [0, 1, 2, 4]


def test_row_ids_survive_update_and_alter(table: MemoryTable) -> None:
    delete(table, [0])
    update(table, [{"a": 20, "rowid": 1}])
    table.rename_column(CTX, "a", "c")
    assert ids_of(table) == [1, 2]
    update(table, [{"c": 30, "rowid": 2}])
    assert rows_of(table) == [{"c": 20, "b": "y"}, {"c": 30, "b": "z"}]


@pytest.mark.parametrize("operation", list(Operation))
def test_batches_without_rows_are_tolerated_also_with_returning(
    table: MemoryTable, operation: Operation
) -> None:
    names = {
        Operation.INSERT: ["a", "b"],
        Operation.UPDATE: ["b", "rowid"],
        Operation.DELETE: ["rowid"],
    }[operation]
    empty = (
        pa.schema([table.arrow_schema.field(name) for name in names]).empty_table().combine_chunks()
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in empty.schema], schema=empty.schema
    )
    write = staged(table, operation, returning=True)
    answer = write.apply(batch)
    assert answer is not None
    assert answer.num_rows == 0
    assert write.commit() == 0
    assert table.current.number == 0


@pytest.mark.parametrize("operation", [Operation.UPDATE, Operation.DELETE])
def test_a_row_id_that_does_not_exist_is_named(table: MemoryTable, operation: Operation) -> None:
    delete(table, [1])
    for row_id in (17, 1, -1, 2**62):
        row = {"rowid": row_id} if operation is Operation.DELETE else {"a": 9, "rowid": row_id}
        write = staged(table, operation)
        with pytest.raises(NotFound, match=f"row id {row_id} does not exist in table t"):
            write.apply(typed(table, [row]))
        write.abort()
    assert len(rows_of(table)) == 2


@pytest.mark.parametrize("data_type", [pa.int32(), pa.uint64(), pa.int64()])
def test_row_ids_may_come_as_other_integers(table: MemoryTable, data_type: pa.DataType) -> None:
    write = staged(table, Operation.DELETE)
    write.apply(pa.record_batch({"rowid": pa.array([1], data_type)}))
    assert write.commit() == 1


def test_row_ids_that_are_no_integers_or_missing_are_refused(table: MemoryTable) -> None:
    for batch in (pa.record_batch({"rowid": ["x"]}), pa.record_batch({"a": [1]})):
        with pytest.raises(BadRequest):
            staged(table, Operation.DELETE).apply(batch)
    with pytest.raises(BadRequest):
        staged(table, Operation.DELETE).apply(
            pa.record_batch({"rowid": pa.array([2**64 - 1], pa.uint64())})
        )


def test_an_error_in_the_last_of_many_batches_leaves_nothing_behind() -> None:
    table = MemoryTable(
        "t", pa.schema([("n", pa.int64())]), constraints=Constraints(checks=("n >= 0",))
    )
    data = pa.table({"n": pa.concat_arrays([pa.arange(0, 300_000), pa.array([-1])])})
    write = staged(table, Operation.INSERT)
    with pytest.raises(ConstraintViolation, match="n = -1"):
        _apply_all_and_commit(write, data)
    assert rows_of(table) == []


def _apply_all_and_commit(write: StagedWrite, data: pa.Table) -> None:
    for batch in data.to_batches(max_chunksize=2048):
        write.apply(batch)
    write.commit()


def test_updates_of_scattered_rows_in_a_large_table() -> None:
    rows = 300_000
    table = MemoryTable(
        "t", pa.table({"n": pa.arange(0, rows), "s": pa.arange(0, rows).cast(pa.string())})
    )
    changed = list(range(7, rows, 101))
    write = staged(table, Operation.UPDATE)
    write.apply(pa.record_batch({"s": ["!"] * len(changed), "rowid": changed[::-1]}))
    assert write.commit() == len(changed)
    delete(table, [n for n in range(rows) if n % 1000 == 0])
    expected = [(n, "!" if n % 101 == 7 else str(n)) for n in range(rows) if n % 1000]
    assert [(row["n"], row["s"]) for row in rows_of(table)] == expected
    assert ids_of(table) == [n for n, _ in expected]


def test_values_that_a_dictionary_cannot_hold_are_refused() -> None:
    narrow = pa.dictionary(pa.int8(), pa.string())
    table = MemoryTable(
        "t",
        pa.table({"d": pa.array([str(n) for n in range(100)]).dictionary_encode().cast(narrow)}),
    )
    write = staged(table, Operation.INSERT)
    write.apply(
        pa.record_batch(
            {"d": pa.array([str(n) for n in range(100, 200)]).dictionary_encode().cast(narrow)}
        )
    )
    with pytest.raises(BadRequest, match="larger index type"):
        write.commit()
    assert len(rows_of(table)) == 100


def test_many_small_deletes_do_not_leave_many_segments() -> None:
    table = MemoryTable("t", pa.table({"n": pa.arange(0, 50_000)}))
    for start in range(0, 49_000, 500):
        delete(table, range(start, start + 490))
    assert len(rows_of(table)) == 50_000 - 98 * 490
    assert len(table.current.segments) <= 4
