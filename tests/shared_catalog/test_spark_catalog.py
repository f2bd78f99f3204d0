"""Any catalog through Spark; here that of an embedded lake, whose database others change, too."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.shared_catalog.contract import (
    Handles,
    SharedCatalogContract,
    SwapsTogetherContract,
    names,
    present,
)

from sparkport.catalog import (
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DMLOptions,
    DropTableOptions,
    Operation,
)
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.catalogs import CATALOGS
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, Refused, SharedCatalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

# As for the other tests of Spark: no JVM here lives long enough for its second compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


class _Handles(Handles):
    """Tables are made from what the JVM puts together, for either kind of catalog."""

    def __init__(self, lake: LakeCatalog, kind: str) -> None:
        self.gateway = Gateway(lake.spark, lake.spark_catalog)
        self._kind = kind
        self._iceberg = self.gateway.jvm.org.apache.iceberg

    def open(self) -> SharedCatalog:
        return CATALOGS[self._kind](self.gateway, LakeSettings(refresh_seconds=0.0))

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> JavaMetadata:
        return self._made(identifier) if before is None else self._changed(identifier)

    def _made(self, identifier: Identifier) -> JavaMetadata:
        catalog = self.gateway.iceberg_catalog
        assert catalog is not None
        fields = self._iceberg.SchemaParser.fromJson(
            '{"type": "struct", "fields": [{"id": 1, "name": "a", "required": false, "type": '
            '"int"}]}'
        )
        builder = catalog.buildTable(self.gateway.iceberg_identifier(identifier), fields)
        folder = f"{self.gateway.warehouse}/{uuid.uuid4()}"
        transaction = builder.withLocation(folder).createTransaction()
        table = transaction.table()
        after = table.operations().current()
        return JavaMetadata(self._iceberg, table.io(), None, after, transaction.commitTransaction)

    def _changed(self, identifier: Identifier, key: str = "note") -> JavaMetadata:
        handle = self.gateway.iceberg(identifier)
        assert handle is not None
        base, operations = handle.metadata, handle.table.operations()
        builder = self._iceberg.TableMetadata.buildFrom(base)
        after = builder.setProperties({key: uuid.uuid4().hex}).build()
        io = handle.table.io()
        return JavaMetadata(self._iceberg, io, base, after, lambda: operations.commit(base, after))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    with LakeCatalog(tmp_path_factory.mktemp("lake"), spark_catalog="shared_catalog") as catalog:
        yield catalog


@pytest.fixture
def emptied(lake: LakeCatalog) -> LakeCatalog:
    """Without anything that another test has left."""
    catalog = _Handles(lake, "sqlite").open()
    for namespace in catalog.listing().namespaces.values():
        for entry in namespace.entries.values():
            catalog.drop(entry)
        catalog.drop_namespace(namespace.parts)
    return lake


class TestSparkCatalog(SharedCatalogContract):
    @pytest.fixture
    def handles(self, emptied: LakeCatalog) -> _Handles:
        return _Handles(emptied, "spark")

    def test_what_the_catalog_does_not_take_is_refused(
        self, catalog: SharedCatalog, handles: _Handles
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
        self, catalog: SharedCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)

        def silent() -> None:
            raise ConnectionResetError("no answer")

        with pytest.raises(ConnectionResetError):
            catalog.swap(
                made.identifier, JavaMetadata(None, None, metadata.base, metadata.after, silent)
            )

    def test_beaten_is_never_certain(self, catalog: SharedCatalog, handles: _Handles) -> None:
        """Iceberg's clients ask again by themselves."""
        made = handles.table(catalog, "t")
        slow = handles.new(made.identifier, made)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, slow)
        assert not caught.value.is_certain


class TestSqliteCatalogBesideTheJvm(SwapsTogetherContract):
    """With real metadata, in a database that Iceberg's JDBC catalog has open."""

    @pytest.fixture
    def handles(self, emptied: LakeCatalog) -> _Handles:
        return _Handles(emptied, "sqlite")

    @pytest.fixture
    def through_spark(self, emptied: LakeCatalog) -> SharedCatalog:
        return _Handles(emptied, "spark").open()

    def test_spark_and_sqlite_see_what_each_other_does(
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: _Handles
    ) -> None:
        """The JVM is another process: this holds for any."""
        catalog.create_namespace(("m", "inner"), {"comment": "ours"})
        through_spark.create_namespace(("theirs",), {"comment": "theirs"})
        for each in (catalog, through_spark):
            assert {"n", "m.inner", "theirs"} <= names(each).keys()
            for name, comment in (("m.inner", "ours"), ("theirs", "theirs")):
                found = each.namespace(name)
                assert found is not None
                assert found.properties["comment"] == comment
        ours, theirs = handles.table(catalog, "ours"), handles.table(through_spark, "theirs")
        assert present(through_spark, ours.identifier) == ours
        assert present(catalog, theirs.identifier) == theirs
        for writer, reader in ((catalog, through_spark), (through_spark, catalog)):
            for entry in (ours, theirs):
                before = present(reader, entry.identifier)
                writer.swap(entry.identifier, handles.new(entry.identifier, before))
                after = present(reader, entry.identifier)
                assert after == present(writer, entry.identifier) != before
        renamed = Identifier(catalog.name, ("n",), "renamed")
        catalog.rename(present(catalog, ours.identifier), renamed)
        through_spark.drop(present(through_spark, theirs.identifier))
        for each in (catalog, through_spark):
            assert names(each)["n"] == ["renamed"]
        catalog.drop(present(catalog, renamed))
        catalog.drop_namespace(("m", "inner"))
        through_spark.drop_namespace(("theirs",))
        assert names(catalog) == {"n": []}

    def test_a_lost_race_against_spark_is_lost(
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        for first, second in ((catalog, through_spark), (through_spark, catalog)):
            now = present(catalog, made.identifier)
            fast, slow = (handles.new(made.identifier, now) for _ in range(2))
            first.swap(made.identifier, fast)
            with pytest.raises(Beaten):
                second.swap(made.identifier, slow)

    def test_metadata_files_are_named_as_iceberg_does(
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: _Handles
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
        self, catalog: SharedCatalog, handles: _Handles, codec: str
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
        self, catalog: SharedCatalog, handles: _Handles
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
