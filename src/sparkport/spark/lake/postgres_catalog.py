"""Iceberg's JDBC catalog in PostgreSQL, used without the JVM.

A table is asked for by its key. What is listed is believed for a few seconds. Then PostgreSQL
computes a fingerprint of each namespace, and only rows of namespaces that differ are fetched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeVar

import psycopg

from sparkport.errors import SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Namespace
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_errors import while_running
from sparkport.spark.lake.postgres_pool import ConnectionPool, PostgresConnection
from sparkport.spark.lake.sql_catalog import (
    SqlCatalog,
    SqlSession,
    Unanswered,
    entry_of,
    namespaces_of,
    next_version,
)

__all__ = ["PostgresCatalog"]

_Result = TypeVar("_Result")

_ENTRY = (
    "SELECT metadata_location, iceberg_type FROM iceberg_tables"
    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_FINGERPRINTS = (
    "SELECT name, count(*), sum(hashtextextended(line, 0)) FROM ("
    "SELECT table_namespace AS name, table_name || chr(1) || coalesce(metadata_location, '')"
    " || chr(1) || coalesce(iceberg_type, '') AS line FROM iceberg_tables WHERE catalog_name = ?"
    " UNION ALL SELECT namespace, property_key || chr(2) || coalesce(property_value, '')"
    " FROM iceberg_namespace_properties WHERE catalog_name = ?"
    ") AS lines GROUP BY name"
)
_ROWS = (
    "SELECT TRUE, table_namespace, table_name, metadata_location, iceberg_type"
    " FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ANY(?)"
    " UNION ALL SELECT FALSE, namespace, property_key, property_value, NULL"
    " FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ANY(?)"
    " ORDER BY 1, 2, 3"
)
"""Both tables in one statement, so in one state."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT txid_current()"
"""With the number of the transaction, by which PostgreSQL tells later what has become of it."""
_STATUS = "SELECT txid_status(?)"
_PAUSES = (0.0, 0.1, 0.5, 1.0)
"""Seconds to wait before each question what has become of a transaction."""
_ATTEMPTS = 5
_AGAIN = ("40001", "40P01")
"""Codes of transactions that PostgreSQL has rolled back, and wants to be tried again."""
_NOT_MADE = ("40001", "40P01", "23")
"""Codes that, as the answer to COMMIT, say that nothing was committed."""


