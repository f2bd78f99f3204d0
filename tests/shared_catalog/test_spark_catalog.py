"""Any catalog through Spark; here that of an embedded lake, whose database others change, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.shared_catalog.contract import SharedCatalogContract, present
from tests.shared_catalog.java_handles import BesideTheJvm, JavaHandles

from sparkport.catalog import (
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DMLOptions,
    DropTableOptions,
    Operation,
    Table,
)
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.shared_catalog import Beaten, Refused, SharedCatalog
from sparkport.spark.table import LakeTable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

# As for the other tests of Spark: no JVM here lives long enough for its second compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    with LakeCatalog(tmp_path_factory.mktemp("lake"), spark_catalog="shared_catalog") as catalog:
        yield catalog


class TestSparkCatalog(SharedCatalogContract):
    @pytest.fixture
    def handles(self, lake: LakeCatalog) -> Iterator[JavaHandles]:
        handles = JavaHandles(lake, "spark")
        yield handles
        handles.close()

    def test_what_the_catalog_does_not_take_is_refused(
        self, catalog: SharedCatalog, handles: JavaHandles
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)

        def invalid() -> None:
            handles.gateway.jvm.org.apache.iceberg.catalog.Namespace.of(
                handles.gateway.strings(("nul\0",))
            )

        with pytest.raises(Refused) as caught:
            catalog.swap(
                made.identifier, JavaMetadata(None, None, metadata.base, metadata.after, invalid)
            )
        assert "null-byte" in str(caught.value.__cause__)

    def test_what_says_nothing_is_left_open(
        self, catalog: SharedCatalog, handles: JavaHandles
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)

        def silent() -> None:
            raise ConnectionResetError("no answer")

        with pytest.raises(ConnectionResetError):
            catalog.swap(
                made.identifier, JavaMetadata(None, None, metadata.base, metadata.after, silent)
            )

    def test_beaten_is_never_certain(self, catalog: SharedCatalog, handles: JavaHandles) -> None:
        """Iceberg's clients ask again by themselves."""
        made = handles.table(catalog, "t")
        slow = handles.new(made.identifier, made)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, slow)
        assert not caught.value.is_certain


class TestSqliteCatalogBesideTheJvm(BesideTheJvm):
    """With real metadata, in a database that Iceberg's JDBC catalog has open."""

    kind = "sqlite"

    def test_metadata_files_are_named_as_iceberg_does(
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: JavaHandles
    ) -> None:
        made = handles.table(catalog, "t")
        for each in (catalog, through_spark, catalog):
            each.swap(made.identifier, handles.new(made.identifier, made))
        handle = handles.gateway.iceberg(made.identifier)
        assert handle is not None
        files = [str(each.file()) for each in handle.metadata.previousFiles()] + [handle.location]
        folder = f"{handle.table.location()}/metadata".replace("file://", "file:")
        assert {file.rpartition("/")[0] for file in files} == {folder}
        assert [Path(file).name[:6] for file in files] == ["00000-", "00001-", "00002-", "00003-"]

    @pytest.mark.parametrize("codec", ["gzip", "none"])
    def test_metadata_go_where_the_table_says(
        self, catalog: SharedCatalog, handles: JavaHandles, codec: str
    ) -> None:
        made = handles.table(catalog, "t")
        handle = handles.gateway.iceberg(made.identifier)
        assert handle is not None
        place = f"{handles.gateway.warehouse}/elsewhere".replace("file://", "file:")
        update = handle.table.updateProperties().set("write.metadata.path", f"{place}/")
        update.set("write.metadata.compression-codec", codec).commit()
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        location = present(catalog, made.identifier).location
        assert location.startswith(f"{place}/00002-")
        assert location.endswith(".gz.metadata.json" if codec == "gzip" else ".metadata.json")
        assert present(catalog, made.identifier).kind is Kind.ICEBERG
        handle = handles.gateway.iceberg(made.identifier)
        assert handle is not None
        assert "note" in dict(handle.table.properties())

    def test_outdated_metadata_are_removed_where_the_table_says_so(
        self, catalog: SharedCatalog, handles: JavaHandles
    ) -> None:
        made = handles.table(catalog, "t")
        handle = handles.gateway.iceberg(made.identifier)
        assert handle is not None
        update = handle.table.updateProperties().set("write.metadata.previous-versions-max", "1")
        update.set("write.metadata.delete-after-commit.enabled", "true").commit()
        folder = Path(str(handle.table.location()).removeprefix("file:")) / "metadata"
        for _ in range(3):
            catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert sorted(path.name[:5] for path in folder.glob("*.metadata.json")) == [
            "00003",
            "00004",
        ]


def test_a_jvm_that_remembers_tables_is_told(tmp_path: Path) -> None:
    """With a setting of Iceberg that is off, unless the user has switched it on."""
    conf = {"spark.sql.catalog.remembering.cache-enabled": "true"}
    with LakeCatalog(tmp_path, spark_catalog="remembering", conf=conf) as lake:
        lake.create_schema(Context(), "s", CreateSchemaOptions())
        schema: Any = lake.schema(Context(), "s")
        rows = pa.table({"a": [1]})
        for expected in ([1], [1, 1]):
            table = schema.table(Context(), "t") or schema.create_table(
                Context(), "t", rows.schema, CreateTableOptions()
            )
            write = table.stage(Context(), Operation.INSERT, DMLOptions())
            write.apply(rows.to_batches()[0])
            write.commit()
            found = lake.spark.sql("SELECT a FROM remembering.s.t").collect()
            assert [row[0] for row in found] == expected
        schema.drop_table(Context(), "t", DropTableOptions())
        assert lake.spark.sql("SHOW TABLES IN remembering.s").collect() == []
        schema.create_table(Context(), "t", pa.schema([("b", pa.int32())]), CreateTableOptions())
        assert lake.spark.table("remembering.s.t").columns == ["b"]


def test_icebergs_session_catalog_is_used_in_every_thread(
    lake: LakeCatalog, tmp_path: Path
) -> None:
    """Spark gives its own one to threads that have no active session."""
    own = "spark.sql.catalog.spark_catalog"
    conf = {
        own: "org.apache.iceberg.spark.SparkSessionCatalog",
        f"{own}.type": "hadoop",
        f"{own}.warehouse": str(tmp_path / "tables"),
    }
    source = LakeSource("spark", str(tmp_path / "own"))
    settings = LakeSettings(staging=str(tmp_path / "staging"))

    def made(session_lake: LakeCatalog) -> Table:
        session_lake.create_schema(Context(), "s", CreateSchemaOptions())
        schema: Any = session_lake.schema(Context(), "s")
        columns = pa.schema([("a", pa.int64())])
        return schema.create_table(Context(), "t", columns, CreateTableOptions())

    with (
        LakeCatalog(
            source=source, spark_catalog="spark_catalog", conf=conf, settings=settings
        ) as session_lake,
        ThreadPoolExecutor(1) as other_thread,
    ):
        table = other_thread.submit(made, session_lake).result(timeout=100)
        assert isinstance(table, LakeTable)
