"""Column statistics, which DuckDB's optimiser trusts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Table

__all__ = ["ColumnStatistics", "StatisticsTable"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is known for certain of a column's values. Every default says "not known", and is always
    true.

    A filter that these exclude makes the client skip the scan, and it packs values into as few bits
    as they allow: what is said too narrowly gives wrong results, without an error. So bounds may be
    too wide, never too narrow.
    """

    minimum: Any = None
    """No value is less than this: a Python value or an Arrow scalar of the column's type; None when
    it is not known.

    NaN counts as greater than all other numbers. Text is compared by its bytes in UTF-8; a UUID as
    it is printed."""
    maximum: Any = None
    """No value is greater. NaN where there may be one, since it is the greatest."""
    has_null: bool = True
    """False promises that there is no NULL."""
    has_not_null: bool = True
    """False promises that there is nothing but NULLs, or no row at all."""
    distinct_count: int = 0
    """Only for estimates, so it need not be exact; 0 when it is not known."""
    contains_unicode: bool = True
    """For text: False promises that all of it is ASCII."""
    max_string_length: int | None = None
    """For text: no value has more bytes than this; None when it is not known."""


class StatisticsTable(Table):
    """A table that knows sound bounds of its columns.

    The client asks while it plans a statement, several times for each column, and reads the rows
    only later. It keeps the plan of a prepared statement until the version of the catalog changes.
    So the statistics must hold for the rows that a scan with the same `Context.transaction_id` will
    read, and the catalog's version must rise with each change of rows. Without transactions only a
    table that does not change, or whose bounds no row will ever leave, can promise that.
    """

    @property
    def offers_statistics(self) -> bool:
        """False when this table had better not be asked; constant as long as it keeps its place in
        the catalog.
        """
        return True

    @abstractmethod
    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        """Statistics of the rows that the request's transaction sees; None when they are not known
        for certain.

        Called several times for every statement, so it should be quick. Never called for the row
        id, nor about a point in time (the client could not say which). Statistics that are not of
        the column's type, or that contradict themselves, are logged and not passed on.
        """
