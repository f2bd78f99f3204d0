"""A table has few segments, and holds little more than its rows, whatever changed them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.memory.memory_of import buffer_bytes
from tests.memory.statements import CTX, delete, ids_of, insert, rows_of, update

from sparkport.catalog import Context
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.memory.segments import SEGMENT_ROWS, bytes_of

PLAIN = pa.schema({"k": pa.int64(), "v": pa.string()})


def most_segments(rows: int) -> float:
    return rows / 2048 + 16


def expect_few_segments(table: MemoryTable) -> None:
    assert len(table.current.segments) <= most_segments(table.current.rows)


@pytest.mark.parametrize("thousands", [1, pytest.param(5, marks=pytest.mark.long)])
def test_thousands_of_small_statements_leave_few_segments(thousands: int) -> None:
    table = MemoryTable("t", PLAIN)
    chance = random.Random(7)
    statements = ["insert"] * 2_000 + ["update"] * 1_000 + ["delete"] * 400
    statements *= thousands
    chance.shuffle(statements)
    model: dict[int, str] = {}
    ids: list[int] = []
    for number, statement in enumerate(statements):
        if statement == "insert":
            row_id = table._next_row_id
            insert(table, [{"k": row_id, "v": "new"}])
            model[row_id] = "new"
            ids.append(row_id)
        elif ids:
            place = chance.randrange(len(ids))
            if statement == "update":
                update(table, [{"v": f"n{number}", "rowid": ids[place]}])
                model[ids[place]] = f"n{number}"
            else:
                ids[place], ids[-1] = ids[-1], ids[place]
                delete(table, [ids[-1]])
                del model[ids.pop()]
        expect_few_segments(table)
    assert {row["k"]: row["v"] for row in rows_of(table)} == model
    assert ids_of(table) == sorted(model)
    current = table.current
    assert buffer_bytes([current]) <= 2 * current.nbytes + 65_536


def test_single_rows_changed_all_over_a_large_table_leave_few_segments() -> None:
    rows = 2 * SEGMENT_ROWS
    table = MemoryTable("t", pa.table({"k": pa.arange(0, rows), "v": pa.arange(0, rows)}))
    for place in range(0, rows, 1024):
        update(table, [{"v": -1, "rowid": place}])
    expect_few_segments(table)
    assert buffer_bytes([table.current]) <= 2 * table.current.nbytes
    left = [row_id for row_id in range(rows) if row_id % 2048 == 0]
    delete(table, sorted(set(range(rows)) - set(left)))
    expect_few_segments(table)
    assert ids_of(table) == left


@pytest.mark.parametrize("kept", [range(4096), range(60_000, 64_000), range(126_976, 131_072)])
def test_rows_that_are_left_of_a_large_segment_do_not_hold_the_others(kept: range) -> None:
    data = pa.table({"k": pa.arange(0, SEGMENT_ROWS), "v": ["some text"] * SEGMENT_ROWS})
    table = MemoryTable("t", data)
    delete(table, [row_id for row_id in range(SEGMENT_ROWS) if row_id not in kept])
    assert ids_of(table) == list(kept)
    assert buffer_bytes([table.current]) <= 4 * table.current.nbytes


def test_values_that_an_update_leaves_do_not_hold_those_it_replaces() -> None:
    data = pa.table({"k": pa.arange(0, SEGMENT_ROWS), "v": ["x" * 100] * SEGMENT_ROWS})
    table = MemoryTable("t", data)
    for first in range(0, SEGMENT_ROWS - 4096, 4096):
        update(table, [{"v": "", "rowid": row_id} for row_id in range(first, first + 4096)])
    assert {row["v"] for row in rows_of(table)[-4096:]} == {"x" * 100}
    values = sum(bytes_of(segment.columns[1]) for segment in table.current.segments)
    assert buffer_bytes([table.current]) <= 4 * (values + 8 * SEGMENT_ROWS)


def test_rows_of_transactions_that_end_in_another_order_leave_few_segments() -> None:
    catalog = MemoryCatalog("c")
    table = MemoryTable("t", PLAIN)
    catalog.add_schema("s").add_table(table)
    open_ones = []
    for number in range(200):
        ctx = Context(transaction_id=catalog.begin_transaction(CTX))
        insert(table, [{"k": number, "v": "new"}], ctx)
        open_ones.append(ctx)
    random.Random(1).shuffle(open_ones)
    for ctx in open_ones:
        catalog.commit_transaction(ctx, ctx.transaction_id or "")
        expect_few_segments(table)
    assert [row["k"] for row in rows_of(table)] == list(range(200))


def test_few_rows_before_many_leave_few_segments() -> None:
    table = MemoryTable("t", PLAIN)
    many = [{"k": number, "v": ""} for number in range(70_000)]
    for _ in range(4):
        for number in range(63):
            insert(table, [{"k": number, "v": ""}])
        insert(table, many)
    assert len(table.current.segments) <= 9


def test_data_in_tiny_batches_make_few_segments() -> None:
    batches = [pa.record_batch({"k": [number], "v": ["x"]}, PLAIN) for number in range(5_000)]
    table = MemoryTable("t", pa.Table.from_batches(batches))
    expect_few_segments(table)
    assert [row["k"] for row in rows_of(table)] == list(range(5_000))


def test_dictionaries_that_do_not_fit_together_stay_apart() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"d": pa.array([f"{part} {n}" for n in range(100)]).cast(kind)})
        for part in range(3)
    ]
    table = MemoryTable("t", pa.Table.from_batches(batches))
    delete(table, [0, 150, 299])
    assert len(rows_of(table)) == 297


def test_an_update_of_a_row_among_wide_ones_copies_about_a_megabyte() -> None:
    table = MemoryTable("t", pa.table({"k": pa.arange(0, 4_000), "v": ["x" * 4_000] * 4_000}))
    update(table, [{"v": "y" * 4_000, "rowid": 2_000}])
    assert table.current.retired < 1_200_000
    assert rows_of(table)[2_000] == {"k": 2_000, "v": "y" * 4_000}


def test_wide_rows_that_become_narrow_are_put_together_again() -> None:
    table = MemoryTable(
        "t",
        pa.table({"k": pa.arange(0, 4_000), "v": ["x" * 4_000] * 4_000}),
        settings=MemorySettings(max_versions=2),
    )
    for first in range(0, 4_000, 100):
        update(table, [{"v": "", "rowid": row_id} for row_id in range(first, first + 100, 2)])
    assert len(table.current.segments) > 8
    for first in range(1, 4_000, 100):
        update(table, [{"v": "", "rowid": row_id} for row_id in range(first, first + 100, 2)])
    assert len(table.current.segments) <= 3
    assert {row["v"] for row in rows_of(table)} == {""}
