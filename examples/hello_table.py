"""The smallest server: a table in memory that can be changed, and a table that a function computes.

Run `python examples/hello_table.py`, or `sparkport serve examples/hello_table.py:catalog`. Then, in
DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'hello' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT * FROM hello.sales.orders;                       -- (1, 9.5), (2, 12.0)
    INSERT INTO hello.sales.orders VALUES (3, 1.5);         -- 1
    SELECT count(*), sum(amount) FROM hello.sales.orders;   -- (3, 23.0)
    SELECT max(n) FROM hello.sales.numbers WHERE n < 1000;  -- 999
    SELECT count(*) FROM hello.sales.numbers;               -- 1000000
"""

from collections.abc import Iterator

import pyarrow as pa

import sparkport as sp

catalog = sp.CatalogBuilder("hello")
sales = catalog.schema("sales", comment="What we sold")

# An Arrow table is kept in memory. Changes to it last until the server stops.
sales.table(
    "orders", pa.table({"id": [1, 2], "amount": [9.5, 12.0]}), comment="One line for each order"
)


# A function that yields record batches is a table, too. It is called anew for every query, and its
# batches are sent as they come, so the table may be larger than memory.
def numbers(ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
    for start in range(0, 1_000_000, 100_000):
        ctx.report_progress(start / 1_000_000)  # for DuckDB's progress bar
        yield pa.record_batch({"n": pa.array(range(start, start + 100_000), pa.int64())})


sales.table("numbers", numbers, arrow_schema=pa.schema([("n", pa.int64())]))

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
