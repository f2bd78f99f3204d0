"""What a catalog holds: namespaces, and the tables and views in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["CatalogListing", "CatalogEntry", "Kind", "Namespace"]


class Kind(str, Enum):
    """What an object is."""

    ICEBERG = "iceberg"
    VIEW = "view"
    OTHER = "other"
    """A table of any other format."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
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
    entries: Mapping[str, CatalogEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """All that a catalog holds; the version rises whenever anything of it changes."""

    version: int
    namespaces: Mapping[str, Namespace]
