"""Handles on a REST catalog; the JVM puts new metadata together."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.shared_catalog.contract import Handles

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.catalogs import CATALOGS
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.rest_catalog import RestCatalog
from sparkport.spark.lake.settings import LakeSettings

CREDENTIAL = "sparkport:a:secret"


class RestHandles(Handles):
    def __init__(self, lake: LakeCatalog) -> None:
        self.gateway = Gateway(lake.spark, lake.spark_catalog)
        self._iceberg = self.gateway.jvm.org.apache.iceberg

    def open(self) -> RestCatalog:
        catalog = CATALOGS["rest"](self.gateway, LakeSettings(refresh_seconds=0.0))
        assert isinstance(catalog, RestCatalog)
        return catalog

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> JavaMetadata:
        return self._made(identifier) if before is None else self.changed(identifier)

    def _made(self, identifier: Identifier) -> JavaMetadata:
        catalog = self.gateway.iceberg_catalog
        assert catalog is not None
        fields = self._iceberg.SchemaParser.fromJson(
            '{"type": "struct", "fields": [{"id": 1, "name": "a", "required": false, "type": '
            '"int"}]}'
        )
        builder = catalog.buildTable(self.gateway.iceberg_identifier(identifier), fields)
        transaction = builder.createTransaction()
        table = transaction.table()
        after = table.operations().current()
        return JavaMetadata(self._iceberg, table.io(), None, after, transaction.commitTransaction)

    def appended(self, identifier: Identifier) -> JavaMetadata:
        """With a snapshot more, as an INSERT makes it."""
        handle = self.gateway.iceberg(identifier)
        assert handle is not None
        transaction = handle.table.newTransaction()
        transaction.newFastAppend().commit()
        after = transaction.table().operations().current()
        return JavaMetadata(
            self._iceberg, handle.table.io(), handle.metadata, after, transaction.commitTransaction
        )

    def metadata(self, catalog: RestCatalog, entry: CatalogEntry) -> dict[str, Any]:
        text = catalog.metadata_text(entry.identifier, entry.location)
        assert text is not None
        found: dict[str, Any] = json.loads(text)
        return found

    def changed(self, identifier: Identifier, key: str = "note") -> JavaMetadata:
        handle = self.gateway.iceberg(identifier)
        assert handle is not None
        base, operations = handle.metadata, handle.table.operations()
        builder = self._iceberg.TableMetadata.buildFrom(base)
        after = builder.setProperties({key: uuid.uuid4().hex}).build()
        io = handle.table.io()
        return JavaMetadata(self._iceberg, io, base, after, lambda: operations.commit(base, after))

    def empty(self) -> None:
        """Remove what another test has left."""
        catalog = self.open()
        namespaces = catalog.listing().namespaces
        for name in sorted(namespaces, key=lambda each: -len(namespaces[each].parts)):
            for entry in namespaces[name].entries.values():
                catalog.drop(entry)
            catalog.drop_namespace(namespaces[name].parts)
