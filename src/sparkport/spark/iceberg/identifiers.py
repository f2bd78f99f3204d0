"""Identifiers of tables and views: Spark's form and the users' form."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Identifier", "quoted"]


def quoted(name: str) -> str:
    """A name quoted for Spark SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Identifier:
    """A table or view of a Spark catalog; nested namespaces have several parts."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @property
    def schema_name(self) -> str:
        """The users' name for its namespace."""
        return ".".join(self.namespace)

    @property
    def sql(self) -> str:
        """The identifier as Spark SQL spells it, quoted."""
        return ".".join(map(quoted, (self.catalog, *self.namespace, self.name)))

    def __str__(self) -> str:
        """The name that messages use."""
        return f"{self.schema_name}.{self.name}"
