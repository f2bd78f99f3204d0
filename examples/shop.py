"""A catalog of one's own: run `python examples/shop.py`, or `sparkport serve examples/shop.py:catalog`."""

from collections.abc import Iterator

import pyarrow as pa

import sparkport as sp

catalog = sp.CatalogBuilder("shop")
sales = catalog.schema("sales", comment="What we sold")

# An Arrow table can be written to, in memory.
sales.table("orders", pa.table({"id": [1, 2], "amount": [9.5, 12.0]}))


def numbers(ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
    """Anything that yields record batches is a table."""
    for start in range(0, 1_000_000, 100_000):
        yield pa.record_batch({"n": pa.array(range(start, start + 100_000), pa.int64())})


sales.table("numbers", numbers, arrow_schema=pa.schema([("n", pa.int64())]))

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
