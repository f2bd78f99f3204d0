"""The catalog of an embedded lake: Iceberg's JDBC catalog in SQLite, used without the JVM."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from sparkport.errors import CatalogFault
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.warehouse import BUSY_SECONDS
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Namespace
from sparkport.spark.lake.sql_catalog import SqlCatalog, SqlSession, namespaces_of, next_version

__all__ = ["SqliteCatalog"]

_Result = TypeVar("_Result")
_Rows = tuple[list[tuple[str, str, str | None, str | None]], list[tuple[str, str, str | None]]]
"""Rows of both tables, as `namespaces_of` wants them."""


class SqliteCatalog(SqlCatalog):
    """A catalog in SQLite.

    What it returns is never old: SQLite tells in microseconds of any write.

    SQLite is a database of this machine: a commit that is not made now does not come later. So a
    swap that fails is always refused.
    """

    duplicates = sqlite3.IntegrityError
    doubtful = (sqlite3.Error,)

    def __init__(
        self,
        database: Path,
        name: str,
        warehouse: str | None = None,
        forget: Callable[[Identifier], None] | None = None,
    ) -> None:
        super().__init__(name, warehouse, forget)
        self._database = database
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._written = -1
        self._rows: _Rows | None = None
        self._listing = CatalogListing(0, {})

    def close(self) -> None:
        with self._lock:
            self._disconnect()

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

    # SQLite is asked once for both: it takes longer to answer than all the rest.

    def namespace_and_alike(self, name: str) -> tuple[Namespace | None, Sequence[str]]:
        listing = self.listing()
        return listing.namespaces.get(name), listing.alike(name)

    def entry_and_alike(
        self, namespace: Namespace, name: str
    ) -> tuple[CatalogEntry | None, Sequence[str]]:
        there = self.listing().namespaces.get(".".join(namespace.parts))
        return (None, ()) if there is None else (there.entries.get(name), there.alike(name))

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
            self._listing = CatalogListing(
                next_version(self._listing), namespaces_of(self._name, *rows)
            )
        return self._listing

    def _read(self, connection: sqlite3.Connection) -> _Rows:
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

    def transact(self, change: Callable[[SqlSession], _Result]) -> _Result:
        # On a connection of its own: waiting for another writer then keeps no reader waiting.
        with closing(self._connect("rw")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            result = change(connection)
            connection.execute("COMMIT")
        return result
