"""Catalogs without subclassing: Arrow tables, datasets, Parquet files and Python functions."""

from sparkport.builder.catalog import CatalogBuilder, SchemaBuilder
from sparkport.builder.signatures import RowCount

__all__ = ["CatalogBuilder", "RowCount", "SchemaBuilder"]
