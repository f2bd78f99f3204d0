"""The catalog of an embedded lake: Iceberg's JDBC catalog in SQLite, used without the JVM.

Each change is a transaction of SQLite, which Iceberg in the JVM and other programs see at once.
Rows are written as Iceberg's JDBC catalog writes them, and the compare-and-swap is its UPDATE.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from sparkport.errors import (
    AlreadyExists,
    CatalogFault,
    NotFound,
    SchemaNotEmpty,
    SparkportError,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.session.warehouse import BUSY_SECONDS
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused, SharedCatalog

__all__ = ["SqliteCatalog"]

_log = logging.getLogger(__name__)

_EXISTS = ("exists", "true")
"""The property that Iceberg gives each namespace, so that a namespace without others has a row."""
_OBJECT = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
_IS_TABLE = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_IS_VIEW = "iceberg_type = 'VIEW'"


class SqliteCatalog(SharedCatalog):
    """A catalog in SQLite.

    What it returns is never old: SQLite tells in microseconds of any write.
    """

    def __init__(
        self,
        database: Path,
        name: str,
        warehouse: str | None = None,
        forget: Callable[[Identifier], None] | None = None,
    ) -> None:
        """`name` is Spark's name for the catalog, which Iceberg keeps in each row.

        `forget` is called after each change of a table, for caches such as the JVM's.
        """
        self._database = database
        self._name = name
        self._warehouse = warehouse
        self._forget = forget
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._written = -1
        self._rows: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] | None = None
        self._listing = CatalogListing(0, {})

    @property
    def name(self) -> str:
        return self._name

    @property
    def warehouse(self) -> str | None:
        return self._warehouse

    @property
    def chooses_folders(self) -> bool:
        return False

    # ------------------------------------------------------------------------------------- reading

    def listing(self) -> CatalogListing:
        with self._lock:
            try:
                return self._refreshed()
            except sqlite3.Error as error:
                self._disconnect()
                raise CatalogFault(
                    f"the catalog of lake {self._name} cannot be read: {error}"
                ) from error

    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        found = self.listing().namespaces.get(".".join(namespace))
        return None if found is None else found.entries.get(name)

    def changed(self, identifier: Identifier | None = None) -> None:
        """Do nothing: SQLite tells."""

    def _refreshed(self) -> CatalogListing:
        if self._connection is None:
            self._connection = self._connect("ro", check_same_thread=False)
            self._written = -1
        (written,) = self._connection.execute("PRAGMA data_version").fetchone()
        if written == self._written:
            return self._listing
        rows = self._read(self._connection)
        self._written = written
        if rows != self._rows:
            self._rows = rows
            version = max(self._listing.version + 1, time.time_ns() // 1_000_000)
            self._listing = CatalogListing(version, _namespaces(self._name, *rows))
        return self._listing

    def _read(
        self, connection: sqlite3.Connection
    ) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        connection.execute("BEGIN")  # both queries see the same state
        try:
            tables = connection.execute(
                "SELECT table_namespace, table_name, metadata_location, iceberg_type"
                " FROM iceberg_tables WHERE catalog_name = ? ORDER BY 1, 2",
                (self._name,),
            ).fetchall()
            properties = connection.execute(
                "SELECT namespace, property_key, property_value FROM iceberg_namespace_properties"
                " WHERE catalog_name = ? ORDER BY 1, 2",
                (self._name,),
            ).fetchall()
        finally:
            connection.execute("ROLLBACK")
        return tables, properties

    def _connect(self, mode: str, *, check_same_thread: bool = True) -> sqlite3.Connection:
        # Never `rwc`: a missing database must not be created here.
        return sqlite3.connect(
            f"{self._database.resolve().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=check_same_thread,
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # ------------------------------------------------------------------------------------- writing

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction on a connection of its own.

        Waiting for another writer then keeps no reader waiting. Raises: sqlite3.Error, with nothing
        changed.
        """
        with closing(self._connect("rw")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        name = ".".join(parts)
        with translated(f"schema {name}"), self._writing() as connection:
            if self._has_properties(connection, name) or self._has_objects(connection, name):
                raise AlreadyExists(f"schema {name} exists already")
            connection.executemany(
                "INSERT INTO iceberg_namespace_properties"
                " (catalog_name, namespace, property_key, property_value) VALUES (?, ?, ?, ?)",
                [
                    (self._name, name, key, value)
                    for key, value in {**properties, **dict([_EXISTS])}.items()
                ],
            )

    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        name = ".".join(parts)
        with translated(f"schema {name}"), self._writing() as connection:
            if self._has_objects(connection, name):
                raise SchemaNotEmpty(f"schema {name} is not empty: drop its tables first")
            connection.execute(
                "DELETE FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?",
                (self._name, name),
            )

    def _has_properties(self, connection: sqlite3.Connection, name: str) -> bool:
        query = (
            "SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?"
        )
        return connection.execute(query, (self._name, name)).fetchone() is not None

    def _has_objects(self, connection: sqlite3.Connection, name: str) -> bool:
        query = "SELECT 1 FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
        return connection.execute(query, (self._name, name)).fetchone() is not None

    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with translated(f"table {identifier}"):
            location = metadata.write()
            try:
                with self._writing() as connection:
                    connection.execute(
                        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name,"
                        " metadata_location, previous_metadata_location, iceberg_type)"
                        " VALUES (?, ?, ?, ?, NULL, 'TABLE')",
                        (*self._key(identifier), location),
                    )
            except sqlite3.IntegrityError as error:
                metadata.remove(location)
                raise AlreadyExists(f"table {identifier} exists already") from error
        self._tell(identifier)

    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        try:
            location = metadata.write()
            with self._writing() as connection:
                swapped = connection.execute(
                    "UPDATE iceberg_tables"
                    " SET metadata_location = ?, previous_metadata_location = ?"
                    f" WHERE {_OBJECT} AND metadata_location = ? AND {_IS_TABLE}",
                    (location, metadata.before, *self._key(identifier), metadata.before),
                ).rowcount
        except Exception as error:
            # SQLite is a database of this machine: a commit that is not made now does not come
            # later.
            raise Refused from error
        if not swapped:
            metadata.remove(location)
            raise Beaten(identifier, is_certain=True)
        metadata.remove_outdated()
        self._tell(identifier)

    def drop(self, entry: CatalogEntry) -> bool:
        with translated(f"table {entry.identifier}"), self._writing() as connection:
            dropped = connection.execute(
                f"DELETE FROM iceberg_tables WHERE {_OBJECT} AND {_is_of_kind(entry)}",
                self._key(entry.identifier),
            ).rowcount
        self._tell(entry.identifier)
        return bool(dropped)

    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        with translated(f"table {identifier}"):
            try:
                with self._writing() as connection:
                    renamed = connection.execute(
                        "UPDATE iceberg_tables SET table_namespace = ?, table_name = ?"
                        f" WHERE {_OBJECT} AND {_is_of_kind(entry)}",
                        (*self._key(identifier)[1:], *self._key(entry.identifier)),
                    ).rowcount
            except sqlite3.IntegrityError as error:
                raise AlreadyExists(f"table {identifier} exists already") from error
        if not renamed:
            raise NotFound(f"table {entry.identifier} does not exist")
        self._tell(entry.identifier, identifier)

    def _tell(self, *identifiers: Identifier) -> None:
        """Have caches forget these objects. A failure is only logged: the change is made."""
        if self._forget is None:
            return
        for identifier in identifiers:
            try:
                self._forget(identifier)
            except SparkportError as error:
                _log.warning("%s", error.message)

    def _key(self, identifier: Identifier) -> tuple[str, str, str]:
        return self._name, identifier.schema_name, identifier.name


def _is_of_kind(entry: CatalogEntry) -> str:
    return _IS_VIEW if entry.kind is Kind.VIEW else _IS_TABLE


def _namespaces(
    catalog: str, tables: list[tuple[str, ...]], properties: list[tuple[str, ...]]
) -> dict[str, Namespace]:
    found: dict[str, tuple[dict[str, str], dict[str, CatalogEntry]]] = {}
    for name, key, value in properties:
        found.setdefault(name, ({}, {}))[0][key] = value or ""
    for name, table, location, kind in tables:
        parts = tuple(name.split("."))
        entry = CatalogEntry(
            Identifier(catalog, parts, table),
            Kind.VIEW if kind == "VIEW" else Kind.ICEBERG,
            location or "",
        )
        found.setdefault(name, ({}, {}))[1][table] = entry
    return {
        name: Namespace(tuple(name.split(".")), *parts) for name, parts in sorted(found.items())
    }
