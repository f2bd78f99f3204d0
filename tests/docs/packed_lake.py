"""A lake on a cluster: all scans run on Spark's workers, in a packed environment."""

from __future__ import annotations

import os

from sparkport.spark import LakeCatalog, LakeSettings

__all__ = ["ROWS", "lake"]

ROWS = 1000
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def lake() -> LakeCatalog:
    """Set up as docs/how-to/deploy-on-a-cluster.md says."""
    catalog = LakeCatalog(
        os.environ["PACKED_WAREHOUSE"],
        master=os.environ["PACKED_MASTER"],
        settings=LakeSettings(in_place_bytes=0),
        conf={
            "spark.archives": f"{os.environ['PACKED_ENVIRONMENT']}#environment",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.sparkport.relayPort": os.environ["PACKED_RELAY_PORT"],
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _QUICK_START,
            "spark.driver.extraJavaOptions": _QUICK_START,
        },
    )
    catalog.spark.sql("CREATE NAMESPACE lake.s")
    catalog.spark.sql(
        f"CREATE TABLE lake.s.t USING iceberg AS SELECT id, concat('item ', id) AS item FROM "
        f"range({ROWS})"
    )
    return catalog
