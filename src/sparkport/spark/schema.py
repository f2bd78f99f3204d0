"""A namespace of the lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from sparkport.catalog import (
    Context,
    CreateTableOptions,
    DropTableOptions,
    DynamicSchema,
    Privilege,
    ReplacingSchema,
    ScalarFunction,
    Table,
    TableFunction,
    TableInOutFunction,
)
from sparkport.errors import NotFound, PreconditionFailed, SparkportError, Unsupported
from sparkport.spark.ddl.create_table import create_table
from sparkport.spark.ddl.names import expect_one
from sparkport.spark.ddl.objects import drop_table, rename_table, replace_table
from sparkport.spark.functions.included import IncludedSchema
from sparkport.spark.functions.lake_functions import LakeFunctions
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState, is_encrypted
from sparkport.spark.lake.directory import CatalogEntry, Kind, Namespace
from sparkport.spark.lake.lake import Lake
from sparkport.spark.relation import RelationTable
from sparkport.spark.table import LakeTable

__all__ = ["FunctionSchema", "LakeSchema"]

_PRIVATE = frozenset({"comment", "exists", "location", "owner"})
"""Properties of a namespace that are not tags."""
_KEY_SERVICES = ("encryption.kms-type", "encryption.kms-impl")
"""Iceberg's options of a catalog for the service that keeps the keys of encrypted tables."""


class LakeSchema(ReplacingSchema):
    """A namespace as it was when it was looked up. Its tables are looked up each time."""

    def __init__(self, lake: Lake, functions: LakeFunctions, namespace: Namespace) -> None:
        self._lake = lake
        self._functions = functions
        self._namespace = namespace

    @property
    def name(self) -> str:
        return ".".join(self._namespace.parts)

    @property
    def comment(self) -> str:
        return self._namespace.properties.get("comment", "")

    @property
    def tags(self) -> Mapping[str, str]:
        return {
            key: value for key, value in self._namespace.properties.items() if key not in _PRIVATE
        }

    def tables(self, ctx: Context) -> Sequence[Table]:
        """The tables that can be described.

        What is wrong with another table is said when it is asked for by name.
        """
        found: list[Table] = []
        namespace = self._lake.catalog.listing().namespaces.get(self.name, self._namespace)
        self._lake.prefetch(namespace.entries.values())
        for entry in namespace.entries.values():
            try:
                table = self._table(entry)
                if table.arrow_schema is not None:
                    found.append(table)
            except SparkportError as error:
                self._lake.warn_once(
                    f"{entry.identifier} is left out of the listing: {error.message}"
                )
        return found

    def table(self, ctx: Context, name: str) -> Table | None:
        entry, alike = self._lake.catalog.entry_and_alike(self._namespace, name)
        if entry is None:
            return None
        self._expect_one(ctx, alike)
        transaction = self._lake.transactions.find(ctx.transaction_id)
        if transaction is not None:
            transaction.expect_published(entry.identifier)
        table = self._table(entry)
        if not isinstance(table, LakeTable):
            return table
        self._expect_keys(table.state)
        return LakeTable(self._lake, self._lake.transactions.seen(ctx.transaction_id, table.state))

    def _expect_one(self, ctx: Context, alike: Sequence[str]) -> None:
        """Raises: PreconditionFailed when the caller sees several that DuckDB takes for one."""
        names = [
            f"{self.name}.{each}"
            for each in alike
            if ctx.access.may(Privilege.LIST, self.name, each)
        ]
        expect_one(names, "tables")

    def _expect_keys(self, state: TableState) -> None:
        """Raises: PreconditionFailed for an encrypted table whose keys cannot be had."""
        option = self._lake.gateway.option
        if is_encrypted(state.metadata) and not any(map(option, _KEY_SERVICES)):
            raise PreconditionFailed(
                f"table {state.identifier} is encrypted, and the catalog's options do not say who "
                f"has the keys: set one of {', '.join(_KEY_SERVICES)}"
            )

    def _table(self, entry: CatalogEntry) -> Table:
        if entry.kind is Kind.ICEBERG:
            try:
                return LakeTable(self._lake, self._lake.state(entry.identifier, entry.location))
            except Unsupported:
                pass  # it has columns that only Spark knows, such as VARIANT
        return RelationTable(self._lake, entry)

    def scalar_functions(self, ctx: Context) -> Sequence[ScalarFunction]:
        return self._functions.scalar_functions(self._namespace.parts)

    def table_functions(self, ctx: Context) -> Sequence[TableFunction | TableInOutFunction]:
        return self._functions.table_functions(self._namespace.parts)

    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        created = create_table(self._lake, ctx, self._identifier(name), arrow_schema, options)
        return self._expect(ctx, created.name)

    def drop_table(self, ctx: Context, name: str, options: DropTableOptions) -> None:
        self._expect_one(ctx, self._alike(name))
        drop_table(self._lake, self._identifier(name), options)

    def rename_table(self, ctx: Context, name: str, new_name: str) -> Table:
        self._expect_one(ctx, self._alike(name))
        rename_table(self._lake, self._identifier(name), new_name)
        return self._expect(ctx, new_name)

    def replace_table(self, ctx: Context, name: str, replacement: str) -> None:
        self._expect_one(ctx, self._alike(name))
        replace_table(self._lake, self._identifier(name), self._identifier(replacement))

    def _alike(self, name: str) -> Sequence[str]:
        there = self._lake.catalog.listing().namespaces.get(self.name, self._namespace)
        return there.alike(name)

    def _identifier(self, name: str) -> Identifier:
        return Identifier(self._lake.catalog.name, self._namespace.parts, name)

    def _expect(self, ctx: Context, name: str) -> Table:
        table = self.table(ctx, name)
        if table is None:
            raise NotFound(f"table {self.name}.{name} was dropped meanwhile")
        return table


class FunctionSchema(DynamicSchema):
    """A schema that the lake lacks, for functions that were included in it."""

    def __init__(self, included: IncludedSchema) -> None:
        self._included = included

    @property
    def name(self) -> str:
        return self._included.name

    @property
    def comment(self) -> str:
        return self._included.comment

    @property
    def tags(self) -> Mapping[str, str]:
        return self._included.tags or {}

    def tables(self, ctx: Context) -> Sequence[Table]:
        return ()

    def scalar_functions(self, ctx: Context) -> Sequence[ScalarFunction]:
        return self._included.scalar_functions

    def table_functions(self, ctx: Context) -> Sequence[TableFunction | TableInOutFunction]:
        return self._included.table_functions

    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        raise PreconditionFailed(
            f"schema {self.name} has functions of the server only: CREATE SCHEMA {self.name} makes "
            "it a schema of the lake"
        )

    def drop_table(self, ctx: Context, name: str, options: DropTableOptions) -> None:
        if not options.ignore_not_found:
            raise NotFound(f"table {self.name}.{name} does not exist")

    def rename_table(self, ctx: Context, name: str, new_name: str) -> Table:
        raise NotFound(f"table {self.name}.{name} does not exist")
