"""The contract suite of implementers, on the lake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkport.catalog import Catalog, Context, DropSchemaOptions
from sparkport.spark import LakeCatalog
from sparkport.testing import CatalogContract

_SHOP = (
    "CREATE NAMESPACE contract.shop",
    "CREATE TABLE contract.shop.orders (id BIGINT NOT NULL, item STRING, amount DOUBLE, day DATE) USING iceberg"
    " PARTITIONED BY (day) TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
    "INSERT INTO contract.shop.orders VALUES (1, 'tea', 2.5, DATE '2024-01-01'), (2, NULL, 4.0, DATE '2024-01-02'),"
    " (3, 'milk', NULL, DATE '2024-01-02')",
    "DELETE FROM contract.shop.orders WHERE id = 3",
    "CREATE VIEW contract.shop.expensive AS SELECT id, amount FROM contract.shop.orders WHERE amount > 3",
)


@pytest.fixture(scope="module")
def shop(lake: LakeCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    """A lake of its own, in the session of the others: the suite reads all that there is."""
    with LakeCatalog(tmp_path_factory.mktemp("contract"), name="contract") as catalog:
        for statement in _SHOP:
            catalog.spark.sql(statement)
        yield catalog


class TestLake(CatalogContract):
    """One lake for all tests: what one of them makes is dropped after it."""

    @pytest.fixture
    def catalog(self, shop: LakeCatalog) -> Iterator[Catalog]:
        yield shop
        for schema in shop.schemas(Context()):
            if schema.name != "shop":
                shop.drop_schema(Context(), schema.name, DropSchemaOptions(ignore_not_found=True, cascade=True))
