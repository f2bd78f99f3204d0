"""Catalogs without subclassing: Arrow tables, datasets, Parquet files and Python functions, by name."""

from sparkport.builder.catalog import CatalogBuilder, SchemaBuilder

__all__ = ["CatalogBuilder", "SchemaBuilder"]
