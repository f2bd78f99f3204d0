"""The contract suite itself: on capable, simple and broken catalogs."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Catalog, Context, PartitionedTable, ScanOptions, Schema, Table
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.testing import CatalogContract


class TestMemoryCatalog(CatalogContract):
    engine_messages = True

    def make_catalog(self) -> Catalog:
        catalog = MemoryCatalog("shop", settings=MemorySettings(statistics_rows=0))
        sales = catalog.add_schema("sales", comment="What we sold")
        ids = range(5000)
        rows = pa.table({"id": ids, "name": [f"n{i}" for i in ids], "amount": [i / 4 for i in ids]})
        sales.add_table(MemoryTable("orders", rows))
        sales.add_table(MemoryTable("nothing", rows.slice(0, 0)))
        catalog.add_schema("empty")
        return catalog


NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def numbers(start: int, stop: int) -> pa.RecordBatch:
    values = list(range(start, stop))
    return pa.record_batch([values, [str(value) for value in values]], schema=NUMBERS)


class Numbers(Table):
    """A read-only table; tests replace one of its parts."""

    name = "numbers"
    arrow_schema = NUMBERS

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        for start in range(0, 3000, 1000):
            ctx.check()
            yield numbers(start, start + 1000)


class Mathematics(Schema):
    name = "mathematics"

    def __init__(self, *found: Table) -> None:
        self.found: Any = found

    def tables(self, ctx: Context) -> Any:
        return self.found


class ReadOnly(Catalog):
    name = "readonly"

    def __init__(self, *found: Schema) -> None:
        self.found: Any = found

    def schemas(self, ctx: Context) -> Any:
        return self.found


class TestReadOnlyCatalog(CatalogContract):
    def make_catalog(self) -> Catalog:
        return ReadOnly(Mathematics(Numbers()))


# ------------------------------------------------------------------------------------- broken ones


class OtherType(Numbers):
    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield numbers(0, 3).cast(pa.schema([("n", pa.int32()), ("text", pa.string())]))


class LacksColumn(Numbers):
    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield numbers(0, 3).select(["n"])


class IgnoresProjectionWrongly(Numbers):
    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield numbers(0, 3 if options.columns is None else 2)


class YieldsTables(Numbers):
    def scan(self, ctx: Context, options: ScanOptions) -> Any:
        return [pa.Table.from_batches([numbers(0, 3)])]


class OnceOnly(Numbers):
    def __init__(self) -> None:
        self.left = [numbers(0, 3)]

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        while self.left:
            yield self.left.pop()


class NewSchemaEachTime(Numbers):
    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema(list(NUMBERS))


class Overlapping(Numbers, PartitionedTable):
    def partitions(self, ctx: Context, options: ScanOptions) -> list[bytes]:
        return [b"1", b"2"]


class RaisesForUnknown(Mathematics):
    def table(self, ctx: Context, name: str) -> Table | None:
        return {table.name: table for table in self.found}[name]


def listing(value: Any) -> Catalog:
    catalog = ReadOnly()
    catalog.found = value
    return catalog


def named(kind: type[Any], name: str, *arguments: Any) -> Any:
    made = kind(*arguments)
    made.name = name
    return made


BROKEN: list[tuple[str, Catalog]] = [
    ("test_schemas_are_a_sequence_of_uniquely_named", listing(None)),
    ("test_schemas_are_a_sequence_of_uniquely_named", listing(iter([]))),
    (
        "test_schemas_are_a_sequence_of_uniquely_named",
        ReadOnly(named(Mathematics, "a"), named(Mathematics, "A")),
    ),
    ("test_schemas_are_a_sequence_of_uniquely_named", ReadOnly(named(Mathematics, ""))),
    (
        "test_tables_and_functions_are_sequences_of_named",
        ReadOnly(Mathematics(Numbers(), named(Numbers, "NUMBERS"))),
    ),
    (
        "test_tables_are_found_by_name_and_unknown_ones_are_none",
        ReadOnly(RaisesForUnknown(Numbers())),
    ),
    ("test_arrow_schemas_are_valid_and_stable", ReadOnly(Mathematics(NewSchemaEachTime()))),
    ("test_scans_yield_the_columns_and_types_of_the_schema", ReadOnly(Mathematics(OtherType()))),
    ("test_scans_yield_the_columns_and_types_of_the_schema", ReadOnly(Mathematics(LacksColumn()))),
    ("test_scans_yield_the_columns_and_types_of_the_schema", ReadOnly(Mathematics(YieldsTables()))),
    (
        "test_projections_yield_at_least_what_was_asked",
        ReadOnly(Mathematics(IgnoresProjectionWrongly())),
    ),
    (
        "test_a_scan_without_columns_counts_the_rows",
        ReadOnly(Mathematics(IgnoresProjectionWrongly())),
    ),
    ("test_a_scan_may_be_closed_before_its_end", ReadOnly(Mathematics(OnceOnly()))),
    ("test_many_threads_may_scan_at_once", ReadOnly(Mathematics(OnceOnly()))),
    ("test_partitions_are_disjoint_and_complete", ReadOnly(Mathematics(Overlapping()))),
]


@pytest.mark.parametrize(
    ("name", "catalog"), BROKEN, ids=lambda part: part if isinstance(part, str) else ""
)
def test_the_contract_catches_a_broken_catalog(name, catalog):
    check: Callable[[Catalog, Context], None] = getattr(CatalogContract(), name)

    with pytest.raises((AssertionError, KeyError)):
        check(catalog, Context())
