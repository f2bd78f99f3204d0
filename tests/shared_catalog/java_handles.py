"""Catalogs of this process beside those of the JVM, with real metadata."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.shared_catalog.contract import Handles, SwapsTogetherContract, names, present

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.catalogs import CATALOGS
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, SharedCatalog


class JavaHandles(Handles):
    """Tables are made from what the JVM puts together, for either kind of catalog."""

    def __init__(self, lake: LakeCatalog, kind: str) -> None:
        self.gateway = Gateway(lake.spark, lake.spark_catalog)
        self._kind = kind
        self._iceberg = self.gateway.jvm.org.apache.iceberg
        self._opened: list[SharedCatalog] = []

    def open(self) -> SharedCatalog:
        catalog = CATALOGS[self._kind](self.gateway, LakeSettings(refresh_seconds=0.0))
        self._opened.append(catalog)
        return catalog

    def close(self) -> None:
        """Close what was opened, after dropping all that is there."""
        catalog = self.open()
        for namespace in [*catalog.listing().namespaces.values()][::-1]:  # inner ones first
            for entry in namespace.entries.values():
                catalog.drop(entry)
            catalog.drop_namespace(namespace.parts)
        for each in self._opened:
            each.close()

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


class BesideTheJvm(SwapsTogetherContract):
    """Needs a fixture `lake`, with an empty catalog that Iceberg in the JVM has open, too."""

    kind: str

    @pytest.fixture
    def handles(self, lake: LakeCatalog) -> Iterator[JavaHandles]:
        handles = JavaHandles(lake, self.kind)
        yield handles
        handles.close()

    @pytest.fixture
    def through_spark(self, lake: LakeCatalog) -> SharedCatalog:
        return JavaHandles(lake, "spark").open()

    def test_spark_and_we_see_what_each_other_does(
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: JavaHandles
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
        self, catalog: SharedCatalog, through_spark: SharedCatalog, handles: JavaHandles
    ) -> None:
        made = handles.table(catalog, "t")
        for first, second in ((catalog, through_spark), (through_spark, catalog)):
            now = present(catalog, made.identifier)
            fast, slow = (handles.new(made.identifier, now) for _ in range(2))
            first.swap(made.identifier, fast)
            with pytest.raises(Beaten):
                second.swap(made.identifier, slow)
