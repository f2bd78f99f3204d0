"""A small catalog to try things with: `sparkport serve --demo`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.builder.catalog import CatalogBuilder, SchemaBuilder
from sparkport.catalog import Constraints, Context
from sparkport.errors import BadRequest
from sparkport.memory import MemorySettings

__all__ = ["demo_catalog"]

_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald")
_COUNTRIES = ("GB", "US", "NL", "US", "US")
_MOST_DAYS = 10_000


def demo_catalog(name: str = "demo", settings: MemorySettings | None = None) -> CatalogBuilder:
    """A shop in memory: customers, 100,000 orders, notes with a CHECK, and functions."""
    builder = CatalogBuilder(name, settings)
    shop = builder.schema(
        "shop", comment="A shop to try things with; changes last until the server stops"
    )
    customers = pa.table(
        {"id": pa.array(range(1, 6), pa.int64()), "name": _CUSTOMERS, "country": _COUNTRIES}
    )
    shop.table(
        "customers", customers, comment="Who buys", constraints=Constraints(primary_key=("id",))
    )
    shop.table("orders", _orders(100_000), comment="What was bought")
    note = pa.schema([("id", pa.int64()), ("text", pa.string())])
    shop.table(
        "notes",
        note,
        comment="Yours to fill",
        constraints=Constraints(checks=("(length(text) > 0)",)),
    )
    _add_functions(shop)

    @builder.action
    def ping(ctx: Context, parameter: bytes) -> bytes:
        """Answer with what was sent."""
        return parameter or b"pong"

    return builder


def _add_functions(shop: SchemaBuilder) -> None:
    def gross(net: pa.float64(), rate: pa.float64() = 0.2) -> pa.float64():  # type: ignore[valid-type]
        """The price with tax, of 20 % unless another rate is given."""
        return pc.multiply(net, pc.add(1.0, rate))

    shop.scalar_function(gross, stability="consistent")

    @shop.table_function(returns=pa.schema([("day", pa.date32())]))
    def days(first: pa.date32(), count: pa.int64(), *, step: pa.int64() = 1) -> pa.Table:  # type: ignore[valid-type]
        """Days from the first one on: how many is count, how far apart is step."""
        if first is None or count is None or not 0 <= count <= _MOST_DAYS:
            raise BadRequest(
                f"days wants a first day, and a count from 0 to {_MOST_DAYS}, not {first} and "
                f"{count}"
            )
        wanted = [first + datetime.timedelta(days=index * step) for index in range(count)]
        return pa.table({"day": pa.array(wanted, pa.date32())})

    @shop.table_function(returns=pa.schema([("rows", pa.int64()), ("batches", pa.int64())]))
    def counted(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """How many rows a subquery has, and in how many batches they came."""
        sizes = [batch.num_rows for batch in rows]
        yield pa.record_batch({"rows": [sum(sizes)], "batches": [len(sizes)]})


def _orders(count: int) -> pa.Table:
    day = datetime.date(2026, 1, 1)
    return pa.table(
        {
            "id": pa.array(range(1, count + 1), pa.int64()),
            "customer_id": pa.array([1 + index % 5 for index in range(count)], pa.int64()),
            "amount": pa.array(
                [Decimal(index % 9973) / 100 for index in range(count)], pa.decimal128(10, 2)
            ),
            "day": pa.array(
                [day + datetime.timedelta(days=index % 365) for index in range(count)], pa.date32()
            ),
        }
    )
