"""Any catalog of a Spark session, used through Spark and Iceberg in the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from sparkport.errors import SparkportError
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.polled_catalog import PolledCatalog
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused

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


class SparkCatalog(PolledCatalog):
    """A catalog of which Spark does not report changes."""

    def __init__(self, gateway: Gateway, settings: LakeSettings) -> None:
        super().__init__(gateway.catalog, settings)
        self._gateway = gateway

    @property
    def warehouse(self) -> str | None:
        return self._gateway.warehouse

    @property
    def chooses_folders(self) -> bool:
        return self._gateway.option("type") != "jdbc"

    # ------------------------------------------------------------------------------------- reading

    def _namespaces(self) -> Iterable[tuple[str, ...]]:
        return self._gateway.namespaces()

    def _has(self, parts: tuple[str, ...]) -> bool:
        try:
            return self._gateway.has_namespace(parts)
        except SparkportError:
            return False  # catalogs with a single level refuse nested names in many ways

    def _properties(self, parts: tuple[str, ...]) -> Mapping[str, str]:
        return self._gateway.namespace_properties(parts)

    def _tables(self, parts: tuple[str, ...]) -> list[str]:
        return [each.name for each in self._gateway.tables(parts)]

    def _views(self, parts: tuple[str, ...]) -> set[str]:
        return {each.name for each in self._gateway.views(parts)}

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
