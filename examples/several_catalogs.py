"""Serve several catalogs from one server; clients attach each by its name and can join them.

Run `python examples/several_catalogs.py`, or `sparkport serve examples/several_catalogs.py:sales
examples/several_catalogs.py:people`. Then, in DuckDB:

    INSTALL airport FROM community; LOAD airport;
    SELECT * FROM airport_databases('grpc://127.0.0.1:50051');
        -- ('sales', NULL), ('people', NULL)
    ATTACH 'sales' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');
    ATTACH 'people' AS crm (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT name, sum(amount) FROM sales.shop.orders JOIN crm.directory.customers ON id = customer
        GROUP BY ALL ORDER BY ALL;                  -- ('Ada', 11.0), ('Grace', 12.0)
    CREATE TABLE crm.directory.best AS SELECT customer FROM sales.shop.orders WHERE amount > 9;
    SELECT * FROM crm.directory.best ORDER BY ALL;  -- 1, 2
"""

import pyarrow as pa

import sparkport as sp

sales = sp.CatalogBuilder("sales")
sales.schema("shop").table("orders", pa.table({"customer": [1, 2, 1], "amount": [9.5, 12.0, 1.5]}))

people = sp.CatalogBuilder("people")
people.schema("directory").table("customers", pa.table({"id": [1, 2], "name": ["Ada", "Grace"]}))

if __name__ == "__main__":
    # A dictionary would serve them under names of your choice: {"sales_2026": sales, "people":
    # people}.
    sp.serve([sales, people], "grpc://127.0.0.1:50051")