class PostgresCatalog(SqlCatalog):
    """A catalog in PostgreSQL.

    `entry` is never old. Other engines' changes are listed after `refresh_seconds`, changes of this
    catalog at once. If PostgreSQL is away, each call says so; nothing has to be done when it is
    back.
    """

    duplicates = psycopg.errors.UniqueViolation

    def __init__(
        self,
        address: PostgresAddress,
        name: str,
        warehouse: str | None = None,
        forget: Callable[[Identifier], None] | None = None,
        *,
        refresh_seconds: float = 2.0,
    ) -> None:
        """Nothing is asked yet. `postgres_schema.prepare` makes missing tables."""
        super().__init__(name, warehouse, forget)
        self._pool = ConnectionPool(address)
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._listing: CatalogListing | None = None
        self._fingerprints: Mapping[str, tuple[int, Decimal]] = {}
        self._fresh_until = 0.0
        self._stale = False

    def close(self) -> None:
        self._pool.close()

    # ------------------------------------------------------------------------------------- reading

    def listing(self) -> CatalogListing:
        known = self._listing
        if known is not None and self._is_fresh():
            return known
        # A single thread reads again. The others use the old listing, except after a change by this
        # server.
        if not self._lock.acquire(blocking=known is None or self._stale):
            assert known is not None
            return known
        try:
            if self._listing is None or not self._is_fresh():
                self._refresh()
            assert self._listing is not None
            return self._listing
        finally:
            self._lock.release()

    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        schema_name = ".".join(namespace)
        if not _can_be_kept(schema_name + name):
            return None
        rows = self._fetched(_ENTRY, (self._name, schema_name, name))
        identifier = Identifier(self._name, tuple(schema_name.split(".")), name)
        found = entry_of(identifier, *rows[0]) if rows else None
        known = None if self._listing is None else self._listing.namespaces.get(schema_name)
        if found != (None if known is None else known.entries.get(name)):
            self._stale = True
        return found

    def namespace(self, name: str) -> Namespace | None:
        found = super().namespace(name)
        if found is None:  # perhaps it is younger than the listing
            self._stale = True
            found = super().namespace(name)
        return found

    def changed(self, identifier: Identifier | None = None) -> None:
        self._stale = True

    def _is_fresh(self) -> bool:
        return not self._stale and time.monotonic() < self._fresh_until

    def _refresh(self) -> None:
        self._stale = False  # what changes from now on may be missed
        begun = time.monotonic()
        try:
            self._read()
        except BaseException:
            self._stale = True
            raise
        # A catalog that is slow to read is read less often.
        self._fresh_until = 2 * time.monotonic() - begun + self._refresh_seconds

    def _read(self) -> None:
        before = self._listing or CatalogListing(0, {})
        rows = self._fetched(_FINGERPRINTS, (self._name, self._name))
        now = {name: (count, hashes) for name, count, hashes in rows}
        differing = [name for name, each in now.items() if self._fingerprints.get(name) != each]
        namespaces = {name: each for name, each in before.namespaces.items() if name in now}
        for name in differing:
            namespaces.pop(name, None)
        if differing:
            namespaces |= self._namespaces(differing)
        if self._listing is None or namespaces != before.namespaces:
            self._listing = CatalogListing(next_version(before), dict(sorted(namespaces.items())))
        self._fingerprints = now

    def _namespaces(self, names: Sequence[str]) -> dict[str, Namespace]:
        rows = self._fetched(_ROWS, (self._name, names, self._name, names))
        tables = [
            (each, name, place, kind) for is_table, each, name, place, kind in rows if is_table
        ]
        properties = [(each, key, value) for is_table, each, key, value, _ in rows if not is_table]
        return namespaces_of(self._name, tables, properties)

    def _fetched(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises: SparkportError."""
        try:
            with self._pool.asked(statement, parameters) as (_, answer):
                return answer.fetchall()
        except psycopg.Error as error:
            raise while_running(self._name, error) from error

    # ------------------------------------------------------------------------------------- writing

    def transact(self, change: Callable[[SqlSession], _Result]) -> _Result:
        for attempt in range(_ATTEMPTS):
            try:
                return self._transacted(change)
            except psycopg.Error as error:
                if isinstance(error, self.duplicates):
                    raise
                if error.sqlstate not in _AGAIN or attempt == _ATTEMPTS - 1:
                    raise while_running(self._name, error) from error
            finally:
                self._stale = True
        raise AssertionError("the last attempt returns or raises")

    def _transacted(self, change: Callable[[SqlSession], _Result]) -> _Result:
        """Raises: what `change` raises; psycopg.Error with nothing changed; Unanswered."""
        lost: psycopg.Error
        with self._pool.asked(_BEGIN) as (connection, begun):
            begun.nextset()
            (number,) = begun.fetchone() or (0,)
            try:
                result = change(_Session(connection))
            except BaseException:
                with suppress(psycopg.Error):  # then the connection is not used again
                    connection.ask("ROLLBACK")
                raise
            try:
                connection.ask("COMMIT")
                return result
            except psycopg.Error as error:
                if (error.sqlstate or "").startswith(_NOT_MADE):
                    raise
                lost = error
        if self._was_rolled_back(number):
            raise lost
        raise Unanswered(
            f"the catalog of lake {self._name} did not say whether the change was made: look "
            "before you try again"
        ) from lost

    def _was_rolled_back(self, number: int) -> bool:
        """Whether a transaction was certainly not committed.

        If it was, that is for the lake to find in the table: after a failover the number may be
        that of another transaction.
        """
        for pause in _PAUSES:
            time.sleep(pause)
            try:
                ((status,),) = self._fetched(_STATUS, (number,))
            except SparkportError:
                return False
            if status != "in progress":
                return bool(status == "aborted")
        return False


class _Session:
    """A transaction on a connection."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[str | None], /) -> Any:
        return self._connection.ask(statement, parameters)


def _can_be_kept(text: str) -> bool:
    """Whether PostgreSQL could have a text at all: it knows no NUL, and no half of a character."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
