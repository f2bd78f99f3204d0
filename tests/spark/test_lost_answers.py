"""Lost answers of the catalog: changes happen once, live files stay, doubt is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import CTX, create, find, folder, insert, sql_name
from tests.spark.lossy_catalog import LossyCatalog, asked_again, unanswered, unheard

from sparkport.catalog import AddColumnOptions, Context, DMLOptions, Operation
from sparkport.errors import CatalogFault, TransactionNotActive
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.lake import outcomes
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog
from sparkport.spark.write import spark_writes
from sparkport.testing import DuckDBClient, ServerError

_ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
_MORE = pa.table({"id": pa.array([4], pa.int64())})


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def table(client: DuckDBClient, namespace: str) -> str:
    client.create_table_as(namespace, "t", _ROWS)
    return "t"


@pytest.fixture
def catalog(table: str, monkeypatch: pytest.MonkeyPatch) -> LossyCatalog:
    """The lossy catalog, once the table is made."""
    monkeypatch.setattr(outcomes, "_PAUSES", (0.0, 0.0), raising=False)
    return LossyCatalog(monkeypatch)


def _ids(lake: LakeCatalog, namespace: str, table: str = "t") -> list[Any]:
    """The ids as Spark reads them: all files must be there."""
    found = lake.spark.sql(
        f"SELECT id FROM {sql_name(lake, namespace, table)} ORDER BY id"
    ).collect()
    return [row[0] for row in found]


def _refs(lake: LakeCatalog, namespace: str, table: str = "t") -> list[str]:
    return [
        row[0]
        for row in lake.spark.sql(
            f"SELECT name FROM {sql_name(lake, namespace, table)}.refs"
        ).collect()
    ]


def _parquet(table: Any) -> list[Path]:
    return sorted((folder(table) / "data").rglob("*.parquet"))


Change = Callable[[DuckDBClient, str], int | None]
_CHANGES: dict[str, tuple[Change, list[int]]] = {
    "insert": (lambda client, schema: client.insert(schema, "t", _MORE).total, [1, 2, 3, 4]),
    "update": (
        lambda client, schema: client.update(schema, "t", {"id": "id + 10"}, where="id = 2").total,
        [1, 3, 12],
    ),
    "delete": (lambda client, schema: client.delete(schema, "t", "id = 2").total, [1, 3]),
}


@pytest.mark.parametrize("lost", [asked_again, unanswered])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_that_landed_is_not_made_again(
    client: DuckDBClient,
    lake: LakeCatalog,
    namespace: str,
    catalog: LossyCatalog,
    change: str,
    lost: Any,
) -> None:
    statement, expected = _CHANGES[change]
    catalog.lose(lost)
    assert statement(client, namespace) == 1
    assert catalog.asked == 1
    assert _ids(lake, namespace) == expected


def _others(lake: LakeCatalog, namespace: str, *, expire: bool) -> None:
    """Changes that others make to the table meanwhile."""
    name = sql_name(lake, namespace, "t")
    insert(lake, namespace, "t", "(50)")
    if expire:
        lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.note' = 'x')")
        lake.spark.sql(
            f"CALL `{lake.spark_catalog}`.system.expire_snapshots(table => '{namespace}.t',"
            " retain_last => 1, older_than => TIMESTAMP '2100-01-01 00:00:00')"
        )


@pytest.mark.parametrize("expire", [False, True])
def test_a_change_is_found_below_what_others_have_put_on_top(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog, expire: bool
) -> None:
    def behave(ask: Callable[[], None]) -> None:
        ask()
        _others(lake, namespace, expire=expire)
        ask()

    catalog.lose(behave)
    assert client.insert(namespace, "t", _MORE).total == 1
    assert _ids(lake, namespace) == [1, 2, 3, 4, 50]


def test_a_change_that_was_beaten_is_tried_again(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    def behave(ask: Callable[[], None]) -> None:
        _others(lake, namespace, expire=False)
        ask()

    catalog.lose(behave)
    assert client.insert(namespace, "t", _MORE).total == 1
    assert catalog.asked == 2
    assert _ids(lake, namespace) == [1, 2, 3, 4, 50]


def test_a_change_that_may_still_come_keeps_its_files(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    before = _parquet(find(lake, namespace, "t"))
    catalog.lose(unheard)
    with pytest.raises(
        ServerError, match=r"did not say whether the change of table .*\.t was made"
    ):
        client.insert(namespace, "t", _MORE)
    assert len(_parquet(find(lake, namespace, "t"))) == len(before) + 1
    assert _ids(lake, namespace) == [1, 2, 3]


@pytest.mark.parametrize("lost", [asked_again, unanswered, unheard])
def test_where_the_table_cannot_be_looked_at_the_files_stay_and_the_caller_is_told(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog, lost: Any
) -> None:
    before = _parquet(find(lake, namespace, "t"))
    catalog.lose(catalog.and_unreachable(lost))
    with pytest.raises(
        ServerError,
        match=r"did not say whether the change of table .*\.t was made: look at the table",
    ):
        client.insert(namespace, "t", _MORE)
    catalog.is_unreachable = False
    assert len(_parquet(find(lake, namespace, "t"))) == len(before) + 1
    assert _ids(lake, namespace) == ([1, 2, 3] if lost is unheard else [1, 2, 3, 4])


def test_a_column_that_was_added_is_not_said_to_exist_already(
    lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    catalog.lose(asked_again)
    find(lake, namespace, "t").add_column(CTX, pa.schema([("v", pa.int32())]), AddColumnOptions())
    assert catalog.asked == 1
    assert find(lake, namespace, "t").arrow_schema.names[:2] == ["id", "v"]


def test_files_that_an_alter_has_written_stay(
    lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    catalog.lose(asked_again)
    find(lake, namespace, "t").change_column_type(
        CTX, pa.schema([("id", pa.string())]), "'n' || id"
    )
    assert _ids(lake, namespace) == ["n1", "n2", "n3"]


def test_a_table_that_was_made_is_not_said_to_exist_already(
    lake: LakeCatalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = SqliteCatalog.create

    def asked_twice(catalog: SqliteCatalog, identifier: Any, metadata: Any) -> None:
        real(catalog, identifier, metadata)
        real(catalog, identifier, metadata)

    monkeypatch.setattr(SqliteCatalog, "create", asked_twice)
    create(lake, namespace, "t", _ROWS.schema)
    monkeypatch.undo()
    insert(lake, namespace, "t", "(1)")
    assert _ids(lake, namespace) == [1]


# ------------------------------------------------------------------------------------ transactions


def _begin(client: DuckDBClient, namespace: str) -> None:
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_no_lost_answer_makes_a_transaction_happen_twice_or_not_at_all(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog, skip: int
) -> None:
    """The answer to its first statement, its second, or its end is lost."""
    _begin(client, namespace)
    catalog.lose(asked_again, skip=skip)
    client.insert(namespace, "t", _MORE)
    client.update(namespace, "t", {"id": "id + 10"}, where="id = 1")
    assert client.scan(namespace, "t").num_rows == 4
    client.call(namespace, "lake_commit", {}, rows=1)
    client.commit()
    assert catalog.asked == 3
    assert _ids(lake, namespace) == [2, 3, 4, 11]
    assert _refs(lake, namespace) == ["main"]


def test_a_rollback_whose_answer_is_lost_leaves_nothing(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    before = _parquet(find(lake, namespace, "t"))
    _begin(client, namespace)
    client.insert(namespace, "t", _MORE)
    catalog.lose(asked_again)
    client.call(namespace, "lake_rollback", {}, rows=1)
    client.commit()
    assert _refs(lake, namespace) == ["main"]
    assert _parquet(find(lake, namespace, "t")) == before
    assert len(list((folder(find(lake, namespace, "t")) / "metadata").glob("snap-*"))) == 1


def test_what_is_published_stays_when_the_catalog_is_lost_right_after_it(
    client: DuckDBClient,
    lake: LakeCatalog,
    namespace: str,
    catalog: LossyCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., Any] = lake._lake.current

    def current(identifier: Any) -> Any:
        if catalog.asked >= 2:
            raise CatalogFault("the catalog cannot be reached")
        return real(identifier)

    _begin(client, namespace)
    client.insert(namespace, "t", _MORE)
    monkeypatch.setattr(lake._lake, "current", current)
    client.call(namespace, "lake_commit", {}, rows=1)
    client.commit()
    monkeypatch.undo()
    assert _ids(lake, namespace) == [1, 2, 3, 4]


@pytest.mark.parametrize("lost", [asked_again, unheard])
def test_tables_of_a_transaction_are_published_together_or_not_at_all(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog, lost: Any
) -> None:
    client.create_table_as(namespace, "a", _ROWS)
    _begin(client, namespace)
    for name in ("a", "t"):
        client.insert(namespace, name, _MORE)
    catalog.lose(catalog.and_unreachable(lost))
    with pytest.raises(ServerError) as caught:
        client.call(namespace, "lake_commit", {}, rows=1)
    catalog.is_unreachable = False
    client.commit()
    told = f"whether the changes of {namespace}.a and {namespace}.t were made, all or none"
    assert told in caught.value.message
    expected = [1, 2, 3] if lost is unheard else [1, 2, 3, 4]
    assert [_ids(lake, namespace, name) for name in ("a", "t")] == [expected, expected]


def test_a_lost_answer_for_several_tables_is_looked_up(
    client: DuckDBClient, lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    client.create_table_as(namespace, "a", _ROWS)
    _begin(client, namespace)
    for name in ("a", "t"):
        client.insert(namespace, name, _MORE)
    catalog.lose(asked_again)
    client.call(namespace, "lake_commit", {}, rows=1)
    client.commit()
    assert [_ids(lake, namespace, name) for name in ("a", "t")] == [[1, 2, 3, 4]] * 2
    assert _refs(lake, namespace) == ["main"]


@pytest.mark.parametrize("lost", [asked_again, unheard])
def test_what_nobody_knows_of_a_transaction_is_told_by_table(
    client: DuckDBClient,
    lake: LakeCatalog,
    namespace: str,
    catalog: LossyCatalog,
    lost: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For catalogs that swap one table after the other."""
    monkeypatch.setattr(type(lake._lake.catalog), "swaps_together", False)
    for name in ("a", "z"):
        client.create_table_as(namespace, name, _ROWS)
    _begin(client, namespace)
    for name in ("a", "t", "z"):
        client.insert(namespace, name, _MORE)
    catalog.lose(catalog.and_unreachable(lost), only="t")
    with pytest.raises(ServerError) as caught:
        client.call(namespace, "lake_commit", {}, rows=1)
    catalog.is_unreachable = False
    client.commit()
    places = [f"{namespace}.{name}" for name in ("a", "t", "z")]
    told = (
        "published in part: its changes are in {}, nobody knows of {}, they are not in {}".format(
            *places
        )
    )
    assert told in caught.value.message
    assert _ids(lake, namespace, "a") == [1, 2, 3, 4]
    assert _ids(lake, namespace, "t") == ([1, 2, 3] if lost is unheard else [1, 2, 3, 4])
    assert _ids(lake, namespace, "z") == [1, 2, 3]


