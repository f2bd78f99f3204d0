"""A small catalog to try things with: `sparkport serve --demo`."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa

from sparkport.builder.catalog import CatalogBuilder
from sparkport.catalog import Constraints

__all__ = ["demo_catalog"]

_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald")
_COUNTRIES = ("GB", "US", "NL", "US", "US")


def demo_catalog(name: str = "demo") -> CatalogBuilder:
    """A shop: customers, 100,000 orders, and notes with a CHECK, all of which can be changed, in memory."""
    builder = CatalogBuilder(name)
    shop = builder.schema("shop", comment="A shop to try things with; changes last until the server stops")
    customers = pa.table({"id": pa.array(range(1, 6), pa.int64()), "name": _CUSTOMERS, "country": _COUNTRIES})
    shop.table("customers", customers, comment="Who buys", constraints=Constraints(primary_key=("id",)))
    shop.table("orders", _orders(100_000), comment="What was bought")
    note = pa.schema([("id", pa.int64()), ("text", pa.string())])
    shop.table("notes", note, comment="Yours to fill", constraints=Constraints(checks=("(length(text) > 0)",)))
    return builder


def _orders(count: int) -> pa.Table:
    day = datetime.date(2026, 1, 1)
    return pa.table(
        {
            "id": pa.array(range(1, count + 1), pa.int64()),
            "customer_id": pa.array([1 + index % 5 for index in range(count)], pa.int64()),
            "amount": pa.array([Decimal(index % 9973) / 100 for index in range(count)], pa.decimal128(10, 2)),
            "day": pa.array([day + datetime.timedelta(days=index % 365) for index in range(count)], pa.date32()),
        }
    )
