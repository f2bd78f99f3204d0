"""Rows by their ids or places, with as little reading as possible."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from tests.spark.lake_tables import create, find, insert, rows, sql_name
from tests.spark.tables import NUMBERED, Table, data_entry, numbered, with_field_ids

from sparkport.errors import Cancelled, NotFound, PreconditionFailed, Unsupported
from sparkport.spark.iceberg import file_reader
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.write.locate import locate
from sparkport.spark.write.rows import RowLookup, rows_of

LARGE = 200_000


def nothing() -> None:
    """A check that never raises."""


def taken(state, row_ids, columns=None):
    return RowLookup(state, {}, nothing).take(pa.array(row_ids, pa.int64()), columns)


def at_places(state, row_ids, columns=None, **how):
    location = locate(state, pa.array(row_ids, pa.int64()), {})
    assert len(location.missing) == 0
    return list(rows_of(state, location.found, columns, properties={}, check=nothing, **how))


@pytest.fixture
def state(tmp_path):
    """A table of two files with several row groups."""
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(1000), "a", row_group_size=100), first_row_id=0)
    table.append(table.write(numbered(1000, 1000), "b", row_group_size=100), first_row_id=1000)
    return table.state()


def test_rows_come_in_the_order_of_the_ids_and_as_often(state):
    found = taken(state, [1500, 3, 1999, 3, 0])
    assert found.schema.names == ["id", "name", "rowid"]
    assert (
        found.column("rowid").to_pylist() == found.column("id").to_pylist() == [1500, 3, 1999, 3, 0]
    )
    assert found.column("name").to_pylist() == ["n1500", "n3", "n1999", "n3", "n0"]


def test_columns_come_in_the_order_in_which_they_are_wanted(state):
    assert taken(state, [5], ["name", "id"]).to_pylist() == [{"name": "n5", "id": 5, "rowid": 5}]
    assert taken(state, [5], ["name"]).schema.names == ["name", "rowid"]
    assert taken(state, [5, 6], []).to_pylist() == [{"rowid": 5}, {"rowid": 6}]
    assert taken(state, [5], ["rowid", "name"]).schema.names == ["name", "rowid"]


def test_no_rows(state):
    found = taken(state, [])
    assert found.num_rows == 0
    assert found.schema.names == ["id", "name", "rowid"]
    assert found.schema.types == [pa.int64(), pa.string(), pa.int64()]
    assert at_places(state, []) == []


def test_a_row_that_is_not_there_is_named(state):
    with pytest.raises(NotFound, match=r"row id 2000 does not exist in table a\.t"):
        taken(state, [5, 2001, 2000])
    with pytest.raises(NotFound, match="row id -1 "):
        taken(state, [-1])


def test_only_row_groups_with_wanted_rows_are_read(state, monkeypatch):
    read: list[int] = []
    raw = file_reader.FileReader._raw

    def noting(self, found, groups):
        read.extend(group.index for group in groups)
        return raw(self, found, groups)

    monkeypatch.setattr(file_reader.FileReader, "_raw", noting)
    assert taken(state, [105, 106, 999, 1000]).num_rows == 4
    assert sorted(read) == [0, 1, 9]


def test_large_batches_are_made_of_few_rows(state):
    batches = at_places(state, list(range(0, 2000, 50)))
    assert [batch.num_rows for batch in batches] == [40]
    assert batches[0].column("rowid").to_pylist() == list(range(0, 2000, 50))
    assert (
        sum(batch.num_rows for batch in at_places(state, list(range(2000)), batch_rows=64)) == 2000
    )


def test_row_ids_alone_need_no_file(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("missing", 10), first_row_id=0)
    assert taken(table.state(), [3, 7], []).to_pylist() == [{"rowid": 3}, {"rowid": 7}]
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t is missing"):
        taken(table.state(), [3])


def test_rows_that_were_rewritten_have_the_ids_they_brought_along(tmp_path):
    table = Table(tmp_path, NUMBERED, operation="overwrite")
    path = str(tmp_path / "b.parquet")
    own = numbered(4).append_column("_row_id", pa.array([70, None, 30, 50], pa.int64()))
    pq.write_table(with_field_ids(own, {"id": 1, "name": 2, "_row_id": ROW_ID_FIELD}), path)
    table.append(data_entry(path, 4), first_row_id=100)
    found = taken(table.state(), [30, 70, 101])
    assert found.to_pylist() == [
        {"id": 2, "name": "n2", "rowid": 30},
        {"id": 0, "name": "n0", "rowid": 70},
        {"id": 1, "name": "n1", "rowid": 101},
    ]


@pytest.mark.parametrize("count", [1, 64, 65, 5000])
def test_rows_of_large_row_groups(tmp_path, count):
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(LARGE), "a", row_group_size=LARGE // 2), first_row_id=1000)
    ids = random.Random(count).sample(range(1000, 1000 + LARGE), count)
    found = taken(table.state(), ids)
    assert found.column("rowid").to_pylist() == ids
    assert found.column("id").to_pylist() == [row_id - 1000 for row_id in ids]
    assert found.column("name").to_pylist() == [f"n{row_id - 1000}" for row_id in ids]


@pytest.mark.parametrize("step", [1, 3])
def test_rows_near_each_other_in_a_large_row_group(tmp_path, step):
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(LARGE), "a", row_group_size=LARGE // 2), first_row_id=1000)
    ids = list(range(1000 + LARGE // 2 - 3000, 1000 + LARGE // 2 + 3000, step))
    found = taken(table.state(), ids)
    assert found.column("rowid").to_pylist() == ids
    assert found.column("id").to_pylist() == [row_id - 1000 for row_id in ids]
    assert found.column("name").to_pylist() == [f"n{row_id - 1000}" for row_id in ids]


def test_columns_are_found_by_their_ids(tmp_path):
    old = Schema(NestedField(1, "was_id", LongType()), NestedField(7, "dropped", StringType()))
    new = Schema(
        NestedField(2, "name", StringType(), initial_default="none"),
        NestedField(1, "id", LongType()),
        NestedField(3, "n", IntegerType()),
    )
    table = Table(tmp_path, new, file_schema=old)
    table.append(
        table.write(pa.table({"was_id": [1, 2, 3], "dropped": ["x", "y", "z"]}), "a"),
        first_row_id=0,
    )
    assert taken(table.state(), [2, 0]).to_pylist() == [
        {"name": "none", "id": 3, "n": None, "rowid": 2},
        {"name": "none", "id": 1, "n": None, "rowid": 0},
    ]


def test_files_that_only_spark_reads(state, tmp_path):
    with pytest.raises(Unsupported, match="only Spark can read its files"):
        taken(replace(state, io=None), [3])


def test_reading_ends_when_it_is_asked_to(state):
    def stop() -> None:
        raise Cancelled("the client went away")

    location = locate(state, pa.arange(0, 100), {})
    with pytest.raises(Cancelled):
        list(rows_of(state, location.found, None, properties={}, check=stop))
    with pytest.raises(Cancelled):
        RowLookup(state, {}, stop).take(pa.arange(0, 100), None)


def test_a_missing_file_is_named(state, tmp_path):
    (tmp_path / "b.parquet").unlink()
    assert taken(state, [3]).num_rows == 1
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t is missing"):
        taken(state, [3, 1003])


def test_values_are_as_declared_or_as_stored(lake, namespace):
    columns = pa.schema(
        [
            ("u", pa.uint64()),
            ("t", pa.time64("us")),
            ("s", pa.timestamp("s")),
            ("l", pa.list_(pa.int8())),
        ]
    )
    create(lake, namespace, "t", columns)
    stored = find(lake, namespace, "t").state.schema.fields
    insert(
        lake,
        namespace,
        "t",
        "(18446744073709551615, 3723000001, TIMESTAMP_NTZ'2020-01-02 03:04:05', array(1, NULL))",
    )
    table = find(lake, namespace, "t")
    declared = taken(table.state, [0])
    assert declared.to_pylist() == [
        {
            "u": 2**64 - 1,
            "t": datetime.time(1, 2, 3, 1),
            "s": datetime.datetime(2020, 1, 2, 3, 4, 5),
            "l": [1, None],
            "rowid": 0,
        }
    ]
    assert [each.type for each in declared.schema][:4] == columns.types
    plain = pa.Table.from_batches(at_places(table.state, [0], stored=True))
    assert plain.schema.names == ["u", "t", "s", "l", "rowid"]
    assert str(stored[0].field_type) == "decimal(20, 0)"
    assert plain.schema.field("u").type == pa.decimal128(20, 0)
    assert plain.schema.field("t").type == pa.int64()


def test_rows_are_the_same_after_whatever_spark_does(lake, namespace):
    create(lake, namespace, "t")
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(f"INSERT INTO {name} SELECT id, id % 7, 'x' FROM range(0, 100, 1, 2)")
    lake.spark.sql(f"UPDATE {name} SET v = 70 WHERE id % 10 = 3")
    lake.spark.sql(f"DELETE FROM {name} WHERE id % 10 = 4")
    lake.spark.sql(f"ALTER TABLE {name} RENAME COLUMN name TO title")
    lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN more STRING FIRST")
    lake.spark.sql(f"INSERT INTO {name} VALUES ('m', 500, 1, 'y')")
    expected = rows(find(lake, namespace, "t"))
    ids = [row["rowid"] for row in expected]
    order = random.Random(5).sample(range(len(ids)), len(ids))
    found = taken(find(lake, namespace, "t").state, [ids[index] for index in order])
    assert found.to_pylist() == [expected[index] for index in order]
    gone = {row["rowid"] for row in expected}
    missing = next(row_id for row_id in range(100) if row_id not in gone)
    with pytest.raises(NotFound, match=f"row id {missing} "):
        taken(find(lake, namespace, "t").state, [ids[0], missing])
    assert pc.sum(found.column("id")).as_py() == sum(row["id"] for row in expected)


def test_each_row_is_looked_for_once(state, monkeypatch):
    looked_for = []

    def noted(state, row_ids, properties):
        looked_for.append(row_ids.to_pylist())
        return locate(state, row_ids, properties)

    monkeypatch.setattr("sparkport.spark.write.rows.locate", noted)
    lookup = RowLookup(state, {}, nothing)
    for ids in ([7, 3, 3], [5, 7, 1999], [1999, 5]):
        assert lookup.take(pa.array(ids), ["id"]).equals(taken(state, ids, ["id"]))
        looked_for.pop()  # of the comparison
    assert looked_for == [[3, 7], [5, 1999]]
    every = pa.array([3, 5, 7, 1999])
    assert _places(lookup.locate(every)) == _places(locate(state, every, {}))
    assert _places(lookup.locate(every[1:3])) == _places(locate(state, every[1:3], {}))
    assert lookup.located(pa.array([3, 4])) is None
    assert len(looked_for) == 2
    for missing in (-1, 2000):
        with pytest.raises(NotFound, match=f"row id {missing} does not exist"):
            lookup.locate(pa.array([missing]))


def _places(location):
    assert len(location.missing) == 0
    return {each.part.path: (each.positions, each.row_ids) for each in location.found}
