"""The contents of catalogs as clients load them: list_schemas and ListFlights.

The catalog is enumerated every time, because only it knows what a caller may see now. The encoding
of each object is remembered as long as the object gives the same Arrow schema, comment and number
of rows, so a second listing costs little more than the enumeration.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import Context, Privilege, ScalarFunction, ScanOptions, Schema, Table
from sparkport.catalog.names import folded
from sparkport.errors import CatalogFault, SparkportError
from sparkport.service.functions import (
    Function,
    PublishedFunction,
    function_info,
    may_call,
    publish_function,
)
from sparkport.service.objects import PublishedTable, publish_table, published_schema_name
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.bearers import bearer_text
from sparkport.wire.catalogs import (
    SchemaContents,
    SchemaEntry,
    encode_contents,
    encode_object_metadata,
    encode_schema_list,
)
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.signing import Signer

__all__ = ["Listing", "table_info"]

_log = logging.getLogger(__name__)


_Info: TypeAlias = tuple[pa.Schema, tuple[str, int | None], bytes]
"""A table's Arrow schema, its comment and number of rows, and what was encoded of them."""


@dataclass(slots=True)
class _Remembered:
    """What was encoded of a schema of a catalog, under one spelling of the catalog's name."""

    infos: dict[str, _Info] = field(default_factory=dict)
    functions: dict[tuple[str, str, str, str], bytes] = field(default_factory=dict)
    objects: list[bytes] = field(default_factory=list)
    contents: SchemaContents = field(default_factory=lambda: encode_contents([]))


_MOST_OBJECTS = 200_000
"""How many tables and functions are remembered, a kilobyte each.

They are remembered for each caller: a handle names the caller that it was given to.
"""


