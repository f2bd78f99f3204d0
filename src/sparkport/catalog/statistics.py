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
    """What is known for certain of a column's values. Each default means "not known".

    The client skips a scan whose filter the statistics exclude, and packs values into as few bits
    as they allow. Statistics that are too narrow give wrong results without an error. So bounds may
    be too wide, never too narrow.
    """

    minimum: Any = None
    """No value is less than this Python value or Arrow scalar; None when it is not known.

    It has the column's type. NaN counts as greater than all other numbers. Text is compared by its
    bytes in UTF-8; a UUID as it is printed.
    """
    maximum: Any = None
    """No value is greater. NaN where a value may be NaN, since it is the greatest."""
    has_null: bool = True
    """False promises that there is no NULL."""
    has_not_null: bool = True
    """False promises that all values are NULL, or that there is no row."""
    distinct_count: int = 0
    """An estimate; 0 when it is not known."""
    contains_unicode: bool = True
    """For text: False promises that all values are ASCII."""
    max_string_length: int | None = None
    """For text: no value has more bytes than this; None when it is not known."""


class StatisticsTable(Table):
    """A table that knows sound bounds of its columns.

    The client asks while it plans a statement, several times for each column, and reads the rows
    only later. It keeps the plan of a prepared statement until the version of the catalog changes.
    So the statistics must hold for the rows that a scan with the same `Context.transaction_id` will
    read, and the catalog's version must rise with each change of rows. Without transactions, only a
    table that does not change, or whose bounds no row will ever leave, can promise that.
    """

    @property
    def offers_statistics(self) -> bool:
        """False to keep clients from asking, which they do twice for each column of a statement.

        A client learns of it when it attaches. If it asks later all the same, the answer is that
        nothing is known.
        """
        return True

    @abstractmethod
    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        """Return statistics of the rows that the transaction sees; None when not known for certain.

        Called several times for every statement, so it should be quick. Never called for the row
        id, nor about a point in time (the client could not say which). Statistics that are not of
        the column's type, or that contradict themselves, are logged and not passed on.
        """
