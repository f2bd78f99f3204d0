"""The kinds of catalogs that a lake can be on. Without imports: `--help` names them."""

__all__ = ["KINDS"]

KINDS = ("sqlite", "jdbc", "rest", "hive", "glue", "spark")
"""SQLite in the warehouse's folder, four kinds of Iceberg's, and any catalog of Spark."""
