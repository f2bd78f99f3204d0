"""Which tables care does not touch, and why: for the caretaker, and for those who ask."""

from __future__ import annotations

from collections.abc import Mapping

from sparkport.spark.lake.care_settings import CARE_PROPERTY, care_of
from sparkport.spark.lake.folders import FOLDER_PROPERTY, may_collect
from sparkport.spark.lake.settings import LakeSettings

__all__ = ["ONLY_SPARK", "VERSIONS_STAY", "exemption"]

ONLY_SPARK = "only Spark can read it"
"""Of a table with columns that this process cannot describe."""
VERSIONS_STAY = "only Spark can reach its files: no version is forgotten"
"""Of a table whose files are joined by Spark, which is all that is done for it."""


def exemption(settings: LakeSettings, properties: Mapping[str, str], name: str) -> str:
    """Why care leaves a table of that name and these properties alone; empty if it does not."""
    if not settings.care:
        return "switched off for the whole lake: lake_care"
    if not care_of(settings, properties).enabled:
        is_known = FOLDER_PROPERTY in properties or CARE_PROPERTY in properties
        return "switched off" if is_known else _made_elsewhere(name)
    if not may_collect(properties):
        return "it shares its files with others: gc.enabled is false"
    return ""


def _made_elsewhere(name: str) -> str:
    written = name.replace("'", "''")
    return f"made by another engine: set_care('{written}', enabled := true)"
