"""What a statement on the lake sees, returns, and leaves in the table's history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.types.encoded import bits, meant
from tests.types.matrix import LINES, Setting

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Location
from sparkport.spark.write.locate import locate
from sparkport.testing import DuckDBClient, ServerError

_ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def other(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def table(client: DuckDBClient, namespace: str) -> str:
    client.create_table_as(namespace, "t", _ROWS)
    return "t"


def _sorted(rows: pa.Table | None) -> list[tuple[Any, ...]]:
    assert rows is not None
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


# ------------------------------------------------------------------------------------ what it sees


def test_a_statement_reads_its_own_table_as_it_was_before(
    client: DuckDBClient, namespace: str, table: str
) -> None:
    client.begin()
    for expected in (6, 12):
        assert client.insert_select(namespace, table, (namespace, table)).total == expected // 2
        assert client.count(namespace, table) == expected
    assert client.update(namespace, table, {"id": "id + 1"}, where="id > 0").total == 12
    assert client.update(namespace, table, {"id": "id + 1"}, where="id > 0").total == 12
    assert (
        sorted(client.scan(namespace, table).column("id").to_pylist())
        == [3] * 4 + [4] * 4 + [5] * 4
    )
    assert client.delete(namespace, table, "id = 3").total == 4
    client.commit()
    assert client.count(namespace, table) == 8


def test_a_block_does_not_see_what_others_do_meanwhile(
    client: DuckDBClient, other: DuckDBClient, namespace: str, table: str
) -> None:
    client.begin()
    assert client.count(namespace, table) == 3
    other.insert(namespace, table, _ROWS)
    other.update(namespace, table, {"name": "'theirs'"}, where="id = 1")
    assert client.insert_select(namespace, table, (namespace, table)).total == 3
    client.commit()
    assert client.count(namespace, table) == 9


# ------------------------------------------------------------------------------ what it gives back


def test_returning_gives_the_rows_of_the_statements_snapshot(
    client: DuckDBClient, other: DuckDBClient, namespace: str, table: str
) -> None:
    client.begin()
    client.count(namespace, table)
    other.update(namespace, table, {"name": "'theirs'"}, where="id = 3")
    updated = client.update(
        namespace, table, {"name": "name || '!'"}, where="id < 3", returning=True
    )
    assert _sorted(updated.rows) == [(1, "a!"), (2, "b!")]
    deleted = client.delete(namespace, table, "id = 1", returning=True)
    assert _sorted(deleted.rows) == [(1, "a!")]
    client.commit()
    assert _sorted(client.scan(namespace, table)) == [(2, "b!"), (3, "theirs")]


@pytest.mark.parametrize("kind", ["update", "delete"])
def test_returning_of_rows_that_others_have_changed_fails_as_a_whole(
    client: DuckDBClient, other: DuckDBClient, namespace: str, table: str, kind: str
) -> None:
    changes = {
        "update": lambda: client.update(namespace, table, {"name": "'mine'"}, returning=True),
        "delete": lambda: client.delete(namespace, table, returning=True),
    }
    client.begin()
    client.count(namespace, table)
    other.update(namespace, table, {"name": "'theirs'"}, where="id = 3")
    before = _sorted(other.scan(namespace, table))
    with pytest.raises(ServerError, match="was changed by somebody else") as caught:
        changes[kind]()
    assert caught.value.code == "ABORTED"
    client.commit()
    assert _sorted(client.scan(namespace, table)) == before


def test_returning_keeps_the_order_of_the_row_ids(client: DuckDBClient, namespace: str) -> None:
    rows = pa.table(
        {"id": range(5000), "a": [f"a{i}" for i in range(5000)], "b": [i / 2 for i in range(5000)]}
    )
    client.create_table_as(namespace, "wide", rows)
    ids = pa.array([4999, 0, 2500])
    updated = client.update_rows(
        namespace, "wide", rows.take(ids).append_column("rowid", ids), returning=True
    )
    deleted = client.delete_rows(namespace, "wide", ids, returning=True)
    for changed in (updated, deleted):
        assert changed.rows is not None
        assert changed.rows.to_pylist() == rows.take(ids).to_pylist()


# ------------------------------------------------------------------------------- where its rows are


@pytest.mark.parametrize("returning", [False, True])
def test_a_row_is_located_once_by_a_statement(
    client: DuckDBClient, namespace: str, monkeypatch: pytest.MonkeyPatch, returning: bool
) -> None:
    """Also where old values are needed: for a CHECK, for RETURNING, for unchanged columns."""
    client.create_table(
        namespace, "t", {"id": "BIGINT", "v": "BIGINT", "name": "VARCHAR"}, checks=["(v > id)"]
    )
    client.insert(namespace, "t", {"id": [1, 2, 3], "v": [2, 3, 4], "name": ["a", "b", "c"]})
    located = _noted(monkeypatch)
    for statement in (
        lambda: client.update(namespace, "t", {"v": "v + 1"}, returning=returning),
        lambda: client.update(namespace, "t", {"name": "'x'"}, where="id = 2", returning=returning),
        lambda: client.delete(namespace, "t", where="id > 1", returning=returning),
    ):
        statement()
        assert len(located) == 1
        located.clear()
    assert _sorted(client.scan(namespace, "t")) == [(1, 3, "a")]


def test_rows_are_located_again_when_the_table_has_moved_on(
    client: DuckDBClient,
    other: DuckDBClient,
    namespace: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.begin()
    client.count(namespace, table)
    other.update(namespace, table, {"name": "'theirs'"}, where="id = 3")
    located = _noted(monkeypatch)
    client.update(namespace, table, {"name": "'mine'"}, where="id = 1", returning=True)
    client.commit()
    assert len(located) == 2, "in what the transaction has seen, and in what is there now"
    assert _sorted(client.scan(namespace, table)) == [(1, "mine"), (2, "b"), (3, "theirs")]


def _noted(monkeypatch: pytest.MonkeyPatch) -> list[pa.Array]:
    """The row ids of every lookup from now on."""
    located: list[pa.Array] = []

    def noted(state: TableState, row_ids: pa.Array, properties: Mapping[str, str]) -> Location:
        located.append(row_ids)
        return locate(state, row_ids, properties)

    for module in ("rows", "verify", "locate"):
        monkeypatch.setattr(f"sparkport.spark.write.{module}.locate", noted)
    return located


# --------------------------------------------------------------------------- what it leaves behind


def _summaries(lake: LakeCatalog, namespace: str, table: str) -> list[dict[str, str]]:
    snapshots = f"`{lake.spark_catalog}`.{namespace}.{table}.snapshots"
    sql = f"SELECT operation, summary FROM {snapshots} ORDER BY committed_at"
    return [{"operation": row[0], **row[1]} for row in lake.spark.sql(sql).collect()]


def test_snapshots_tell_who_made_them_and_how(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, table: str
) -> None:
    client.begin()
    client.insert(namespace, table, _ROWS)
    client.update(namespace, table, {"name": "'x'"}, where="id = 1")
    client.delete(namespace, table, where="id = 2")
    transaction = str(client._session.transaction()).partition(".")[
        0
    ]  # the rest is the server's signature
    client.commit()
    client.insert(namespace, table, _ROWS)
    first, *changes, last = _summaries(lake, namespace, table)
    assert [each["sparkport.operation"] for each in changes] == ["insert", "update", "delete"]
    assert [each["operation"] for each in changes] == ["append", "overwrite", "delete"]
    assert [each["sparkport.transaction"] for each in changes] == [transaction] * 3
    assert first["sparkport.operation"] == last["sparkport.operation"] == "insert"
    assert transaction not in (first["sparkport.transaction"], last["sparkport.transaction"])
    traces = [each["sparkport.trace-id"] for each in (first, *changes, last)]
    assert len(set(traces)) == 5
    assert all(len(trace) == 36 for trace in traces)
    numbers = [
        (each.get("added-records"), each["total-records"]) for each in (first, *changes, last)
    ]
    assert numbers == [("3", "3"), ("3", "6"), ("2", "8"), (None, "8"), ("3", "11")]


def test_a_snapshot_names_the_principal(lake: LakeCatalog, namespace: str, table: str) -> None:
    schema = lake.schema(Context(), namespace)
    assert schema is not None
    ctx = Context(principal="ann", trace_id="trace 1")
    found: Any = schema.table(ctx, table)
    insert = found.stage(ctx, Operation.INSERT, DMLOptions())
    insert.apply(_ROWS.to_batches()[0])
    assert insert.commit() == 3
    last = _summaries(lake, namespace, table)[-1]
    assert (last["sparkport.principal"], last["sparkport.trace-id"]) == ("ann", "trace 1")


def test_a_statement_that_changes_nothing_makes_no_snapshot(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, table: str
) -> None:
    client.insert(namespace, table, _ROWS.slice(0, 0))
    client.update(namespace, table, {"name": "'x'"}, where="id = 100")
    client.delete(namespace, table, where="id = 100")
    assert len(_summaries(lake, namespace, table)) == 1


# --------------------------------------------------------------------------------------- all types


@pytest.mark.parametrize("lossless", [True, False])
def test_values_of_every_type_are_inserted_updated_and_read_back(
    server: Server, lake: LakeCatalog, namespace: str, lossless: bool
) -> None:
    setting = Setting.LOSSLESS if lossless else Setting.DEFAULT
    names = [f"c{number}" for number in range(len(LINES))]
    arrays = [meant(line, setting) for line in LINES]
    count = max(map(len, arrays))
    columns = [
        array.take(pa.array([*range(len(array)), *[None] * (count - len(array))]))
        for array in arrays
    ]
    fields = [
        line.sent_as(setting).with_name(name) for line, name in zip(LINES, names, strict=True)
    ]
    rows = pa.Table.from_arrays(
        [pa.array(range(count)), *columns], schema=pa.schema([("n", pa.int64()), *fields])
    )
    with DuckDBClient(server.location, lake.name, arrow_lossless=lossless, timeout=60) as client:
        client.attach().create_table(namespace, "everything", rows.schema)
        assert client.insert(namespace, "everything", rows).total == count
        inserted = client.scan(namespace, "everything").sort_by("n")
        _same(inserted, rows)
        turned = rows.take(pa.array([*range(1, count), 0]))
        ids = client.scan(namespace, "everything", ["n", "rowid"]).sort_by("n").column("rowid")
        new = turned.drop(["n"]).append_column("rowid", ids)
        returned = client.update_rows(
            namespace, "everything", new.append_column("n", rows.column("n")), returning=True
        )
        assert returned.total == count
        updated = client.scan(namespace, "everything").sort_by("n")
        _same(updated.drop(["n"]), turned.drop(["n"]))
        assert updated.column("n").to_pylist() == list(range(count))
        deleted = client.delete(namespace, "everything", returning=True)
        assert deleted.rows is not None
        _same(deleted.rows.sort_by("n").drop(["n"]), turned.drop(["n"]))
        assert client.count(namespace, "everything") == 0


def _same(found: pa.Table, rows: pa.Table) -> None:
    for name in rows.column_names:
        one, other = (_one_nan(table.column(name).combine_chunks()) for table in (found, rows))
        assert bits(one) == bits(other), found.schema.field(name)


def _one_nan(array: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)


# -------------------------------------------------------------------------------- garbled BOOLEANs


def test_booleans_that_the_client_garbles_are_refused_and_change_nothing(
    server: Server, lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    """DuckDB 1.5.0 under `arrow_lossless_conversion` (airport §13.3), also for `upsert`."""
    client.create_table_as(
        namespace, "flags", pa.table({"id": pa.array([1, 2], pa.int64()), "b": [True, False]})
    )
    nulls = pa.ExtensionArray.from_storage(pa.bool8(), pa.nulls(3, pa.int8()))
    given = pa.table({"id": pa.array([2, 3, 4], pa.int64()), "b": nulls})
    garbling = DuckDBClient(server.location, lake.name, timeout=60, garbled_null_booleans=True)
    with garbling as old:
        for statement in (
            lambda: old.insert(namespace, "flags", {"id": list(range(5000))}),
            lambda: old.update(namespace, "flags", {"b": "NULL"}),
            lambda: old.in_out(namespace, "upsert", "flags", "id", rows=given),
        ):
            with pytest.raises(
                ServerError, match="SET arrow_lossless_conversion = false, or name the column"
            ):
                statement()
    assert _sorted(client.scan(namespace, "flags")) == [(1, True), (2, False)]
