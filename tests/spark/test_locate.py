"""Rows found by their ids: in which files, at which positions, and whether they have changed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from pyroaring import BitMap64
from tests.counting import lines_run
from tests.spark.lake_tables import create, find, insert, sql_name
from tests.spark.tables import NUMBERED, Table, data_entry, numbered, with_field_ids

from sparkport.errors import PreconditionFailed, Unsupported
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Location
from sparkport.spark.write.locate import changed_since, locate

UPDATED_FIELD = 2147483539
IDS = {"id": 1, "name": 2, "_row_id": ROW_ID_FIELD, "_last_updated_sequence_number": UPDATED_FIELD}


def ids_of(*row_ids: int) -> pa.Array:
    return pa.array(row_ids, pa.int64())


def located(state: TableState, *row_ids: int) -> Location:
    return locate(state, ids_of(*row_ids), {})


def places(location: Location) -> dict[int, tuple[str, int]]:
    """File and position of each row that was found."""
    found = {}
    for each in location.found:
        assert each.positions.to_pylist() == sorted(each.positions.to_pylist())
        for row_id, position in zip(
            each.row_ids.to_pylist(), each.positions.to_pylist(), strict=True
        ):
            assert row_id not in found
            found[row_id] = (each.part.path.rpartition("/")[2].removesuffix(".parquet"), position)
    return found


def vector(folder, data_file: str, positions: list[int]) -> dict[str, Any]:
    """A delete vector, and its manifest entry."""
    content = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    blob = len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")
    path = folder / f"{len(list(folder.iterdir()))}.puffin"
    path.write_bytes(b"PFA1" + blob)
    place = {
        "referenced_data_file": data_file,
        "content_offset": 4,
        "content_size_in_bytes": len(blob),
    }
    return data_entry(str(path), len(positions), content=1, file_format="PUFFIN", **place)


def rewritten(
    table: Table, name: str, row_ids: Sequence[int | None], *, measured: bool = True, **how: Any
) -> dict[str, Any]:
    """A data file with a column of row ids, as an UPDATE leaves it."""
    rows = numbered(len(row_ids)).append_column("_row_id", pa.array(row_ids, pa.int64()))
    updated = pa.array(how.pop("updated", [None] * len(row_ids)), pa.int64())
    rows = with_field_ids(rows.append_column("_last_updated_sequence_number", updated), IDS)
    path = str(table.folder / f"{name}.parquet")
    pq.write_table(rows, path, **how)
    known = [row_id for row_id in row_ids if row_id is not None]
    metrics: dict[str, Any] = {}
    if measured:
        metrics["value_counts"] = {ROW_ID_FIELD: len(row_ids)}
        metrics["null_value_counts"] = {ROW_ID_FIELD: len(row_ids) - len(known)}
        if known:
            metrics["lower_bounds"] = {ROW_ID_FIELD: to_bytes(LongType(), min(known))}
            metrics["upper_bounds"] = {ROW_ID_FIELD: to_bytes(LongType(), max(known))}
    return data_entry(path, len(row_ids), **metrics)


def overwriting(table: Table) -> Table:
    """The table's files, in a commit that may have rewritten rows."""
    table.operation = "overwrite"
    return table


def of_snapshot(state: TableState, number: int) -> TableState:
    assert state.snapshot is not None
    return replace(
        state,
        snapshot=state.snapshot.model_copy(
            update={"snapshot_id": number, "sequence_number": number}
        ),
    )


# -------------------------------------------------------------------------------- rows by position


def test_ranges_of_ids_are_ranges_of_rows_and_no_file_is_read(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), data_entry("b", 10), first_row_id=100)
    table.append(data_entry("c", 5), first_row_id=120)
    found = located(table.state(), 100, 109, 110, 124)
    assert places(found) == {100: ("a", 0), 109: ("a", 9), 110: ("b", 0), 124: ("c", 4)}
    assert len(found.missing) == 0


def test_ids_that_nobody_has_are_missing(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), first_row_id=100)
    found = located(table.state(), -(2**63), -1, 0, 99, 105, 110, 2**63 - 1)
    assert places(found) == {105: ("a", 5)}
    assert found.missing.to_pylist() == [-(2**63), -1, 0, 99, 110, 2**63 - 1]


