"""Any catalog of a Spark session, used through Spark and Iceberg in the JVM."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from sparkport.errors import NotFound, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused, SharedCatalog

__all__ = ["SparkCatalog"]

_BEATEN = "CommitFailedException"
_REFUSED = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "AlreadyExistsException",
        "BadRequestException",
        "ForbiddenException",
        "IllegalArgumentException",
        "IllegalStateException",
        "NoSuchNamespaceException",
        "NoSuchTableException",
        "NotAuthorizedException",
        "NotFoundException",
        "NullPointerException",
        "RuntimeIOException",
        "S3Exception",
        "UncheckedIOException",
        "UnprocessableEntityException",
        "UnsupportedOperationException",
        "ValidationException",
    }
)
"""Java's exceptions after which a missing commit does not appear later. After others it may."""
_LOOKED_AT = 20
"""Number of tables that are checked for changes, each time the names are listed."""


class SparkCatalog(SharedCatalog):
    """A catalog that does not report changes, so it is read again every few seconds.

    Names are listed each time. A table is looked at again when it is asked for, and otherwise a few
    tables at a time, in turn, so that a catalog of thousands stays quick to list.
    """

    def __init__(self, gateway: Gateway, settings: LakeSettings) -> None:
        self._gateway = gateway
        self._settings = settings
        self._lock = threading.Lock()
        self._listing: CatalogListing | None = None
        self._fresh_until = 0.0
        self._stale = False
        self._turns: deque[Identifier] = deque()

    @property
    def name(self) -> str:
        return self._gateway.catalog

    @property
    def warehouse(self) -> str | None:
        return self._gateway.warehouse

    @property
    def chooses_folders(self) -> bool:
        return self._gateway.option("type") != "jdbc"

    # ------------------------------------------------------------------------------------- reading

    def listing(self) -> CatalogListing:
        known = self._listing
        if known is not None and not self._stale and time.monotonic() < self._fresh_until:
            return known
        # A single thread reads again. The others use the old listing, except after a change by this
        # server.
        if not self._lock.acquire(blocking=known is None or self._stale):
            assert known is not None
            return known
        try:
            if self._listing is None or self._stale or time.monotonic() >= self._fresh_until:
                self._stale = False
                begun = time.monotonic()
                self._set(self._read())
                # A catalog that is slow to read is read less often.
                self._fresh_until = 2 * time.monotonic() - begun + self._settings.refresh_seconds
            assert self._listing is not None
            return self._listing
        finally:
            self._lock.release()

    def namespace(self, name: str) -> Namespace | None:
        found = self.listing().namespaces.get(name)
        parts = tuple(name.split("."))
        if found is None and all(parts) and self._has(parts):
            with self._lock:  # younger than the listing
                found = self._namespace(parts, None)
                self._set({**self._known(), name: found})
        return found

    def _has(self, parts: tuple[str, ...]) -> bool:
        try:
            return self._gateway.has_namespace(parts)
        except SparkportError:
            return False  # catalogs with a single level refuse nested names in many ways

    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        found = self.listing().namespaces.get(".".join(namespace))
        known = None if found is None else found.entries.get(name)
        if known is not None and known.kind is not Kind.ICEBERG:
            return known
        identifier = Identifier(self._gateway.catalog, namespace, name)
        try:
            entry = self._entry(identifier, known) if name else None
        except NotFound:
            entry = None
        if entry != known:
            with self._lock:
                self._put(namespace, name, entry)
        return entry

    def changed(self, identifier: Identifier | None = None) -> None:
        if identifier is not None:
            with self._lock:
                self._put(identifier.namespace, identifier.name, None)  # to be found anew
        self._stale = True

    def _known(self) -> Mapping[str, Namespace]:
        return {} if self._listing is None else self._listing.namespaces

    def _set(self, namespaces: Mapping[str, Namespace]) -> None:
        if self._listing is None or namespaces != self._listing.namespaces:
            last = 0 if self._listing is None else self._listing.version
            self._listing = CatalogListing(max(last + 1, time.time_ns() // 1_000_000), namespaces)

    def _put(self, parts: tuple[str, ...], name: str, entry: CatalogEntry | None) -> None:
        namespaces = dict(self._known())
        before = namespaces.get(".".join(parts), Namespace(parts))
        entries = {key: each for key, each in before.entries.items() if key != name}
        if entry is not None:
            entries = dict(sorted({**entries, name: entry}.items()))
        namespaces[".".join(parts)] = replace(before, entries=entries)
        self._set(namespaces)

    def _read(self) -> dict[str, Namespace]:
        found = {}
        known = self._known()
        for parts in self._gateway.namespaces():
            name = ".".join(parts)
            before = known.get(name)
            try:
                found[name] = self._namespace(parts, before)
            except SparkportError:
                # A namespace that cannot be read now must not hide the others.
                if before is not None:
                    found[name] = before
        self._look_again(found)
        return found

    def _namespace(self, parts: tuple[str, ...], before: Namespace | None) -> Namespace:
        entries: dict[str, CatalogEntry] = {}
        known = {} if before is None else before.entries
        views = {each.name for each in self._gateway.views(parts)}
        for identifier in self._gateway.tables(parts):
            if identifier.name in views:
                continue  # some catalogs list views among the tables
            entry = known.get(identifier.name)
            if entry is None or entry.kind is Kind.VIEW:
                try:
                    entry = self._entry(identifier, None)
                except SparkportError:
                    entry = CatalogEntry(identifier, Kind.OTHER)
            entries[identifier.name] = entry
        for name in views:
            entry = known.get(name)
            if entry is None or entry.kind is not Kind.VIEW:
                entry = self._view(Identifier(self._gateway.catalog, parts, name), None)
            entries[name] = entry
        properties = self._properties(parts) if before is None else before.properties
        return Namespace(parts, properties, dict(sorted(entries.items())))

    def _look_again(self, found: dict[str, Namespace]) -> None:
        """Check some tables for changes: those whose turn it is."""
        if not self._turns:
            self._turns.extend(
                entry.identifier for each in found.values() for entry in each.entries.values()
            )
        for _ in range(min(_LOOKED_AT, len(self._turns))):
            identifier = self._turns.popleft()
            namespace = found.get(identifier.schema_name)
            known = None if namespace is None else namespace.entries.get(identifier.name)
            if namespace is None or known is None:
                continue
            try:
                is_view = known.kind is Kind.VIEW
                entry = self._view(identifier, known) if is_view else self._entry(identifier, known)
            except SparkportError:
                continue
            if entry != known:
                entries = {**namespace.entries, identifier.name: entry}
                found[identifier.schema_name] = replace(namespace, entries=entries)

    def _properties(self, parts: tuple[str, ...]) -> Mapping[str, str]:
        try:
            return self._gateway.namespace_properties(parts)
        except SparkportError:
            return {}

    def _entry(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        """Look up a table. Raises: NotFound; what Spark's other errors are translated to."""
        handle = self._gateway.iceberg(identifier)
        if handle is not None:
            return CatalogEntry(identifier, Kind.ICEBERG, handle.location)
        return CatalogEntry(identifier, Kind.OTHER, columns=self._columns(identifier, known))

    def _view(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        return CatalogEntry(identifier, Kind.VIEW, columns=self._columns(identifier, known))

    def _columns(self, identifier: Identifier, known: CatalogEntry | None) -> str:
        """The columns as text, as last known while Spark cannot resolve them."""
        try:
            return json.dumps(self._gateway.schema(identifier).jsonValue(), sort_keys=True)
        except SparkportError:
            return "" if known is None else known.columns

    # ------------------------------------------------------------------------------------- writing

    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        self._gateway.create_namespace(parts, properties)

    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        self._gateway.drop_namespace(parts)

    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with translated(f"table {identifier}"):
            metadata.publish()

    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        try:
            metadata.publish()
        except Exception as error:
            # PySpark has its own classes for some of Java's exceptions.
            exception = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
            name = "" if exception is None else str(exception.getClass().getSimpleName())
            if name == _BEATEN:
                raise Beaten(identifier) from error
            # SQLite is a database of this machine: a commit that is not there now does not come
            # later.
            if name in _REFUSED or "SQLITE" in str(error):
                raise Refused from error
            raise

    def drop(self, entry: CatalogEntry) -> bool:
        return self._drop(entry, is_purged=False)

    def purge(self, entry: CatalogEntry, remove_files: Callable[[], None]) -> bool:
        """Let Iceberg's catalog remove both.

        Some do so on a server; after others have dropped the table, no manifest names its files.
        """
        return self._drop(entry, is_purged=True)

    def _drop(self, entry: CatalogEntry, *, is_purged: bool) -> bool:
        identifier, catalog = entry.identifier, self._gateway.iceberg_catalog
        with translated(f"table {identifier}"):
            if entry.kind is Kind.ICEBERG and catalog is not None:
                name = self._gateway.iceberg_identifier(identifier)
                return bool(catalog.dropTable(name, is_purged))
            kind = "VIEW" if entry.kind is Kind.VIEW else "TABLE"
            self._gateway.spark.sql(f"DROP {kind} {identifier.sql}")
            return True

    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        catalog = self._gateway.iceberg_catalog
        with translated(f"table {identifier}"):
            if entry.kind is Kind.ICEBERG and catalog is not None:
                names = self._gateway.iceberg_identifier
                catalog.renameTable(names(entry.identifier), names(identifier))
            else:
                kind = "VIEW" if entry.kind is Kind.VIEW else "TABLE"
                target = ".".join(map(quoted, (*identifier.namespace, identifier.name)))
                self._gateway.spark.sql(f"ALTER {kind} {entry.identifier.sql} RENAME TO {target}")
