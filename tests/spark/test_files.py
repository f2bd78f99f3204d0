"""Reading data files: which rows, which row ids, in which order and batches."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.spark.tables import (
    IO,
    NUMBERED,
    VARCHAR,
    Table,
    compare,
    data_entry,
    numbered,
    read,
    rows_of,
    where,
)
from tests.spark.test_deletes import write_vector

from sparkport.catalog.filters import Conjunction, ConjunctionKind, Filter
from sparkport.catalog.rowid import NO_ROW_ID
from sparkport.errors import Cancelled, PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.read import reachable, read_parts, read_request
from sparkport.spark.iceberg.table_state import States, metadata_text


def of_one_file(folder, rows, *, row_group_size=None, **table):
    made = Table(folder, NUMBERED, **table)
    made.append(made.write(rows, row_group_size=row_group_size), first_row_id=0)
    return made


# -------------------------------------------------------------------------------------------- rows


def test_all_rows_with_their_ids(tmp_path):
    table = Table(tmp_path, NUMBERED)
    table.append(table.write(numbered(3)), first_row_id=10)
    table.append(table.write(numbered(2, 3)), first_row_id=20)
    (batch,) = read(table.state())
    assert batch.schema.names == ["id", "name", "rowid"]
    assert batch.column("id").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.column("rowid").to_pylist() == [10, 11, 12, 20, 21]


def test_only_the_wanted_columns_in_their_order(tmp_path):
    state = of_one_file(tmp_path, numbered(2)).state()
    (batch,) = read(state, ["rowid", "name"])
    assert batch.schema.names == ["name", "rowid"]
    (batch,) = read(state, ["name"], where("id", "=", 1))
    assert batch.to_pylist() == [{"name": "n1"}]
    (batch,) = read(state, [])
    assert (batch.num_columns, batch.num_rows) == (0, 2)


def test_rows_of_version_2_show_that_they_have_no_ids(tmp_path):
    state = of_one_file(tmp_path, numbered(2), version=2).state()
    (batch,) = read(state)
    assert batch.schema.names == ["id", "name", "rowid"]
    assert batch.column("rowid").to_pylist() == [NO_ROW_ID] * 2


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("row_group_size", [None, 10, 33])
def test_filters_are_exact_whatever_the_batches(tmp_path, batch_rows, row_group_size):
    state = of_one_file(tmp_path, numbered(100), row_group_size=row_group_size).state()
    either = Conjunction(
        ConjunctionKind.OR, (compare("id", "<", 5), compare("name", "=", "n50", VARCHAR))
    )
    rows = rows_of(read(state, ["name", "rowid"], Filter((either,)), batch_rows=batch_rows))
    assert [row["rowid"] for row in rows] == [0, 1, 2, 3, 4, 50]
    assert [row["name"] for row in rows] == ["n0", "n1", "n2", "n3", "n4", "n50"]


def test_filters_on_row_ids(tmp_path):
    state = of_one_file(tmp_path, numbered(100), row_group_size=10).state()
    assert rows_of(read(state, ["id"], where("rowid", "=", 42))) == [{"id": 42}]
    assert rows_of(read(state, ["rowid"], where("rowid", ">", 97))) == [
        {"rowid": 98},
        {"rowid": 99},
    ]


def test_deleted_rows_are_gone_and_ids_stay(tmp_path):
    table = Table(tmp_path, NUMBERED)
    entry = table.write(numbered(10), row_group_size=4)
    table.append(entry, first_row_id=100)
    vector = write_vector(tmp_path / "v.puffin", [0, 3, 4, 9])
    place = {"content_offset": vector.offset, "content_size_in_bytes": vector.length}
    deletes = data_entry(
        vector.path,
        4,
        content=1,
        file_format="PUFFIN",
        referenced_data_file=entry["file_path"],
        **place,
    )
    table.append(deletes, content=1, sequence_number=2)
    state = table.state()
    left = [1, 2, 5, 6, 7, 8]
    for columns in (["id", "rowid"], ["rowid"], ["id"]):
        for batch_rows in (3, 1000):
            rows = rows_of(read(state, columns, batch_rows=batch_rows))
            assert rows == [{name: n + 100 * (name == "rowid") for name in columns} for n in left]
    assert sum(batch.num_rows for batch in read(state, [])) == 6
    assert rows_of(read(state, ["id"], where("id", "<", 5))) == [{"id": 1}, {"id": 2}]
    assert rows_of(read(state, ["rowid"], where("rowid", "<", 105))) == [
        {"rowid": 101},
        {"rowid": 102},
    ]


def test_row_ids_that_a_file_holds_win_unless_they_are_null(tmp_path):
    table = Table(tmp_path, NUMBERED, operation="overwrite")
    held = Schema(
        *NUMBERED.fields, NestedField(ROW_ID_FIELD, "_row_id", LongType(), required=False)
    )
    table.file_schema = held
    rows = numbered(3).append_column("_row_id", pa.array([7, None, 5], pa.int64()))
    table.append(table.write(rows), first_row_id=100)
    state = table.state()
    assert rows_of(read(state, ["rowid"])) == [{"rowid": 7}, {"rowid": 101}, {"rowid": 5}]
    assert rows_of(read(state, ["id"], where("rowid", "=", 5))) == [{"id": 2}]
    assert rows_of(read(state, ["id"], where("rowid", "=", 102))) == []


def test_counting_opens_no_file(tmp_path):
    table = of_one_file(tmp_path, numbered(5))
    state = table.state()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert rows_of(read(state, ["rowid"])) == [{"rowid": number} for number in range(5)]
    with pytest.raises(PreconditionFailed, match=r"a data file of table a\.t is missing"):
        read(state, ["id"])


# -------------------------------------------------------------------------------- order and pieces


def test_the_same_request_gives_the_same_batches(tmp_path):
    table = Table(tmp_path, NUMBERED)
    for start in range(0, 300, 100):
        table.append(table.write(numbered(100, start), row_group_size=33), first_row_id=start)
    state = table.state()
    row_filter = Filter((compare("id", ">", 40),))
    request = pickle.loads(pickle.dumps(read_request(state, None, row_filter, batch_rows=16)))
    parts = pickle.loads(pickle.dumps(plan_scan(state, None, row_filter).parts))
    first, second = (list(read_parts(request, parts, lambda: None)) for _ in range(2))
    assert len(first) > 3
    assert all(one.equals(other) for one, other in zip(first, second, strict=True))


def test_ranges_of_row_groups_make_up_the_file(tmp_path):
    table = of_one_file(tmp_path, numbered(100), row_group_size=10)
    state = table.state()
    (part,) = plan_scan(state, None, None).parts
    request = read_request(state, ["id", "rowid"])
    counts = read_request(state, ["rowid"])
    rows, ids = [], []
    # There are ten row groups; a manifest may say otherwise.
    for groups in [(0, 3), (3, 8), (8, None), (12, None)]:
        piece = replace(part, row_groups=groups)
        rows += rows_of(read_parts(request, [piece], lambda: None))
        ids += rows_of(read_parts(counts, [piece], lambda: None))
    assert rows == [{"id": number, "rowid": number} for number in range(100)]
    assert ids == [{"rowid": number} for number in range(100)]


def test_small_batches_are_put_together(tmp_path):
    table = Table(tmp_path, NUMBERED)
    for start in range(0, 500, 10):
        table.append(table.write(numbered(10, start)), first_row_id=start)
    batches = read(table.state(), ["id"], where("id", ">=", 0), batch_rows=200)
    assert [batch.num_rows for batch in batches] == [200, 200, 100]


def test_reading_stops_when_it_is_told_to(tmp_path):
    state = of_one_file(tmp_path, numbered(100)).state()
    calls = []

    def check():
        calls.append(1)
        if len(calls) > 3:
            raise Cancelled("gone")

    request = read_request(state, ["id"], batch_rows=1)
    with pytest.raises(Cancelled):
        list(read_parts(request, plan_scan(state, None, None).parts, check))


def test_errors_of_the_check_are_not_taken_for_the_files(tmp_path):
    state = of_one_file(tmp_path, numbered(1)).state()

    def check():
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        list(read_parts(read_request(state, ["id"]), plan_scan(state, None, None).parts, check))


@pytest.mark.parametrize("keep", [0, 8, 200])
def test_a_damaged_file_is_named_without_its_path(tmp_path, keep):
    table = of_one_file(tmp_path, numbered(100))
    (path,) = tmp_path.glob("*.parquet")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        PreconditionFailed, match=r"a data file of table a\.t cannot be read"
    ) as caught:
        read(table.state(), ["id"])
    assert str(tmp_path) not in str(caught.value)


# -------------------------------------------------------------------------------------- with Spark


@pytest.mark.parametrize("version", [2, 3])
def test_spark_and_this_reader_agree(lake, namespace, version):
    """Spark has written, deleted, updated and altered: position delete files and delete vectors."""
    name = f"{lake.spark_catalog}.{namespace}.t{version}"
    modes = ", ".join(
        f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge")
    )
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, k STRING, i INT, s STRUCT<x: INT, y: STRING>) USING "
        "iceberg"
        f" PARTITIONED BY (bucket(3, id)) TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )
    lake.spark.sql(
        f"INSERT INTO {name} SELECT id, concat('k', id % 7), id, struct(id, 'y') FROM range(200)"
    )
    lake.spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    lake.spark.sql(f"UPDATE {name} SET k = 'updated' WHERE id BETWEEN 50 AND 60")
    lake.spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO label")
    lake.spark.sql(f"ALTER TABLE {name} ALTER COLUMN i TYPE BIGINT")
    lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN s.z INT")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1000, 'last', 5, struct(1, 'a', 2))")
    state = spark_state(lake.spark, name)
    for text, row_filter in (
        ("true", None),
        ("id = 55", where("id", "=", 55)),
        ("label > 'k5'", where("label", ">", "k5", VARCHAR)),
        ("i < 20", where("i", "<", 20)),
    ):
        row_id = ", _row_id AS rowid" if state.has_row_ids else f", {NO_ROW_ID} AS rowid"
        expected = lake.spark.sql(
            f"SELECT id, label, i, s{row_id} FROM {name} WHERE {text}"
        ).collect()
        found = rows_of(read(state, None, row_filter))
        assert sorted(map(str, found)) == sorted(
            str(row.asDict(recursive=True)) for row in expected
        )


def spark_state(spark, name):
    query = (
        f"SELECT file FROM {name}.metadata_log_entries ORDER BY timestamp DESC, file DESC LIMIT 1"
    )
    location = spark.sql(query).collect()[0].file
    return States().add(Identifier("lake", ("a",), "t"), location, metadata_text(IO, location), IO)


# ------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/a/b%20c=d", "/a/b%20c=d"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%2F", "/a/b%2F"),
        ("file://localhost/a", "/a"),
        ("s3://bucket/a", None),
        ("hdfs://host/a", None),
        ("file://elsewhere/a", None),
    ],
)
def test_local_places(path, local):
    assert local_path(path) == local


def test_which_places_are_reachable():
    assert all(
        reachable(f"{scheme}://x/y", {}) for scheme in ("s3", "s3a", "s3n", "gs", "abfs", "abfss")
    )
    assert not any(reachable(f"{scheme}://x/y", {}) for scheme in ("nowhere", "oss"))
    assert reachable("/x:y/z", {})


def test_files_with_special_names(tmp_path):
    folder = Path(tmp_path / "k=a%2Fb c")
    folder.mkdir()
    table = Table(folder, NUMBERED)
    table.append(table.write(numbered(1)), first_row_id=0)
    assert rows_of(read(table.state(), ["id"])) == [{"id": 0}]