def test_no_ids_and_no_rows(tmp_path):
    table = Table(tmp_path, NUMBERED)
    assert located(table.state()).missing.to_pylist() == []
    assert located(replace(table.state(), snapshot=None), 3).missing.to_pylist() == [3]
    assert located(table.state(), 3).missing.to_pylist() == [3]
    table.append(data_entry("a", 10), first_row_id=100)
    assert located(table.state()).found == ()


def test_slices_of_arrays_are_what_they_show(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), first_row_id=0)
    found = locate(table.state(), ids_of(1, 3, 5, 50, 60).slice(1, 3), {})
    assert places(found) == {3: ("a", 3), 5: ("a", 5)}
    assert found.missing.to_pylist() == [50]


def test_files_from_before_row_ids_hold_none(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10))
    assert located(table.state(), 0, 5).missing.to_pylist() == [0, 5]


def test_deleted_rows_are_missing(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), data_entry("b", 10), first_row_id=0, sequence_number=1)
    table.append(vector(tmp_path, "a", [0, 3, 4]), content=1, sequence_number=2)
    found = located(table.state(), 2, 3, 4, 5, 13)
    assert places(found) == {2: ("a", 2), 5: ("a", 5), 13: ("b", 3)}
    assert found.missing.to_pylist() == [3, 4]
    assert located(table.state(), 0).found == ()


def test_what_a_new_vector_replaces_comes_along(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), data_entry("b", 10), first_row_id=0, sequence_number=1)
    old = vector(tmp_path, "a", [0])
    table.append(old, content=1, sequence_number=2)
    first, second = located(table.state(), 1, 11).found
    (entry,) = first.replaced
    assert (entry.path, entry.content_offset, entry.referenced_data_file) == (
        old["file_path"],
        4,
        "a",
    )
    assert second.replaced == ()


def test_position_deletes_of_version_2_count_and_are_replaced_if_they_are_about_one_file(tmp_path):
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    table = Table(tmp_path, NUMBERED, specs=[by_name])
    place = {"partition": ("x",)}
    table.append(
        data_entry("a", 10, **place), data_entry("b", 10, **place), spec=by_name, first_row_id=0
    )
    of_one, of_both = str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")
    pq.write_table(pa.table({"file_path": ["a"], "pos": [7]}), of_one)
    pq.write_table(pa.table({"file_path": ["a", "b"], "pos": [1, 2]}), of_both)
    table.append(
        data_entry(of_one, 1, content=1, referenced_data_file="a", **place),
        data_entry(of_both, 2, content=1, **place),
        spec=by_name,
        content=1,
        sequence_number=2,
    )
    found = located(table.state(), 1, 2, 7, 8, 12, 13)
    assert places(found) == {2: ("a", 2), 8: ("a", 8), 13: ("b", 3)}
    assert found.missing.to_pylist() == [1, 7, 12]
    assert [[entry.path for entry in each.replaced] for each in found.found] == [[of_one], []]
    assert [(each.spec_id, each.partition) for each in found.found] == [(1, {1000: "x"})] * 2


def test_ten_of_twenty_million_rows_are_found_without_reading_files(tmp_path):
    table = Table(tmp_path, NUMBERED)
    for number in range(8):
        table.append(data_entry(f"{number}", 2_500_000), first_row_id=number * 2_500_000)
    state, ids = table.state(), ids_of(*sorted(random.Random(1).sample(range(20_000_000), 10)))
    assert (
        sum(len(each.row_ids) for each in locate(state, ids, {}).found) == 10
    )  # there are no files to read


def test_a_million_ids_are_found_without_a_loop_over_them(tmp_path):
    table = Table(tmp_path, NUMBERED)
    for number in range(8):
        table.append(data_entry(f"{number}", 2_500_000), first_row_id=number * 2_500_000)
    table.append(vector(tmp_path, "3", list(range(0, 2_500_000, 5))), content=1, sequence_number=2)
    state, ids = table.state(), pa.arange(0, 20_000_000, 20)
    found = locate(state, ids, {})
    assert lines_run(lambda: locate(state, ids, {})) < 10_000
    assert sum(len(each.row_ids) for each in found.found) == 875_000
    assert found.missing.equals(pa.arange(7_500_000, 10_000_000, 20))


# ------------------------------------------------------------------------ rows that were rewritten


