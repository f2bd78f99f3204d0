"""Change schemas, tables, columns and rows by SQL, under constraints that the server enforces.

Run `python examples/ddl_and_dml.py`, or `sparkport serve examples/ddl_and_dml.py:catalog`. Then, in
DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'shop' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    INSERT INTO shop.stock.items VALUES (1, 'tea', 5), (2, 'cup', 3) RETURNING id;
        -- 1, 2
    INSERT INTO shop.stock.items VALUES (2, 'mug', 1);
        -- Constraint Error: Duplicate key "id: 2" violates primary key …
    UPDATE shop.stock.items SET quantity = -1;
        -- Constraint Error: CHECK constraint failed on table items …
    UPDATE shop.stock.items SET quantity = quantity * 2 WHERE id = 1 RETURNING *;
        -- (1, 'tea', 10)

    CREATE SCHEMA shop.reports;
    CREATE TABLE shop.reports.totals AS SELECT sum(quantity) AS total FROM shop.stock.items;
    ALTER TABLE shop.reports.totals ADD COLUMN note VARCHAR;
    UPDATE shop.reports.totals SET note = 'counted';                   -- 1
    SELECT * FROM shop.reports.totals;                                 -- (13, 'counted')

    DELETE FROM shop.stock.items WHERE name = 'cup';                   -- 1
    DROP TABLE shop.reports.totals;
    DROP SCHEMA shop.reports;
"""

import pyarrow as pa

import sparkport as sp
from sparkport.catalog import Constraints

catalog = sp.CatalogBuilder("shop")
stock = catalog.schema("stock")

# An Arrow schema is an empty table. A column that is not nullable is NOT NULL in SQL; the other
# constraints are the server's own, and hold for whoever writes.
columns = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("quantity", pa.int64())]
)
stock.table(
    "items", columns, constraints=Constraints(primary_key=("id",), checks=("quantity >= 0",))
)

# All of this is in memory, and is gone when the server stops. To keep rows elsewhere, implement the
# interfaces in docs/how-to/your-own-catalog.md (StagedTable, DynamicSchema, …): the SQL above
# stays the same.

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
