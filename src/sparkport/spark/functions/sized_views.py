"""Statements that make local views whose sizes DuckDB knows: the table function `views`.

DuckDB asks for the size of an attached table only where AT is used, and without a size it plans
each table as one row (airport §19).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    Privilege,
    ScanOptions,
    TableFunction,
)
from sparkport.catalog.filters.literals import Inexpressible, quote_identifier
from sparkport.catalog.names import folded, published_name
from sparkport.catalog.scan import LATEST
from sparkport.errors import BadRequest, SparkportError, Unsupported
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake

__all__ = ["Views"]


class Views(TableFunction):
    """For each table that the caller may read, the SQL of a local view of it as it is now."""

    columns = pa.schema([("table_name", pa.string()), ("sql", pa.string())])

    def __init__(self, lake: Lake, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._schema_name = ".".join(namespace)

    @property
    def name(self) -> str:
        return "views"

    @property
    def comment(self) -> str:
        return (
            "For each table of this schema, a statement that makes a local view of it, over which "
            "DuckDB plans large joins well. The views go into a local schema of the same name, or "
            "into the one that schema := names; catalog := is for a catalog that was attached AS "
            "another name."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("schema", pa.string(), ParameterKind.NAMED),
                Parameter("catalog", pa.string(), ParameterKind.NAMED),
            )
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        return self.columns

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        given_schema, given_catalog = (*parameters, None, None)[:2]
        own = published_name(self._schema_name)
        local, catalog = given_schema or own, given_catalog or ctx.catalog_name
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "table_name": name,
                    "sql": f"CREATE OR REPLACE VIEW {_path(local, name)} AS "
                    f"SELECT * FROM {_path(catalog, own, name)} AT (VERSION => '{LATEST}');",
                }
                for name in self._names(ctx)
            ],
            self.columns,
        )

    def _names(self, ctx: Context) -> Iterator[str]:
        """The tables that the caller may read, as far as the client finds them in its listing."""
        namespace = self._lake.catalog.listing().namespaces.get(self._schema_name)
        entries = {} if namespace is None else namespace.entries
        seen: set[bytes] = set()
        for name, entry in sorted(entries.items()):
            ctx.check()
            readable = ctx.access.may(Privilege.READ, self._schema_name, name)
            if readable and folded(name) not in seen and self._is_listed(entry):
                seen.add(folded(name))
                yield name

    def _is_listed(self, entry: CatalogEntry) -> bool:
        try:
            if entry.kind is Kind.ICEBERG:
                try:
                    self._lake.state(entry.identifier, entry.location)
                except Unsupported:  # it has columns that only Spark knows
                    self._lake.relation_schema(entry)
            else:
                self._lake.relation_schema(entry)
        except SparkportError:
            return False
        return True


def _path(*names: str) -> str:
    try:
        return ".".join(map(quote_identifier, names))
    except Inexpressible as error:
        raise BadRequest("views: SQL has no way to write that name") from error
