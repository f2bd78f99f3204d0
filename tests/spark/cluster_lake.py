"""A lake with tables, on a cluster that runs all its scans.

It is served by `sparkport serve cluster_lake.py:lake`.
"""

from __future__ import annotations

import os

from sparkport.spark import LakeCatalog, LakeSettings

__all__ = ["CHANGED", "EXECUTOR_SECONDS", "LARGE", "lake"]

LARGE = 200_000
"""Rows of `s.large` and `s.view`, in two halves: too many bytes for any buffer."""
CHANGED = 100_000
"""Rows of `s.changed`, which Spark updates."""
EXECUTOR_SECONDS = 5
"""How long scans wait for executors."""

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.driver.extraJavaOptions": _QUICK_START,
    "spark.sparkport.executorSeconds": str(EXECUTOR_SECONDS),
}
_ROWS = "id, concat(repeat('x', 300), id) AS text FROM range(0, {rows}, 1, 2)"
_STATEMENTS = (
    "CREATE NAMESPACE lake.s COMMENT 'for tests'",
    "CREATE TABLE lake.s.small (id BIGINT, item STRING, day DATE) USING iceberg PARTITIONED BY "
    "(day)"
    " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
    "INSERT INTO lake.s.small SELECT id, concat('item ', id), date_add(DATE '2024-01-01', CAST(id "
    "% 3 AS INT))"
    " FROM range(300)",
    "DELETE FROM lake.s.small WHERE id % 10 = 0",
    f"CREATE TABLE lake.s.large USING iceberg AS SELECT {_ROWS.format(rows=LARGE)}",
    "CREATE TABLE lake.s.foreign USING iceberg AS SELECT 1 AS a",
    "CREATE TABLE lake.s.changed USING iceberg TBLPROPERTIES ('format-version' = '3', "
    "'write.update.mode' = 'merge-on-read',"
    " 'write.merge.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read')"
    f" AS SELECT id, 0 AS v FROM range(0, {CHANGED}, 1, 4)",
    f"CREATE VIEW lake.s.view AS SELECT {_ROWS.format(rows=LARGE)}",
)


def lake() -> LakeCatalog:
    """The lake, named `tasks`; its Spark catalog has the name that the plain lake expects."""
    catalog = LakeCatalog(
        os.environ["CLUSTER_WAREHOUSE"],
        name="tasks",
        spark_catalog="lake",
        master=os.environ["CLUSTER_MASTER"],
        settings=LakeSettings(in_place_bytes=0, batch_rows=5_000, update_rows_in_place=0),
        conf=_CONF,
    )
    for statement in _STATEMENTS:
        catalog.spark.sql(statement)
    return catalog
