"""What Spark calls an object, and what users call it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Identifier", "quoted"]


def quoted(name: str) -> str:
    """A name as Spark SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Identifier:
    """A table or view of a Spark catalog; nested namespaces have several parts."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @property
    def schema_name(self) -> str:
        """What users call its namespace."""
        return ".".join(self.namespace)

    @property
    def sql(self) -> str:
        """As Spark SQL takes it."""
        return ".".join(map(quoted, (self.catalog, *self.namespace, self.name)))

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.schema_name}.{self.name}"
