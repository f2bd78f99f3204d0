"""A schema to try a lake with: `sparkport serve --warehouse DIR --demo`."""

from __future__ import annotations

import logging
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkport.catalog import Context, CreateSchemaOptions
from sparkport.errors import AlreadyExists
from sparkport.spark.iceberg.identifiers import quoted
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.jvm.session.folder_lock import locked_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkport.spark.catalog import LakeCatalog

__all__ = ["SCHEMA", "fill"]

_log = logging.getLogger("sparkport.spark.demo")

SCHEMA = "demo"

_STATE = "sparkport.demo"
"""Property of the namespace: whether Sparkport made it, and whether it is complete.

A complete demo that was changed since is left as it is.
"""
_FILLING, _COMPLETE = "filling", "complete"


@dataclass(frozen=True, slots=True)
class _Table:
    """How a demo table is made: each of its changes is a snapshot, a version to travel to."""

    comment: str
    columns: str
    changes: tuple[str, ...]
    partitioning: str = ""


_PROPERTIES = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}

_CUSTOMERS = _Table(
    "Who buys",
    """
        id BIGINT NOT NULL,
        name STRING,
        email STRING,
        country STRING COMMENT 'ISO 3166-1',
        since DATE COMMENT 'The day of the first order'
    """,
    (
        """
        INSERT INTO {customers}
        SELECT
            id,
            concat(
                elt(
                    1 + pmod(hash(id), 8),
                    'Ada', 'Grace', 'Edsger', 'Barbara', 'Donald', 'Frances', 'Alan', 'Radia'
                ),
                ' ',
                elt(
                    1 + pmod(hash(id, 1), 7),
                    'Miller', 'Novak', 'Okafor', 'Silva', 'Tanaka', 'Weber', 'Yılmaz'
                )
            ),
            concat('customer', id, '@example.org'),
            elt(1 + pmod(hash(id, 2), 8), 'BR', 'CZ', 'DE', 'GB', 'JP', 'NG', 'TR', 'US'),
            date_add(DATE '2020-01-01', pmod(hash(id, 3), 1800))
        FROM range(1, 1001)
        """,
    ),
)

_PRODUCTS = _Table(
    "What can be bought",
    """
        id BIGINT NOT NULL,
        name STRING,
        category STRING,
        price DECIMAL(10, 2) COMMENT 'In euros, with tax',
        tags ARRAY<STRING>
    """,
    (
        """
        INSERT INTO {products}
        SELECT
            id,
            concat(
                elt(int(1 + pmod(id, 5)), 'Oak', 'Steel', 'Glass', 'Linen', 'Paper'),
                ' ',
                elt(
                    int(1 + pmod(id, 8)),
                    'chair', 'lamp', 'shelf', 'table', 'vase', 'box', 'clock', 'frame'
                )
            ),
            elt(int(1 + pmod(id, 4)), 'furniture', 'light', 'furniture', 'decoration'),
            CAST(5 + pmod(hash(id), 20000) / 100 AS DECIMAL(10, 2)),
            filter(
                array('new', 'sale', 'handmade', 'recycled'), (tag, n) -> pmod(hash(id, n), 3) = 0
            )
        FROM range(1, 41)
        """,
    ),
)

_SOLD = """
        INSERT INTO {orders}
        SELECT
            o.id, o.customer_id, o.product_id, o.quantity, o.quantity * p.price, 'paid',
            o.ordered_at
        FROM (
            SELECT
                id,
                1 + pmod(hash(id), 1000) AS customer_id,
                1 + pmod(hash(id, 1), 40) AS product_id,
                1 + pmod(hash(id, 2), 5) AS quantity,
                TIMESTAMP_NTZ '2025-01-01 00:00:00' + make_dt_interval(0, 0, 0, id * 630)
                    AS ordered_at
            FROM range({first}, {end})
        ) AS o JOIN {products} AS p ON p.id = o.product_id
        """

