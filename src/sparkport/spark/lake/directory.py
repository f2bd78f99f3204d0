"""What a catalog lists: namespaces, and the tables and views in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkport.catalog.names import folded
from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["CatalogListing", "CatalogEntry", "Kind", "Namespace"]


class Kind(str, Enum):
    """The kind of a catalog's object."""

    ICEBERG = "iceberg"
    VIEW = "view"
    OTHER = "other"
    """A table of any other format."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table or view that a catalog lists."""

    identifier: Identifier
    kind: Kind
    location: str = ""
    """Location of Iceberg's metadata, which changes with every commit. Empty for other formats."""
    columns: str = ""
    """The columns as text, where nothing else tells that they were altered."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A schema, as users see it, with its tables and views."""

    parts: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, CatalogEntry] = field(default_factory=dict)
    _spellings: dict[bytes, list[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def alike(self, name: str) -> list[str]:
        """The names of entries that DuckDB takes for this one, because they differ only in case."""
        if not self._spellings:
            for each in self.entries:
                self._spellings.setdefault(folded(each), []).append(each)
        return self._spellings.get(folded(name), [])


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """All that a catalog lists. The version rises with every change."""

    version: int
    namespaces: Mapping[str, Namespace]

    def alike(self, name: str) -> list[str]:
        """The names of schemas that DuckDB takes for this one, because they differ only in case."""
        return [each for each in self.namespaces if folded(each) == folded(name)]
