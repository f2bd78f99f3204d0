"""Commits that fail: files that are or may be in use are never removed.

Commits whose answers are lost are in test_lost_answers.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.errors import Conflict
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.spark.lake.iceberg_commit import Draft
from sparkport.spark.lake.iceberg_commit import commit as draft_commit
from sparkport.spark.write import commit as commits
from sparkport.spark.write import publish
from sparkport.testing import DuckDBClient, ServerError

_ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
_MORE = pa.table({"id": pa.array([4], pa.int64())})
Commit = Callable[..., bool]


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def tables(client: DuckDBClient, namespace: str) -> tuple[str, str]:
    for name in ("a", "b"):
        client.create_table_as(namespace, name, _ROWS)
    return "a", "b"


def _ids(lake: LakeCatalog, namespace: str, table: str) -> list[int]:
    """The ids as Spark reads them: all files must be there."""
    sql = f"SELECT id FROM `{lake.spark_catalog}`.{namespace}.{table} ORDER BY id"
    return [row[0] for row in lake.spark.sql(sql).collect()]


def _refs(lake: LakeCatalog, namespace: str, table: str) -> list[str]:
    return [
        row[0]
        for row in lake.spark.sql(
            f"SELECT name FROM `{lake.spark_catalog}`.{namespace}.{table}.refs"
        ).collect()
    ]


def _data_files(lake: LakeCatalog, namespace: str, table: str) -> int:
    found: Any = lake.schema(Context(), namespace).table(Context(), table)  # type: ignore[union-attr]
    folder = Path(found.state.metadata.location.removeprefix("file:"))
    return len(
        [path for path in (folder / "data").rglob("*.parquet") if not path.name.startswith(".")]
    )


@pytest.mark.parametrize("error", [Conflict("somebody was faster"), RuntimeError("no answer")])
def test_a_transaction_that_is_published_in_part_keeps_that_part(
    client: DuckDBClient,
    lake: LakeCatalog,
    namespace: str,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    real: Commit = draft_commit

    def failing(draft: Draft, *metadata: Any) -> bool:
        if draft.identifier.name == "b" and metadata and "publishing" in state:
            state.remove("publishing")
            raise error
        return real(draft, *metadata)

    state = {"publishing"}
    monkeypatch.setattr(type(lake._lake.catalog), "swaps_together", False)
    client.begin()
    client.call(namespace, "lake_begin", {}, rows=1)
    for table in tables:
        client.insert(namespace, table, _MORE)
        client.update(namespace, table, {"id": "id + 10"}, where="id = 1")
    monkeypatch.setattr(publish, "commit", failing)
    with pytest.raises(ServerError) as caught:
        client.call(namespace, "lake_commit", {}, rows=1)
    client.commit()
    if isinstance(error, Conflict):
        assert (caught.value.code, "published in part" in caught.value.message) == ("ABORTED", True)
    assert _ids(lake, namespace, "a") == [2, 3, 4, 11]
    assert _ids(lake, namespace, "b") == [1, 2, 3]
    assert _data_files(lake, namespace, "b") == 1
    assert _refs(lake, namespace, "a") == _refs(lake, namespace, "b") == ["main"]
    client.insert(namespace, "b", _MORE)
    assert _ids(lake, namespace, "b") == [1, 2, 3, 4]


def test_files_of_a_commit_stay_when_the_catalog_is_lost_right_after_it(
    client: DuckDBClient,
    lake: LakeCatalog,
    namespace: str,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr(lake._lake, "changed", lost)
    with pytest.raises(ServerError, match="was changed, but cannot be read"):
        client.insert(namespace, "a", _MORE)
    monkeypatch.undo()
    assert _ids(lake, namespace, "a") == [1, 2, 3, 4]


@pytest.mark.parametrize("way", ["commit", "rollback"])
def test_a_transaction_that_ends_waits_for_its_statement_that_is_being_committed(
    lake: LakeCatalog,
    client: DuckDBClient,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    table: Any = lake.schema(Context(), namespace).table(Context(), "t")  # type: ignore[union-attr]
    ctx = Context(transaction_id=lake.begin_transaction(Context()))
    entered, may_go_on = threading.Event(), threading.Event()
    real: Callable[..., Any] = commits.commit_change

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert may_go_on.wait(60)
        return real(*arguments)

    def insert() -> None:
        staged = table.stage(ctx, Operation.INSERT, DMLOptions())
        staged.apply(_MORE.to_batches()[0])
        staged.commit()

    assert ctx.transaction_id is not None
    end = {
        "commit": partial(lake.commit_transaction, ctx, ctx.transaction_id),
        "rollback": partial(lake.rollback_transaction, ctx, ctx.transaction_id),
    }[way]
    monkeypatch.setattr(publish, "commit_change", slow)
    with ThreadPoolExecutor() as threads:
        inserted = threads.submit(insert)
        assert entered.wait(60)
        ended = threads.submit(end)
        with pytest.raises(TimeoutError):
            ended.result(timeout=0.5)
        may_go_on.set()
        inserted.result(timeout=60)
        ended.result(timeout=60)

    assert _ids(lake, namespace, "t") == ([1, 2, 3] if way == "rollback" else [1, 2, 3, 4])
    assert _refs(lake, namespace, "t") == ["main"]


def test_a_statement_that_comes_just_after_lake_commit_is_published_by_itself(
    lake: LakeCatalog, client: DuckDBClient, namespace: str
) -> None:
    client.create_table_as(namespace, "t", _ROWS)
    table: Any = lake.schema(Context(), namespace).table(Context(), "t")  # type: ignore[union-attr]
    transactions = lake._lake.transactions
    block = lake.begin_transaction(Context())
    transaction = transactions.find(block)
    assert transaction is not None
    statement = transactions.begin(statement_of=Context(transaction_id=block))
    staged = table.stage(
        Context(transaction_id=statement, parent_transaction_id=block),
        Operation.INSERT,
        DMLOptions(),
    )
    staged.apply(_MORE.to_batches()[0])
    transaction.collects = True
    with ThreadPoolExecutor() as threads:
        with transaction.lock:
            committed = threads.submit(staged.commit)
            with pytest.raises(TimeoutError):
                committed.result(timeout=1)
            transaction.collects = False  # as lake_commit() does, which came first
            publish.publish_transaction(lake._lake, Context(), transaction)
        assert committed.result(timeout=60) == 1

    assert _ids(lake, namespace, "t") == [1, 2, 3, 4]
    assert _refs(lake, namespace, "t") == ["main"]
    assert not transaction.pending
