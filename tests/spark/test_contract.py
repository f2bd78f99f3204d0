"""The contract suite of implementers, on the lake."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.spark.places import Place

from sparkport.catalog import (
    Catalog,
    Constraints,
    Context,
    CreateTableOptions,
    DMLOptions,
    DropSchemaOptions,
    Operation,
    Table,
)
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.schema import LakeSchema
from sparkport.spark.table import LakeTable
from sparkport.testing import CatalogContract, DuckDBClient

_SHOP = (
    "CREATE NAMESPACE contract.shop",
    "CREATE TABLE contract.shop.orders (id BIGINT NOT NULL, item STRING, amount DOUBLE, day DATE) "
    "USING iceberg"
    " PARTITIONED BY (day) TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = "
    "'merge-on-read')",
    "INSERT INTO contract.shop.orders VALUES (1, 'tea', 2.5, DATE '2024-01-01'), (2, NULL, 4.0, "
    "DATE '2024-01-02'),"
    " (3, 'milk', NULL, DATE '2024-01-02')",
    "DELETE FROM contract.shop.orders WHERE id = 3",
    "CREATE VIEW contract.shop.expensive AS SELECT id, amount FROM contract.shop.orders WHERE "
    "amount > 3",
)
_ARTICLES = pa.schema(
    [
        pa.field("code", pa.uint16(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("note", pa.string()),
    ]
)
_KEYS = Constraints(("code", "name"), ("price > 0",), (("name",),), ("code",))
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def shop(lake: LakeCatalog, place: Place) -> Iterator[LakeCatalog]:
    """A lake of its own, in the session of the others: the suite reads everything in it."""
    with LakeCatalog(
        source=place.source("contract"), name="contract", settings=LakeSettings(statistics_rows=0)
    ) as catalog:
        for statement in _SHOP:
            catalog.spark.sql(statement)
        schema = catalog.schema(Context(), "shop")
        assert isinstance(schema, LakeSchema)
        articles = schema.create_table(
            Context(), "articles", _ARTICLES, CreateTableOptions(constraints=_KEYS)
        )
        assert isinstance(articles, LakeTable)
        insert = articles.stage(Context(), Operation.INSERT, DMLOptions())
        insert.apply(_articles())
        assert insert.commit() == 3
        yield catalog


def _articles() -> pa.RecordBatch:
    numbers = [next(_NUMBERS) for _ in range(3)]
    names = [f"article {number}" for number in numbers]
    prices = [Decimal(number) / 4 for number in numbers]
    return pa.record_batch([numbers, names, prices, [None, *names[1:]]], schema=_ARTICLES)


class TestLake(CatalogContract):
    """One lake for all tests: after each, what it made is dropped and its changes are undone."""

    timeout = 60.0
    engine_messages = True

    @pytest.fixture
    def catalog(self, shop: LakeCatalog) -> Iterator[Catalog]:
        before = _versions(shop)
        yield shop
        for schema in shop.schemas(Context()):
            if schema.name != "shop":
                shop.drop_schema(
                    Context(), schema.name, DropSchemaOptions(ignore_not_found=True, cascade=True)
                )
        for name, version in _versions(shop).items():
            if version != before[name]:
                shop.spark.sql(
                    f"CALL contract.system.rollback_to_snapshot('shop.{name}', {before[name]})"
                )
        shop._lake.catalog.changed()  # not every catalog is watched as SQLite is

    def may_refuse(self, table: Table) -> bool:
        return not isinstance(table, LakeTable)

    def new_rows(self, client: DuckDBClient, schema: str, table: Table) -> pa.Table | None:
        if table.name == "articles":
            return pa.Table.from_batches([_articles()])
        return super().new_rows(client, schema, table)


def _versions(shop: LakeCatalog) -> dict[str, int]:
    """The snapshots of all tables."""
    schema = shop.schema(Context(), "shop")
    assert schema is not None
    states = {
        table.name: table.state
        for table in schema.tables(Context())
        if isinstance(table, LakeTable)
    }
    return {
        name: state.snapshot.snapshot_id
        for name, state in states.items()
        if state.snapshot is not None
    }
