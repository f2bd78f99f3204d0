"""Scans: what is yielded, in which pieces, and without copying."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, delete, ids_of, insert, rows_of, update

from sparkport.catalog import Context, Filter, PartitionedTable, ScanOptions, find_rowid_column
from sparkport.errors import BadRequest, Cancelled, Conflict, NotFound
from sparkport.memory import MemorySchema, MemorySettings, MemoryTable

ROWS = 1_000_000


@pytest.fixture(scope="module")
def large() -> pa.Table:
    return pa.table({"id": pa.arange(0, ROWS), "half": pa.arange(0, ROWS).cast(pa.float64())})


def test_the_row_id_is_published_last_and_marked() -> None:
    table = MemoryTable("t", pa.table({"a": [1]}))
    assert table.arrow_schema.names == ["a", "rowid"]
    assert find_rowid_column(table.arrow_schema) == 1
    assert not table.arrow_schema.field("rowid").nullable


def test_the_arrow_schema_is_the_same_object_until_something_changes() -> None:
    table = MemoryTable("t", pa.table({"a": [1]}))
    before = table.arrow_schema
    insert(table, [{"a": 2}])
    assert table.arrow_schema is before
    table.set_default(CTX, "a", "7")
    assert table.arrow_schema is not before


def test_given_data_is_not_copied(large: pa.Table) -> None:
    table = MemoryTable("t", large)
    address = large.column("id").chunk(0).buffers()[1].address
    first = next(iter(table.scan(CTX, ScanOptions())))
    assert first.column("id").buffers()[1].address == address
    allocated = pa.total_allocated_bytes()
    assert (
        sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(columns=("id", "half"))))
        == ROWS
    )
    assert pa.total_allocated_bytes() - allocated < 100_000


def test_batches_begin_at_multiples_of_1024_and_are_of_moderate_size(large: pa.Table) -> None:
    wide = large.append_column("text", pa.chunked_array([pa.repeat("x" * 200, ROWS)]))
    for data in (large, wide):
        offset = 0
        for batch in MemoryTable("t", data).scan(
            CTX, ScanOptions(columns=tuple(data.column_names))
        ):
            assert offset % 1024 == 0
            assert batch.nbytes <= 8 * 1024 * 1024
            assert batch.num_rows <= 131_072
            offset += batch.num_rows
        assert offset == ROWS


def test_a_batch_of_huge_values_stays_small() -> None:
    table = MemoryTable("t", pa.table({"v": ["x" * 1_000_000] * 40}))
    assert max(batch.num_rows for batch in table.scan(CTX, ScanOptions())) == 8


def test_only_columns_asked_for_are_yielded_whatever_their_case() -> None:
    table = MemoryTable("t", pa.table({"a": [1], "B": [2]}))
    (batch,) = table.scan(CTX, ScanOptions(columns=("b",)))
    assert batch.schema.names == ["B"]
    with pytest.raises(NotFound, match="no column nothing"):
        table.scan(CTX, ScanOptions(columns=("nothing",)))


def test_no_columns_still_give_the_number_of_rows(large: pa.Table) -> None:
    table = MemoryTable("t", large)
    assert sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(columns=()))) == ROWS


def test_row_ids_count_from_zero_in_the_order_of_the_data(large: pa.Table) -> None:
    assert ids_of(MemoryTable("t", large)) == list(range(ROWS))


def test_a_limit_ends_the_scan_unless_rows_are_filtered_later(large: pa.Table) -> None:
    table = MemoryTable("t", large)
    assert sum(batch.num_rows for batch in table.scan(CTX, ScanOptions(limit=150_000))) == 150_000
    later = ScanOptions(limit=10, filter=Filter(()))
    assert sum(batch.num_rows for batch in table.scan(CTX, later)) == ROWS
    assert not table.applies_filters


def test_the_wished_batch_size_is_honoured(large: pa.Table) -> None:
    table = MemoryTable("t", large.slice(0, 10_000))
    assert [b.num_rows for b in table.scan(CTX, ScanOptions(batch_size=4_000))] == [
        4_000,
        4_000,
        2_000,
    ]


def test_a_cancelled_scan_stops(large: pa.Table) -> None:
    ctx = Context()
    batches = iter(MemoryTable("t", large).scan(ctx, ScanOptions()))
    next(batches)
    ctx.cancellation.cancel()
    with pytest.raises(Cancelled):
        next(batches)


def test_a_scan_in_progress_does_not_see_later_changes(large: pa.Table) -> None:
    table = MemoryTable("t", large)
    batches = iter(table.scan(CTX, ScanOptions(columns=("id",))))
    next(batches)
    delete(table, range(500_000, 600_000))
    insert(table, [{"id": -1, "half": 0.0}])
    assert sum(batch.num_rows for batch in batches) == ROWS - 131_072


def test_a_small_table_is_one_partition_and_an_empty_one_is_none() -> None:
    assert len(MemoryTable("t", pa.table({"a": [1]})).partitions(CTX, ScanOptions())) == 1
    assert MemoryTable("t", pa.schema([("a", pa.int64())])).partitions(CTX, ScanOptions()) == []
    assert list(MemoryTable("t", pa.schema([("a", pa.int64())])).scan(CTX, ScanOptions())) == []


def _read(table: PartitionedTable, partition: bytes) -> list[int]:
    batches = table.scan(CTX, ScanOptions(columns=("id",), partition=partition))
    return [value for batch in batches for value in batch.column("id").to_pylist()]


def test_partitions_are_disjoint_contiguous_and_complete(large: pa.Table) -> None:
    table = MemoryTable("t", large)
    parts = [_read(table, partition) for partition in table.partitions(CTX, ScanOptions())]
    assert len(parts) == 4
    assert [row for part in parts for row in part] == list(range(ROWS))
    assert max(map(len, parts)) - min(map(len, parts)) < 2048
    assert all(part[0] % 1024 == 0 for part in parts)


def test_the_number_of_partitions_is_a_setting(large: pa.Table) -> None:
    table = MemoryTable("t", large, settings=MemorySettings(partitions=7, partition_rows=1000))
    assert len(table.partitions(CTX, ScanOptions())) == 7


def test_partitions_read_the_version_they_were_planned_for_even_if_it_is_no_longer_kept(
    large: pa.Table,
) -> None:
    table = MemoryTable("t", large, settings=MemorySettings(max_versions=1))
    partitions = table.partitions(CTX, ScanOptions())
    for n in range(40):
        insert(table, [{"id": n, "half": 0.0}])
    delete(table, range(ROWS))
    assert [row for partition in partitions for row in _read(table, partition)] == list(range(ROWS))


def test_a_plan_that_is_too_old_is_refused() -> None:
    now = 0.0
    settings = MemorySettings(max_versions=1, pin_seconds=10, monotonic=lambda: now)
    table = MemoryTable("t", pa.table({"id": [1]}), settings=settings)
    (partition,) = table.partitions(CTX, ScanOptions())
    for _ in range(40):
        update(table, [{"id": 2, "rowid": 0}])
    now = 11.0
    table.partitions(CTX, ScanOptions())
    with pytest.raises(Conflict, match="run it again"):
        table.scan(CTX, ScanOptions(partition=partition))


def test_the_number_of_remembered_plans_is_bounded() -> None:
    settings = MemorySettings(max_versions=1, max_pins=3)
    table = MemoryTable("t", pa.table({"id": [1]}), settings=settings)
    plans: list[bytes] = []
    for n in range(40):
        plans += table.partitions(CTX, ScanOptions())
        update(table, [{"id": n, "rowid": 0}])
    with pytest.raises(Conflict):
        table.scan(CTX, ScanOptions(partition=plans[0]))
    assert _read(table, plans[-1]) == [38]


def test_a_partition_of_another_table_or_of_nobody_is_refused() -> None:
    table, other = (MemoryTable("t", pa.table({"id": [1]})) for _ in range(2))
    (partition,) = table.partitions(CTX, ScanOptions())
    with pytest.raises(Conflict):
        other.scan(CTX, ScanOptions(partition=partition))
    with pytest.raises(BadRequest):
        table.scan(CTX, ScanOptions(partition=b"?"))


@pytest.mark.parametrize("name", ["rowid", "ROWID", "RowId"])
def test_the_name_of_the_row_id_is_reserved(name: str) -> None:
    with pytest.raises(BadRequest, match="reserved for the row id"):
        MemoryTable("t", pa.table({name: [1]}))


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([]),
        pa.schema([("", pa.int64())]),
        pa.schema([("a", pa.int64()), ("A", pa.int64())]),
        pa.schema([pa.field("a", pa.int64(), metadata={"is_rowid": "1"})]),
    ],
    ids=["none", "unnamed", "twice", "marked as row id"],
)
def test_columns_that_cannot_be_a_table_are_refused(columns: pa.Schema) -> None:
    with pytest.raises(BadRequest):
        MemoryTable("t", columns)


def test_names_that_differ_in_more_than_ascii_case_are_different_columns() -> None:
    table = MemoryTable("t", pa.table({"ä": [1], "Ä": [2]}))
    assert rows_of(table) == [{"ä": 1, "Ä": 2}]


def test_metadata_that_would_mislead_the_client_is_not_published() -> None:
    columns = pa.schema(
        [("a", pa.int64())], metadata={"can_produce_statistics": "1", "owner": "me"}
    )
    assert MemoryTable("t", columns).arrow_schema.metadata == {b"owner": b"me"}


def test_a_table_belongs_to_one_schema() -> None:
    table = MemoryTable("t", pa.table({"a": [1]}))
    MemorySchema("one").add_table(table)
    with pytest.raises(BadRequest, match="in schema one already"):
        MemorySchema("two").add_table(table)


def test_a_small_table_yields_the_same_batch_until_it_changes() -> None:
    table = MemoryTable("t", pa.table({"a": [1, 2], "b": ["x", "y"]}))
    options = ScanOptions(columns=("a",))
    first, again = (next(iter(table.scan(CTX, options))) for _ in range(2))
    assert first is again
    (other,) = table.scan(CTX, ScanOptions(columns=("b",)))
    assert other.to_pydict() == {"b": ["x", "y"]}
    update(table, [{"rowid": 0, "a": 7}])
    (changed,) = table.scan(CTX, options)
    assert changed.to_pydict() == {"a": [7, 2]}
    assert first.to_pydict() == {"a": [1, 2]}


def test_part_of_a_small_table_is_no_more_than_that() -> None:
    table = MemoryTable("t", pa.table({"a": [1, 2, 3]}))
    for options in (ScanOptions(batch_size=2), ScanOptions(), ScanOptions(limit=2)):
        batches = list(table.scan(CTX, options))
        assert [value for each in batches for value in each["a"].to_pylist()] == (
            [1, 2] if options.limit else [1, 2, 3]
        )
