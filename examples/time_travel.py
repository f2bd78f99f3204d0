"""Time travel: a table in memory keeps its versions, and your own table can have a past too.

Run `python examples/time_travel.py`, or `sparkport serve examples/time_travel.py:catalog`. Then, in
DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'past' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    INSERT INTO past.shop.notes VALUES (1, 'hello');               -- version 1
    UPDATE past.shop.notes SET text = 'goodbye';                   -- version 2
    ALTER TABLE past.shop.notes ADD COLUMN author VARCHAR;         -- version 3
    SELECT * FROM past.shop.notes;                                 -- (1, 'goodbye', NULL)
    SELECT * FROM past.shop.notes AT (VERSION => 1);               -- (1, 'hello')
    SELECT count(*) FROM past.shop.notes AT (TIMESTAMP => now());  -- 1

    SELECT * FROM past.shop.prices;                                -- ('tea', 3.5), ('cup', 8.0)
    SELECT * FROM past.shop.prices AT (TIMESTAMP => TIMESTAMP '2025-06-30 12:00');
        -- ('tea', 3.0)
"""

from collections.abc import Iterator

import pyarrow as pa

import sparkport as sp
from sparkport.catalog import DynamicSchemaTable, SchemaRequest

catalog = sp.CatalogBuilder("past")
shop = catalog.schema("shop")

# Each change of rows or columns makes a version: 0 is the table as it stands here. The last 1000
# can be read.
shop.table("notes", pa.schema([("id", pa.int64()), ("text", pa.string())]))


HISTORY = [
    ("2025-01-01", {"item": ["tea"], "price": [3.0]}),
    ("2026-01-01", {"item": ["tea", "cup"], "price": [3.5, 8.0]}),
]


class Prices(DynamicSchemaTable):
    """Prices, each valid from a day on. A `DynamicSchemaTable` can be asked about its past."""

    name = "prices"
    arrow_schema = pa.schema([("item", pa.string()), ("price", pa.float64())])

    def schema_for_request(self, ctx: sp.Context, request: SchemaRequest) -> pa.Schema:
        return self.arrow_schema  # the same at all times; it could depend on request.time_point

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        # None without AT, else a unit and a text such as "2025-06-30 12:00:00".
        point = options.time_point
        if point is not None and point.unit != "timestamp":
            raise sp.BadRequest("prices have no versions: ask for AT (TIMESTAMP => …)")
        known = [prices for since, prices in HISTORY if point is None or since <= point.value]
        if known:
            yield pa.record_batch(known[-1], schema=self.arrow_schema)


shop.table("prices", Prices())

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
