"""Calls into the JVM that are not SQL: Spark's catalogs, and Iceberg's own objects.

Everything from here down to py4j is `Any`: Java objects have no types in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.errors import AlreadyExists, NotFound, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Gateway", "IcebergHandle"]


@dataclass(frozen=True, slots=True)
class IcebergHandle:
    """An Iceberg table as the JVM has it."""

    table: Any
    """org.apache.iceberg.Table"""
    metadata: Any
    """org.apache.iceberg.TableMetadata, as it was when the table was loaded."""

    @property
    def location(self) -> str:
        """The location of the metadata file, which changes with every commit."""
        return str(self.metadata.metadataFileLocation())


class _Package:
    """Java's packages and classes by name, each looked up once.

    py4j asks the JVM at every mention of a name, and the JVM looks into all its jars for a class of
    the name of a package.
    """

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaPackage

        found = getattr(self._package, name)
        known = _Package(found) if isinstance(found, JavaPackage) else found
        setattr(self, name, known)
        return known


class Gateway:
    """One catalog of a Spark session. Thread-safe, as Spark is."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self.spark = spark
        self.catalog = catalog
        self.jvm: Any = _Package(spark._jvm)
        self._java_session: Any = spark._jsparkSession
        self._java_catalog: Any = None
        self._identifier = self.jvm.org.apache.spark.sql.connector.catalog.Identifier

    def hold(self, path: Path) -> Callable[[], None]:
        """Have the JVM lock a file until it ends or the result is called. Raises: Py4JError."""
        channel = self.jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
        lock = channel.lock()

        def release() -> None:
            lock.release()
            channel.close()

        return release

    def option(self, key: str) -> str | None:
        """A setting of the catalog, such as `uri`; None where the session has none."""
        return self.spark.conf.get(f"spark.sql.catalog.{self.catalog}.{key}", None)

    @property
    def options(self) -> dict[str, str]:
        """All settings of the catalog, by their names after the catalog's."""
        prefix = f"spark.sql.catalog.{self.catalog}."
        settings = self.spark.conf.getAll
        return {
            key.removeprefix(prefix): str(value)
            for key, value in settings.items()
            if key.startswith(prefix)
        }

    @property
    def warehouse(self) -> str | None:
        """The folder of the catalog's tables, by its settings."""
        folder = self.option("warehouse")
        return folder.rstrip("/") if folder else None

    def forget(self, identifier: Identifier) -> None:
        """Have Spark's catalog load a table anew, in case it has cached it."""
        with translated(f"table {identifier}"):
            self.java_catalog.invalidateTable(self.java_identifier(identifier))

    @property
    def java_catalog(self) -> Any:
        """org.apache.spark.sql.connector.catalog.CatalogPlugin. Raises: NotFound."""
        if self._java_catalog is None:
            with translated(f"Spark catalog {self.catalog}"):
                # A catalog takes the settings of the thread's active session, whichever that is. In
                # a thread that has none, the session catalog is Spark's own, whatever was set.
                self.jvm.SparkSession.setActiveSession(self._java_session)
                manager = self._java_session.sessionState().catalogManager()
                self._java_catalog = manager.catalog(self.catalog)
        return self._java_catalog

    @property
    def iceberg_catalog(self) -> Any | None:
        """org.apache.iceberg.catalog.Catalog; None for a catalog that is not Iceberg's."""
        catalog = self.java_catalog
        name = str(catalog.getClass().getName())
        return (
            catalog.icebergCatalog() if name.startswith("org.apache.iceberg.spark.Spark") else None
        )

    def namespaces(self) -> Iterator[tuple[str, ...]]:
        """All namespaces, outer ones before inner ones."""
        catalog = self.java_catalog
        with translated(f"Spark catalog {self.catalog}"):
            try:
                pending = [tuple(each) for each in catalog.listNamespaces()]
            except Exception as error:
                # A Hadoop catalog has no folder before its first namespace is made.
                if "NoSuchNamespaceException" not in str(error):
                    raise
                return
            while pending:
                namespace = pending.pop(0)
                yield namespace
                if len(namespace) < _DEEPEST:
                    try:
                        pending += [
                            tuple(each) for each in catalog.listNamespaces(self.strings(namespace))
                        ]
                    except Exception:  # noqa: BLE001, S112 - catalogs of one level refuse the question in many ways
                        continue

    def has_namespace(self, namespace: tuple[str, ...]) -> bool:
        with translated(f"schema {'.'.join(namespace)}"):
            return bool(self.java_catalog.namespaceExists(self.strings(namespace)))

    def namespace_properties(self, namespace: tuple[str, ...]) -> Mapping[str, str]:
        with translated(f"schema {'.'.join(namespace)}"):
            return dict(self.java_catalog.loadNamespaceMetadata(self.strings(namespace)))

    def create_namespace(self, namespace: tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises: AlreadyExists, Unsupported."""
        with translated(f"schema {'.'.join(namespace)}"):
            try:
                self._with_namespaces().createNamespace(self.strings(namespace), dict(properties))
            except Exception as error:
                # Iceberg's JDBC catalog looks first and then inserts: the second of two concurrent
                # calls gets the database's error.
                if "UncheckedSQLException" in str(error) and self.has_namespace(namespace):
                    raise AlreadyExists(f"schema {'.'.join(namespace)} exists already") from error
                raise

    def drop_namespace(self, namespace: tuple[str, ...]) -> None:
        """Drop a namespace. Raises: SchemaNotEmpty, Unsupported."""
        with translated(f"schema {'.'.join(namespace)}"):
            self._with_namespaces().dropNamespace(self.strings(namespace), False)

    def _with_namespaces(self) -> Any:
        catalog = self.java_catalog
        if not self._is(catalog, "org.apache.spark.sql.connector.catalog.SupportsNamespaces"):
            raise Unsupported(
                f"the Spark catalog {self.catalog} has no schemas that could be created or dropped"
            )
        return catalog

    def tables(self, namespace: tuple[str, ...]) -> list[Identifier]:
        with translated(f"schema {'.'.join(namespace)}"):
            found = self.java_catalog.listTables(self.strings(namespace))
            return [Identifier(self.catalog, namespace, str(each.name())) for each in found]

    def views(self, namespace: tuple[str, ...]) -> list[Identifier]:
        catalog = self.java_catalog
        if not self._is(catalog, "org.apache.spark.sql.connector.catalog.ViewCatalog"):
            return []
        with translated(f"schema {'.'.join(namespace)}"):
            try:
                found = catalog.listViews(self.strings(namespace))
            except Exception as error:
                if "UnsupportedOperation" in str(
                    error
                ):  # Iceberg's catalogs without views have the interface, too
                    return []
                raise
            return [Identifier(self.catalog, namespace, str(each.name())) for each in found]

    def iceberg(self, identifier: Identifier) -> IcebergHandle | None:
        """The Iceberg table of a name, as it is now; None for another kind of table.

        Raises: NotFound.
        """
        with translated(f"table {identifier}"):
            loaded = self.java_catalog.loadTable(self.java_identifier(identifier))
            if str(loaded.getClass().getName()) != "org.apache.iceberg.spark.source.SparkTable":
                return None
            table = loaded.table()
            operations = table.operations() if hasattr(table, "operations") else None
            if operations is None:
                raise NotFound(f"{identifier} is not a table")
            return IcebergHandle(table, operations.refresh())

    def format_of(self, identifier: Identifier) -> str | None:
        """The format of a table as Spark calls it, such as `delta`; None where it does not tell.

        Raises: NotFound.
        """
        with translated(f"table {identifier}"):
            loaded = self.java_catalog.loadTable(self.java_identifier(identifier))
            name = loaded.properties().get("provider")
            return None if name is None else str(name).lower()

    def metadata_text(self, identifier: Identifier, location: str | None = None) -> str:
        """A table's metadata as JSON, read by Spark, for file systems that only Spark can reach.

        Raises: NotFound.
        """
        handle = self.iceberg(identifier)
        if handle is None:
            raise NotFound(f"{identifier} is not an Iceberg table")
        with translated(f"table {identifier}"):
            parser = self.jvm.org.apache.iceberg.TableMetadataParser
            metadata = (
                handle.metadata if location is None else parser.read(handle.table.io(), location)
            )
            return str(parser.toJson(metadata))

    def schema(self, identifier: Identifier) -> StructType:
        """The columns of a table or view, as Spark resolves it.

        Raises: NotFound, PreconditionFailed.
        """
        with translated(f"table {identifier}"):
            return self.relation(identifier).schema

    def relation(self, identifier: Identifier) -> DataFrame:
        """A table or view as a DataFrame; nothing is read yet."""
        return self.spark.table(identifier.sql)

    def java_identifier(self, identifier: Identifier) -> Any:
        """org.apache.spark.sql.connector.catalog.Identifier"""
        return self._identifier.of(self.strings(identifier.namespace), identifier.name)

    def iceberg_identifier(self, identifier: Identifier) -> Any:
        """org.apache.iceberg.catalog.TableIdentifier"""
        catalog = self.jvm.org.apache.iceberg.catalog
        namespace = catalog.Namespace.of(self.strings(identifier.namespace))
        return catalog.TableIdentifier.of(namespace, identifier.name)

    def strings(self, values: tuple[str, ...]) -> Any:
        gateway: Any = self.spark.sparkContext._gateway
        array = gateway.new_array(self.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def _is(self, value: Any, interface: str) -> bool:
        return bool(
            self.jvm.java.lang.Class.forName(
                interface, True, value.getClass().getClassLoader()
            ).isInstance(value)
        )


_DEEPEST = 8
"""Deeper namespaces are not listed."""
