"""What `sparkport check` inspects of a lake, without Spark: its catalog and its store.

Each function returns sentences about what is good or doubtful, and raises for what is wrong.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sparkport.cli.assembly import worker_doubts
from sparkport.cli.inspections import Doubt, Found
from sparkport.cli.lake_sources import lake_source
from sparkport.cli.table_doubts import table_doubts
from sparkport.config import Config
from sparkport.errors import BadRequest, PreconditionFailed

if TYPE_CHECKING:
    from sparkport.spark.jvm.session.source import LakeSource
    from sparkport.spark.lake.directory import CatalogEntry, CatalogListing

__all__ = ["jars", "java", "lake", "workers"]


def java() -> list[str]:
    from sparkport.spark.jvm.session.java import find_java

    return [str(find_java())]


def jars(config: Config) -> list[str]:
    from sparkport.spark.jvm.session.jars import ICEBERG, kept_jars
    from sparkport.spark.jvm.session.source import coordinates_of

    coordinates = [ICEBERG]
    for lake in config.every_lake:
        coordinates += (*lake_source(lake).coordinates, *coordinates_of(lake.spark_conf))
    wanted = kept_jars(tuple(dict.fromkeys(coordinates)))
    missing = [each.name for each in wanted if not each.is_file()]
    if missing:
        return [
            f"{' and '.join(missing)} will be fetched from Maven when Spark is started for the "
            f"first time"
        ]
    return [f"all are in {wanted[0].parent}"]


def workers(config: Config) -> list[str]:
    """Inspect which Python Spark's executors run."""
    chosen = config.worker_environment or "a Python of this machine, or the one that you named"
    return [*map(Doubt, worker_doubts(config))] or [f"executors run {chosen}"]


def lake(config: Config, found: Found, *, starts_spark: bool = False) -> list[str]:
    """Connect to the catalog and list it; read, write and remove a byte in the store.

    A catalog that only Spark can ask is left to Spark, if that is going to be started.
    """
    from sparkport.spark.jvm.session.embedded import catalog_name
    from sparkport.spark.lake.catalogs import lacks_tables, native_catalog

    if config.name in found.names:
        raise BadRequest(f"two catalogs are called {config.name!r}: give the lake another --name")
    found.names.append(config.name)
    source = lake_source(config)
    if source.catalog == "sqlite":
        return _folder(config, source, found)
    if lacks_tables(source, config.name):
        said = f"the {source.catalog} catalog lacks Iceberg's tables, which will be made"
        return [said, *_store(source, {}, None)]
    name = config.spark_catalog or catalog_name(source, config.name)
    catalog = native_catalog(source, name, config.lake)
    if catalog is None:
        said = f"a catalog of the kind {source.catalog} is asked through Spark"
        asked = said if starts_spark else Doubt(f"{said}: say --start-spark")
        return [asked, *_store(source, {}, None)]
    try:
        listing = catalog.listing()
        said = f"the {source.catalog} catalog lists {_counted(config, listing, found)}"
        entry = _any_table(listing)
        vended = {} if entry is None else catalog.vended(entry.identifier)
        doubts = map(Doubt, table_doubts(config.lake, catalog, source.options))
        return [said, *_store(source, vended, entry), *doubts]
    finally:
        catalog.close()


def _folder(config: Config, source: LakeSource, found: Found) -> list[str]:
    from sparkport.spark.jvm.session.warehouse import DATABASE, open_warehouse
    from sparkport.spark.lake.sqlite_catalog import SqliteCatalog

    folder = source.folder.expanduser().absolute()
    if not folder.exists():
        above = next(each for each in folder.parents if each.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise BadRequest(f"the folder {folder} cannot be made: {above} cannot be written to")
        return [f"{folder} will be made"]
    opened = open_warehouse(folder)
    if not Path(folder, DATABASE).exists() or not opened.stored_names:
        return [f"{folder} can be written to, and holds nothing yet"]
    with closing(SqliteCatalog(folder / DATABASE, opened.catalog_name(config.name))) as catalog:
        doubts = map(Doubt, table_doubts(config.lake, catalog, source.options))
        return [f"{folder} holds {_counted(config, catalog.listing(), found)}", *doubts]


def _counted(config: Config, listing: CatalogListing, found: Found) -> str:
    tables = [
        f"{config.name}.{schema}.{name}"
        for schema, each in listing.namespaces.items()
        for name in each.entries
    ]
    found.of_lake += tables
    return f"{len(listing.namespaces)} schemas and {len(tables)} tables and views"


def _any_table(listing: CatalogListing) -> CatalogEntry | None:
    entries = (each for one in listing.namespaces.values() for each in one.entries.values())
    return next((each for each in entries if each.location), None)


def _store(
    source: LakeSource, vended: Mapping[str, str], entry: CatalogEntry | None
) -> Sequence[str]:
    """Read a byte of a table's metadata, then write one into the store, and remove it."""
    from sparkport.spark.iceberg.locations import reachable, storage_at
    from sparkport.spark.iceberg.storage_trouble import storage_trouble

    properties, said = {**source.options, **vended}, []
    try:
        if entry is not None and reachable(entry.location, properties):
            storage_at(entry.location, properties).read(entry.location, 0, 1)
            said.append(f"the files of table {entry.identifier} can be read")
        if source.is_remote:
            place = f"{source.warehouse}/.sparkport/check-{uuid.uuid4().hex}"
            storage = storage_at(place, properties)
            try:
                storage.write(place, b"x")
                storage.read(place, 0, 1)
            finally:
                storage.delete(place)
            said.append(f"{source.warehouse} can be read and written")
    except OSError as error:
        raise PreconditionFailed(storage_trouble(error, source.warehouse)) from error
    return said