class Listing:
    """Lists catalogs. Thread-safe: a race between two listings only repeats work."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._remembered: dict[tuple[RegisteredCatalog, str, str, str, bool], _Remembered] = {}
        self._lock = threading.Lock()
        self._objects = 0
        self._refused: set[tuple[str, str]] = set()

    def schema_list(self, ctx: Context, registered: RegisteredCatalog) -> bytes:
        """The answer of list_schemas. A bad object is left out, not raised (T9, T11)."""
        version = registered.version(
            ctx
            # Read before the objects: a number too old makes clients bind too often, never too
            # rarely.
        )
        entries: list[SchemaEntry] = []
        for schema in self.schemas(ctx, registered):
            try:
                tags = {_text(key): _text(value) for key, value in schema.tags.items()}
                contents = self.contents(ctx, registered, schema)
                name, comment = published_schema_name(schema), _text(schema.comment)
                entries.append(SchemaEntry(name, contents, comment, tags, is_default=not entries))
            except Exception as error:  # noqa: BLE001 - see above
                self._refuse(registered, f"schema {schema.name!r}", error)
        return encode_schema_list(entries, version)

    def schemas(self, ctx: Context, registered: RegisteredCatalog) -> Iterator[Schema]:
        """The schemas that can be published: named, and each name once, case aside (T45)."""
        seen: set[bytes] = set()
        for number, schema in enumerate(registered.catalog.schemas(ctx), 1):
            try:
                if not ctx.access.sees_schema(schema.name):
                    continue
                name = _free_name(published_schema_name(schema), seen)
            except Exception as error:  # noqa: BLE001 - one broken schema must not hide all others (T9)
                self._refuse(registered, _title("schema", schema, number), error)
                continue
            seen.add(folded(name))
            yield schema

    def contents(
        self, ctx: Context, registered: RegisteredCatalog, schema: Schema
    ) -> SchemaContents:
        """The schema's objects, packed."""
        bearer = "" if ctx.identity is None else bearer_text(ctx.identity)
        key = (registered, ctx.catalog_name, schema.name, bearer, ctx.narrow_decimals)
        remembered = self._remembered.get(key) or _Remembered()
        infos: dict[str, _Info] = {}
        for published in self.tables(ctx, registered, schema):
            name, comment = published.table.name, published.table.comment
            known_as = (comment, self._rows(ctx, published))
            known = remembered.infos.get(name)
            if known is None or known[0] is not published.arrow_schema or known[1] != known_as:
                descriptor = published.descriptor(ctx, self._signer)
                encoded = table_info(ctx, published, descriptor, rows=known_as[1])
                known = (published.arrow_schema, known_as, encoded)
            infos[name] = known
        functions: dict[tuple[str, str, str, str], bytes] = {}
        for each in self.functions(ctx, registered, schema):
            stability = (
                each.function.stability.value if isinstance(each.function, ScalarFunction) else ""
            )
            told = (each.function.name, each.fingerprint, each.function.comment, stability)
            functions[told] = remembered.functions.get(told) or function_info(
                ctx, each, self._signer
            )
        objects = [*(encoded for _, _, encoded in infos.values()), *functions.values()]
        # Quick: unchanged objects are the identical bytes objects.
        if objects != remembered.objects:
            remembered = _Remembered(infos, functions, objects, encode_contents(objects))
        self._remember(key, remembered)
        return remembered.contents

    def _remember(
        self, key: tuple[RegisteredCatalog, str, str, str, bool], made: _Remembered
    ) -> None:
        with self._lock:
            before = self._remembered.pop(key, None)
            self._remembered[key] = made  # the newest last
            self._objects += len(made.objects) - (0 if before is None else len(before.objects))
            while self._objects > _MOST_OBJECTS and len(self._remembered) > 1:
                oldest = next(iter(self._remembered))
                self._objects -= len(self._remembered.pop(oldest).objects)

    def flight_infos(
        self, ctx: Context, registered: RegisteredCatalog, schema: Schema
    ) -> Iterator[bytes]:
        """Yield the FlightInfo of each object of the schema, for ListFlights."""
        try:
            published_tables = list(self.tables(ctx, registered, schema))
            published_functions = list(self.functions(ctx, registered, schema))
        except Exception as error:  # noqa: BLE001 - one broken schema must not hide all others (T9)
            self._refuse(registered, f"schema {schema.name!r}", error)
            return
        for table in published_tables:
            descriptor = table.descriptor(ctx, self._signer)
            yield table_info(ctx, table, descriptor, rows=self._rows(ctx, table))
        for function in published_functions:
            yield function_info(ctx, function, self._signer)

    def _rows(self, ctx: Context, published: PublishedTable) -> int | None:
        """How many rows a table has, for a caller who may read it; None when it is not known."""
        table = published.table
        if not ctx.access.may(Privilege.READ, published.schema_name, table.name):
            return None
        try:
            rows = table.estimated_rows(ctx, ScanOptions())
            return rows if rows is not None and 0 <= rows < 2**63 else None
        except Exception as error:  # noqa: BLE001 - only an estimate is missing
            self._refuse(published.registered, f"table {published.title!r}: its size", error)
            return None

    def tables(
        self, ctx: Context, registered: RegisteredCatalog, schema: Schema
    ) -> Iterator[PublishedTable]:
        """The tables that can be published."""
        seen: set[bytes] = set()
        for number, table in enumerate(schema.tables(ctx), 1):
            try:
                if not ctx.access.may(Privilege.LIST, schema.name, table.name):
                    continue
                name = _free_name(table.name, seen)
                _text(table.comment)
                published = publish_table(ctx, registered, schema.name, table)
            except Exception as error:  # noqa: BLE001 - one broken table must not hide all others (T9)
                self._refuse(
                    registered, _title(f"schema {schema.name!r}: table", table, number), error
                )
                continue
            seen.add(folded(name))
            yield published

    def functions(
        self, ctx: Context, registered: RegisteredCatalog, schema: Schema
    ) -> Iterator[PublishedFunction]:
        """The functions that can be published, with all their overloads."""
        seen: set[tuple[str, bytes, str]] = set()
        functions: list[Function] = [*schema.scalar_functions(ctx), *schema.table_functions(ctx)]
        for number, function in enumerate(functions, 1):
            try:
                if not may_call(ctx, schema, function):
                    continue
                _free_name(function.name, set())
                _text(function.comment)
                overloads = publish_function(registered, schema.name, function)
                for overload in overloads:
                    key = (overload.kind, folded(function.name), overload.fingerprint)
                    if key in seen:
                        raise CatalogFault("another of the same name takes the same arguments")
                    seen.add(key)
            except Exception as error:  # noqa: BLE001 - one broken function must not hide all others (T9)
                self._refuse(
                    registered, _title(f"schema {schema.name!r}: function", function, number), error
                )
                continue
            yield from overloads

    def forget(self, registered: RegisteredCatalog) -> None:
        """Forget what is remembered of a catalog that is no longer served."""
        with self._lock:
            self._remembered = {
                key: value for key, value in self._remembered.items() if key[0] is not registered
            }
            self._objects = sum(len(each.objects) for each in self._remembered.values())

    def _refuse(self, registered: RegisteredCatalog, what: str, error: Exception) -> None:
        if (registered.name, what) in self._refused:  # logged once, not at every ATTACH
            return
        self._refused.add((registered.name, what))
        if isinstance(error, SparkportError):
            _log.warning(
                "catalog %r: %s is left out of the listing: %s",
                registered.name,
                what,
                error.message,
            )
        else:
            _log.warning(
                "catalog %r: %s is left out of the listing", registered.name, what, exc_info=error
            )


def table_info(
    ctx: Context,
    published: PublishedTable,
    descriptor: flight.FlightDescriptor,
    tickets: tuple[bytes, ...] = (),
    rows: int | None = None,
) -> bytes:
    """A table's FlightInfo with all that the client needs (airport §3.5); `rows` is an estimate.

    The catalog is named as the client spelled it, and the schema as it is published: the client
    compares both (T9).
    """
    metadata = encode_object_metadata(
        "table",
        ctx.catalog_name,
        published.published_schema,
        published.table.name,
        published.table.comment,
    )
    total = -1 if rows is None else rows
    return encode_flight_info(
        published.arrow_schema,
        descriptor,
        app_metadata=metadata,
        tickets=tickets,
        total_records=total,
    )


def _free_name(name: str, taken: set[bytes]) -> str:
    """Raises: CatalogFault for a name that no client could look up."""
    if not _text(name):
        raise CatalogFault("it has no name")
    if folded(name) in taken:
        raise CatalogFault("its name differs only in case from another, or not at all: rename it")
    return name


def _text(value: str) -> str:
    """Raises: CatalogFault for a value that cannot be sent as text."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:  # the latter for half of a surrogate pair
        raise CatalogFault(f"{value!r} is not text") from error
    return value


def _title(kind: str, named: Schema | Table | Function, number: int) -> str:
    try:
        return f"{kind} {named.name!r}"
    except Exception:  # noqa: BLE001 - it is being reported as broken already
        return f"{kind} number {number}"