def test_a_transaction_of_which_a_statement_is_unknown_is_rolled_back(
    lake: LakeCatalog, namespace: str, catalog: LossyCatalog
) -> None:
    ctx = Context(transaction_id=lake.begin_transaction(CTX))
    assert ctx.transaction_id is not None

    def add(ids: list[int]) -> None:
        staged = find(lake, namespace, "t").stage(ctx, Operation.INSERT, DMLOptions())
        staged.apply(pa.record_batch({"id": pa.array(ids, pa.int64())}))
        staged.commit()

    add([4])
    catalog.lose(unheard)
    with pytest.raises(
        CatalogFault, match=r"its transaction was rolled back, and nothing of it was published"
    ):
        add([5])
    with pytest.raises(TransactionNotActive):
        lake.commit_transaction(ctx, ctx.transaction_id)
    assert _ids(lake, namespace) == [1, 2, 3]
    assert _refs(lake, namespace) == ["main"]


# ------------------------------------------------------------------------------------- Spark's way


@pytest.fixture(scope="module")
def by_spark(lake: LakeCatalog) -> Iterator[LakeCatalog]:
    """A lake on the session of `lake` that leaves every UPDATE to Spark."""
    settings = replace(LakeSettings(), update_rows_in_place=0, refresh_seconds=0.0)
    with LakeCatalog(
        spark=lake.spark, spark_catalog=lake.spark_catalog, settings=settings, name="by_spark"
    ) as other:
        yield other


