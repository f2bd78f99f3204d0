"""The contract suite itself, on a catalog that can do everything and on one that can do little."""

from collections.abc import Iterator

import pyarrow as pa

from sparkport.catalog import Catalog, Context, ScanOptions, Schema, Table
from sparkport.memory import MemoryCatalog, MemoryTable
from sparkport.testing import CatalogContract


class TestMemoryCatalog(CatalogContract):
    def make_catalog(self) -> Catalog:
        catalog = MemoryCatalog("shop")
        sales = catalog.add_schema("sales", comment="What we sold")
        ids = range(5000)
        rows = pa.table({"id": ids, "name": [f"n{i}" for i in ids], "amount": [i / 4 for i in ids]})
        sales.add_table(MemoryTable("orders", rows))
        sales.add_table(MemoryTable("nothing", rows.slice(0, 0)))
        catalog.add_schema("empty")
        return catalog


class _Numbers(Table):
    name = "numbers"
    arrow_schema = pa.schema([("n", pa.int64()), ("text", pa.string())])

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        for start in range(0, 3000, 1000):
            ctx.check()
            numbers = list(range(start, start + 1000))
            yield pa.record_batch([numbers, [str(n) for n in numbers]], schema=self.arrow_schema)


class _Mathematics(Schema):
    name = "mathematics"

    def tables(self, ctx: Context) -> list[Table]:
        return [_NUMBERS]


class _ReadOnly(Catalog):
    name = "readonly"

    def schemas(self, ctx: Context) -> list[Schema]:
        return [_Mathematics()]


_NUMBERS = _Numbers()


class TestReadOnlyCatalog(CatalogContract):
    def make_catalog(self) -> Catalog:
        return _ReadOnly()
