"""What all parts of the contract stand on: the catalog, a server for it, a client of that."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Catalog, Context, ScanOptions, Schema, Table
from sparkport.testing.client import DuckDBClient

__all__ = ["Ground", "all_tables", "read_directly", "same_rows"]


class Ground:
    """Fixtures; `make_catalog` is what a subclass has to bring."""

    timeout: float = 30.0
    """Seconds that one call of the served catalog may take."""

    def make_catalog(self) -> Catalog:
        """A new catalog with some schemas, tables and rows; what there is, is tested."""
        raise NotImplementedError("a subclass of CatalogContract must define make_catalog()")

    @pytest.fixture
    def catalog(self) -> Catalog:
        return self.make_catalog()

    @pytest.fixture
    def ctx(self, catalog: Catalog) -> Context:
        return Context(catalog_name=catalog.name, from_duckdb=True)

    @pytest.fixture
    def server(self, catalog: Catalog) -> Iterator[Any]:
        # By name: the layers of the package let nothing below the server import it.
        with importlib.import_module("sparkport.server").Server(
            catalog, "grpc://127.0.0.1:0"
        ) as server:
            yield server

    @pytest.fixture
    def client(self, server: Any, catalog: Catalog) -> Iterator[DuckDBClient]:
        with self.connect(server, catalog) as client:
            yield client.attach()

    def connect(self, server: Any, catalog: Catalog, **options: Any) -> DuckDBClient:
        """A client of the served catalog; override it to bring a token."""
        return DuckDBClient(server.location, catalog.name, timeout=self.timeout, **options)


def all_tables(catalog: Catalog, ctx: Context) -> list[tuple[Schema, Table]]:
    """Every table that DuckDB can reach: not those of a schema called main (trap T8)."""
    return [
        (schema, table)
        for schema in catalog.schemas(ctx)
        if schema.name.casefold() != "main"
        for table in schema.tables(ctx)
    ]


def read_directly(table: Table, ctx: Context, options: ScanOptions | None = None) -> pa.Table:
    """All rows of a table, by its own interface, with exactly the columns of its Arrow schema."""
    reader = table.scan(ctx, options or ScanOptions())
    batches = list(reader)
    if callable(close := getattr(reader, "close", None)):
        close()
    schema = table.arrow_schema
    if schema is None:
        assert batches, f"{table.name}: cannot tell the columns of a dynamic table without rows"
        schema = batches[0].schema
    wanted = [
        name
        for name in schema.names
        if options is None or options.columns is None or name in options.columns
    ]
    parts = [batch.select(wanted) for batch in batches]
    fields = pa.schema([pa.field(name, schema.field(name).type) for name in wanted])
    return pa.table(
        {
            name: pa.chunked_array([part.column(name) for part in parts], fields.field(name).type)
            for name in wanted
        }
    )


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables hold the same rows, in whatever order."""
    return Counter(map(repr, _rows(left))) == Counter(map(repr, _rows(right)))


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table.column(index).to_pylist() for index in range(table.num_columns)]
    return list(zip(*columns, strict=True))