def test_rewritten_rows_are_found_by_the_ids_they_brought_along(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    table.append(table.write(numbered(10), "a"), first_row_id=0)
    table.append(rewritten(table, "b", [7, 3]), first_row_id=10, sequence_number=2)
    table.append(
        vector(tmp_path, str(tmp_path / "a.parquet"), [3, 7]), content=1, sequence_number=2
    )
    found = located(table.state(), 2, 3, 7, 8, 10, 11)
    assert places(found) == {2: ("a", 2), 3: ("b", 1), 7: ("b", 0), 8: ("a", 8)}
    assert found.missing.to_pylist() == [10, 11]


def test_where_a_row_has_no_id_of_its_own_it_follows_from_its_position(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    table.append(rewritten(table, "b", [None, 3, None]), first_row_id=10)
    found = located(table.state(), 3, 10, 11, 12)
    assert places(found) == {3: ("b", 1), 10: ("b", 0), 12: ("b", 2)}
    assert found.missing.to_pylist() == [11]


def test_rewritten_rows_may_be_deleted_too(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    table.append(rewritten(table, "b", [9, 3, 5]), first_row_id=10)
    table.append(vector(tmp_path, str(tmp_path / "b.parquet"), [1]), content=1, sequence_number=2)
    found = located(table.state(), 3, 5, 9)
    assert places(found) == {5: ("b", 2), 9: ("b", 0)}
    assert found.missing.to_pylist() == [3]


@pytest.mark.parametrize("ascending", [True, False])
def test_only_row_groups_that_may_hold_an_id_are_read(tmp_path, ascending):
    row_ids = list(range(100, 1100))
    if not ascending:
        row_ids = [
            row_id for first in range(100, 1100, 100) for row_id in range(first + 99, first - 1, -1)
        ]
    table = overwriting(Table(tmp_path, NUMBERED))
    table.append(rewritten(table, "b", row_ids, row_group_size=100), first_row_id=0)
    found = located(table.state(), 50, 100, 555, 1099, 1100)
    assert places(found) == {row_id: ("b", row_ids.index(row_id)) for row_id in (100, 555, 1099)}
    assert found.missing.to_pylist() == [50, 1100]


def test_bounds_in_the_manifest_spare_files(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    there = rewritten(table, "b", [3, 4])
    gone = rewritten(table, "c", [5, 9])
    table.append(there, gone, first_row_id=10)
    (tmp_path / "c.parquet").unlink()
    assert places(located(table.state(), 3, 4, 10)) == {3: ("b", 0), 4: ("b", 1)}
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t is missing"):
        located(table.state(), 6)


def test_files_that_nothing_is_known_of_are_looked_into(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    plain = table.write(numbered(5), "a")
    table.append(plain, rewritten(table, "b", [900, 901], measured=False), first_row_id=10)
    found = located(table.state(), 12, 15, 900)
    assert places(found) == {12: ("a", 2), 900: ("b", 0)}
    assert found.missing.to_pylist() == [15]


def test_a_million_ids_in_rewritten_files(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    entries = []
    for number in range(2):
        rows = pa.table({"_row_id": pa.arange(number * 1_000_000, (number + 1) * 1_000_000)})
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(with_field_ids(rows, IDS), path)
        entries.append(data_entry(path, 1_000_000))
    table.append(*entries, first_row_id=5_000_000)
    state = table.state()
    found = locate(state, pa.arange(0, 2_000_000, 2), {})
    assert lines_run(lambda: locate(state, pa.arange(0, 2_000_000, 2), {})) < 10_000
    assert [len(each.row_ids) for each in found.found] == [500_000] * 2
    assert len(found.missing) == 0


def test_many_small_changes_leave_many_small_files(tmp_path):
    table = overwriting(Table(tmp_path, NUMBERED))
    changed = {number: [number, 100_000 - number] for number in range(300)}
    table.append(
        *(rewritten(table, f"{number}", ids) for number, ids in changed.items()),
        first_row_id=200_000,
    )
    state = table.state()
    ids = ids_of(*sorted(row_id for row_ids in changed.values() for row_id in row_ids))
    assert places(locate(state, ids, {})) == {
        row_id: (f"{number}", position)
        for number, row_ids in changed.items()
        for position, row_id in enumerate(row_ids)
    }
    for number in changed:
        (tmp_path / f"{number}.parquet").unlink()
    assert located(state, 7, 50_000).missing.to_pylist() == [50_000], "their ids are remembered"


def test_files_that_only_spark_reads(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10, file_format="ORC"), data_entry("b", 10), first_row_id=0)
    assert places(located(table.state(), 12)) == {12: ("b", 2)}
    for state in (table.state(), replace(table.state(), io=None)):
        with pytest.raises(Unsupported, match=r"rows of table a\.t cannot be found by their ids"):
            located(state, 3)


def test_damaged_vectors_are_named(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), first_row_id=0)
    entry = vector(tmp_path, "a", [1])
    table.append(entry, content=1, sequence_number=2)
    (tmp_path / entry["file_path"]).write_bytes(b"PFA1" + bytes(100))
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t cannot be read"):
        located(table.state(), 3)


# -------------------------------------------------------------------------------- what has changed


def test_nothing_has_changed_at_the_same_snapshot(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), first_row_id=0)
    state = table.state()
    assert changed_since(state, state, located(state, 3, 77), {}) is None


def test_rows_at_their_old_places_are_unchanged(tmp_path):
    before, after = Table(tmp_path, NUMBERED), Table(tmp_path, NUMBERED)
    for table in (before, after):
        table.append(data_entry("a", 10), first_row_id=0)
    after.append(data_entry("b", 10), first_row_id=10, sequence_number=9)
    after.append(vector(tmp_path, "a", [0, 1]), content=1, sequence_number=9)
    base, now = of_snapshot(before.state(), 3), of_snapshot(after.state(), 9)
    assert changed_since(base, now, located(now, 2, 5), {}) is None
    assert changed_since(base, now, located(now, 1, 2, 5), {}) == 1
    assert changed_since(base, now, located(now, 2, 77), {}) is None, "it was never there"
    assert changed_since(base, now, located(now, 2, 12), {}) == 12, "it was not there then"


@pytest.mark.parametrize(
    ("updated", "changed"), [([1, 1], None), ([1, 9], 5), ([None, 1], 3), ([None, None], 3)]
)
def test_a_row_that_was_only_moved_is_unchanged(tmp_path, updated, changed):
    before, after = Table(tmp_path, NUMBERED), overwriting(Table(tmp_path, NUMBERED))
    before.append(before.write(numbered(10), "a"), first_row_id=0, sequence_number=1)
    after.append(rewritten(after, "b", [3, 5], updated=updated), first_row_id=10, sequence_number=9)
    base, now = of_snapshot(before.state(), 3), of_snapshot(after.state(), 9)
    assert changed_since(base, now, located(now, 3, 5), {}) == changed
    assert changed_since(now, base, located(base, 3, 5), {}) == changed, (
        "a rollback is a change too"
    )


def test_rows_that_moved_twice(tmp_path):
    before, after = overwriting(Table(tmp_path, NUMBERED)), overwriting(Table(tmp_path, NUMBERED))
    before.append(
        rewritten(before, "a", [5, 3], updated=[2, None]), first_row_id=10, sequence_number=3
    )
    after.append(rewritten(after, "b", [3], updated=[3]), first_row_id=10, sequence_number=9)
    after.append(rewritten(after, "c", [5], updated=[4]), first_row_id=11, sequence_number=9)
    base, now = of_snapshot(before.state(), 3), of_snapshot(after.state(), 9)
    assert changed_since(base, now, located(now, 3), {}) is None
    assert changed_since(base, now, located(now, 3, 5), {}) == 5


# -------------------------------------------------------------------------------- what Spark makes


@pytest.fixture
def sql(lake, namespace):
    """Run SQL on table `t` of three columns, which the SQL calls T."""
    create(lake, namespace, "t")

    def run(text: str) -> None:
        lake.spark.sql(text.replace(" T ", f" {sql_name(lake, namespace, 't')} ", 1)).collect()

    return run


def ids_in_spark(lake, namespace) -> dict[int, int]:
    rows = lake.spark.sql(f"SELECT id, _row_id FROM {sql_name(lake, namespace, 't')}").collect()
    return {row["_row_id"]: row["id"] for row in rows}


def check_all(lake, namespace) -> TableState:
    """Check that every row of Spark is found, and no other, where a plain read finds it."""
    state = find(lake, namespace, "t").state
    known = ids_in_spark(lake, namespace)
    found = locate(state, pa.array(range(-2, max(known) + 20), pa.int64()), {})
    values: dict[int, int] = {}
    for each in found.found:
        column = pq.read_table(each.part.path.removeprefix("file:"), columns=["id"]).column("id")
        values.update(
            zip(each.row_ids.to_pylist(), column.take(each.positions).to_pylist(), strict=True)
        )
    assert values == known
    assert set(found.missing.to_pylist()) == set(range(-2, max(known) + 20)) - known.keys()
    return state


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_are_found_after_whatever_spark_does(lake, namespace, sql, mode):
    for name in ("delete", "update", "merge"):
        sql(f"ALTER TABLE T SET TBLPROPERTIES ('write.{name}.mode' = '{mode}')")
    sql("INSERT INTO T SELECT id, id % 7, 'x' FROM range(0, 100, 1, 2)")
    sql("INSERT INTO T SELECT id, id % 7, 'y' FROM range(100, 150, 1, 1)")
    base = check_all(lake, namespace)
    sql("UPDATE T SET v = 70 WHERE id % 10 = 3")
    sql("DELETE FROM T WHERE id % 10 = 4")
    sql(
        "MERGE INTO T AS t USING (SELECT explode(array(5, 6, 700)) AS k) s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET name = 'z' WHEN NOT MATCHED THEN INSERT (id) VALUES (k)"
    )
    now = check_all(lake, namespace)
    known = ids_in_spark(lake, namespace)
    at = {value: row_id for row_id, value in known.items()}
    for value, changed in (
        (0, False),
        (3, True),
        (5, True),
        (13, True),
        (17, False),
        (140, False),
        (700, True),
    ):
        found = located(now, at[value])
        assert changed_since(base, now, found, {}) == (at[value] if changed else None), value
    sql("ALTER TABLE T RENAME COLUMN name TO title")
    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.rewrite_data_files(table => '{namespace}.t', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    moved = check_all(lake, namespace)
    assert ids_in_spark(lake, namespace) == known
    every = locate(moved, pa.array(sorted(known), pa.int64()), {})
    assert {each.part.path for each in every.found}.isdisjoint(part.part.path for part in locate(
        now, pa.array(sorted(known), pa.int64()), {}).found)  # fmt: skip
    assert changed_since(now, moved, every, {}) is None, "compaction changes no row"
    assert changed_since(base, moved, located(moved, at[13]), {}) == at[13]
    sql("UPDATE T SET v = -1 WHERE id = 17")
    after = check_all(lake, namespace)
    assert changed_since(moved, after, located(after, at[0], at[17]), {}) == at[17]
    assert changed_since(now, after, located(after, at[0]), {}) is None


def test_rows_are_found_in_partitions_and_after_changes_of_columns(lake, namespace):
    table = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, p STRING, d DATE) USING iceberg PARTITIONED BY (p, "
        "days(d)) "
        "TBLPROPERTIES ('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
    )
    lake.spark.sql(
        f"INSERT INTO {table} SELECT id, if(id % 3 = 0, NULL, 'x'), date_add(DATE'2020-01-01', "
        "int(id % 2)) FROM range(40)"
    )
    lake.spark.sql(f"UPDATE {table} SET p = 'y' WHERE id IN (3, 4)")
    lake.spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD p")
    lake.spark.sql(f"INSERT INTO {table} SELECT id, 'z', DATE'2020-01-01' FROM range(40, 45)")
    lake.spark.sql(f"UPDATE {table} SET d = NULL WHERE id IN (5, 41)")
    lake.spark.sql(f"ALTER TABLE {table} DROP COLUMN p")
    state = check_all(lake, namespace)
    specs = {each.spec_id for each in locate(state, pa.arange(0, 100), {}).found}
    assert len(specs) == 2


def test_rows_of_a_table_that_was_upgraded(lake, namespace):
    table = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.spark.sql(f"INSERT INTO {table} SELECT id FROM range(0, 20, 1, 1)")
    lake.spark.sql(f"DELETE FROM {table} WHERE id IN (3, 4)")
    lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    lake.spark.sql(f"INSERT INTO {table} VALUES (20)")
    state = check_all(lake, namespace)
    assert any(each.replaced for each in locate(state, pa.arange(0, 30), {}).found)


def test_rows_stay_found_when_old_snapshots_are_forgotten(lake, namespace, sql):
    sql("INSERT INTO T SELECT id, 1, 'x' FROM range(0, 20, 1, 1)")
    sql("UPDATE T SET v = 2 WHERE id = 3")
    insert(lake, namespace, "t", "(77, 1, 'y')")
    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.expire_snapshots(table => '{namespace}.t', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()
    check_all(lake, namespace)
