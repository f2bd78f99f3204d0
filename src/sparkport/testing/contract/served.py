"""The catalog served, and read by the strict client over real gRPC."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Catalog, Context, find_rowid_column
from sparkport.catalog.rowid import NO_ROW_ID
from sparkport.testing.client import DuckDBClient
from sparkport.testing.contract.ground import Ground, all_tables, read_directly, same_rows
from sparkport.testing.failures import ServerError
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.objects import AttachedTable
from sparkport.testing.types import quoted

__all__ = ["ServedContract"]


class ServedContract(Ground):
    """Whatever can be read directly can be read by DuckDB, and is the same."""

    @pytest.mark.parametrize("line", ["main", "v1.4"])
    def test_duckdb_sees_the_whole_catalog(
        self, server: Any, catalog: Catalog, ctx: Context, line: Any
    ) -> None:
        with self.connect(server, catalog, line=line) as client:
            seen = {
                (name, table)
                for name, schema in client.attach().schemas().items()
                for table in client.tables(name)
            }
        assert {(schema.name, table.name) for schema, table in all_tables(catalog, ctx)} <= seen

    def test_duckdb_sees_every_function(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        """One that it could not take would be left out, and only the server's log would say so."""
        for schema in catalog.schemas(ctx):
            if schema.name.casefold() == "main":
                continue
            seen = {(function.kind, function.name) for function in client.functions(schema.name)}
            assert seen == {
                *(("scalar_function", function.name) for function in schema.scalar_functions(ctx)),
                *(("table_function", function.name) for function in schema.table_functions(ctx)),
            }, schema.name

    def test_duckdb_sees_comments(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            assert client.schemas()[schema.name].description == schema.comment
            assert (client.table(schema.name, table.name).comment or "") == table.comment

    @pytest.mark.parametrize("lossless", [True, False])
    def test_duckdb_reads_the_same_rows(
        self, server: Any, catalog: Catalog, ctx: Context, lossless: bool
    ) -> None:
        with self.connect(server, catalog, arrow_lossless=lossless) as client:
            for schema, table in all_tables(catalog, ctx):
                attached = client.table(schema.name, table.name)
                whole = read_directly(table, ctx)
                names = [column.field.name for column in attached.columns]
                found = client.scan(schema.name, table.name)
                assert same_rows(found, whole.select(names)), f"{schema.name}.{table.name}"
                assert client.count(schema.name, table.name) == whole.num_rows

    def test_duckdb_reads_each_column_alone(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            whole = client.scan(schema.name, table.name)
            for name in whole.column_names:
                part = client.scan(schema.name, table.name, [name])
                assert same_rows(part, whole.select([name])), f"{schema.name}.{table.name}.{name}"

    def test_row_ids_are_unique_and_not_null(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            if client.table(schema.name, table.name).rowid is None:
                continue
            assert table.arrow_schema is None or find_rowid_column(table.arrow_schema) is not None
            ids = client.scan(schema.name, table.name, ["rowid"]).column("rowid")
            assert ids.null_count == 0
            if ids.unique().to_pylist() == [NO_ROW_ID]:
                continue  # it shows the column only, so that it can refuse changes
            assert len(ids.unique()) == len(ids), f"{schema.name}.{table.name}: row ids repeat"

    def test_filters_drop_no_row_that_they_should_keep(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            whole = client.scan(schema.name, table.name)
            for condition in _conditions(client.table(schema.name, table.name), whole):
                kept = client.scan(schema.name, table.name, where=condition)
                expected = whole.filter(LocalDuckDB.shared(True).mask(whole, condition))
                assert same_rows(kept, expected), f"{schema.name}.{table.name} WHERE {condition}"

    def test_a_limit_drops_the_streams(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            rows = client.count(schema.name, table.name)
            assert client.scan(schema.name, table.name, limit=1).num_rows == min(1, rows)
            assert client.count(schema.name, table.name) == rows

    def test_statistics_hold(self, client: DuckDBClient, catalog: Catalog, ctx: Context) -> None:
        for schema, table in all_tables(catalog, ctx):
            attached = client.table(schema.name, table.name)
            for column in attached.columns:
                client.statistics(schema.name, table.name, column.name)
            # A scan compares the values with what was reported (trap T28).
            client.scan(schema.name, table.name)

    def test_the_latest_version_is_the_present(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        """DuckDB asks with AT how many rows there are, and plans with the answer (airport §19)."""
        for schema, table in all_tables(catalog, ctx):
            now = client.scan(schema.name, table.name)
            latest = client.scan(schema.name, table.name, at=("VERSION", "latest"))
            assert same_rows(latest, now), f"{schema.name}.{table.name}"

    def test_a_point_in_time_that_is_none_is_refused_clearly(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in all_tables(catalog, ctx):
            with pytest.raises(ServerError) as caught:
                client.scan(schema.name, table.name, at=("VERSION", "no such version"))
            assert caught.value.code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"), (
                caught.value
            )

    def test_many_clients_may_read_at_once(
        self, server: Any, catalog: Catalog, ctx: Context
    ) -> None:
        tables = [(schema.name, table.name) for schema, table in all_tables(catalog, ctx)]

        def count_all(_: int) -> list[int]:
            with self.connect(server, catalog) as client:
                return [client.count(*name) for name in tables]

        with ThreadPoolExecutor(8) as pool:
            counts = list(pool.map(count_all, range(16)))
        assert all(count == counts[0] for count in counts)


def _conditions(table: AttachedTable, rows: pa.Table) -> list[str]:
    """A few conditions for each column: on NULL, and on a value that occurs."""
    conditions = []
    for column in table.columns[:20]:
        name = quoted(column.name)
        conditions += [f"{name} IS NULL", f"{name} IS NOT NULL"]
        values = [value for value in rows.column(column.name).to_pylist() if value is not None]
        if not values:
            continue
        value = values[len(values) // 2]
        if isinstance(value, bool):
            conditions.append(name)
        elif isinstance(value, int | float) and math.isfinite(value):
            conditions += [f"{name} = {value!r}", f"NOT ({name} < {value!r} OR {name} IS NULL)"]
        elif isinstance(value, str) and column.type == "VARCHAR":
            text = "'" + value.replace("'", "''") + "'"
            conditions += [f"{name} = {text}", f"{name} IN ({text}, 'x')", f"{name} LIKE '%a%'"]
    return conditions
