"""What is told of tables that are not Iceberg's, and why they cannot what Iceberg tables can."""

from __future__ import annotations

from sparkport.errors import SparkportError
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake

__all__ = ["is_view", "told_format", "why_fixed"]


def is_view(lake: Lake, entry: CatalogEntry) -> bool:
    """Whether an object is a view: Spark's session catalog lists its views among the tables."""
    if entry.kind is not Kind.OTHER:
        return entry.kind is Kind.VIEW
    with translated(f"table {entry.identifier}"):
        return bool(lake.spark.catalog.getTable(entry.identifier.sql).tableType == "VIEW")


def told_format(lake: Lake, entry: CatalogEntry) -> str:
    """The words for the format of a table of kind OTHER, for error messages."""
    try:
        name = lake.gateway.format_of(entry.identifier)
    except SparkportError:
        name = None
    return "it is not an Iceberg table" if not name else f"its format is {name}, and not Iceberg"


def why_fixed(lake: Lake, entry: CatalogEntry) -> str:
    """Why the columns of a table cannot be changed from here, and what to do."""
    if is_view(lake, entry):
        return "it is a view; make it anew with Spark"
    if entry.kind is Kind.ICEBERG:
        return "only Spark can read it as it is; alter it with Spark"
    return f"{told_format(lake, entry)}; alter it with Spark"
