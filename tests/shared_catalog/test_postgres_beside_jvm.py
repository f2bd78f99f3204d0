"""A catalog in PostgreSQL that Iceberg's JDBC catalog in the JVM has open, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.parts.cutting_proxy import Cut, CuttingProxy, cutting_proxy
from tests.parts.postgres import Database, PostgresServer
from tests.shared_catalog.contract import names, present
from tests.shared_catalog.java_handles import BesideTheJvm, JavaHandles

from sparkport.catalog import (
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DMLOptions,
    DropTableOptions,
    Operation,
)
from sparkport.errors import CatalogFault
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.shared_catalog import SharedCatalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

# As for the other tests of Spark: no JVM here lives long enough for its second compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.new_database()


@pytest.fixture(scope="module")
def lake(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    folder = tmp_path_factory.mktemp("lake")
    source = LakeSource("jdbc", str(folder), database.uri, database.options)
    with LakeCatalog(source=source, spark_catalog="postgres") as catalog:
        yield catalog


class TestPostgresCatalogBesideTheJvm(BesideTheJvm):
    kind = "jdbc"

    def test_views_of_spark_are_views(
        self, lake: LakeCatalog, catalog: SharedCatalog, handles: JavaHandles
    ) -> None:
        lake.spark.sql("CREATE VIEW postgres.n.v AS SELECT 1 AS a")
        view = present(catalog, Identifier("postgres", ("n",), "v"))
        assert view.kind is Kind.VIEW
        assert catalog.drop(view)
        assert names(handles.open()) == {"n": []}


def test_a_lake_on_it_is_changed_and_read(lake: LakeCatalog) -> None:
    lake.create_schema(Context(), "s", CreateSchemaOptions())
    schema: Any = lake.schema(Context(), "s")
    rows = pa.table({"a": [1, 2]})
    table = schema.create_table(Context(), "t", rows.schema, CreateTableOptions())
    for expected in ([1, 2], [1, 1, 2, 2]):
        write = table.stage(Context(), Operation.INSERT, DMLOptions())
        write.apply(rows.to_batches()[0])
        write.commit()
        found = lake.spark.sql("SELECT a FROM postgres.s.t ORDER BY a").collect()
        assert [row[0] for row in found] == expected
    lake.spark.sql("DELETE FROM postgres.s.t WHERE a = 1")
    assert isinstance(lake._lake.catalog, PostgresCatalog)
    schema.drop_table(Context(), "t", DropTableOptions())
    assert lake.spark.sql("SHOW TABLES IN postgres.s").collect() == []


def test_the_jvm_survives_a_restart_of_postgres(
    lake: LakeCatalog, postgres: PostgresServer
) -> None:
    lake.create_schema(Context(), "again", CreateSchemaOptions())
    schema: Any = lake.schema(Context(), "again")
    schema.create_table(Context(), "t", pa.schema([("a", pa.int64())]), CreateTableOptions())
    for _ in range(2):
        postgres.stop()
        postgres.start()
        assert lake.spark.sql("SELECT a FROM postgres.again.t").collect() == []
    schema.drop_table(Context(), "t", DropTableOptions())


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def far(
    lake: LakeCatalog, database: Database, proxy: CuttingProxy, tmp_path: Path
) -> Iterator[LakeCatalog]:
    """A lake by way of the proxy, in the same Spark."""
    source = LakeSource("jdbc", str(tmp_path), database.uri_at(proxy.port), database.options)
    with LakeCatalog(source=source, spark_catalog="far") as far:
        far.create_schema(Context(), "s", CreateSchemaOptions())
        yield far


def test_a_change_whose_answer_is_lost_is_made_once(
    far: LakeCatalog, proxy: CuttingProxy, tmp_path: Path
) -> None:
    schema: Any = far.schema(Context(), "s")
    rows = pa.table({"a": [1, 2]})

    def insert() -> None:
        write = table.stage(Context(), Operation.INSERT, DMLOptions())
        write.apply(rows.to_batches()[0])
        write.commit()

    def found() -> list[int]:
        return [row[0] for row in far.spark.sql("SELECT a FROM far.s.t ORDER BY a").collect()]

    proxy.cut(b"COMMIT\0", Cut.AFTER)
    table = schema.create_table(Context(), "t", rows.schema, CreateTableOptions())
    assert proxy.was_cut
    proxy.cut(b"COMMIT\0", Cut.AFTER)
    insert()
    assert proxy.was_cut
    assert found() == [1, 2]
    files = sorted(tmp_path.rglob("*"))
    for word in (b"COMMIT\0", b"UPDATE"):
        proxy.cut(word, Cut.BEFORE)
        with pytest.raises(CatalogFault, match="cannot be reached: try again later"):
            insert()
        assert found() == [1, 2]
        assert sorted(tmp_path.rglob("*")) == files, "a change that was not made leaves nothing"
    insert()
    assert found() == [1, 1, 2, 2]
    proxy.cut(b"COMMIT\0", Cut.AFTER)
    with pytest.raises(CatalogFault, match="look before you try again"):
        schema.drop_table(Context(), "t", DropTableOptions())
    assert far.spark.sql("SHOW TABLES IN far.s").collect() == []
