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
    """Bounds may only be too wide: a filter outside them makes the client skip the scan (airport §4.9)."""

    minimum: Any
    maximum: Any
    has_null: bool = True
    has_not_null: bool = True
    distinct_count: int = 0
    contains_unicode: bool = True
    max_string_length: int | None = None


class StatisticsTable(Table):
    """A table that knows sound bounds of its columns."""

    @abstractmethod
    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        """Statistics of one column; None when they are not known for certain."""
