"""What Iceberg's JDBC catalogs have in common, whichever database keeps their rows.

Rows are written as Iceberg's JDBC catalog writes them, and the compare-and-swap is its UPDATE.
Other engines see each change as soon as its transaction is committed.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from sparkport.errors import (
    AlreadyExists,
    CatalogFault,
    NotFound,
    SchemaNotEmpty,
    SparkportError,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused, SharedCatalog

__all__ = [
    "SqlCatalog",
    "SqlSession",
    "Unanswered",
    "entry_of",
    "namespaces_of",
    "next_version",
]

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_EXISTS = ("exists", "true")
"""The property that Iceberg gives each namespace, so that a namespace without others has a row."""
_OBJECT = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
_IS_TABLE = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_IS_VIEW = "iceberg_type = 'VIEW'"
_ADD = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location,"
    " previous_metadata_location, iceberg_type) VALUES (?, ?, ?, ?, NULL, ?)"
)


class Unanswered(CatalogFault):
    """The database did not say whether it has committed a transaction."""


class SqlRows(Protocol):
    """What a statement returns."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...


class SqlSession(Protocol):
    """A transaction. A statement has a question mark for each parameter."""

    def execute(self, statement: str, parameters: Sequence[str | None], /) -> SqlRows: ...


class SqlCatalog(SharedCatalog):
    """A catalog whose rows are in a database."""

    duplicates: ClassVar[type[Exception]]
    """The database's error for a key that is there already."""
    doubtful: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors after which a transaction that was to be committed may be found committed."""

    def __init__(
        self,
        name: str,
        warehouse: str | None = None,
        forget: Callable[[Identifier], None] | None = None,
    ) -> None:
        """`name` is Spark's name for the catalog, which Iceberg keeps in each row.

        `forget` is called after each change of a table, for caches such as the JVM's.
        """
        self._name = name
        self._warehouse = warehouse
        self._forget = forget

    @property
    def name(self) -> str:
        return self._name

    @property
    def warehouse(self) -> str | None:
        return self._warehouse

    @property
    def chooses_folders(self) -> bool:
        return False

    @property
    def takes_plain(self) -> bool:
        return True

    @property
    def swaps_together(self) -> bool:
        return True

    @property
    def creates_together(self) -> bool:
        return True

    @abstractmethod
    def transact(self, change: Callable[[SqlSession], _Result]) -> _Result:
        """Run a function in a transaction, and commit it. It may be run again.

        Raises: what it raises, with nothing changed; Unanswered when it is not known whether the
        transaction was committed.
        """

    # ---------------------------------------------------------------------------------- namespaces

    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        name = ".".join(parts)

        def create(session: SqlSession) -> None:
            if self._has_properties(session, name) or self._has_objects(session, name):
                raise AlreadyExists(f"schema {name} exists already")
            for key, value in {**properties, **dict([_EXISTS])}.items():
                session.execute(
                    "INSERT INTO iceberg_namespace_properties"
                    " (catalog_name, namespace, property_key, property_value) VALUES (?, ?, ?, ?)",
                    (self._name, name, key, value),
                )

        with translated(f"schema {name}"):
            try:
                self.transact(create)
            except self.duplicates as error:
                raise AlreadyExists(f"schema {name} exists already") from error

    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        name = ".".join(parts)

        def drop(session: SqlSession) -> None:
            if self._has_objects(session, name):
                raise SchemaNotEmpty(f"schema {name} is not empty: drop its tables first")
            session.execute(
                "DELETE FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?",
                (self._name, name),
            )

        with translated(f"schema {name}"):
            self.transact(drop)

    def _has_properties(self, session: SqlSession, name: str) -> bool:
        query = (
            "SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?"
        )
        return session.execute(query, (self._name, name)).fetchone() is not None

    def _has_objects(self, session: SqlSession, name: str) -> bool:
        query = "SELECT 1 FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
        return session.execute(query, (self._name, name)).fetchone() is not None

    # -------------------------------------------------------------------------------------- tables

    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with translated(f"table {identifier}"):
            location = metadata.write()
            row = (*self._key(identifier), location, "TABLE")
            try:
                self.transact(lambda session: session.execute(_ADD, row))
            except self.duplicates as error:
                metadata.remove(location)
                raise AlreadyExists(f"table {identifier} exists already") from error
        self._tell(identifier)

    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        self.swap_all([(identifier, metadata)])

    def swap_all(self, changes: Sequence[tuple[Identifier, NewMetadata]]) -> None:
        # Everybody locks rows in the same order, so that nobody waits for each other.
        changes = sorted(changes, key=lambda change: self._key(change[0]))
        written: list[str] = []
        is_swapped = False
        added = ""

        def swap(session: SqlSession) -> None:
            nonlocal is_swapped, added
            is_swapped = False
            for (identifier, metadata), location in zip(changes, written, strict=True):
                if not (metadata.before or metadata.is_removal):
                    added = str(identifier)
                if not self._put(session, identifier, metadata, location):
                    raise Beaten(identifier, is_certain=True)
            is_swapped = True

        try:
            for _, metadata in changes:
                written.append(metadata.write())
            self.transact(swap)
        except Unanswered:
            raise
        except Exception as error:
            if not (is_swapped and isinstance(error, self.doubtful)):
                for (_, metadata), location in zip(changes, written, strict=False):
                    metadata.remove(location)
            if isinstance(error, Beaten):
                raise
            if isinstance(error, self.duplicates):
                raise AlreadyExists(f"{added} exists already") from error
            raise Refused from error
        for _, metadata in changes:
            metadata.remove_outdated()
        self._tell(*(identifier for identifier, _ in changes))

    def _put(
        self, session: SqlSession, identifier: Identifier, metadata: NewMetadata, location: str
    ) -> bool:
        """Write the row of an object; False when it is not as it was. Raises: `duplicates`."""
        key, is_view = self._key(identifier), metadata.kind is Kind.VIEW
        present = f"{_OBJECT} AND metadata_location = ? AND {_IS_VIEW if is_view else _IS_TABLE}"
        if metadata.is_removal:
            statement = f"DELETE FROM iceberg_tables WHERE {present}"
            return bool(session.execute(statement, (*key, metadata.before)).rowcount)
        if not metadata.before:
            session.execute(_ADD, (*key, location, "VIEW" if is_view else "TABLE"))
            return True
        statement = (
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
            f" WHERE {present}"
        )
        values = (location, metadata.before, *key, metadata.before)
        return bool(session.execute(statement, values).rowcount)

    def drop(self, entry: CatalogEntry) -> bool:
        statement = f"DELETE FROM iceberg_tables WHERE {_OBJECT} AND {_is_of_kind(entry)}"
        key = self._key(entry.identifier)
        with translated(f"table {entry.identifier}"):
            dropped = self.transact(lambda session: session.execute(statement, key).rowcount)
        self._tell(entry.identifier)
        return bool(dropped)

    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        statement = (
            "UPDATE iceberg_tables SET table_namespace = ?, table_name = ?"
            f" WHERE {_OBJECT} AND {_is_of_kind(entry)}"
        )
        names = (*self._key(identifier)[1:], *self._key(entry.identifier))
        with translated(f"table {identifier}"):
            try:
                renamed = self.transact(lambda session: session.execute(statement, names).rowcount)
            except self.duplicates as error:
                raise AlreadyExists(f"table {identifier} exists already") from error
        if not renamed:
            raise NotFound(f"table {entry.identifier} does not exist")
        self._tell(entry.identifier, identifier)

    def replace(self, replaced: CatalogEntry, entry: CatalogEntry) -> None:
        remove = f"DELETE FROM iceberg_tables WHERE {_OBJECT} AND {_IS_TABLE}"
        rename = f"UPDATE iceberg_tables SET table_name = ? WHERE {_OBJECT} AND {_IS_TABLE}"
        names = (replaced.identifier.name, *self._key(entry.identifier))

        def replace(session: SqlSession) -> None:
            if not session.execute(remove, self._key(replaced.identifier)).rowcount:
                raise NotFound(f"table {replaced.identifier} does not exist")
            if not session.execute(rename, names).rowcount:
                raise NotFound(f"table {entry.identifier} does not exist")

        with translated(f"table {replaced.identifier}"):
            self.transact(replace)
        self._tell(replaced.identifier, entry.identifier)

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


def entry_of(identifier: Identifier, location: str | None, kind: str | None) -> CatalogEntry:
    """What a row of `iceberg_tables` says."""
    return CatalogEntry(identifier, Kind.VIEW if kind == "VIEW" else Kind.ICEBERG, location or "")


def namespaces_of(
    catalog: str,
    tables: Iterable[tuple[str, str, str | None, str | None]],
    properties: Iterable[tuple[str, str, str | None]],
) -> dict[str, Namespace]:
    """What rows of both tables say, without their first column.

    Rows of tables end with location and type.
    """
    found: dict[str, tuple[dict[str, str], dict[str, CatalogEntry]]] = {}
    for name, key, value in properties:
        found.setdefault(name, ({}, {}))[0][key] = value or ""
    for name, table, location, kind in tables:
        identifier = Identifier(catalog, tuple(name.split(".")), table)
        found.setdefault(name, ({}, {}))[1][table] = entry_of(identifier, location, kind)
    return {
        name: Namespace(tuple(name.split(".")), *parts) for name, parts in sorted(found.items())
    }


def next_version(listing: CatalogListing) -> int:
    """A version after that of a listing, and after all that other servers gave before now."""
    return max(listing.version + 1, time.time_ns() // 1_000_000)
