"""The lake: Iceberg tables on Apache Spark, and whatever else a Spark catalog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkport.spark.lake.settings import LakeSettings

if TYPE_CHECKING:
    from sparkport.spark.catalog import LakeCatalog

__all__ = ["LakeCatalog", "LakeSettings"]


def __getattr__(name: str) -> object:
    # Workers of Spark import modules of this package, and need neither the catalog nor what it
    # takes to make one.
    if name == "LakeCatalog":
        from sparkport.spark.catalog import LakeCatalog

        return LakeCatalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
