"""The catalogs behind one server, added and removed while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sparkport.catalog import Catalog, CatalogVersion, Context, VersionedCatalog
from sparkport.errors import AlreadyExists, BadRequest, NotFound

__all__ = ["CatalogRegistry", "RegisteredCatalog", "no_longer_served"]

_CHANGE_OF_RULES = 1 << 32
"""How far other rules move the version: far enough that the catalog's own count never reaches it.
"""


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredCatalog:
    """A catalog and the name that it is served by."""

    name: str
    catalog: Catalog
    _version: list[int] = field(default_factory=lambda: [1])
    _rules: list[int] = field(default_factory=lambda: [0])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def changed(self) -> None:
        """Note that this server has changed the catalog's objects.

        The version changes, so prepared statements bind again.
        """
        with self._lock:
            self._version[0] += 1

    def rules_changed(self) -> None:
        """Note that other rules say who sees what: prepared statements bind again."""
        with self._lock:
            self._rules[0] += 1

    def version(self, ctx: Context) -> CatalogVersion:
        """The catalog's own version, or else the number of changes made here.

        A change of rules changes it too.
        """
        own = CatalogVersion(self._version[0])
        if isinstance(self.catalog, VersionedCatalog):
            own = self.catalog.version(ctx)
        changes = self._rules[0]
        return replace(own, number=own.number + changes * _CHANGE_OF_RULES) if changes else own


class CatalogRegistry:
    """Finds a catalog by a client's name for it. Thread-safe: readers see an immutable mapping."""

    def __init__(self, catalogs: Iterable[tuple[str, Catalog]] = ()) -> None:
        """Raises: as `add`."""
        self._lock = threading.Lock()
        self._catalogs: dict[str, RegisteredCatalog] = {}
        for name, catalog in catalogs:
            self.add(catalog, name)

    def add(self, catalog: Catalog, name: str | None = None) -> None:
        """Serve a catalog, under its own name unless another is given.

        Raises: AlreadyExists; BadRequest for a name that DuckDB could not send in a header (T3).
        """
        name = catalog.name if name is None else name
        if not (name.isascii() and (name.isprintable() or not name)):
            raise BadRequest(
                f"the catalog name {name!r} must be printable ASCII: DuckDB cannot send any other"
            )
        with self._lock:
            if name in self._catalogs:
                raise AlreadyExists(f"a catalog named {name!r} is being served already")
            self._catalogs = {**self._catalogs, name: RegisteredCatalog(name, catalog)}

    def remove(self, name: str) -> RegisteredCatalog:
        """Stop serving a catalog; calls under way go on. Raises: NotFound."""
        with self._lock:
            registered = self._catalogs.get(name)
            if registered is None:
                raise NotFound(f"no catalog named {name!r} is being served")
            self._catalogs = {key: value for key, value in self._catalogs.items() if key != name}
            return registered

    def all(self) -> tuple[RegisteredCatalog, ...]:
        """The catalogs in the order they were added."""
        return tuple(self._catalogs.values())

    def resolve(self, name: str | None) -> RegisteredCatalog:
        """The catalog that a client means; no name, or an empty one, means the first.

        A catalog whose name is empty comes before the first. Raises: NotFound.
        """
        catalogs = self._catalogs
        registered = catalogs.get(name or "")
        if registered is None and not name:
            registered = next(iter(catalogs.values()), None)
        if registered is None:
            raise NotFound(
                f"catalog {name!r} not found: ATTACH one that this server has"
                if name
                else "this server has no catalog"
            )
        return registered

    def named(self, name: str) -> RegisteredCatalog:
        """The catalog of exactly this name. Raises: NotFound.

        A handle of a removed catalog must not mean the default catalog.
        """
        registered = self._catalogs.get(name)
        if registered is None:
            raise no_longer_served(name)
        return registered


def no_longer_served(name: str) -> NotFound:
    """The error for a caller who has seen a catalog that is gone."""
    return NotFound(f"catalog {name!r} is no longer being served")
