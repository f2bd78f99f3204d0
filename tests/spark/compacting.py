"""What tests of compaction share: settings, a way to compact, and what Spark sees of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.spark.lake_tables import find, folder, sql_name

from sparkport.spark import LakeCatalog
from sparkport.spark.care.compaction import Compacted, compact, compaction_need
from sparkport.spark.iceberg.plan import plan_files
from sparkport.spark.lake.care_settings import CareSettings

__all__ = ["SETTINGS", "compacted", "everything", "files", "partitioned", "strays", "with_settings"]

SETTINGS = CareSettings(
    enabled=True,
    keep_days=7,
    keep_versions=100,
    most_versions=500,
    small_files=2,
    file_bytes=128 * 1024 * 1024,
    file_seconds=3600,
)
"""Two small files are worth to be joined."""

_PROPERTIES = ", ".join(
    f"'{name}' = '{value}'"
    for name, value in {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }.items()
)


def with_settings(**changes: Any) -> CareSettings:
    return replace(SETTINGS, **changes)


def compacted(
    lake: LakeCatalog,
    namespace: str,
    name: str = "t",
    settings: CareSettings = SETTINGS,
    pause: Callable[[], None] = lambda: None,
) -> Compacted | None:
    """Compact a table once, which needs it."""
    need = compaction_need(find(lake, namespace, name).state, settings)
    assert need is not None
    return compact(lake._lake, need, settings, pause, lambda _: None)


def partitioned(lake: LakeCatalog, namespace: str, columns: str, by: str, name: str = "t") -> str:
    """Make a table with partitions, and return its name in SQL."""
    table = sql_name(lake, namespace, name)
    lake.spark.sql(
        f"CREATE TABLE {table} ({columns}) USING iceberg PARTITIONED BY ({by}) "
        f"TBLPROPERTIES ({_PROPERTIES})"
    )
    return table


def everything(lake: LakeCatalog, namespace: str, name: str = "t") -> list[tuple[Any, ...]]:
    """All rows with all that Spark knows of them."""
    query = "SELECT _row_id, _last_updated_sequence_number, * FROM "
    found = lake.spark.sql(query + sql_name(lake, namespace, name)).collect()
    return sorted((tuple(row) for row in found), key=lambda row: row[0])


def files(lake: LakeCatalog, namespace: str, name: str = "t") -> list[Any]:
    """The data files of a table."""
    found = plan_files(find(lake, namespace, name).state)
    assert found is not None
    return list(found)


def strays(lake: LakeCatalog, namespace: str, name: str = "t") -> set[str]:
    """Files of rows in the table's folder that no snapshot leads to."""
    table, known = find(lake, namespace, name), set()
    for kind in ("all_data_files", "all_delete_files"):
        paths = lake.spark.sql(f"SELECT file_path FROM {sql_name(lake, namespace, name)}.{kind}")
        known |= {row[0].rpartition("/")[2] for row in paths.collect()}
    present = {each.name for each in (folder(table) / "data").rglob("*") if each.is_file()}
    return {each for each in present if not each.startswith(".")} - known
