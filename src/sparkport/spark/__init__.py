"""The lake: Iceberg tables on Apache Spark, and whatever else a Spark catalog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkport.spark.lake.settings import LakeSettings

if TYPE_CHECKING:
    from sparkport.spark.catalog import LakeCatalog
    from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["LakeCatalog", "LakeSettings", "LakeSource"]


def __getattr__(name: str) -> object:
    # Workers of Spark import modules of this package, and need neither the catalog nor what it
    # takes to make one.
    if name == "LakeCatalog":
        from sparkport.spark.catalog import LakeCatalog

        return LakeCatalog
    if name == "LakeSource":
        from sparkport.spark.jvm.session.source import LakeSource

        return LakeSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
