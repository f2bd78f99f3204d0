"""What a commit has written, in a form in which commits of two ways can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.spark.lake_tables import find, sql_name

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.table_state import metadata_text

__all__ = ["comparable", "is_by_java", "metadata_of", "told_by_spark"]

_OF_SPARK = ("app-id", "app-name", "engine-name", "engine-version", "iceberg-version")
_OF_A_COMMIT = ("sparkport.statement", "sparkport.trace-id", "sparkport.transaction")


def metadata_of(lake: LakeCatalog, namespace: str, table: str) -> dict[str, Any]:
    state = find(lake, namespace, table).state
    found: dict[str, Any] = json.loads(metadata_text(state.io, state.metadata_location))
    return found


def is_by_java(lake: LakeCatalog, namespace: str, table: str) -> bool:
    summary = metadata_of(lake, namespace, table)["snapshots"][-1]["summary"]
    return summary.get("engine-name") == "spark"


def comparable(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata without what differs from commit to commit: ids, times, names of files."""
    ids = {each["snapshot-id"]: number for number, each in enumerate(metadata["snapshots"])}
    found = {
        **metadata,
        **dict.fromkeys(("table-uuid", "location", "last-updated-ms")),
        "current-snapshot-id": ids[metadata["current-snapshot-id"]],
        "properties": {**metadata["properties"], "sparkport.folder": None},
        "refs": {
            name: {**each, "snapshot-id": ids[each["snapshot-id"]]}
            for name, each in metadata["refs"].items()
        },
        "snapshot-log": [ids[each["snapshot-id"]] for each in metadata["snapshot-log"]],
        "metadata-log": [
            Path(each["metadata-file"]).name.split("-")[0] for each in metadata["metadata-log"]
        ],
        "snapshots": [],
    }
    for each in metadata["snapshots"]:
        left_out = (*_OF_SPARK, *_OF_A_COMMIT)
        summary = {key: value for key, value in each["summary"].items() if key not in left_out}
        parent = each.get("parent-snapshot-id")
        found["snapshots"].append(
            {
                **each,
                **dict.fromkeys(("timestamp-ms", "manifest-list")),
                "snapshot-id": ids[each["snapshot-id"]],
                "parent-snapshot-id": None if parent is None else ids[parent],
                "summary": summary,
            }
        )
    return found


def told_by_spark(lake: LakeCatalog, namespace: str, table: str) -> list[list[Any]]:
    """What Iceberg's Java finds in the manifests."""
    queries = (
        "SELECT content, file_format, spec_id, record_count, file_size_in_bytes, column_sizes, "
        "value_counts, null_value_counts, nan_value_counts, lower_bounds, upper_bounds, "
        "split_offsets, equality_ids, sort_order_id, first_row_id, readable_metrics "
        "FROM {}.files ORDER BY first_row_id",
        "SELECT status, sequence_number, file_sequence_number FROM {}.entries "
        "ORDER BY sequence_number",
        "SELECT content, partition_spec_id, added_data_files_count, existing_data_files_count, "
        "deleted_data_files_count, added_delete_files_count, partition_summaries "
        "FROM {}.manifests ORDER BY added_snapshot_id = 0",
        "SELECT operation FROM {}.snapshots ORDER BY committed_at",
    )
    name = sql_name(lake, namespace, table)
    return [lake.spark.sql(query.format(name)).collect() for query in queries]
