"""Handles on catalogs in PostgreSQL, without a JVM."""

from __future__ import annotations

from pathlib import Path

from tests.parts.postgres import Database
from tests.shared_catalog.contract import Handles
from tests.shared_catalog.text_metadata import TextMetadata

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.postgres_schema import prepared


class PostgresHandles(Handles):
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self._opened: list[PostgresCatalog] = []
        prepared(LakeSource("jdbc", "/w", database.uri, database.options), "lake", "lake")

    def open(self, uri: str | None = None, **options: str) -> PostgresCatalog:
        address = PostgresAddress.of(uri or self.database.uri, {**self.database.options, **options})
        catalog = PostgresCatalog(address, "lake", refresh_seconds=3600.0)
        self._opened.append(catalog)
        return catalog

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> TextMetadata:
        return TextMetadata(self.folder, "" if before is None else before.location)

    def files(self) -> int:
        return len(list(self.folder.glob("*.metadata.json")))

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()
