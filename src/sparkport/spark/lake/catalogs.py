"""The kinds of catalogs that a lake can be on, and what opens each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import SharedCatalog
from sparkport.spark.lake.spark_catalog import SparkCatalog
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog

__all__ = ["CATALOGS"]

_SQLITE = "jdbc:sqlite:"


def _sqlite(gateway: Gateway, settings: LakeSettings) -> SharedCatalog:
    database = Path((gateway.option("uri") or "").removeprefix(_SQLITE).partition("?")[0])
    # Iceberg's catalog in the JVM caches tables unless it was told not to.
    is_remembered = gateway.option("cache-enabled") != "false"
    forget = gateway.forget if is_remembered else None
    return SqliteCatalog(database, gateway.catalog, gateway.warehouse, forget)


CATALOGS: dict[str, Callable[[Gateway, LakeSettings], SharedCatalog]] = {
    "sqlite": _sqlite,
    "jdbc": SparkCatalog,
    "rest": SparkCatalog,
    "spark": SparkCatalog,
}
"""For each kind, the function that opens the catalog which the gateway's session is set up for."""
