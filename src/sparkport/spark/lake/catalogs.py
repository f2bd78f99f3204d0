"""The kinds of catalogs that a lake can be on, and what opens each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.jvm.session.source import ICEBERG_CATALOG, LakeSource
from sparkport.spark.lake.rest_catalog import RestCatalog
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import SharedCatalog
from sparkport.spark.lake.spark_catalog import SparkCatalog
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog

__all__ = ["CATALOGS", "kind_of", "lacks_tables", "native_catalog", "prepared"]

_SQLITE = "jdbc:sqlite:"
_POSTGRES = "jdbc:postgresql:"


def _sqlite(gateway: Gateway, settings: LakeSettings) -> SharedCatalog:
    database = Path((gateway.option("uri") or "").removeprefix(_SQLITE).partition("?")[0])
    return SqliteCatalog(database, gateway.catalog, gateway.warehouse, _forget(gateway))


def _postgres(gateway: Gateway, settings: LakeSettings) -> SharedCatalog:
    _expect_psycopg()
    from sparkport.spark.lake.postgres_address import PostgresAddress
    from sparkport.spark.lake.postgres_catalog import PostgresCatalog

    return PostgresCatalog(
        PostgresAddress.of(gateway.option("uri") or "", gateway.options),
        gateway.catalog,
        gateway.warehouse,
        _forget(gateway),
        refresh_seconds=settings.refresh_seconds,
    )


def _expect_psycopg() -> None:
    try:
        import psycopg  # noqa: F401 - optional, so it is looked for here
    except ImportError as error:
        raise PreconditionFailed(
            "a catalog in PostgreSQL needs psycopg: install sparkport[postgres]"
        ) from error


def _forget(gateway: Gateway) -> Any:
    """What has the JVM forget a table: Iceberg caches tables unless it was told not to."""
    return None if gateway.option("cache-enabled") == "false" else gateway.forget


CATALOGS: dict[str, Callable[[Gateway, LakeSettings], SharedCatalog]] = {
    "sqlite": _sqlite,
    "jdbc": _postgres,
    "rest": RestCatalog,
    "spark": SparkCatalog,
}
"""For each kind, the function that opens the catalog which the gateway's session is set up for."""

_WITHOUT_SPARK: frozenset[str] = frozenset({"jdbc", "rest"})
"""Kinds that ask the gateway for options only."""


def kind_of(gateway: Gateway) -> str:
    """What serves the catalog of a session that the user has made."""
    own = gateway.spark.conf.get(f"spark.sql.catalog.{gateway.catalog}", None)
    kind, uri = gateway.option("type"), gateway.option("uri") or ""
    if own != ICEBERG_CATALOG:
        return "spark"
    if kind == "jdbc" and uri.startswith(_POSTGRES):
        return "jdbc"
    return "rest" if kind == "rest" else "spark"


class _Options:
    """The options of a catalog, in place of a gateway."""

    def __init__(self, source: LakeSource, name: str) -> None:
        self.catalog = name
        prefix = f"spark.sql.catalog.{name}."
        self.options = {
            key.removeprefix(prefix): value
            for key, value in source.settings(name).items()
            if key.startswith(prefix)
        }

    def option(self, key: str) -> str | None:
        return self.options.get(key)

    @property
    def warehouse(self) -> str | None:
        return (self.option("warehouse") or "").rstrip("/") or None


def native_catalog(source: LakeSource, name: str, settings: LakeSettings) -> SharedCatalog | None:
    """Open a catalog without Spark; None where that is not possible."""
    if source.native_kind not in _WITHOUT_SPARK:
        return None
    return CATALOGS[source.native_kind](cast(Gateway, _Options(source, name)), settings)


def prepared(source: LakeSource, lake: str, spark_catalog: str) -> LakeSource:
    """Check a source and complete it, before Spark starts with it.

    Raises: BadRequest, PreconditionFailed; they say what to set.
    """
    if source.native_kind != "jdbc":
        return source
    _expect_psycopg()
    from sparkport.spark.lake import postgres_schema

    return postgres_schema.prepared(source, lake, spark_catalog)


def lacks_tables(source: LakeSource, lake: str) -> bool:
    """Whether `prepared` would have to make tables of a catalog, or to alter them.

    Raises: as `prepared`.
    """
    if source.native_kind != "jdbc":
        return False
    _expect_psycopg()
    from sparkport.spark.lake import postgres_schema

    return postgres_schema.lacks_tables(source, lake)
