"""The demo schema of a lake: made once, completed after an interruption, and then left alone."""

from __future__ import annotations

import pytest

from sparkport.spark import LakeCatalog, demo


@pytest.fixture(scope="module")
def filled(lake, tmp_path_factory):
    """A lake of its own that holds the demo."""
    catalog = LakeCatalog(tmp_path_factory.mktemp("demo"), name="demo_lake")
    demo.fill(catalog)
    yield catalog
    catalog.close()


def snapshots(catalog: LakeCatalog, table: str) -> list[int]:
    rows = (
        catalog.spark.table(f"{catalog.spark_catalog}.demo.{table}.snapshots")
        .orderBy("committed_at")
        .collect()
    )
    return [row.snapshot_id for row in rows]


def one(catalog: LakeCatalog, query: str):
    """The single value of a query, whose names are those of the schema."""
    ((value,),) = catalog.spark.sql(
        query.replace("demo.", f"{catalog.spark_catalog}.demo.")
    ).collect()
    return value


def test_it_looks_like_a_shop(filled):
    counts = {
        table: one(filled, f"SELECT count(*) FROM demo.{table}")
        for table in ("customers", "products", "orders", "events")
    }

    assert counts == {"customers": 1000, "products": 40, "orders": 50_000, "events": 5000}
    assert (
        one(
            filled,
            "SELECT count(*) FROM demo.orders o JOIN demo.customers c ON c.id = o.customer_id",
        )
        == 50_000
    )
    assert one(filled, "SELECT count(DISTINCT partition) FROM demo.orders.partitions") == 12
    assert one(filled, "SELECT sum(orders) FROM demo.revenue") == one(
        filled, "SELECT count(*) FROM demo.orders WHERE status = 'paid'"
    )
    assert one(filled, "SELECT max(visitor.customer_id) FROM demo.events") <= 1000
    assert one(filled, "SELECT sum(size(looked_at)) FROM demo.events") > 5000


def test_its_orders_have_a_past(filled):
    first, second, last = snapshots(filled, "orders")

    counts = [
        one(filled, f"SELECT count(*) FROM demo.orders VERSION AS OF {version}")
        for version in (first, second, last)
    ]
    assert counts == [25_000, 50_000, 50_000]
    returned = "SELECT count(*) FROM demo.orders VERSION AS OF {} WHERE status = 'returned'"
    assert one(filled, returned.format(second)) == 0
    assert one(filled, returned.format(last)) > 1000


@pytest.mark.long
def test_a_start_that_was_interrupted_is_completed_and_a_complete_one_left_alone(filled):
    namespace = f"{filled.spark_catalog}.demo"
    before = {table: snapshots(filled, table) for table in ("customers", "orders")}
    demo.fill(filled)
    assert {table: snapshots(filled, table) for table in before} == before

    # As if the process had ended after the first orders, and before the events.
    first = before["orders"][0]
    spark = filled.spark
    spark.sql(f"CALL {filled.spark_catalog}.system.rollback_to_snapshot('demo.orders', {first})")
    spark.sql(
        f"CALL {filled.spark_catalog}.system.expire_snapshots(table => 'demo.orders', older_than "
        "=> now(), retain_last => 1)"
    )
    spark.sql(f"DROP TABLE {namespace}.events PURGE")
    spark.sql(f"DROP VIEW {namespace}.revenue")
    spark.sql(f"ALTER NAMESPACE {namespace} SET PROPERTIES ('sparkport.demo' = 'filling')")
    demo.fill(filled)

    assert snapshots(filled, "customers") == before["customers"]
    assert len(snapshots(filled, "orders")) == 3
    assert one(filled, "SELECT count(*) FROM demo.orders") == 50_000
    assert one(filled, "SELECT count(*) FROM demo.events") == 5000
    assert one(filled, "SELECT count(*) FROM demo.revenue") == 36

    spark.sql(f"DROP TABLE {namespace}.events PURGE")
    demo.fill(filled)
    assert "events" not in [
        row.tableName for row in spark.sql(f"SHOW TABLES IN {namespace}").collect()
    ]


def test_a_schema_that_somebody_else_has_made_is_left_alone(lake, tmp_path):
    catalog = LakeCatalog(tmp_path, name="elses_lake")
    try:
        catalog.spark.sql(f"CREATE NAMESPACE {catalog.spark_catalog}.demo")
        demo.fill(catalog)

        assert catalog.spark.sql(f"SHOW TABLES IN {catalog.spark_catalog}.demo").collect() == []
    finally:
        catalog.close()
