"""What a table demands of its rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from sparkport.catalog.interfaces import Table

__all__ = ["ConstrainedTable", "Constraints"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints by column name. A primary key implies NOT NULL on its columns, which are listed
    in both.
    """

    not_null: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """SQL expressions of DuckDB, for instance `(v > 0)`; a row passes unless one is FALSE."""
    unique: tuple[tuple[str, ...], ...] = ()
    """Sets of columns whose values together are unique; rows with a NULL among them are not
    compared.
    """
    primary_key: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.unique or self.primary_key)


class ConstrainedTable(Table):
    """A table that asks for its constraints to be enforced on INSERT and UPDATE by the framework's
    own code.

    Where the table is a `StagedTable` it calls that code itself inside its commit, where no other
    change can come between the check and the commit; for the simpler forms the service does so
    before it hands the rows over.
    """

    @property
    @abstractmethod
    def constraints(self) -> Constraints:
        """The present constraints."""
