"""The constraints that a table puts on its rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from sparkport.catalog.interfaces import Table

__all__ = ["ConstrainedTable", "Constraints"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints by column name. The columns of a primary key are listed in `not_null` too."""

    not_null: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """DuckDB SQL, for instance `(v > 0)`; a row passes unless an expression is FALSE."""
    unique: tuple[tuple[str, ...], ...] = ()
    """Sets of columns whose values together are unique, unless a NULL is among them."""
    primary_key: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.unique or self.primary_key)


class ConstrainedTable(Table):
    """A table whose constraints the framework enforces on INSERT and UPDATE.

    A `StagedTable` calls the framework's code inside its commit, so that no other change comes
    between the check and the commit. For the simpler forms the service calls it before it passes
    the rows on.
    """

    @property
    @abstractmethod
    def constraints(self) -> Constraints:
        """The current constraints."""
