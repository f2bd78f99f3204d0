"""A catalog that does not report changes, so it is read again every few seconds.

Names are listed each time. A table is looked at again when it is asked for, and otherwise a few
tables at a time, in turn, so that a catalog of thousands stays quick to list.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparkport.errors import CatalogFault, NotFound, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import SharedCatalog

__all__ = ["PolledCatalog"]

_LOOKED_AT = 20
"""Number of tables that are checked for changes, each time the names are listed."""


class PolledCatalog(SharedCatalog):
    """A catalog that is asked again and again."""

    def __init__(self, name: str, settings: LakeSettings) -> None:
        self._name = name
        self._settings = settings
        self._lock = threading.Lock()
        self._listing: CatalogListing | None = None
        self._fresh_until = 0.0
        self._stale = False
        self._changed: deque[Identifier] = deque()
        self._turns: deque[Identifier] = deque()

    @property
    def name(self) -> str:
        return self._name

    # ---------------------------------------------------------------------- what a catalog answers

    @abstractmethod
    def _namespaces(self) -> Iterable[tuple[str, ...]]:
        """All namespaces as they are now, outer ones before inner ones. Raises: CatalogFault."""

    @abstractmethod
    def _has(self, parts: tuple[str, ...]) -> bool:
        """Whether there is such a namespace now."""

    @abstractmethod
    def _properties(self, parts: tuple[str, ...]) -> Mapping[str, str]:
        """The properties of a namespace. Raises: SparkportError."""

    @abstractmethod
    def _tables(self, parts: tuple[str, ...]) -> list[str]:
        """The names of a namespace's tables; views may be among them. Raises: SparkportError."""

    @abstractmethod
    def _views(self, parts: tuple[str, ...]) -> set[str]:
        """The names of a namespace's views. Raises: SparkportError."""

    @abstractmethod
    def _entry(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        """A table as it is now, `known` as it was. Raises: NotFound, other SparkportErrors."""

    @abstractmethod
    def _view(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        """A view as it is now. Raises: NotFound, other SparkportErrors."""

    def _new_entries(self, identifiers: Sequence[Identifier]) -> list[CatalogEntry]:
        """Tables that are not known yet. What cannot be loaded is of kind OTHER.

        Raises: SparkportError while the catalog is away.
        """
        return [self._new_entry(each) for each in identifiers]

    def _new_entry(self, identifier: Identifier) -> CatalogEntry:
        try:
            return self._entry(identifier, None)
        except SparkportError as error:
            if self._is_away(error):
                raise
            return CatalogEntry(identifier, Kind.OTHER)

    def _is_away(self, error: SparkportError) -> bool:
        """Whether an error tells nothing of what was asked for: nothing may be concluded then."""
        return False

    # ------------------------------------------------------------------------------------- reading

    def listing(self) -> CatalogListing:
        known = self._listing
        has_changed = self._stale or bool(self._changed)
        if known is not None and not has_changed and time.monotonic() < self._fresh_until:
            return known
        # A single thread reads again. The others use the old listing, except after a change by this
        # server.
        if not self._lock.acquire(blocking=known is None or has_changed):
            assert known is not None
            return known
        try:
            if self._listing is None or self._stale or time.monotonic() >= self._fresh_until:
                self._stale = False
                begun = time.monotonic()
                try:
                    self._set(self._read())
                except BaseException:
                    self._stale = True  # no listing may lack what this server has changed
                    raise
                # A catalog that is slow to read is read less often.
                self._fresh_until = 2 * time.monotonic() - begun + self._settings.refresh_seconds
            self._look_at_changed()
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

    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        known = None if self._stale else self._entry_in(self._known(), namespace, name)
        if known is None or known.kind is not Kind.ICEBERG:  # others are not looked at below
            known = self._entry_in(self.listing().namespaces, namespace, name)
        if known is not None and known.kind is not Kind.ICEBERG:
            return known
        identifier = Identifier(self._name, namespace, name)
        try:
            entry = self._entry(identifier, known) if name else None
        except NotFound:
            entry = None
        if entry != known:
            with self._lock:
                self._put(namespace, name, entry)
        return entry

    def changed(self, identifier: Identifier | None = None) -> None:
        if identifier is not None and identifier.schema_name in self._known():
            self._changed.append(identifier)
        else:
            self._stale = True

    def _look_at_changed(self) -> None:
        """Look at the tables that this server has changed. Raises: CatalogFault."""
        for _ in range(len(self._changed)):
            identifier = self._changed[0]
            known = self._entry_in(self._known(), identifier.namespace, identifier.name)
            is_view = known is not None and known.kind is Kind.VIEW
            try:
                entry = self._view(identifier, known) if is_view else self._entry(identifier, known)
            except NotFound:
                entry = None
            except CatalogFault:
                raise  # to be looked at again
            except SparkportError:
                entry = CatalogEntry(identifier, Kind.OTHER)
            if entry != known:
                self._put(identifier.namespace, identifier.name, entry)
            self._changed.popleft()

    @staticmethod
    def _entry_in(
        namespaces: Mapping[str, Namespace], namespace: tuple[str, ...], name: str
    ) -> CatalogEntry | None:
        found = namespaces.get(".".join(namespace))
        return None if found is None else found.entries.get(name)

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
        for parts in self._namespaces():
            name = ".".join(parts)
            before = known.get(name)
            try:
                found[name] = self._namespace(parts, before)
            except SparkportError as error:
                # A namespace that cannot be read must not hide the others, nor be hidden for now.
                if before is not None:
                    found[name] = before
                elif self._is_away(error):
                    raise
        self._look_again(found)
        return found

    def _namespace(self, parts: tuple[str, ...], before: Namespace | None) -> Namespace:
        entries: dict[str, CatalogEntry] = {}
        known = {} if before is None else before.entries
        views = self._views(parts)
        new = []
        for name in self._tables(parts):
            if name in views:
                continue  # some catalogs list views among the tables
            entry = known.get(name)
            if entry is None or entry.kind is Kind.VIEW:
                new.append(Identifier(self._name, parts, name))
            else:
                entries[name] = entry
        entries |= {each.identifier.name: each for each in self._new_entries(new)}
        for name in views:
            entry = known.get(name)
            if entry is None or entry.kind is not Kind.VIEW:
                entry = self._view(Identifier(self._name, parts, name), None)
            entries[name] = entry
        properties = self._known_properties(parts) if before is None else before.properties
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

    def _known_properties(self, parts: tuple[str, ...]) -> Mapping[str, str]:
        try:
            return self._properties(parts)
        except SparkportError as error:
            if self._is_away(error):
                raise
            return {}
