"""Discovery: catalogs, schemas, tables and their types, in the order that Flight SQL prescribes.

The functions named for what they list yield record batches, for Flight SQL's commands. Those called
`get_…` are the contracts' actions, which send the same rows in another encoding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from sparkport.catalog import Context, Schema, Table
from sparkport.errors import Cancelled
from sparkport.service.calls import Call
from sparkport.service.objects import (
    PublishedTable,
    publish_table,
    published_schema_name,
    table_named,
)
from sparkport.service.registry import RegisteredCatalog
from sparkport.service.sql_types import described_schema
from sparkport.wire.discovery import (
    CATALOGS,
    SCHEMAS,
    TABLE_TYPES,
    TABLES,
    TABLES_WITH_SCHEMA,
    DiscoveryRequest,
    encode_discovery,
)

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = [
    "batch_of",
    "catalogs",
    "each_schema",
    "get_catalogs",
    "get_schemas",
    "get_table_types",
    "get_tables",
    "listed_table",
    "schemas",
    "table_types",
    "tables",
    "tables_schema",
]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TABLE = "TABLE"
"""The only table type: the protocol publishes nothing but tables and functions (airport §3.5)."""
_BATCH_BYTES = 1024 * 1024
"""About how many bytes a batch holds: ADBC's client refuses messages of more than 16 MiB."""


def get_catalogs(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """Answer the action that lists all catalogs of the server."""
    yield encode_discovery(CATALOGS, catalogs(service, call, _resolved(service, call, request)))


def get_schemas(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """Answer the action that lists the schemas that match."""
    yield encode_discovery(SCHEMAS, schemas(service, call, _resolved(service, call, request)))


def get_tables(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """Answer the action that lists the tables that match, with their Arrow schemas if asked for."""
    yield encode_discovery(
        tables_schema(request), tables(service, call, _resolved(service, call, request))
    )


def get_table_types(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """Answer the action that lists the types of tables."""
    yield encode_discovery(TABLE_TYPES, table_types(service, call, request))


def _resolved(service: Service, call: Call, request: DiscoveryRequest) -> DiscoveryRequest:
    """Name the default catalog where an action names it by an empty name. Raises: NotFound."""
    if request.catalog is None:
        return request
    return replace(request, catalog=service.catalog(call, request.catalog).name)


def catalogs(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[pa.RecordBatch]:
    """The names of the catalogs."""
    return _batches(
        CATALOGS, ((registered.name,) for registered in _catalogs(service, call, request.catalog))
    )


def schemas(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[pa.RecordBatch]:
    """The schemas that match."""
    found = each_schema(service, call, request.catalog)
    names = ((registered.name, published_schema_name(schema)) for _, registered, schema in found)
    return _batches(SCHEMAS, (row for row in names if request.wants_schema(row[1])))


def tables_schema(request: DiscoveryRequest) -> pa.Schema:
    """The Arrow schema of the list of tables."""
    return TABLES_WITH_SCHEMA if request.include_schema else TABLES


def tables(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[pa.RecordBatch]:
    """The tables that match."""
    return _batches(tables_schema(request), _table_rows(service, call, request))


def table_types(
    _service: Service, _call: Call, _request: DiscoveryRequest
) -> Iterator[pa.RecordBatch]:
    """The types of tables: there is one."""
    return _batches(TABLE_TYPES, [(_TABLE,)])


def each_schema(
    service: Service, call: Call, catalog: str | None
) -> Iterator[tuple[Context, RegisteredCatalog, Schema]]:
    """The schemas of the catalog of exactly this name, or of all catalogs.

    There are none if there is no such catalog.
    """
    for each in _catalogs(service, call, catalog):
        ctx, registered = service.enter(call, each.name)
        for schema in sorted(service.listing.schemas(ctx, registered), key=published_schema_name):
            yield ctx, registered, schema


def listed_table(
    ctx: Context, registered: RegisteredCatalog, schema: Schema, name: str
) -> Table | None:
    """The table of this name, if it is listed."""

    def look() -> Table | None:
        table = table_named(ctx, schema, name)
        return None if table is None else publish_table(ctx, registered, schema.name, table).table

    return _unless_broken(look, registered, schema)


def batch_of(arrow_schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Make a batch of rows; there must be at least one row."""
    columns = zip(arrow_schema, zip(*rows, strict=True), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for field, values in columns], schema=arrow_schema
    )


def _catalogs(service: Service, call: Call, name: str | None) -> list[RegisteredCatalog]:
    wanted = [each for each in service.catalogs(call) if name is None or each.name == name]
    return sorted(wanted, key=lambda registered: registered.name)


def _table_rows(
    service: Service, call: Call, request: DiscoveryRequest
) -> Iterator[tuple[str | bytes, ...]]:
    if not request.wants_type(_TABLE):
        return
    for ctx, registered, schema in each_schema(service, call, request.catalog):
        schema_name = published_schema_name(schema)
        if not request.wants_schema(schema_name):
            continue
        ctx.check()
        for published in _tables(service, ctx, registered, schema):
            if request.wants_table(published.table.name):
                row = (registered.name, schema_name, published.table.name, _TABLE)
                yield (*row, described_schema(published.columns)) if request.include_schema else row


def _tables(
    service: Service, ctx: Context, registered: RegisteredCatalog, schema: Schema
) -> list[PublishedTable]:
    def look() -> list[PublishedTable]:
        return sorted(
            service.listing.tables(ctx, registered, schema),
            key=lambda published: published.table.name,
        )

    return _unless_broken(look, registered, schema) or []


def _unless_broken(
    look: Callable[[], _T], registered: RegisteredCatalog, schema: Schema
) -> _T | None:
    try:
        return look()
    except Cancelled:
        raise
    except Exception:  # noqa: BLE001 - one broken schema must not hide all others (T9)
        _log.warning(
            "catalog %r: schema %r cannot be looked into",
            registered.name,
            schema.name,
            exc_info=True,
        )
        return None


def _batches(
    arrow_schema: pa.Schema, rows: Iterable[tuple[str | bytes, ...]]
) -> Iterator[pa.RecordBatch]:
    pending: list[tuple[str | bytes, ...]] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += sum(map(len, row))
        if size >= _BATCH_BYTES:
            yield batch_of(arrow_schema, pending)
            pending, size = [], 0
    if pending:
        yield batch_of(arrow_schema, pending)
