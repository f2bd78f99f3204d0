"""The metadata of a table after a snapshot that adds rows or removes some, as Iceberg's JSON.

What is not touched stays as it was written, also if this program does not know it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "SnapshotCounts",
    "longest_log",
    "metadata_folder",
    "metadata_json",
    "new_metadata_location",
    "new_snapshot_id",
    "next_snapshot",
    "with_snapshot",
]

_NUMBER = re.compile(r"(?:^|/)([0-9]+)-[^/]*$")
_MAIN = "main"
_USUAL_LOG = 100
"""Earlier metadata files that a table names, where no property says it."""


def new_metadata_location(folder: str, before: str, extension: str = ".metadata.json") -> str:
    """A location for the metadata that follow those at `before`, with a name like Iceberg's.

    Other engines, and the count of versions, rely on the number at the beginning of the name.
    """
    number = _NUMBER.search(before)
    version = 0 if number is None else int(number[1]) + 1
    return f"{folder}/{version:05}-{uuid.uuid4()}{extension}"


def metadata_folder(metadata: Mapping[str, Any]) -> str:
    """Where a table wants its metadata and manifests."""
    wanted = metadata.get("properties", {}).get("write.metadata.path")
    return f"{metadata['location']}/metadata" if wanted is None else str(wanted).rstrip("/")


def new_snapshot_id(metadata: Mapping[str, Any]) -> int:
    """A random id that no snapshot of the table has."""
    known = {each["snapshot-id"] for each in metadata.get("snapshots", ())}
    while True:
        number = uuid.uuid4().int
        found = (number >> 64 ^ number) & 0x7FFFFFFFFFFFFFFF
        if found not in known:
            return found


def next_snapshot(
    metadata: Mapping[str, Any],
    snapshot_id: int,
    manifest_list: str,
    counts: SnapshotCounts,
    summary: Mapping[str, str],
    milliseconds: int,
) -> dict[str, Any]:
    """A snapshot that adds files to a table of version 3, and replaces delete vectors."""
    parent = _current(metadata)
    return {
        "sequence-number": metadata["last-sequence-number"] + 1,
        "snapshot-id": snapshot_id,
        **({} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}),
        "timestamp-ms": max(milliseconds, metadata["last-updated-ms"]),
        "summary": {
            "operation": counts.operation,
            **summary,
            **counts.told(),
            "changed-partition-count": "1",
            **_totals({} if parent is None else parent.get("summary", {}), counts, parent is None),
        },
        "manifest-list": manifest_list,
        "schema-id": metadata["current-schema-id"],
        "first-row-id": metadata["next-row-id"],
        "added-rows": counts.rows,
    }


@dataclass(frozen=True, slots=True)
class SnapshotCounts:
    """How many files a snapshot adds and removes, and their rows and bytes."""

    files: int
    rows: int
    bytes: int
    """Of data files and of delete vectors."""
    vectors: int = 0
    deleted_rows: int = 0
    """The rows in `vectors`."""
    replaced: int = 0
    """Delete vectors that are removed, because others say the same and more."""
    replaced_rows: int = 0
    replaced_bytes: int = 0
    removed_files: int = 0
    """Data files that are removed, because their rows are in others."""
    removed_rows: int = 0
    removed_bytes: int = 0

    @property
    def operation(self) -> str:
        if self.removed_files:
            return "replace"
        if not self.vectors:
            return "append"
        return "overwrite" if self.files else "delete"

    def told(self) -> dict[str, str]:
        """As Iceberg's summaries name them; numbers that are 0 are left out."""
        numbers = {
            "added-data-files": self.files,
            "deleted-data-files": self.removed_files,
            "added-delete-files": self.vectors,
            "added-dvs": self.vectors,
            "removed-delete-files": self.replaced,
            "removed-dvs": self.replaced,
            "added-records": self.rows,
            "deleted-records": self.removed_rows,
            "added-files-size": self.bytes,
            "removed-files-size": self.replaced_bytes + self.removed_bytes,
            "added-position-deletes": self.deleted_rows,
            "removed-position-deletes": self.replaced_rows,
        }
        return {name: str(number) for name, number in numbers.items() if number}

    def growth(self) -> dict[str, int]:
        """What the snapshot adds to the sums over all files, by Iceberg's names."""
        return {
            "records": self.rows - self.removed_rows,
            "files-size": self.bytes - self.replaced_bytes - self.removed_bytes,
            "data-files": self.files - self.removed_files,
            "delete-files": self.vectors - self.replaced,
            "position-deletes": self.deleted_rows - self.replaced_rows,
            "equality-deletes": 0,
        }


def _current(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    current = metadata.get("current-snapshot-id")
    return next(
        (each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == current), None
    )


def _totals(before: Mapping[str, str], counts: SnapshotCounts, is_first: bool) -> dict[str, str]:
    """Sums over all files. Iceberg leaves out those that the snapshot before does not have."""
    totals = {}
    for name, growth in counts.growth().items():
        known = "0" if is_first else before.get(f"total-{name}", "")
        if known.isdigit():
            totals[f"total-{name}"] = str(int(known) + growth)
    return totals


def with_snapshot(
    metadata: Mapping[str, Any],
    snapshot: Mapping[str, Any],
    location: str,
    properties: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metadata at `location`, and a new snapshot, which is the table's from now on.

    `properties` are set, besides those that the table has.
    """
    snapshot_id, now = snapshot["snapshot-id"], snapshot["timestamp-ms"]
    main = {"type": "branch", **metadata.get("refs", {}).get(_MAIN, {}), "snapshot-id": snapshot_id}
    before = {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": location}
    log = [*metadata.get("metadata-log", ()), before][-longest_log(metadata) :]
    return {
        **metadata,
        "properties": {**metadata.get("properties", {}), **(properties or {})},
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": now,
        "current-snapshot-id": snapshot_id,
        "next-row-id": snapshot["first-row-id"] + snapshot["added-rows"],
        "refs": {**metadata.get("refs", {}), _MAIN: main},
        "snapshots": [*metadata.get("snapshots", ()), snapshot],
        "snapshot-log": [
            *metadata.get("snapshot-log", ()),
            {"timestamp-ms": now, "snapshot-id": snapshot_id},
        ],
        "metadata-log": log,
    }


def metadata_json(metadata: Mapping[str, Any], before: str | None) -> tuple[str, str]:
    """Metadata as JSON text, and the part of it that lists the snapshots.

    `before` is that part of the metadata before, if it is known. It has all but the last snapshot,
    and is not written anew: tables may have thousands.
    """
    every = metadata["snapshots"]
    if before is None or len(every) < 2:
        snapshots = json.dumps(every)
    else:
        snapshots = f"{before[:-1]}, {json.dumps(every[-1])}]"
    parts = (
        f"{json.dumps(key)}: {snapshots if key == 'snapshots' else json.dumps(value)}"
        for key, value in metadata.items()
    )
    return f"{{{', '.join(parts)}}}", snapshots


def longest_log(metadata: Mapping[str, Any]) -> int:
    """How many earlier metadata files a table names.

    Raises: ValueError for a property that is not a number.
    """
    properties = metadata.get("properties", {})
    return max(1, int(properties.get("write.metadata.previous-versions-max", _USUAL_LOG)))
