"""Delete vectors that Sparkport writes: Spark, PyIceberg and this reader agree on what is left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.counting import lines_run
from tests.spark.lake_tables import (
    create,
    find,
    folder,
    in_pyiceberg,
    in_spark,
    insert,
    rows,
    sql_name,
)
from tests.spark.tables import NUMBERED, Table, data_entry

from sparkport.errors import NotWritable, PermissionDenied, PreconditionFailed
from sparkport.spark.iceberg.deletes import read_vector
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.parts import DeleteVector
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.staging import Staging, StagingArea
from sparkport.spark.write.java_files import java_file
from sparkport.spark.write.locate import locate
from sparkport.spark.write.vectors import WrittenVector, java_delete_files, write_vectors


@pytest.fixture
def staging(tmp_path_factory) -> Iterator[Staging]:
    """The staging of a statement."""
    area = StagingArea(tmp_path_factory.mktemp("staging"))
    statement = area.begin(Identifier("lake", ("a",), "t"))
    yield statement
    statement.done()
    area.close()


def journal_of(staging: Staging) -> str:
    return "".join(path.read_text() for path in staging.folder.parent.glob("*.journal"))


def footer(path: str) -> dict[str, Any]:
    """The footer of a Puffin file."""
    content = Path(path.removeprefix("file:")).read_bytes()
    assert content[:4] == content[-4:] == b"PFA1"
    assert content[-8:-4] == bytes(4)
    length = int.from_bytes(content[-12:-8], "little")
    assert content[-16 - length : -12 - length] == b"PFA1"
    described: dict[str, Any] = json.loads(content[-12 - length : -12])
    return described


def positions_in(written: WrittenVector) -> list[int]:
    said = written.described
    place = (said["content-offset"], said["content-size-in-bytes"], said["record-count"])
    return list(read_vector(DeleteVector(written.path, *place), {}))


# ------------------------------------------------------------------------------------ Puffin files


def test_one_file_has_a_vector_for_each_data_file(tmp_path, staging):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), data_entry("b", 100_000), first_row_id=0)
    state = table.state()
    location = locate(state, pa.array([1, 9, *range(10, 90_010)], pa.int64()), {})
    first, second = write_vectors(state, location.found, staging, {})
    assert first.path == second.path
    assert first.path in journal_of(staging)
    assert Path(first.path).parent == tmp_path / "data"
    assert {each.described["file-size-in-bytes"] for each in (first, second)} == {
        os.path.getsize(first.path)
    }
    assert [each.described["referenced-data-file"] for each in (first, second)] == ["a", "b"]
    assert [each.described["record-count"] for each in (first, second)] == [2, 90_000]
    assert positions_in(first) == [1, 9]
    assert positions_in(second) == list(range(90_000))
    assert os.path.getsize(first.path) < 2000, "a run of positions takes no room"
    blobs = footer(first.path)["blobs"]
    assert [(each["offset"], each["length"]) for each in blobs] == [
        (each.described["content-offset"], each.described["content-size-in-bytes"])
        for each in (first, second)
    ]
    assert blobs[0] == {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": first.described["content-size-in-bytes"],
        "properties": {"referenced-data-file": "a", "cardinality": "2"},
    }


def test_a_new_vector_holds_what_was_deleted_before(tmp_path, staging):
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry("a", 10), first_row_id=0)
    state = table.state()
    (first,) = write_vectors(
        state, locate(state, pa.array([1, 9], pa.int64()), {}).found, staging, {}
    )
    said = first.described
    place = {
        "content_offset": said["content-offset"],
        "content_size_in_bytes": said["content-size-in-bytes"],
    }
    place["size"] = said["file-size-in-bytes"]
    entry = data_entry(
        first.path, 2, content=1, file_format="PUFFIN", referenced_data_file="a", **place
    )
    table.append(entry, content=1, sequence_number=2)
    state = table.state()
    (second,) = write_vectors(
        state, locate(state, pa.array([5, 9], pa.int64()), {}).found, staging, {}
    )
    assert positions_in(second) == [1, 5, 9]
    assert list(second.replaced) == [first.described]


def test_nothing_is_written_for_nothing(tmp_path, staging):
    assert write_vectors(Table(tmp_path, NUMBERED).state(), (), staging, {}) == []
    assert not journal_of(staging)


def test_a_million_positions_are_written_without_a_loop_over_them(tmp_path, staging):
    table = Table(tmp_path, NUMBERED)
    for number in range(8):
        table.append(data_entry(f"{number}", 2_500_000), first_row_id=number * 2_500_000)
    state = table.state()
    found = locate(state, pa.arange(0, 20_000_000, 20), {}).found
    written = []
    assert lines_run(lambda: written.extend(write_vectors(state, found, staging, {}))) < 10_000
    assert sum(each.described["record-count"] for each in written) == 1_000_000


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({"write.data.path": "{}/elsewhere"}, "elsewhere/"),
        ({"write.object-storage.enabled": "true"}, "data/"),
    ],
)
def test_vectors_go_where_the_table_wants_its_data(tmp_path, properties, place, staging):
    properties = {name: value.format(tmp_path) for name, value in properties.items()}
    table = Table(tmp_path, NUMBERED, properties=properties)
    table.append(data_entry("a", 10), first_row_id=0)
    state = table.state()
    (written,) = write_vectors(
        state, locate(state, pa.array([1], pa.int64()), {}).found, staging, {}
    )
    assert written.path.startswith(f"{tmp_path}/{place}")
    assert positions_in(written) == [1]


def test_storage_that_takes_no_files_is_named(tmp_path, staging):
    table = Table(tmp_path, NUMBERED, properties={"write.data.path": str(tmp_path / "file")})
    table.append(data_entry("a", 10), first_row_id=0)
    state = table.state()
    (tmp_path / "file").write_text("in the way")
    found = locate(state, pa.array([1], pa.int64()), {}).found
    with pytest.raises((PreconditionFailed, PermissionDenied), match=r"table a\.t") as caught:
        write_vectors(state, found, staging, {})
    assert str(tmp_path) not in str(caught.value)


# ------------------------------------------------------------------------------------ real commits


def change(lake, table, deleted: Sequence[int], added: str | None = None) -> None:
    """Delete rows, and add a data file, by one commit."""
    core = lake._lake
    state = table.state
    draft = begin(
        core, Identifier(lake.spark_catalog, state.identifier.namespace, state.identifier.name)
    )
    location = locate(draft.state, pa.array(sorted(deleted), pa.int64()), core.file_properties)
    assert len(location.missing) == 0
    staging = core.staging.begin(table.state.identifier)
    written = write_vectors(draft.state, location.found, staging, core.file_properties)
    java = draft.transaction.table()
    new, old = java_delete_files(core, java, written)
    assert draft.state.snapshot is not None
    update = draft.transaction.newRowDelta().validateFromSnapshot(draft.state.snapshot.snapshot_id)
    for file in new:
        update.addDeletes(file)
    for file in old:
        update.removeDeletes(file)
    if added is not None:
        size = os.path.getsize(added.removeprefix("file:"))
        update.addRows(java_file(core, java, java.specs().get(0), added, size, None, ()))
    update.commit()
    assert commit(draft)
    staging.done()
    core.changed()


def replacement(table, ids: Sequence[int], values: pa.Table) -> str:
    """A data file with rows that keep their ids."""
    numbers = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
    numbers |= {each.name: each.field_id for each in table.state.schema.fields}
    values = values.append_column("_row_id", pa.array(ids, pa.int64()))
    values = values.append_column("_last_updated_sequence_number", pa.nulls(len(ids), pa.int64()))
    fields = [
        each.with_metadata({"PARQUET:field_id": str(numbers[each.name])}) for each in values.schema
    ]
    path = folder(table) / "data" / f"new-{len(ids)}-{ids[0]}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(values.cast(pa.schema(fields)), path)
    return f"file:{path}"


def live_vectors(lake, namespace, name="t") -> list[tuple[str, int]]:
    found = lake.spark.sql(
        "SELECT referenced_data_file, record_count FROM "
        f"{sql_name(lake, namespace, name)}.delete_files"
    ).collect()
    return sorted((row[0], row[1]) for row in found)


def check_same(
    lake, namespace, expected: dict[int, Any], column: str = "id", name: str = "t"
) -> None:
    """Check that all readers see the same rows, by row id."""
    table = find(lake, namespace, name)
    assert {row["rowid"]: row[column] for row in rows(table)} == expected
    assert dict(in_spark(lake, namespace, name, f"_row_id, {column}")) == expected
    by_others = in_pyiceberg(table)
    assert sorted(by_others.column(column).to_pylist(), key=repr) == sorted(
        expected.values(), key=repr
    )


@pytest.fixture
def table(lake, namespace):
    """A table of forty rows in two files, whose ids are their row ids."""
    create(lake, namespace, "t")
    for first in (0, 20):
        lake.spark.sql(
            f"INSERT INTO {sql_name(lake, namespace, 't')} SELECT id, id % 7, 'x' FROM "
            f"range({first}, {first + 20}, 1, 1)"
        )
    return lambda: find(lake, namespace, "t")


def test_everybody_agrees_on_deleted_rows(lake, namespace, table):
    expected = {number: number for number in range(40)}
    for deleted in ([3], [0, 4, 19], [5, 20, 39], list(range(21, 30))):
        change(lake, table(), deleted)
        for row_id in deleted:
            del expected[row_id]
        check_same(lake, namespace, expected)
    vectors = live_vectors(lake, namespace)
    assert [count for _, count in vectors] == [5, 11]
    assert len({path for path, _ in vectors}) == 2, "each data file has one vector"


def test_spark_goes_on_with_such_a_table(lake, namespace, table):
    name = sql_name(lake, namespace, "t")
    change(lake, table(), [3, 21])
    expected = {number: number for number in range(40) if number not in {3, 21}}

    lake.spark.sql(f"DELETE FROM {name} WHERE id IN (4, 22)")
    expected = {key: value for key, value in expected.items() if key not in {4, 22}}
    check_same(lake, namespace, expected)

    change(lake, table(), [5])
    lake.spark.sql(
        f"MERGE INTO {name} t USING (SELECT 6 AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET "
        "id = 600"
    ).collect()
    del expected[5]
    expected[6] = 600
    check_same(lake, namespace, expected)
    assert len({path for path, _ in live_vectors(lake, namespace)}) == len(
        live_vectors(lake, namespace)
    )

    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.rewrite_data_files(table => '{namespace}.t', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    check_same(lake, namespace, expected)

    change(lake, table(), [6, 7, 39])
    expected = {key: value for key, value in expected.items() if key not in {6, 7, 39}}
    check_same(lake, namespace, expected)
    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.expire_snapshots(table => '{namespace}.t', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()
    check_same(lake, namespace, expected)


def test_replaced_rows_keep_their_ids_and_say_when_they_were_changed(lake, namespace, table):
    new = pa.table(
        {
            "id": pa.array([300, 2100], pa.int64()),
            "v": pa.array([1, 2], pa.int32()),
            "name": ["a", None],
        }
    )
    change(lake, table(), [3, 21], replacement(table(), [3, 21], new))
    expected = {number: number for number in range(40)} | {3: 300, 21: 2100}
    check_same(lake, namespace, expected)
    updated = dict(in_spark(lake, namespace, "t", "_row_id, _last_updated_sequence_number"))
    assert [updated[row_id] for row_id in (2, 3, 21, 22)] == [1, 3, 3, 2]

    again = pa.table(
        {"id": pa.array([301], pa.int64()), "v": pa.array([1], pa.int32()), "name": ["b"]}
    )
    change(lake, table(), [3], replacement(table(), [3], again))
    check_same(lake, namespace, expected | {3: 301})
    updated = dict(in_spark(lake, namespace, "t", "_row_id, _last_updated_sequence_number"))
    assert [updated[row_id] for row_id in (3, 21)] == [4, 3]

    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.rewrite_data_files(table => '{namespace}.t', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    check_same(lake, namespace, expected | {3: 301})
    updated = dict(in_spark(lake, namespace, "t", "_row_id, _last_updated_sequence_number"))
    assert [updated[row_id] for row_id in (2, 3, 21, 22)] == [1, 4, 3, 2]


@pytest.mark.parametrize("how", ["partition", "file"])
def test_position_deletes_of_version_2_are_taken_over(lake, namespace, how):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2', "
        f"'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = '{how}')"
    )
    lake.spark.sql(f"INSERT INTO {name} SELECT id FROM range(0, 20, 1, 1)")
    lake.spark.sql(f"INSERT INTO {name} SELECT id FROM range(20, 40, 1, 1)")
    lake.spark.sql(f"DELETE FROM {name} WHERE id IN (3, 23)")
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    lake.spark.sql(f"INSERT INTO {name} VALUES (40)")
    ids = {value: row_id for row_id, value in in_spark(lake, namespace, "t", "_row_id, id")}
    expected = {row_id: value for value, row_id in ids.items()}
    for deleted in ([4], [5, 24], [40]):
        change(lake, find(lake, namespace, "t"), [ids[value] for value in deleted])
        for value in deleted:
            del expected[ids[value]]
        check_same(lake, namespace, expected)
    lake.spark.sql(f"DELETE FROM {name} WHERE id IN (6, 25)")
    expected = {row_id: value for row_id, value in expected.items() if value not in {6, 25}}
    check_same(lake, namespace, expected)


def test_vectors_belong_to_the_partition_of_their_file(lake, namespace):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, p STRING, d DATE, ts TIMESTAMP, n DECIMAL(9, 2), f "
        "FLOAT, b BINARY, i INT, t BOOLEAN, z TIMESTAMP_NTZ) USING iceberg PARTITIONED BY (p, d, "
        "days(ts), hours(z), n, f, b, bucket(4, id), truncate(10, i), t) TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.spark.sql(
        f"INSERT INTO {name} SELECT id, p, DATE'1066-10-14', TIMESTAMP'1969-12-31 23:00:00', 1.50, "
        "f, X'00FF', 15, true, TIMESTAMP_NTZ'2020-01-01 01:02:03' FROM range(6) JOIN (VALUES "
        "('a/b', float('NaN')), ('', float('-inf')), (NULL, 0.1F)) AS x(p, f)"
    )
    lake.spark.sql(f"INSERT INTO {name} (id) SELECT id FROM range(100, 110)")
    lake.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD b")
    lake.spark.sql(f"INSERT INTO {name} (id, b) SELECT id, X'01' FROM range(200, 210)")
    known = dict(in_spark(lake, namespace, "t", "_row_id, id"))
    for deleted in (sorted(known)[::3], sorted(known)[1::3]):
        change(lake, find(lake, namespace, "t"), deleted)
        known = {row_id: value for row_id, value in known.items() if row_id not in deleted}
        assert dict(in_spark(lake, namespace, "t", "_row_id, id")) == known
        assert {row["rowid"]: row["id"] for row in rows(find(lake, namespace, "t"))} == known
    differing = lake.spark.sql(
        f"SELECT * FROM {name}.delete_files d JOIN {name}.data_files f ON d.referenced_data_file = "
        "f.file_path WHERE d.spec_id <> f.spec_id OR NOT d.partition <=> f.partition"
    ).collect()
    assert differing == []
    lake.spark.sql(f"DELETE FROM {name} WHERE id IN (1, 103, 205)")
    known = {row_id: value for row_id, value in known.items() if value not in {1, 103, 205}}
    assert dict(in_spark(lake, namespace, "t", "_row_id, id")) == known
    assert len(live_vectors(lake, namespace)) == len(
        {path for path, _ in live_vectors(lake, namespace)}
    )


def test_partitions_of_a_column_that_is_gone_take_no_vectors(lake, namespace):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES "
        "('format-version' = '3')"
    )
    lake.spark.sql(f"INSERT INTO {name} SELECT id, if(id < 5, 'x', NULL) FROM range(10)")
    lake.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    lake.spark.sql(f"ALTER TABLE {name} DROP COLUMN p")
    known = {value: row_id for row_id, value in in_spark(lake, namespace, "t", "_row_id, id")}
    change(lake, find(lake, namespace, "t"), [known[6]])
    with pytest.raises(NotWritable, match="partitions of a column that was dropped"):
        change(lake, find(lake, namespace, "t"), [known[1], known[7]])
    lake.spark.sql(
        f"CALL {lake.spark_catalog}.system.rewrite_data_files(table => '{namespace}.t', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    change(lake, find(lake, namespace, "t"), [known[1], known[7]])
    check_same(
        lake,
        namespace,
        {row_id: value for value, row_id in known.items() if value not in {1, 6, 7}},
    )


def test_all_rows_of_a_file_may_go(lake, namespace, table):
    change(lake, table(), list(range(20)))
    check_same(lake, namespace, {number: number for number in range(20, 40)})
    change(lake, table(), list(range(20, 40)))
    check_same(lake, namespace, {})
    insert(lake, namespace, "t", "(77, 1, 'y')")
    check_same(lake, namespace, {40: 77})