_ORDERS = _Table(
    "What was bought, by month",
    """
        id BIGINT NOT NULL,
        customer_id BIGINT,
        product_id BIGINT,
        quantity INT,
        amount DECIMAL(12, 2) COMMENT 'quantity × price when it was bought',
        status STRING COMMENT 'paid or returned',
        ordered_at TIMESTAMP_NTZ
    """,
    (
        _SOLD.replace("{first}", "1").replace("{end}", "25001"),
        _SOLD.replace("{first}", "25001").replace("{end}", "50001"),
        "UPDATE {orders} SET status = 'returned' WHERE pmod(hash(id, 3), 20) = 0",
    ),
    "PARTITIONED BY (months(ordered_at))",
)

_EVENTS = _Table(
    "What visitors of the shop did",
    """
        id BIGINT NOT NULL,
        at TIMESTAMP,
        kind STRING COMMENT 'view, cart or search',
        visitor STRUCT<customer_id: BIGINT, device: STRING>
            COMMENT 'Without customer_id before they log in',
        properties MAP<STRING, STRING>,
        looked_at ARRAY<STRUCT<product_id: BIGINT, seconds: INT>>
    """,
    (
        """
        INSERT INTO {events}
        SELECT
            id,
            TIMESTAMP '2025-01-01 00:00:00' + make_dt_interval(0, 0, 0, id * 5400),
            elt(1 + pmod(hash(id, 3), 5), 'view', 'view', 'view', 'cart', 'search'),
            named_struct(
                'customer_id', IF(pmod(hash(id), 3) = 0, NULL, bigint(1 + pmod(hash(id, 1), 1000))),
                'device', elt(1 + pmod(hash(id, 2), 3), 'phone', 'laptop', 'tablet')
            ),
            map(
                'page', concat('/products/', 1 + pmod(hash(id, 4), 40)),
                'campaign', concat('c', pmod(id, 7))
            ),
            transform(
                sequence(1, 1 + pmod(hash(id, 5), 3)),
                n -> named_struct(
                    'product_id', bigint(1 + pmod(hash(id, n), 40)),
                    'seconds', pmod(hash(id, n, 1), 90)
                )
            )
        FROM range(1, 5001)
        """,
    ),
)

_TABLES = {"customers": _CUSTOMERS, "products": _PRODUCTS, "orders": _ORDERS, "events": _EVENTS}

_REVENUE = """
    CREATE OR REPLACE VIEW {revenue} COMMENT 'Paid orders by month and category' AS
    SELECT trunc(o.ordered_at, 'MONTH') AS month, p.category,
        count(*) AS orders, sum(o.amount) AS revenue
    FROM {orders} AS o JOIN {products} AS p ON p.id = o.product_id
    WHERE o.status = 'paid' GROUP BY ALL
    """


def fill(lake: LakeCatalog) -> None:
    """Make the schema, once. A start completes what an interrupted one has left out.

    A schema of that name that is not from here stays as it is. Servers that start at the same time
    on one warehouse fill it one after the other.
    """
    warehouse = local_path(
        lake.spark.conf.get(f"spark.sql.catalog.{lake.spark_catalog}.warehouse") or ""
    )
    with locked_folder(Path(warehouse)) if warehouse else nullcontext():
        with suppress(AlreadyExists):
            lake.create_schema(
                Context(),
                SCHEMA,
                CreateSchemaOptions("A shop to try things with", {_STATE: _FILLING}),
            )
        made = lake.schema(Context(), SCHEMA)
        if made is not None and made.name == SCHEMA and made.tags.get(_STATE) == _FILLING:
            _log.info("filling the schema %s", SCHEMA)
            namespace = f"{quoted(lake.spark_catalog)}.{quoted(SCHEMA)}"
            _make(lake.spark, namespace)
            lake.spark.sql(
                f"ALTER NAMESPACE {namespace} SET PROPERTIES ('{_STATE}' = '{_COMPLETE}')"
            )


def _make(spark: SparkSession, namespace: str) -> None:
    names = {name: f"{namespace}.{quoted(name)}" for name in (*_TABLES, "revenue")}
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
    for name, table in _TABLES.items():
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {names[name]} ({table.columns})"
            f" USING iceberg {table.partitioning}"
            f" COMMENT '{table.comment}' TBLPROPERTIES ({properties})"
        )
        made = spark.table(f"{names[name]}.snapshots").count()
        for change in table.changes[made:]:
            spark.sql(change.format(**names))
    spark.sql(_REVENUE.format(**names))
