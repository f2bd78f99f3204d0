"""`upsert` and `merge_delete`: rows of a subquery, merged into a table by a key."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    create,
    data_files,
    field,
    find,
    folder,
    in_spark,
    insert,
    rows,
    sql_name,
    version,
)

from sparkport.catalog import Constraints, Context
from sparkport.errors import Conflict
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.write import row_spool
from sparkport.spark.write.publish import publish
from sparkport.testing import DuckDBClient, ServerError

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("stars", pa.int32())])


@pytest.fixture(scope="module")
def server(lake) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server, lake) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def table(lake, namespace) -> Any:
    """A function that returns table `t` as it is now; it has three rows, and a default."""
    create(lake, namespace, "t", _COLUMNS)
    find(lake, namespace, "t").set_default(Context(), "stars", "3")
    insert(lake, namespace, "t", "(1, 'ann', 5), (2, 'bob', 4)")
    insert(lake, namespace, "t", "(3, 'cid', NULL)")
    return lambda: find(lake, namespace, "t")


def _source(**columns: Any) -> pa.Table:
    return pa.table(columns)


def _called(
    lake: LakeCatalog, namespace: str, name: str, *arguments: Any, rows: pa.Table
) -> tuple[int, ...]:
    """Call a function as the service does, without a client."""
    schema: Any = lake.schema(Context(), namespace)
    function = next(each for each in schema.table_functions(Context()) if each.name == name)
    function.schema_for_input(Context(), arguments, rows.schema)
    (batch,) = function.process(Context(), arguments, iter(rows.to_batches()))
    return tuple(batch.to_pylist()[0].values())


@pytest.fixture
def upsert(lake, namespace):
    return lambda rows, key="id", name="t": _called(lake, namespace, "upsert", name, key, rows=rows)


@pytest.fixture
def merge_delete(lake, namespace):
    return lambda rows, key="id", name="t": _called(
        lake, namespace, "merge_delete", name, key, rows=rows
    )


def _values(table: Any) -> list[tuple[Any, ...]]:
    return sorted(((row["id"], row["name"], row["stars"]) for row in rows(table)), key=repr)


def _ids(table: Any) -> dict[int, int]:
    return {row["id"]: row["rowid"] for row in rows(table)}


def _unchanged(table: Any, match: str, call: Any, error: type[Exception] = Exception) -> None:
    before, files = version(table()), sorted(folder(table()).rglob("*"))
    with pytest.raises(error, match=match):
        call()
    assert version(table()) == before
    assert sorted(folder(table()).rglob("*")) == files, "a refused change leaves no file"


def test_keys_that_are_there_are_updated_and_the_others_inserted_by_one_commit(
    client, lake, namespace, table
):
    before, ids = version(table()), _ids(table())
    given = _source(NAME=["BOB", "dan"], ID=pa.array([2, 7], pa.int64()))
    counts = client.in_out(namespace, "upsert", "t", "id", rows=given)
    assert counts.to_pylist() == [{"inserted": 1, "updated": 1}]
    assert version(table()) == before + 1
    assert _values(table()) == [(1, "ann", 5), (2, "BOB", 4), (3, "cid", None), (7, "dan", 3)]
    after = _ids(table())
    assert {key: after[key] for key in ids} == ids, "an updated row keeps its id"
    assert after[7] not in ids.values()
    assert in_spark(lake, namespace, "t", "_row_id, id, name, stars") == [
        (row["rowid"], row["id"], row["name"], row["stars"]) for row in rows(table())
    ]


def test_it_works_again_on_what_it_has_written(upsert, table):
    assert upsert(_source(id=pa.array([1, 8, 9], pa.int64()), name=["a", "h", "i"])) == (2, 1)
    ids = _ids(table())
    assert upsert(
        _source(id=pa.array([9, 10, 8, 3], pa.int64()), stars=pa.array([1, 2, 3, 4], pa.int32()))
    ) == (1, 3)
    assert _values(table()) == [
        *((1, "a", 5), (10, None, 2), (2, "bob", 4), (3, "cid", 4), (8, "h", 3), (9, "i", 1)),
    ]
    assert {key: each for key, each in _ids(table()).items() if key != 10} == ids


def test_rows_are_deleted_by_a_key_that_may_be_there_twice_or_not_at_all(client, namespace, table):
    given = _source(
        id=pa.array([1, 1, 3, None, 99], pa.int64()), other=["does", "not", "matter", "at", "all"]
    )
    counts = client.in_out(namespace, "merge_delete", f"{namespace}.t", "ID", rows=given)
    assert counts.to_pylist() == [{"deleted": 2}]
    assert _values(table()) == [(2, "bob", 4)]


def test_a_subquery_without_rows_changes_nothing(client, namespace, table):
    before = version(table())
    nothing = pa.table({"id": pa.array([], pa.int64())})
    assert client.in_out(namespace, "upsert", "t", "id", rows=nothing).to_pylist() == [
        {"inserted": 0, "updated": 0}
    ]
    assert client.in_out(namespace, "merge_delete", "t", "id", rows=nothing).to_pylist() == [
        {"deleted": 0}
    ]
    none = _source(id=pa.array([77], pa.int64()))
    assert client.in_out(namespace, "merge_delete", "t", "id", rows=none).to_pylist() == [
        {"deleted": 0}
    ]
    assert version(table()) == before


def test_all_rows_of_an_empty_table_are_inserted(lake, namespace, upsert):
    create(lake, namespace, "t", _COLUMNS)
    assert upsert(_source(id=pa.array(range(3000), pa.int64()))) == (3000, 0)
    assert upsert(_source(id=pa.array(range(3000), pa.int64()))) == (0, 3000)
    assert len(rows(find(lake, namespace, "t"))) == 3000


def test_a_key_of_several_columns_and_of_other_types(lake, namespace, upsert, merge_delete):
    columns = pa.schema(
        [("day of it", pa.date32()), ("code", pa.string()), ("n", pa.decimal128(9, 2))]
    )
    create(lake, namespace, "t", columns)
    monday, tuesday = datetime.date(2026, 11, 16), datetime.date(2026, 11, 17)

    def given(*rows: tuple[Any, ...]) -> pa.Table:
        names = ["day of it", "code", "n"]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})

    key = '"day of it", CODE'
    assert upsert(given((monday, "a", 1), (tuesday, "a", 2), (monday, "b", 3)), key) == (3, 0)
    assert upsert(given((monday, "a", 10), (tuesday, "b", 4)), key) == (1, 1)
    assert merge_delete(given((tuesday, "a", 0)).drop(["n"]), key) == (1,)
    found = {(row["day of it"], row["code"]): row["n"] for row in rows(find(lake, namespace, "t"))}
    assert found == {
        (monday, "a"): Decimal(10),
        (monday, "b"): Decimal(3),
        (tuesday, "b"): Decimal(4),
    }


def test_values_are_cast_as_an_insert_casts_them(lake, namespace, upsert):
    columns = pa.schema(
        [("id", pa.int64()), ("x", pa.float64()), ("d", pa.date32()), ("small", pa.uint8())]
    )
    create(lake, namespace, "t", columns)
    given = _source(
        id=["1"], x=pa.array([Decimal("2.5")]), d=["2026-11-16"], small=pa.array([7], pa.int32())
    )
    assert upsert(given) == (1, 0)
    (row,) = rows(find(lake, namespace, "t"))
    assert (row["id"], row["x"], row["d"], row["small"]) == (1, 2.5, datetime.date(2026, 11, 16), 7)
    table = lambda: find(lake, namespace, "t")  # noqa: E731
    one = pa.array([1], pa.int64())
    _unchanged(
        table, "column small", lambda: upsert(_source(id=one, small=pa.array([300], pa.int32())))
    )
    _unchanged(table, "column d", lambda: upsert(_source(id=one, d=["never"])))
    _unchanged(table, "column d", lambda: upsert(_source(id=one, d=pa.array([[1]]))))


def test_rows_that_cannot_be_merged_are_refused_before_anything_is_changed(
    client, namespace, upsert, table
):
    ids = pa.array([7, 8, 7], pa.int64())
    _unchanged(
        table, 'the key "id: 7" is in more than one row for upsert', lambda: upsert(_source(id=ids))
    )
    _unchanged(
        table,
        "column id is NULL in a row",
        lambda: upsert(_source(id=pa.array([1, None], pa.int64()))),
    )
    _unchanged(table, "has no column colour", lambda: upsert(_source(id=ids[:1], colour=["red"])))
    _unchanged(table, "needs column id, which is of the key", lambda: upsert(_source(name=["x"])))
    _unchanged(
        table, "column name twice", lambda: upsert(_source(id=ids[:1], name=["x"], NAME=["y"]))
    )
    _unchanged(
        table, "column nothing does not exist", lambda: upsert(_source(id=ids[:1]), "nothing")
    )
    for text in ("", "id,", "id; DROP", None, "id) CHECK (id"):
        _unchanged(table, "cannot be read", lambda text=text: upsert(_source(id=ids[:1]), text))
    _unchanged(table, "does not exist", lambda: upsert(_source(id=ids[:1]), "id", "nowhere.t"))
    with pytest.raises(ServerError, match="has no column colour"):
        client.in_out(namespace, "upsert", "t", "id", rows=_source(id=ids[:1], colour=["red"]))


def test_a_key_that_the_table_has_twice_is_refused_for_an_upsert(
    lake, namespace, upsert, merge_delete, table
):
    insert(lake, namespace, "t", "(2, 'rob', 1)")
    given = _source(id=pa.array([1, 2], pa.int64()), name=["x", "y"])
    _unchanged(table, 'the key "id: 2" is in table .* more than once', lambda: upsert(given))
    assert merge_delete(given) == (3,)


def test_constraints_are_kept(lake, namespace, upsert):
    columns = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("u", pa.int64()),
            pa.field("v", pa.int32()),
            pa.field("n", pa.string(), False),
        ]
    )
    create(
        lake,
        namespace,
        "t",
        columns,
        constraints=Constraints(not_null=("n",), unique=(("u",),), checks=("v < u",)),
    )
    table = lambda: find(lake, namespace, "t")  # noqa: E731

    def given(ids: list[int], **others: list[Any]) -> pa.Table:
        return _source(id=pa.array(ids, pa.int64()), **others)

    assert upsert(given([1, 2], u=[10, 20], v=[1, 2], n=["a", "b"])) == (2, 0)
    _unchanged(table, "NOT NULL constraint failed: t.n", lambda: upsert(given([1, 3], v=[1, 2])))
    _unchanged(table, "NOT NULL constraint failed: t.n", lambda: upsert(given([1], n=[None])))
    _unchanged(table, "CHECK constraint failed", lambda: upsert(given([1], v=[10])))
    _unchanged(table, "CHECK constraint failed", lambda: upsert(given([3], v=[3], u=[3], n=["c"])))
    _unchanged(table, 'Duplicate key "u: 20"', lambda: upsert(given([1], u=[20])))
    _unchanged(table, 'Duplicate key "u: 20"', lambda: upsert(given([3], u=[20], n=["c"])))
    _unchanged(
        table, 'Duplicate key "u: 30"', lambda: upsert(given([1, 3], u=[30, 30], n=["c", "d"]))
    )
    assert upsert(given([1, 2, 3], u=[20, 10, 30], n=["c", "d", "e"])) == (1, 2)
    assert [(row["id"], row["u"], row["v"]) for row in rows(table())] == [
        (1, 20, 1),
        (2, 10, 2),
        (3, 30, None),
    ]


def _staged(staging: Path) -> set[Path]:
    return {path for path in staging.rglob("*") if path.is_file() and path.name != "lock"}


def test_many_rows_wait_on_disk(monkeypatch, lake, staging, upsert, table):
    before = _staged(staging)  # of others
    monkeypatch.setattr(row_spool, "_PIECE_BYTES", 200_000)
    count = 150_000
    given = _source(
        id=pa.array(range(count), pa.int64()), name=[f"n{each}" for each in range(count)]
    )
    assert upsert(given) == (count - 3, 3)
    assert upsert(given.slice(10)) == (0, count - 10)
    found = {row["id"]: row for row in rows(table())}
    assert len(found) == count
    assert all(row["name"] == f"n{key}" for key, row in found.items())
    assert found[1]["stars"] == 5
    assert _staged(staging) <= before


def test_partitioned_tables(lake, namespace, upsert):
    lake.spark.sql(
        f"CREATE TABLE {sql_name(lake, namespace, 't')} (id BIGINT, p STRING, v INT) USING iceberg "
        "PARTITIONED BY (p, bucket(4, id)) TBLPROPERTIES ('format-version' = '3')"
    )
    insert(lake, namespace, "t", "(1, 'a', 1), (2, 'b', 2)")
    assert upsert(_source(id=pa.array([1, 3], pa.int64()), p=["b", "c"])) == (1, 1)
    assert sorted(in_spark(lake, namespace, "t"), key=str) == [
        (1, "b", 1),
        (2, "b", 2),
        (3, "c", None),
    ]


def test_files_that_only_spark_can_write(lake, namespace, upsert, merge_delete):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, v INT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
    )
    lake.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY id")
    insert(lake, namespace, "t", "(1, 1), (2, 2), (3, 3)")
    before = _ids(find(lake, namespace, "t"))
    assert upsert(
        _source(id=pa.array([3, 4, 2], pa.int64()), v=pa.array([30, 40, 20], pa.int32()))
    ) == (1, 2)
    assert merge_delete(_source(id=pa.array([1, 4], pa.int64()))) == (2,)
    assert in_spark(lake, namespace, "t", "_row_id, id, v") == [
        (before[2], 2, 20),
        (before[3], 3, 30),
    ]
    assert [row[0] for row in lake.spark.sql(f"SELECT name FROM {name}.refs").collect()] == ["main"]


def test_what_others_insert_or_change_meanwhile_is_looked_up_again(
    monkeypatch, lake, namespace, upsert, table
):
    """Between lookup and commit, others insert one of the keys, and change a row to be updated."""
    meanwhile = iter(
        ["INSERT INTO {t} VALUES (7, 'theirs', 9)", "UPDATE {t} SET stars = 8 WHERE id = 1"]
    )

    def late(*arguments: Any) -> bool:
        text = next(meanwhile, None)
        if text is not None:
            lake.spark.sql(text.replace("{t}", sql_name(lake, namespace, "t")))
        return publish(*arguments)

    monkeypatch.setattr("sparkport.spark.write.merging.publish", late)
    files = len(data_files(table()))
    assert upsert(_source(id=pa.array([1, 7], pa.int64()), name=["mine", "mine"])) == (0, 2)
    assert _values(table()) == [(1, "mine", 8), (2, "bob", 4), (3, "cid", None), (7, "mine", 9)]
    assert next(meanwhile, None) is None
    assert len(data_files(table())) == files + 3, "files of attempts that failed are removed"


def test_what_others_delete_meanwhile_is_inserted(
    monkeypatch, lake, namespace, upsert, merge_delete, table
):
    meanwhile = iter(["DELETE FROM {t} WHERE id = 1", "DELETE FROM {t} WHERE id = 2"])

    def late(*arguments: Any) -> bool:
        lake.spark.sql(next(meanwhile, "SELECT 1").replace("{t}", sql_name(lake, namespace, "t")))
        return publish(*arguments)

    monkeypatch.setattr("sparkport.spark.write.merging.publish", late)
    assert upsert(_source(id=pa.array([1], pa.int64()), name=["mine"])) == (1, 0)
    assert merge_delete(_source(id=pa.array([2, 3], pa.int64()))) == (1,)
    assert _values(table()) == [(1, "mine", 3)]


def test_a_table_that_is_altered_meanwhile_is_a_conflict(lake, namespace, upsert, table):
    schema: Any = lake.schema(Context(), namespace)
    function = next(each for each in schema.table_functions(Context()) if each.name == "upsert")

    def given() -> Iterator[pa.RecordBatch]:
        yield from _source(id=pa.array([1], pa.int64()), name=["x"]).to_batches()
        table().add_column(Context(), field("more", pa.int32()), _add_column())

    with pytest.raises(Conflict, match="was altered while the statement ran"):
        list(function.process(Context(), ("t", "id"), given()))
    assert _values(table())[0] == (1, "ann", 5)


def _add_column() -> Any:
    from sparkport.catalog import AddColumnOptions

    return AddColumnOptions()


def test_upserts_of_the_same_keys_at_once_make_one_row_of_each(lake, place, namespace, table):
    """Two servers run them, and the table has no constraint."""
    failures: list[BaseException] = []

    def work(catalog: LakeCatalog, name: str) -> None:
        try:
            for start in (10, 11, 12):
                given = _source(id=pa.array(range(start, start + 3), pa.int64()), name=[name] * 3)
                _called(catalog, namespace, "upsert", "t", "id", rows=given)
        except BaseException as error:
            failures.append(error)
            raise

    with LakeCatalog(
        source=place.source("lake"), name="other", spark_catalog=lake.spark_catalog
    ) as other:
        threads = [
            threading.Thread(target=work, args=(catalog, f"{number}"))
            for number, catalog in enumerate((lake, other, lake))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not failures
    assert [row["id"] for row in sorted(rows(table()), key=lambda row: row["id"])] == [
        1,
        2,
        3,
        *range(10, 15),
    ]


def test_tables_without_row_ids_and_views_are_refused(lake, namespace, upsert):
    name = sql_name(lake, namespace, "old")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    lake.spark.sql(f"CREATE VIEW {sql_name(lake, namespace, 'view')} AS SELECT 1 AS id")
    with pytest.raises(Exception, match="has no row ids: upgrade it to version 3"):
        upsert(_source(id=[1]), "id", "old")
    with pytest.raises(Exception, match="is not an Iceberg table"):
        upsert(_source(id=[1]), "id", "view")
