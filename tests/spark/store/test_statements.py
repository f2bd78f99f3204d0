"""Statements on a lake in a real object store: they leave nothing but what Iceberg needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.parts.s3 import S3Server
from tests.spark.lake_tables import CTX, create, drop, find, insert, sql_name, values
from tests.spark.store.statements import add, delete, objects, rows_for

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.errors import Conflict, SparkportError
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.write import commit as commits


def test_statements_need_no_more_objects_than_icebergs(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    staged = set(objects(source, "/.sparkport/"))
    before = set(objects(source))
    add(store, namespace, 2)
    delete(find(store, namespace, "t"), 0).commit()
    new = set(objects(source)) - before
    kinds = sorted(each.rpartition(".")[2] for each in new)
    assert kinds == ["avro"] * 4 + ["json"] * 2 + ["parquet", "puffin"]
    assert set(objects(source, "/.sparkport/")) == staged
    assert values(find(store, namespace, "t"), "id") == [2]


@pytest.mark.parametrize("failure", ["before the commit", "by another writer", "cancelled"])
@pytest.mark.parametrize("operation", ["insert", "delete"])
def test_a_statement_that_fails_leaves_no_object(
    store: LakeCatalog,
    namespace: str,
    source: LakeSource,
    s3: S3Server,
    table: Any,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
    operation: str,
) -> None:
    before = set(objects(source))
    if operation == "insert":
        write = table.stage(Context(), Operation.INSERT, DMLOptions())
        write.apply(rows_for(table, *range(5000)))
    else:
        write = delete(table, 0)
    if failure == "cancelled":
        write.abort()
    else:
        if failure == "before the commit":
            real = commits.add_rows

            def refused(*arguments: Any, **options: Any) -> None:
                real(*arguments, **options)
                raise Conflict("no")

            monkeypatch.setattr(commits, "add_rows", refused)
        else:
            monkeypatch.setattr(commits, "commit", lambda *_: False)
            monkeypatch.setattr(commits, "_SECONDS_TO_TRY", 0.5)
        with pytest.raises(SparkportError):
            write.commit()
    assert set(objects(source)) == before
    if s3.folder is not None:
        assert s3.uploads_under_way() == 0
    assert values(find(store, namespace, "t"), "id") == [1]


def test_a_large_statement_that_is_cancelled_leaves_no_upload(
    source: LakeSource, s3: S3Server, table: Any
) -> None:
    before = set(objects(source))
    write = table.stage(Context(), Operation.INSERT, DMLOptions())
    for number in range(20):
        names = [secrets.token_hex(512) for _ in range(2000)]
        rows = {"id": range(2000), "v": [number] * 2000, "name": names}
        write.apply(pa.record_batch(rows, schema=pa.schema(list(table.arrow_schema)[:3])))
    write.abort()
    assert set(objects(source)) == before
    if s3.folder is not None:
        assert s3.uploads_under_way() == 0


def test_a_transaction_leaves_no_object_of_its_branch(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    ctx = Context(transaction_id=store.begin_transaction(CTX))
    for number in (2, 3):
        write = find(store, namespace, "t").stage(ctx, Operation.INSERT, DMLOptions())
        write.apply(rows_for(table, number))
        write.commit()
    lake = store._lake
    assert ctx.transaction_id is not None
    assert ctx.transaction_id.startswith(lake.staging.prefix())
    before = set(objects(source, table.state.metadata.location))
    store.rollback_transaction(ctx, ctx.transaction_id)
    after = set(objects(source, table.state.metadata.location))
    gone, new = before - after, after - before
    assert len([each for each in gone if each.endswith((".parquet", ".avro"))]) == 6
    assert {each.rpartition(".")[2] for each in new} == {"json"}
    assert values(find(store, namespace, "t"), "id") == [1]


def test_the_folder_of_a_dropped_table_is_gone(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    place = f"{table.state.metadata.location}/"
    assert objects(source, place)
    drop(store, namespace, "t")
    assert objects(source, place) == []


def test_the_files_of_a_dropped_view_are_gone(
    store: LakeCatalog, namespace: str, source: LakeSource
) -> None:
    create(store, namespace, "t")
    view = sql_name(store, namespace, "seen")
    for text in ("SELECT 1 AS a", "SELECT 2 AS a"):  # two versions, compressed
        store.spark.sql(f"CREATE OR REPLACE VIEW {view} AS {text}")
    store._lake.changed()
    assert len(objects(source, f"/{namespace}/seen/")) == 2
    drop(store, namespace, "seen")
    assert objects(source, f"/{namespace}/seen/") == []


@pytest.mark.parametrize("operation", ["insert", "update"])
def test_spark_reads_rows_that_were_staged_in_the_store(
    source: LakeSource,
    store: LakeCatalog,
    namespace: str,
    table: Any,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    """As on a cluster: executors have none of this machine's files."""
    area = store._lake.staging
    assert area.store is not None
    monkeypatch.setattr(area, "store", replace(area.store, for_rows=True))
    monkeypatch.setattr("sparkport.spark.write.statements.can_write", lambda _: False)
    if operation == "insert":
        add(store, namespace, *range(2, 102))
        expected = list(range(1, 102))
    else:
        write = table.stage(Context(), Operation.UPDATE, DMLOptions())
        rows = pa.record_batch({"id": [7], "rowid": pa.array([0], pa.int64())})
        write.apply(rows)
        write.commit()
        expected = [7]
    assert sorted(values(find(store, namespace, "t"), "id")) == expected
    assert objects(source, "/rows/") == []
    plans = "\n".join(str(each) for each in _plans(store))
    assert "MapInArrow" in plans
    assert source.options["s3.secret-access-key"] not in plans


def _plans(store: LakeCatalog) -> Iterator[str]:
    executions: Any = store.spark._jsparkSession.sharedState().statusStore().executionsList()
    for index in range(executions.size()):
        yield str(executions.apply(index).physicalPlanDescription())


def test_a_local_staging_folder_has_journals_for_a_store_too(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, tmp_path: Path
) -> None:
    settings = LakeSettings(staging=str(tmp_path / "staging"))
    with LakeCatalog(source=source, name="store", settings=settings) as catalog:
        assert catalog._lake.staging.store is None
        before = set(objects(source, "/.sparkport/"))
        add(catalog, namespace, 2)
        insert(catalog, namespace, "t", "(3, 1, 'a')")
        assert set(objects(source, "/.sparkport/")) == before
    assert not list((tmp_path / "staging").rglob("*"))