@pytest.mark.parametrize("skip", [0, 1])
def test_no_lost_answer_makes_sparks_change_happen_twice(
    by_spark: LakeCatalog, lake: LakeCatalog, namespace: str, catalog: LossyCatalog, skip: int
) -> None:
    """The answer about the branch, or about its end, is lost."""
    table: Any = find(by_spark, namespace, "t")
    write = table.stage(CTX, Operation.UPDATE, DMLOptions())
    write.apply(
        pa.record_batch({"id": pa.array([12], pa.int64()), "rowid": pa.array([1], pa.int64())})
    )
    catalog.lose(asked_again, skip=skip)
    assert write.commit() == 1
    assert catalog.asked == 2
    assert _ids(lake, namespace) == [1, 3, 12]
    assert _refs(lake, namespace) == ["main"]


def _left_to_spark(lake: LakeCatalog, namespace: str) -> Any:
    lake.spark.sql(f"ALTER TABLE {sql_name(lake, namespace, 't')} WRITE ORDERED BY id")
    lake._lake.changed()
    return find(lake, namespace, "t")


@pytest.fixture
def cancelled_late(monkeypatch: pytest.MonkeyPatch) -> Context:
    """The context of a caller who leaves just after Spark has committed, which cancels its job."""
    ctx, real = Context(), spark_writes._execute

    def execute(session: Any, *arguments: Any) -> None:
        real(session, *arguments)
        ctx.cancellation.cancel()
        session.range(10).collect()

    monkeypatch.setattr(spark_writes, "_execute", execute)
    return ctx


