"""The contents of catalogs as clients load them: list_schemas and ListFlights.

Enumerating a catalog is left to the catalog every time, because only it knows what a caller may see now. What is made of
each object is remembered as long as the object gives the same Arrow schema and comment, so a second listing costs little
more than the enumeration.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import Context, Schema, Table
from sparkport.errors import SparkportError
from sparkport.service.objects import PublishedTable, publish_table, published_schema_name
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.catalogs import (
    Contents,
    SchemaEntry,
    encode_contents,
    encode_object_metadata,
    encode_schema_list,
)
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.signing import Signer

__all__ = ["Listing", "table_info"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Remembered:
    """What was made of one schema of one catalog, under one spelling of the catalog's name."""

    infos: dict[str, tuple[pa.Schema, str, bytes]] = field(default_factory=dict)
    objects: list[bytes] = field(default_factory=list)
    contents: Contents = field(default_factory=lambda: encode_contents([]))


class Listing:
    """Lists catalogs. Thread-safe: a race between two listings only repeats work."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._remembered: dict[tuple[RegisteredCatalog, str, str], _Remembered] = {}
        self._refused: set[tuple[str, str]] = set()

    def schema_list(self, ctx: Context, registered: RegisteredCatalog) -> bytes:
        """The answer of list_schemas. It never fails for one bad object: that would hide all others (T9, T11)."""
        version = registered.version(ctx)  # before the objects: a number too old binds once too often, never too rarely
        entries: list[SchemaEntry] = []
        for schema in self.schemas(ctx, registered):
            contents = self.contents(ctx, registered, schema)
            name = published_schema_name(schema)
            entries.append(SchemaEntry(name, contents, schema.comment, schema.tags, is_default=not entries))
        return encode_schema_list(entries, version)

    def schemas(self, ctx: Context, registered: RegisteredCatalog) -> Iterator[Schema]:
        """The schemas that can be published: named, and each name once, as DuckDB compares them (T45)."""
        seen: set[str] = set()
        for schema in registered.catalog.schemas(ctx):
            name = published_schema_name(schema)
            if not _publishable(name) or name.lower() in seen:
                self._refuse(registered, f"schema {name!r}", "its name is empty, not text, or taken already")
                continue
            seen.add(name.lower())
            yield schema

    def contents(self, ctx: Context, registered: RegisteredCatalog, schema: Schema) -> Contents:
        """The schema's objects, packed."""
        key = (registered, ctx.catalog_name, schema.name)
        remembered = self._remembered.get(key) or _Remembered()
        infos: dict[str, tuple[pa.Schema, str, bytes]] = {}
        for published in self.tables(ctx, registered, schema):
            name, comment = published.table.name, published.table.comment
            known = remembered.infos.get(name)
            if known is not None and known[0] is published.arrow_schema and known[1] == comment:
                infos[name] = known
            else:
                infos[name] = (
                    published.arrow_schema,
                    comment,
                    table_info(ctx, published, published.descriptor(self._signer)),
                )
        objects = [info for _, _, info in infos.values()]
        if objects == remembered.objects:  # the same bytes objects: compared by identity
            return remembered.contents
        contents = encode_contents(objects)
        self._remembered[key] = _Remembered(infos, objects, contents)
        return contents

    def flight_infos(self, ctx: Context, registered: RegisteredCatalog, schema: Schema) -> Iterator[bytes]:
        """The schema's objects one by one, for ListFlights."""
        for published in self.tables(ctx, registered, schema):
            yield table_info(ctx, published, published.descriptor(self._signer))

    def forget(self, registered: RegisteredCatalog) -> None:
        """Drop what is remembered of a catalog that is no longer served."""
        self._remembered = {key: value for key, value in self._remembered.items() if key[0] is not registered}

    def tables(self, ctx: Context, registered: RegisteredCatalog, schema: Schema) -> Iterator[PublishedTable]:
        """The tables that can be published; each of the others is left out, with a line in the log (T9)."""
        seen: set[str] = set()
        for table in schema.tables(ctx):
            try:
                if not _publishable(table.name) or table.name.lower() in seen:
                    self._refuse(registered, _title(schema, table), "its name is empty, not text, or taken already")
                    continue
                published = publish_table(ctx, registered, schema.name, table)
            except SparkportError as error:
                self._refuse(registered, _title(schema, table), error.message)
                continue
            except Exception as error:  # noqa: BLE001 - one broken table must not hide all others (T9)
                self._refuse(registered, _title(schema, table), repr(error))
                continue
            seen.add(table.name.lower())
            yield published

    def _refuse(self, registered: RegisteredCatalog, what: str, why: str) -> None:
        if (registered.name, what) not in self._refused:  # once, not at every ATTACH
            self._refused.add((registered.name, what))
            _log.warning("catalog %r: %s is left out of the listing: %s", registered.name, what, why)


def table_info(
    ctx: Context,
    published: PublishedTable,
    descriptor: flight.FlightDescriptor,
    tickets: tuple[bytes, ...] = (),
) -> bytes:
    """A table's FlightInfo with all that the client needs to know (airport §3.5).

    The catalog is named as the client spelled it, and the schema as it is published: it compares both (T9).
    """
    metadata = encode_object_metadata(
        "table", ctx.catalog_name, published.published_schema, published.table.name, published.table.comment
    )
    return encode_flight_info(published.arrow_schema, descriptor, app_metadata=metadata, tickets=tickets)


def _publishable(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _title(schema: Schema, table: Table) -> str:
    return f"table {schema.name}.{table.name!r}"
