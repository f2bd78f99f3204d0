"""The catalog's own interface, called as the service calls it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sparkport.catalog import (
    Catalog,
    Context,
    DynamicSchemaTable,
    PartitionedTable,
    ScanOptions,
    SchemaRequest,
    Table,
)
from sparkport.errors import Cancelled
from sparkport.testing.contract.ground import Ground, all_tables, read_directly, same_rows

__all__ = ["InterfaceContract"]

UNKNOWN = "no such name \N{SNOWMAN}"


class InterfaceContract(Ground):
    """Names, lookups, Arrow schemas, scans, cancellation, threads."""

    def test_schemas_are_a_sequence_of_uniquely_named(self, catalog: Catalog, ctx: Context) -> None:
        schemas = catalog.schemas(ctx)
        assert isinstance(schemas, Sequence), (
            "schemas() returns a sequence, empty if there are none"
        )
        _assert_names([schema.name for schema in schemas], "schemas")
        for schema in schemas:
            assert isinstance(schema.comment, str)
            assert all(isinstance(item, str) for pair in schema.tags.items() for item in pair)

    def test_schemas_are_found_by_name_and_unknown_ones_are_none(
        self, catalog: Catalog, ctx: Context
    ) -> None:
        for schema in catalog.schemas(ctx):
            found = catalog.schema(ctx, schema.name)
            assert found is not None
            assert found.name == schema.name
        assert catalog.schema(ctx, UNKNOWN) is None
        assert catalog.schema(ctx, "") is None

    def test_tables_and_functions_are_sequences_of_named(
        self, catalog: Catalog, ctx: Context
    ) -> None:
        for schema in catalog.schemas(ctx):
            tables = schema.tables(ctx)
            assert isinstance(tables, Sequence), (
                "tables() returns a sequence, empty if there are none"
            )
            _assert_names([table.name for table in tables], f"tables of {schema.name}")
            for functions in (schema.scalar_functions(ctx), schema.table_functions(ctx)):
                assert isinstance(functions, Sequence)
                assert all(function.name for function in functions), (
                    f"functions of {schema.name}: an empty name"
                )

    def test_tables_are_found_by_name_and_unknown_ones_are_none(
        self, catalog: Catalog, ctx: Context
    ) -> None:
        for schema in catalog.schemas(ctx):
            for table in schema.tables(ctx):
                found = schema.table(ctx, table.name)
                assert found is not None
                assert (found.name, found.comment) == (table.name, table.comment)
            assert schema.table(ctx, UNKNOWN) is None
            assert schema.table(ctx, "") is None

    def test_arrow_schemas_are_valid_and_stable(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            schema = table.arrow_schema
            if schema is None:
                assert isinstance(table, DynamicSchemaTable), (
                    f"{table.name}: only a dynamic table has no schema"
                )
                schema = table.schema_for_request(ctx, SchemaRequest())
            else:
                assert table.arrow_schema is schema, (
                    f"{table.name}: the same object as long as nothing changed"
                )
            assert isinstance(schema, pa.Schema)
            assert pa.ipc.read_schema(schema.serialize()).equals(schema, check_metadata=True)

    def test_scans_yield_the_columns_and_types_of_the_schema(
        self, catalog: Catalog, ctx: Context
    ) -> None:
        for _, table in all_tables(catalog, ctx):
            for batch in table.scan(ctx, ScanOptions()):
                assert isinstance(batch, pa.RecordBatch), (
                    f"{table.name}: scan yields {type(batch).__name__}"
                )
                _assert_columns(table, batch, None)
                batch.validate(full=True)

    def test_projections_yield_at_least_what_was_asked(
        self, catalog: Catalog, ctx: Context
    ) -> None:
        for _, table in all_tables(catalog, ctx):
            if table.arrow_schema is None:
                continue
            whole = read_directly(table, ctx)
            for name in table.arrow_schema.names:
                options = ScanOptions(columns=(name,))
                for batch in table.scan(ctx, options):
                    _assert_columns(table, batch, (name,))
                part = read_directly(table, ctx, options)
                assert same_rows(part, whole.select([name])), (
                    f"{table.name}.{name} differs when it is read alone"
                )

    def test_a_scan_without_columns_counts_the_rows(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            counted = sum(batch.num_rows for batch in table.scan(ctx, ScanOptions(columns=())))
            assert counted == sum(batch.num_rows for batch in table.scan(ctx, ScanOptions())), (
                table.name
            )

    def test_a_limit_is_a_wish_for_fewer_rows(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            total = sum(batch.num_rows for batch in table.scan(ctx, ScanOptions()))
            limited = sum(batch.num_rows for batch in table.scan(ctx, ScanOptions(limit=1)))
            assert min(1, total) <= limited <= total, table.name

    def test_a_scan_may_be_closed_before_its_end(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            before = read_directly(table, ctx)
            for batches in (0, 1):
                reader = table.scan(ctx, ScanOptions())
                iterator = iter(reader)
                for _ in range(batches):
                    next(iterator, None)
                for opened in (iterator, reader):
                    if callable(close := getattr(opened, "close", None)):
                        close()
            assert same_rows(read_directly(table, ctx), before), (
                f"{table.name}: a closed scan disturbs the next one"
            )

    def test_a_cancelled_scan_ends(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            cancelled = Context(catalog_name=catalog.name)
            reader = iter(table.scan(cancelled, ScanOptions()))
            cancelled.cancellation.cancel()
            ended = threading.Event()
            thread = threading.Thread(target=_drain, args=(reader, ended), daemon=True)
            thread.start()
            assert ended.wait(self.timeout), f"{table.name}: a cancelled scan goes on"
            thread.join(self.timeout)

    def test_many_threads_may_scan_at_once(self, catalog: Catalog, ctx: Context) -> None:
        tables = [table for _, table in all_tables(catalog, ctx)]
        expected = [read_directly(table, ctx) for table in tables]

        def scan_all(_: int) -> bool:
            found = [read_directly(table, ctx) for _, table in all_tables(catalog, ctx)]
            return all(same_rows(left, right) for left, right in zip(found, expected, strict=True))

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(scan_all, range(16)))

    def test_partitions_are_disjoint_and_complete(self, catalog: Catalog, ctx: Context) -> None:
        for _, table in all_tables(catalog, ctx):
            if not isinstance(table, PartitionedTable):
                continue
            partitions = table.partitions(ctx, ScanOptions())
            parts = [
                read_directly(table, ctx, ScanOptions(partition=partition))
                for partition in partitions
            ]
            whole = read_directly(table, ctx)
            together = pa.concat_tables(parts) if parts else whole.slice(0, 0)
            assert same_rows(together, whole), f"{table.name}: its partitions are not the table"


def _assert_names(names: list[str], what: str) -> None:
    assert all(names), f"{what}: an empty name"
    folded = [name.casefold() for name in names]
    assert len(folded) == len(set(folded)), (
        f"{what}: two names differ only in case: {sorted(names)}"
    )


def _assert_columns(table: Table, batch: pa.RecordBatch, columns: tuple[str, ...] | None) -> None:
    schema = table.arrow_schema
    if schema is None:
        return
    for name in schema.names if columns is None else columns:
        assert name in batch.schema.names, f"{table.name}: a batch lacks the column {name!r}"
        got, due = batch.schema.field(name).type, schema.field(name).type
        assert got == due, f"{table.name}: column {name!r} is {got} instead of {due}"


def _drain(reader: object, ended: threading.Event) -> None:
    try:
        for _ in reader:  # type: ignore[attr-defined]
            pass
    except Cancelled:
        pass
    finally:
        ended.set()
