"""Changed rows between two versions of a table, against a comparison of all their rows."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.calling import Caller
from tests.spark.lake_tables import CTX, create, find
from tests.spark.places import path_of

import sparkport as sp
from sparkport import errors
from sparkport.catalog import Context, ScanOptions, TimePoint
from sparkport.spark.functions.row_hashes import RowHashes
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.history import state_at
from sparkport.spark.lake.version_log import changes_of
from sparkport.spark.scan import routes
from sparkport.testing import DuckDBClient

_MODES = ", ".join(
    f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge")
)
_PROPERTIES = f"TBLPROPERTIES ('format-version' = '3', {_MODES})"


@pytest.fixture
def caller(lake, namespace) -> Caller:
    return Caller(lake, namespace)


@pytest.fixture
def name(lake, namespace) -> str:
    return f"{lake.spark_catalog}.{namespace}.t"


def _found(caller, *versions: object) -> list[tuple[Any, ...]]:
    return _sorted(caller.call("table_changes", "t", *versions).to_pylist())


def _sorted(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def _expected(lake, namespace, first: int, second: int) -> list[tuple[Any, ...]]:
    """Compare all rows of both versions, one by one, with the columns of the later version."""
    now = find(lake, namespace, "t").state
    before, after = (
        state_at(lake._lake, now, TimePoint("version", str(each))) for each in (first, second)
    )
    numbers = [
        0 if each.snapshot is None else each.snapshot.sequence_number or 0
        for each in (before, after)
    ]
    later = before if numbers[0] > numbers[1] else after
    old, new = (_rows(lake, later, each) for each in (before, after))
    found = [
        {**row, "_change_type": "delete", "_row_id": key}
        for key, row in old.items()
        if key not in new
    ]
    found += [
        {**row, "_change_type": "insert", "_row_id": key}
        for key, row in new.items()
        if key not in old
    ]
    for key, row in new.items():
        if key in old and repr(old[key]) != repr(row):
            found.append({**old[key], "_change_type": "update_before", "_row_id": key})
            found.append({**row, "_change_type": "update_after", "_row_id": key})
    return _sorted(found)


def _rows(lake, later: TableState, state: TableState) -> dict[int, dict[str, Any]]:
    shown = lake._lake.states.at(later, state.snapshot, later.schema)
    batches = routes.read(lake._lake, CTX, shown, ScanOptions())
    return {row.pop("rowid"): row for batch in batches for row in batch.to_pylist()}


class History:
    """A table that Spark changes at random, again and again."""

    def __init__(self, lake, name: str, seed: int) -> None:
        self.spark, self.name, self.random = lake.spark, name, random.Random(seed)
        self.catalog, self.namespace = lake.spark_catalog, name.split(".")[1]
        self.column, self.added, self.next_id = "v", 0, 0
        partitioned = "PARTITIONED BY (bucket(2, id))" if seed % 2 else ""
        self.sql(
            f"CREATE TABLE {name} (id BIGINT, v BIGINT, s STRING, l ARRAY<INT>) USING iceberg "
            f"{partitioned} {_PROPERTIES}"
        )
        self.insert()

    def sql(self, text: str) -> None:
        self.spark.sql(text)

    def step(self) -> None:
        changes = [
            self.insert,
            self.update,
            self.update,
            self.delete,
            self.delete,
            self.same,
            self.merge,
        ]
        self.random.choice(
            [*changes, self.compact, self.add_column, self.rename, self.copy_on_write, self.promote]
        )()

    @property
    def some(self) -> str:
        divisor = self.random.choice([2, 3, 5, 7])
        return f"id % {divisor} = {self.random.randrange(divisor)}"

    def insert(self) -> None:
        count = self.random.randrange(1, 40)
        self.sql(
            f"INSERT INTO {self.name} (id, {self.column}, s, l)"
            " SELECT id, id * 10, concat('s', id), array(1, CAST(id AS INT))"
            f" FROM range({self.next_id}, {self.next_id + count})"
        )
        self.next_id += count

    def update(self) -> None:
        change = self.random.choice(
            [f"{self.column} = {self.column} + 1", "s = NULL", "l = array()", "l = NULL", "s = 'u'"]
        )
        self.sql(f"UPDATE {self.name} SET {change} WHERE {self.some}")

    def same(self) -> None:
        self.sql(f"UPDATE {self.name} SET s = s WHERE {self.some}")

    def delete(self) -> None:
        self.sql(f"DELETE FROM {self.name} WHERE {self.some} AND {self.some}")

    def merge(self) -> None:
        self.sql(
            f"MERGE INTO {self.name} t USING (SELECT * FROM range({self.next_id // 2}, "
            f"{self.next_id + 5})) n ON t.id = n.id"
            f" WHEN MATCHED AND n.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm'"
            f" WHEN NOT MATCHED THEN INSERT (id, s) VALUES (n.id, 'n')"
        )
        self.next_id += 5

    def copy_on_write(self) -> None:
        for mode in ("copy-on-write", "merge-on-read"):
            self.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('write.update.mode' = '{mode}')")
            if mode == "copy-on-write":
                self.update()

    def compact(self) -> None:
        options = "map('rewrite-all', 'true')"
        table = f"{self.namespace}.t"
        self.sql(
            f"CALL {self.catalog}.system.rewrite_data_files(table => '{table}', options => "
            f"{options})"
        )

    def add_column(self) -> None:
        self.added += 1
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN a{self.added} INT")
        self.sql(f"UPDATE {self.name} SET a{self.added} = 5 WHERE {self.some}")

    def rename(self) -> None:
        self.added += 1
        self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {self.column} TO v{self.added}")
        self.column = f"v{self.added}"

    def promote(self) -> None:
        self.added += 1
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN p{self.added} INT")
        self.sql(f"UPDATE {self.name} SET p{self.added} = id WHERE {self.some}")
        self.sql(f"ALTER TABLE {self.name} ALTER COLUMN p{self.added} TYPE BIGINT")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "step"),
    [(1, 2), *(pytest.param(seed, 1, marks=pytest.mark.long) for seed in (1, 2, 3))],
    ids=["half of the pairs", "1", "2", "3"],
)
def test_pairs_of_versions_of_random_histories(lake, namespace, caller, name, seed, step):
    history = History(lake, name, seed)
    for turn in range(10):
        history.step()
        if turn == 7:
            caller.call("rollback_to", "t", history.random.randrange(1, 5))
            columns = find(lake, namespace, "t").arrow_schema.names
            history.column = next(each for each in columns if each.startswith("v"))
    last = changes_of(lake._lake, find(lake, namespace, "t").state)[-1].number
    assert last > 10
    for first in range(last + 1):
        for second in range(first % step, last + 1, step):
            expected = _expected(lake, namespace, first, second)
            assert _found(caller, first, second) == expected, (seed, first, second)


@pytest.fixture
def changed(lake, name) -> str:
    """A table with six versions.

    Version 1 has rows 0 to 9, 2 has others for 1 and 2, 3 lacks 5, 4 is compacted, 5 has row 20,
    too, and 6 has a column renamed.
    """
    for statement in (
        f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg {_PROPERTIES}",
        f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(10)",
        f"UPDATE {name} SET v = 'b' WHERE id IN (1, 2)",
        f"DELETE FROM {name} WHERE id = 5",
        f"CALL {lake.spark_catalog}.system.rewrite_data_files(table => '{name}', options => "
        "map('rewrite-all', 'true'))",
        f"INSERT INTO {name} VALUES (20, 'new')",
        f"ALTER TABLE {name} RENAME COLUMN v TO w",
    ):
        lake.spark.sql(statement)
    return name


def test_each_changed_row_comes_once_with_what_happened(caller, changed):
    found = caller.call("table_changes", "t", 1, 5)

    assert found.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("v", pa.string()),
            ("_change_type", pa.string()),
            ("_row_id", pa.int64()),
        ]
    )
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == [
        (1, "a", "update_before", 1),
        (1, "b", "update_after", 1),
        (2, "a", "update_before", 2),
        (2, "b", "update_after", 2),
        (5, "a", "delete", 5),
        (20, "new", "insert", found.filter(pa.compute.field("id") == 20)["_row_id"][0].as_py()),
    ]


@pytest.mark.parametrize(("first", "second"), [(3, 3), (3, 4), (5, 6), (6, 5), (4, 3)])
def test_what_is_only_moved_or_renamed_is_no_change(caller, changed, first, second):
    assert caller.call("table_changes", "t", first, second).num_rows == 0


def test_without_the_second_version_it_is_up_to_now(caller, changed):
    found = caller.call("table_changes", "t", 4)
    assert found.to_pylist() == [
        {"id": 20, "w": "new", "_change_type": "insert", "_row_id": found["_row_id"][0].as_py()}
    ]


def test_backwards_it_tells_how_to_undo(caller, changed):
    kinds = {
        row["id"]: row["_change_type"]
        for row in caller.call("table_changes", "t", 5, 2).to_pylist()
    }
    assert kinds == {20: "delete", 5: "insert"}


def test_an_empty_table_has_everything_inserted(caller, changed):
    found = caller.call("table_changes", "t", 0, 1)
    assert (found.num_rows, set(found["_change_type"].to_pylist())) == (10, {"insert"})
    found = caller.call("table_changes", "t", 1, 0)
    assert (found.num_rows, set(found["_change_type"].to_pylist())) == (10, {"delete"})


def test_versions_are_named_as_in_at(lake, namespace, caller, changed):
    history = caller.call("history", "t").to_pylist()
    snapshots = [row["snapshot_id"] for row in history]
    caller.call("tag", "t", "first", "1")
    expected = _found(caller, 1, 3)
    assert _found(caller, "first", snapshots[3]) == expected
    assert _found(caller, str(snapshots[1]), "3") == expected
    moments = [
        pa.array([history[each]["committed_at"]], pa.timestamp("us", "UTC")) for each in (1, 3)
    ]
    assert _found(caller, *moments) == expected


def test_only_the_columns_that_are_wanted_are_read(caller, changed):
    options = ScanOptions(columns=("_change_type", "v"))
    found = caller.call("table_changes", "t", 1, 3, options=options)
    assert sorted(found["_change_type"].to_pylist()) == [
        "delete",
        "update_after",
        "update_after",
        *["update_before"] * 2,
    ]
    counted = caller.call("table_changes", "t", 1, 3, options=ScanOptions(columns=("_row_id",)))
    assert sorted(counted["_row_id"].to_pylist()) == [1, 1, 2, 2, 5]


def test_a_row_that_came_back_to_its_values_is_no_change(lake, caller, name):
    for statement in (
        f"CREATE TABLE {name} (id BIGINT, v ARRAY<INT>, d DOUBLE) USING iceberg {_PROPERTIES}",
        f"INSERT INTO {name} VALUES (1, array(), DOUBLE('NaN')), (2, NULL, 0.5), (3, array(NULL), "
        "NULL)",
        f"UPDATE {name} SET v = array(7), d = 1",
        f"UPDATE {name} SET v = CASE id WHEN 1 THEN array() WHEN 3 THEN array(NULL) END,"
        " d = CASE id WHEN 1 THEN DOUBLE('NaN') WHEN 2 THEN 0.5 END",
        f"UPDATE {name} SET v = CASE id WHEN 2 THEN array() WHEN 1 THEN array(NULL) END",
    ):
        lake.spark.sql(statement)
    assert _found(caller, 1, 3) == []
    assert [row[0] for row in _found(caller, 1, 4)] == [1, 1, 2, 2, 3, 3]


def test_declared_types_are_shown(lake, namespace, caller):
    columns = pa.schema([("id", pa.uint8()), ("t", pa.time64("us")), ("_change_type", pa.string())])
    table = create(lake, namespace, "t", columns)
    for statement in (
        "INSERT INTO {} VALUES (200, 5, 'x')",
        "UPDATE {} SET t = 6",
        "DELETE FROM {} WHERE id = 200",
    ):
        lake.spark.sql(statement.format(table.identifier.sql))
    found = caller.call("table_changes", "t", 1, 2)
    assert found.schema.names == ["id", "t", "_change_type", "_change_type_1", "_row_id"]
    assert found.schema.types[:2] == [pa.uint8(), pa.time64("us")]
    assert sorted(found["_change_type_1"].to_pylist()) == ["update_after", "update_before"]
    assert found["_change_type"].to_pylist() == ["x", "x"]
    assert caller.call("table_changes", "t", 1, 3)["_change_type_1"].to_pylist() == ["delete"]


def test_tables_without_row_ids_are_refused(lake, namespace, caller, name):
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    lake.spark.sql(f"INSERT INTO {name} VALUES (1)")
    with pytest.raises(errors.Unsupported, match="has no row ids at that version"):
        caller.call("table_changes", "t", 0, 1)
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    lake.spark.sql(f"INSERT INTO {name} VALUES (2)")
    lake.spark.sql(f"DELETE FROM {name} WHERE id = 1")
    for before in (1, 2):  # rows get their ids with the first commit after the upgrade
        with pytest.raises(errors.Unsupported, match="has no row ids at that version"):
            caller.call("table_changes", "t", before, 3)
    assert sorted(row[:2] for row in _found(caller, 3, 4)) == [(1, "delete")]


@pytest.mark.parametrize(
    ("table", "versions", "error", "words"),
    [
        ("w", (0, 1), errors.Unsupported, "is not an Iceberg table"),
        ("nope", (0, 1), errors.NotFound, "table nope does not exist"),
        (None, (0, 1), errors.NotFound, "needs the name of a table"),
        ("t", (0, 99), errors.NotFound, "its latest is 6"),
        ("t", (None, 1), errors.BadRequest, "takes a version as AT does"),
        ("t", (0, None), errors.BadRequest, "takes a version as AT does"),
        ("t", ("nope", 1), errors.NotFound, "no tag or branch 'nope'"),
        ("t", (1.5, 1), errors.BadRequest, "takes a version as AT does"),
    ],
)
def test_what_cannot_be_compared_is_told_before_anything_is_read(
    lake, namespace, caller, changed, table, versions, error, words
):
    lake.spark.sql(f"CREATE VIEW {lake.spark_catalog}.{namespace}.w AS SELECT 1 AS a")
    arguments = caller.arguments(pa.array([table], pa.string()), *versions)
    with pytest.raises(error, match=words):
        caller.function("table_changes", 3).schema_for_parameters(Context(), arguments)


def test_files_that_only_spark_reads_are_told(lake, caller, name):
    orc = "TBLPROPERTIES ('format-version' = '3', 'write.format.default' = 'orc')"
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg {orc}")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1)")
    with pytest.raises(errors.Unsupported, match="only Spark can read its files"):
        caller.call("table_changes", "t", 0, 1)


def test_a_missing_file_is_told(lake, namespace, caller, changed):
    for path in caller.call("files", "t")["path"].to_pylist():
        path_of(path).unlink()
    with pytest.raises(errors.PreconditionFailed, match=r"^a data file of table \S+ is missing"):
        caller.call("table_changes", "t", 1, 5)


def test_who_goes_away_is_not_kept_waiting(caller, changed):
    ctx = Context()
    found = caller.function("table_changes", 3).execute(ctx, ["t", 0, 5], ScanOptions())
    ctx.cancellation.cancel()
    with pytest.raises(errors.Cancelled):
        list(found)


def test_duckdb_asks_for_changes(lake, namespace, changed):
    with ExitStack() as stack:
        server = sp.Server(
            lake, "grpc://127.0.0.1:0", sp.ServerSettings(idle_thread_seconds=0.05)
        ).start()
        stack.callback(server.stop, 0)
        client = stack.enter_context(DuckDBClient(server.location, lake.name, timeout=60.0))

        found = client.table_function(
            namespace, "table_changes", "t", 1, 5, where="_change_type = 'delete'"
        )
        assert found["id"].to_pylist() == [5]
        found = client.table_function(
            namespace, "table_changes", "t", 4, columns=["w", "_change_type"]
        )
        assert found.to_pylist() == [{"w": "new", "_change_type": "insert"}]


def test_what_duckdb_changes_is_told(lake, namespace, caller):
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "v": pa.array(["a"] * 20)})
    with ExitStack() as stack:
        server = sp.Server(
            lake, "grpc://127.0.0.1:0", sp.ServerSettings(idle_thread_seconds=0.05)
        ).start()
        stack.callback(server.stop, 0)
        client = stack.enter_context(DuckDBClient(server.location, lake.name, timeout=60.0))
        client.create_table(namespace, "t", rows.schema)
        client.insert(namespace, "t", rows)
        client.update(namespace, "t", {"v": "'b'"}, where="id % 3 = 0")
        client.delete(namespace, "t", "id % 6 = 0")
        client.table_function(namespace, "optimize", "t")
        client.update(namespace, "t", {"v": "'a'"}, where="id < 10")
        client.begin()
        client.call(namespace, "lake_begin", {}, rows=1)
        client.insert(namespace, "t", rows.slice(0, 3))
        client.update(namespace, "t", {"v": "'t'"}, where="id IN (0, 1, 19)")
        client.delete(namespace, "t", "id = 2")
        client.call(namespace, "lake_commit", {}, rows=1)
        client.commit()
    numbers = [change.number for change in changes_of(lake._lake, find(lake, namespace, "t").state)]
    assert numbers == list(range(7)), "a transaction is one change, whatever its branch has seen"
    assert caller.call("history", "t")["version"].to_pylist() == numbers
    for first in numbers:
        for second in numbers:
            assert _found(caller, first, second) == _expected(lake, namespace, first, second), (
                first,
                second,
            )


# ----------------------------------------------------------------------------------- without Spark


def test_hashes_tell_rows_apart():
    kinds: list[tuple[pa.DataType, Any, Any]] = [
        (pa.int64(), 0, None),
        (pa.string(), "", None),
        (pa.list_(pa.int32()), [], None),
        (pa.list_(pa.int32()), [], [None]),
        (pa.list_(pa.string()), ["a, b"], ["a", "b"]),
        (pa.struct([("x", pa.int32())]), None, {"x": None}),
        (pa.map_(pa.string(), pa.int32()), [], None),
        (pa.decimal128(10, 2), None, 0),
        (pa.binary(), b"", b"\0"),
        (pa.float64(), float("nan"), None),
    ]
    for kind, one, other in kinds:
        with RowHashes(1) as hashes:
            hashes.add(
                0,
                pa.record_batch(
                    [pa.array([one, other, one], kind), pa.array([1, 2, 3])], ["a", "rowid"]
                ),
            )
            hashes.add(
                1, pa.record_batch([pa.array([one, other], kind), pa.array([3, 1])], ["a", "rowid"])
            )
            hashes.add(1, pa.record_batch([pa.array([other], kind), pa.array([2])], ["a", "rowid"]))
            assert hashes.differing().to_pylist() == [1], kind
