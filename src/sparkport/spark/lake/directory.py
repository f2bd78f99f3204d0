"""Which namespaces, tables and views a Spark catalog holds, cheaply enough to be asked for every
statement.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from sparkport.errors import CatalogFault, NotFound, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.jvm.session.warehouse import BUSY_SECONDS
from sparkport.spark.lake.settings import LakeSettings

__all__ = [
    "Contents",
    "Directory",
    "Entry",
    "Kind",
    "Namespace",
    "SparkDirectory",
    "SqliteDirectory",
]


class Kind(str, Enum):
    """What an object is."""

    ICEBERG = "iceberg"
    VIEW = "view"
    OTHER = "other"
    """A table of any other format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or view."""

    identifier: Identifier
    kind: Kind
    location: str = ""
    """Where Iceberg's metadata of it are, which changes with every commit; empty for all that is
    not Iceberg's.
    """
    columns: str = ""
    """What the columns look like, where nothing else tells that they were altered."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A schema, as users see it."""

    parts: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a catalog holds; the version rises whenever anything of it changes."""

    version: int
    namespaces: Mapping[str, Namespace]


class Directory(ABC):
    """Tells what a catalog holds. Thread-safe."""

    @abstractmethod
    def contents(self) -> Contents:
        """What there is now, or was a few seconds ago. Raises: CatalogFault when the catalog cannot
        be read.
        """

    @abstractmethod
    def entry(self, namespace: tuple[str, ...], name: str) -> Entry | None:
        """One object as it is now; None if there is none."""

    def namespace(self, name: str) -> Namespace | None:
        """One namespace, by the name that users call it; None if there is none."""
        return self.contents().namespaces.get(name)

    @abstractmethod
    def changed(self, identifier: Identifier | None = None) -> None:
        """Look again: this server has changed something, or has found that an object is not what it
        was.
        """


class SqliteDirectory(Directory):
    """The embedded catalog: the tables of Iceberg's JDBC catalog, read without the JVM.

    SQLite tells at the cost of some microseconds whether anybody has written, so what is returned
    is never old.
    """

    def __init__(self, database: Path, catalog: str) -> None:
        """`catalog` is what Spark calls it, under which Iceberg keeps its rows."""
        self._database = database
        self._catalog = catalog
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._written = -1
        self._rows: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] | None = None
        self._contents = Contents(0, {})

    def contents(self) -> Contents:
        with self._lock:
            try:
                return self._refreshed()
            except sqlite3.Error as error:
                self._forget()
                raise CatalogFault(
                    f"the catalog of lake {self._catalog} cannot be read: {error}"
                ) from error

    def entry(self, namespace: tuple[str, ...], name: str) -> Entry | None:
        found = self.contents().namespaces.get(".".join(namespace))
        return None if found is None else found.entries.get(name)

    def changed(self, identifier: Identifier | None = None) -> None:
        """Nothing to do: SQLite tells."""

    def _refreshed(self) -> Contents:
        if self._connection is None:
            # Read-only: only the JVM writes, and a missing database must not be made here.
            uri = f"{self._database.resolve().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(
                uri, uri=True, check_same_thread=False, timeout=BUSY_SECONDS
            )
            self._written = -1
        (written,) = self._connection.execute("PRAGMA data_version").fetchone()
        if written == self._written:
            return self._contents
        rows = self._read(self._connection)
        self._written = written
        if rows != self._rows:
            self._rows = rows
            version = max(self._contents.version + 1, time.time_ns() // 1_000_000)
            self._contents = Contents(version, _namespaces(self._catalog, *rows))
        return self._contents

    def _read(
        self, connection: sqlite3.Connection
    ) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        with connection:
            connection.execute("BEGIN")  # both from one moment
            names = "SELECT table_namespace, table_name, metadata_location, iceberg_type FROM iceberg_tables"
            tables = connection.execute(
                f"{names} WHERE catalog_name = ? ORDER BY 1, 2", (self._catalog,)
            )
            found = tables.fetchall()
            properties = connection.execute(
                "SELECT namespace, property_key, property_value FROM iceberg_namespace_properties"
                " WHERE catalog_name = ? ORDER BY 1, 2",
                (self._catalog,),
            )
            return found, properties.fetchall()

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _namespaces(
    catalog: str, tables: list[tuple[str, ...]], properties: list[tuple[str, ...]]
) -> dict[str, Namespace]:
    found: dict[str, tuple[dict[str, str], dict[str, Entry]]] = {}
    for name, key, value in properties:
        found.setdefault(name, ({}, {}))[0][key] = value or ""
    for name, table, location, kind in tables:
        parts = tuple(name.split("."))
        entry = Entry(
            Identifier(catalog, parts, table),
            Kind.VIEW if kind == "VIEW" else Kind.ICEBERG,
            location or "",
        )
        found.setdefault(name, ({}, {}))[1][table] = entry
    return {
        name: Namespace(tuple(name.split(".")), *parts) for name, parts in sorted(found.items())
    }


class SparkDirectory(Directory):
    """Any other catalog, through Spark. It cannot tell about changes, so it is read again every few
    seconds.

    Names are listed each time. What is known of a table is looked at again when somebody asks for
    it, and otherwise a few tables at a time, in turn, so that a catalog of thousands stays quick to
    list.
    """

    def __init__(self, gateway: Gateway, settings: LakeSettings) -> None:
        self._gateway = gateway
        self._settings = settings
        self._lock = threading.Lock()
        self._contents: Contents | None = None
        self._fresh_until = 0.0
        self._stale = False
        self._turns: deque[Identifier] = deque()

    def contents(self) -> Contents:
        known = self._contents
        if known is not None and not self._stale and time.monotonic() < self._fresh_until:
            return known
        # One reads again; the others make do with what there was, except after a change of this
        # server's own.
        if not self._lock.acquire(blocking=known is None or self._stale):
            assert known is not None
            return known
        try:
            if self._contents is None or self._stale or time.monotonic() >= self._fresh_until:
                self._stale = False
                begun = time.monotonic()
                self._set(self._read())
                # A catalog that is slow to read is read less often.
                self._fresh_until = 2 * time.monotonic() - begun + self._settings.refresh_seconds
            assert self._contents is not None
            return self._contents
        finally:
            self._lock.release()

    def namespace(self, name: str) -> Namespace | None:
        found = self.contents().namespaces.get(name)
        parts = tuple(name.split("."))
        if found is None and all(parts) and self._has(parts):
            with self._lock:  # younger than the list
                found = self._namespace(parts, None)
                self._set({**self._known(), name: found})
        return found

    def _has(self, parts: tuple[str, ...]) -> bool:
        try:
            return self._gateway.has_namespace(parts)
        except SparkportError:
            return False  # catalogs of one level refuse nested names in many ways

    def entry(self, namespace: tuple[str, ...], name: str) -> Entry | None:
        found = self.contents().namespaces.get(".".join(namespace))
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
        return {} if self._contents is None else self._contents.namespaces

    def _set(self, namespaces: Mapping[str, Namespace]) -> None:
        if self._contents is None or namespaces != self._contents.namespaces:
            last = 0 if self._contents is None else self._contents.version
            self._contents = Contents(max(last + 1, time.time_ns() // 1_000_000), namespaces)

    def _put(self, parts: tuple[str, ...], name: str, entry: Entry | None) -> None:
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
                if (
                    before is not None
                ):  # one namespace that cannot be read now must not hide the others
                    found[name] = before
        self._look_again(found)
        return found

    def _namespace(self, parts: tuple[str, ...], before: Namespace | None) -> Namespace:
        entries: dict[str, Entry] = {}
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
                    entry = Entry(identifier, Kind.OTHER)
            entries[identifier.name] = entry
        for name in views:
            entry = known.get(name)
            if entry is None or entry.kind is not Kind.VIEW:
                entry = self._view(Identifier(self._gateway.catalog, parts, name), None)
            entries[name] = entry
        properties = self._properties(parts) if before is None else before.properties
        return Namespace(parts, properties, dict(sorted(entries.items())))

    def _look_again(self, found: dict[str, Namespace]) -> None:
        """At some tables, those that have waited longest."""
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

    def _entry(self, identifier: Identifier, known: Entry | None) -> Entry:
        """Raises: NotFound, and what else Spark says."""
        handle = self._gateway.iceberg(identifier)
        if handle is not None:
            return Entry(identifier, Kind.ICEBERG, handle.location)
        return Entry(identifier, Kind.OTHER, columns=self._columns(identifier, known))

    def _view(self, identifier: Identifier, known: Entry | None) -> Entry:
        return Entry(identifier, Kind.VIEW, columns=self._columns(identifier, known))

    def _columns(self, identifier: Identifier, known: Entry | None) -> str:
        """Empty while Spark cannot resolve them."""
        try:
            return json.dumps(self._gateway.schema(identifier).jsonValue(), sort_keys=True)
        except SparkportError:
            return "" if known is None else known.columns


_LOOKED_AT = 20
"""Of how many tables it is found out, each time the names are listed, whether they have changed."""
