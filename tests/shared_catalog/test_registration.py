"""Another kind of catalog: its own file, which this is, and one line that registers it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.shared_catalog.contract import Handles, SharedCatalogContract
from tests.shared_catalog.text_metadata import TextMetadata

from sparkport.errors import AlreadyExists, NotFound, SchemaNotEmpty
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.catalogs import CATALOGS
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, SharedCatalog


@dataclass
class _Held:
    """What all handles share."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    listing: CatalogListing = field(default_factory=lambda: CatalogListing(0, {}))

    def set(self, name: str, namespace: Namespace | None) -> None:
        others = {key: each for key, each in self.listing.namespaces.items() if key != name}
        namespaces = others if namespace is None else {**others, name: namespace}
        self.listing = CatalogListing(self.listing.version + 1, dict(sorted(namespaces.items())))


class MemoryCatalog(SharedCatalog):
    """A catalog that its handles in one process share."""

    warehouse = None
    chooses_folders = True
    name = "memory"

    def __init__(self, held: _Held) -> None:
        self._held = held

    def listing(self) -> CatalogListing:
        return self._held.listing

    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        found = self.namespace(".".join(namespace))
        return None if found is None else found.entries.get(name)

    def changed(self, identifier: Identifier | None = None) -> None:
        """Nothing to do: all handles look at one thing."""

    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        with self._held.lock:
            if self.namespace(".".join(parts)) is not None:
                raise AlreadyExists(f"schema {'.'.join(parts)} exists already")
            self._held.set(".".join(parts), Namespace(parts, dict(properties)))

    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        with self._held.lock:
            found = self.namespace(".".join(parts))
            if found is not None and found.entries:
                raise SchemaNotEmpty(f"schema {'.'.join(parts)} is not empty")
            if found is not None:
                self._held.set(".".join(parts), None)

    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with self._held.lock:
            if self.entry(identifier.namespace, identifier.name) is not None:
                raise AlreadyExists(f"table {identifier} exists already")
            self._put(identifier, CatalogEntry(identifier, Kind.ICEBERG, metadata.write()))

    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with self._held.lock:
            found = self.entry(identifier.namespace, identifier.name)
            if found is None or found.location != metadata.before:
                raise Beaten(identifier, is_certain=True)
            self._put(identifier, replace(found, location=metadata.write()))

    def drop(self, entry: CatalogEntry) -> bool:
        with self._held.lock:
            found = self.entry(entry.identifier.namespace, entry.identifier.name)
            if found is not None:
                self._put(entry.identifier, None)
            return found is not None

    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        with self._held.lock:
            if self.entry(identifier.namespace, identifier.name) is not None:
                raise AlreadyExists(f"table {identifier} exists already")
            if not self.drop(entry):
                raise NotFound(f"table {entry.identifier} does not exist")
            self._put(identifier, replace(entry, identifier=identifier))

    def _put(self, identifier: Identifier, entry: CatalogEntry | None) -> None:
        before = self._held.listing.namespaces[identifier.schema_name]
        entries = {key: each for key, each in before.entries.items() if key != identifier.name}
        if entry is not None:
            entries = dict(sorted({**entries, identifier.name: entry}.items()))
        self._held.set(identifier.schema_name, replace(before, entries=entries))


class _Handles(Handles):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> SharedCatalog:
        gateway: Any = None  # it needs no JVM
        return CATALOGS["memory"](gateway, LakeSettings())

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> TextMetadata:
        return TextMetadata(self._folder, "" if before is None else before.location)


@pytest.fixture
def handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Handles:
    held = _Held()
    monkeypatch.setitem(CATALOGS, "memory", lambda gateway, settings: MemoryCatalog(held))
    return _Handles(tmp_path)


class TestRegisteredCatalog(SharedCatalogContract):
    """Nothing but the registration above."""
