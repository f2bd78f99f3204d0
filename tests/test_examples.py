"""The examples work as they stand."""

import runpy
from pathlib import Path

import sparkport as sp
from sparkport.testing import DuckDBClient

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_shop_can_be_read_and_written():
    catalog = runpy.run_path(str(EXAMPLES / "shop.py"))["catalog"]
    with sp.Server(catalog, "grpc://127.0.0.1:0") as server, DuckDBClient(server.location, "shop") as client:
        assert client.count("sales", "numbers") == 1_000_000
        assert client.insert("sales", "orders", {"id": [3], "amount": [1.5]}).total == 1
        assert client.scan("sales", "orders").column("amount").to_pylist() == [9.5, 12.0, 1.5]


def test_the_demo_catalog_can_be_read():
    from sparkport.builder.demo import demo_catalog

    with sp.Server(demo_catalog(), "grpc://127.0.0.1:0") as server, DuckDBClient(server.location, "demo") as client:
        assert client.count("shop", "orders") == 100_000
        assert client.scan("shop", "customers", where="country = 'NL'").column("name").to_pylist() == ["Edsger"]
