"""What the caller may do: asked by the service for all that it finds, and by catalogs for what only
they know about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkport.errors import NotFound, PermissionDenied

__all__ = ["Access", "Privilege", "Restrictions"]


class Privilege(str, Enum):
    """What can be granted on a catalog, a schema, a table or a function. Each of the others
    includes LIST.
    """

    LIST = "list"
    """See that it is there, and its columns."""
    READ = "read"
    """Read its rows; call a function."""
    WRITE = "write"
    """INSERT, UPDATE, DELETE. The latter two, and RETURNING, need READ as well: DuckDB reads the
    rows first.
    """
    ALTER = "alter"
    """CREATE, DROP, ALTER in it or of it, and the care of tables."""
    SPARK_SQL = "spark_sql"
    """Ask Spark, in any query, about tables that may be read."""


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Which rows of a table the caller sees, and how: conditions and values in DuckDB's SQL over
    the table's columns.
    """

    row_filters: tuple[str, ...] = ()
    """Rows for which each of them is true are there; the others are not."""
    masks: Mapping[str, str] = field(default_factory=dict)
    """What stands in place of a column's values."""
    values: Mapping[str, str | tuple[str, ...] | None] = field(default_factory=dict)
    """What `$name` means in them: attributes of the caller."""


class Access:
    """What a caller may do in one catalog. This one may do everything; names are as the catalog
    spells them. Thread-safe.
    """

    everything: bool = True
    """Whether nothing is kept from the caller, so that there is no need to ask further."""
    restricted: bool = False
    """Whether there are tables of this catalog of which the caller sees only some rows, or masked
    values.
    """

    def may(self, privilege: Privilege, schema: str = "", name: str = "") -> bool:
        """Whether it is granted: on a table or function, on a schema as a whole, or without names
        on the catalog.
        """
        return True

    def sees_catalog(self) -> bool:
        """Whether anything is granted in the catalog."""
        return True

    def sees_schema(self, schema: str) -> bool:
        """Whether anything is granted in the schema, or on it."""
        return True

    def restrictions(self, schema: str, table: str) -> Restrictions | None:
        """What of the table is kept from the caller; None for nothing."""
        return None

    def shows(self, schema: str, table: str) -> bool:
        """Whether the caller may be told any value of the table: it may read all of it."""
        return self.may(Privilege.READ, schema, table) and self.restrictions(schema, table) is None

    def require(
        self, privilege: Privilege, schema: str, table: str, *, whole: bool = False
    ) -> None:
        """Refuse a caller who may not do that; with `whole` also one who does not see all of the
        table.

        Raises: NotFound for what the caller may not even see, as if it were not there;
        PermissionDenied.
        """
        if not self.may(Privilege.LIST, schema, table):
            raise NotFound(f"table {schema}.{table} not found")
        if not self.may(privilege, schema, table):
            raise PermissionDenied(f"you have no {privilege.value} permission on {schema}.{table}")
        if whole and self.restrictions(schema, table) is not None:
            raise PermissionDenied(
                f"you see only part of {schema}.{table}, and that takes all of it"
            )
