"""The contracts' discovery actions: GetCatalogs, GetDbSchemas, GetTables, GetTableTypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.service.calls import Call
from sparkport.service.objects import published_schema_name
from sparkport.wire.discovery import DiscoveryRequest, encode_discovery

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["get_catalogs", "get_schemas", "get_table_types", "get_tables"]

_TABLE = "TABLE"
_TEXT = pa.field("catalog_name", pa.string(), nullable=False)
_CATALOGS = pa.schema([_TEXT])
_SCHEMAS = pa.schema([_TEXT, _TEXT.with_name("db_schema_name")])
_TABLES = pa.schema([*_SCHEMAS, _TEXT.with_name("table_name"), _TEXT.with_name("table_type")])
_TABLE_SCHEMA = pa.field("table_schema", pa.binary(), nullable=False)


def get_catalogs(service: Service, _call: Call, _request: DiscoveryRequest) -> Iterator[bytes]:
    """All catalogs of the server."""
    rows = [{"catalog_name": registered.name} for registered in service.registry.all()]
    yield encode_discovery(pa.Table.from_pylist(rows, _CATALOGS))


def get_schemas(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """The schemas that match."""
    rows = [
        {"catalog_name": name, "db_schema_name": published_schema_name(schema)}
        for name in _catalogs(service, request)
        for schema in service.listing.schemas(*service.enter(call, name))
        if request.wants_schema(published_schema_name(schema))
    ]
    yield encode_discovery(pa.Table.from_pylist(rows, _SCHEMAS))


def get_tables(service: Service, call: Call, request: DiscoveryRequest) -> Iterator[bytes]:
    """The tables that match; with `include_schema` each with its Arrow schema as an IPC message."""
    rows = []
    wanted = _TABLE in request.table_types or not request.table_types
    for name in _catalogs(service, request) if wanted else ():
        ctx, registered = service.enter(call, name)
        for schema in service.listing.schemas(ctx, registered):
            schema_name = published_schema_name(schema)
            if not request.wants_schema(schema_name):
                continue
            rows += [
                {
                    "catalog_name": name,
                    "db_schema_name": schema_name,
                    "table_name": published.table.name,
                    "table_type": _TABLE,
                    "table_schema": published.arrow_schema.serialize().to_pybytes(),
                }
                for published in service.listing.tables(ctx, registered, schema)
                if request.wants_table(published.table.name)
            ]
    arrow_schema = _TABLES.append(_TABLE_SCHEMA) if request.include_schema else _TABLES
    yield encode_discovery(pa.Table.from_pylist(rows, arrow_schema))


def get_table_types(_service: Service, _call: Call, _request: DiscoveryRequest) -> Iterator[bytes]:
    """What there is: the protocol publishes nothing but tables and functions (airport §3.5)."""
    yield encode_discovery(pa.table({"table_type": pa.array([_TABLE])}))


def _catalogs(service: Service, request: DiscoveryRequest) -> list[str]:
    if request.catalog is not None:
        return [service.registry.resolve(request.catalog).name]
    return [registered.name for registered in service.registry.all()]
