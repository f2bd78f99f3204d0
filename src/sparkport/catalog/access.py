"""What a caller may do.

The service asks for every object that it finds, a catalog for objects that only it knows about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkport.errors import NotFound, PermissionDenied

__all__ = ["Access", "Privilege", "Restrictions"]


class Privilege(str, Enum):
    """A right that can be granted on a catalog, schema, table or function. Each includes LIST."""

    LIST = "list"
    """See that the object exists, and its columns."""
    READ = "read"
    """Read a table's rows; call a function."""
    WRITE = "write"
    """INSERT, UPDATE, DELETE. All but plain INSERT need READ too: DuckDB reads the rows first."""
    ALTER = "alter"
    """CREATE, DROP and ALTER of the object and everything inside it, and table maintenance."""
    SPARK_SQL = "spark_sql"
    """Run any query in Spark, on tables that may be read."""
    SPARK_RUN = "spark_run"
    """Run statements in Spark that change tables, on those that may be written."""


@dataclass(frozen=True, slots=True)
class Restrictions:
    """The rows and values of a table that a caller sees, in DuckDB SQL over the table's columns."""

    row_filters: tuple[str, ...] = ()
    """The caller sees the rows for which all of these conditions are true."""
    masks: Mapping[str, str] = field(default_factory=dict)
    """By column: the expression whose value the caller sees instead."""
    values: Mapping[str, str | tuple[str, ...] | None] = field(default_factory=dict)
    """The attributes of the caller that the SQL refers to as `$name`."""


class Access:
    """What a caller may do in a catalog: everything, unless a subclass says otherwise. Thread-safe.

    Names are as the catalog spells them.
    """

    everything: bool = True
    """Whether the caller may do everything, so that no further question is needed."""
    restricted: bool = False
    """Whether the caller sees only some rows, or masked values, of any table of this catalog."""

    def may(self, privilege: Privilege, schema: str = "", name: str = "") -> bool:
        """Whether a privilege is granted on a table or function, a schema, or the whole catalog."""
        return True

    def sees_catalog(self) -> bool:
        """Whether anything is granted in the catalog."""
        return True

    def sees_schema(self, schema: str) -> bool:
        """Whether anything is granted in the schema, or on it."""
        return True

    def restrictions(self, schema: str, table: str) -> Restrictions | None:
        """Return what is kept from the caller in this table; None means nothing."""
        return None

    def shows(self, schema: str, table: str) -> bool:
        """Whether the caller may read every row and value of the table."""
        return self.may(Privilege.READ, schema, table) and self.restrictions(schema, table) is None

    def require(
        self, privilege: Privilege, schema: str, table: str, *, whole: bool = False
    ) -> None:
        """Refuse a caller without the privilege, or with `whole` without access to the whole table.

        Raises: NotFound for an object that the caller may not see, as if it did not exist;
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