def test_an_insert_that_is_cancelled_after_spark_has_committed_is_said_to_be_made(
    lake: LakeCatalog,
    namespace: str,
    table: str,
    cancelled_late: Context,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write = _left_to_spark(lake, namespace).stage(cancelled_late, Operation.INSERT, DMLOptions())
    write.apply(_MORE.to_batches()[0])
    assert write.commit() == 1
    assert "Spark has added the rows of a statement, and failed then" in caplog.text
    assert _ids(lake, namespace) == [1, 2, 3, 4]


def test_an_insert_by_spark_of_which_nobody_knows_is_said_to_be_so(
    lake: LakeCatalog,
    namespace: str,
    table: str,
    cancelled_late: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = _left_to_spark(lake, namespace).stage(cancelled_late, Operation.INSERT, DMLOptions())
    write.apply(_MORE.to_batches()[0])
    real: Callable[..., Any] = lake._lake.current

    def current(identifier: Any) -> Any:
        if cancelled_late.cancellation.cancelled:
            raise CatalogFault("the catalog cannot be reached")
        return real(identifier)

    monkeypatch.setattr(lake._lake, "current", current)
    with pytest.raises(CatalogFault, match="nobody knows whether it has added them"):
        write.commit()
    monkeypatch.undo()
    assert _ids(lake, namespace) == [1, 2, 3, 4]
