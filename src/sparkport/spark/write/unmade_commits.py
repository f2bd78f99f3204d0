"""Manifests that a server has written for a commit, before it died and the commit was not made.

Strategy: Java names them, so their names do not tell whose they are; but what they name does. A
manifest goes if no snapshot leads to it and it adds a file of a statement that was cut off. Only
the commit of that statement writes such a manifest: all others only keep a file that is there. Of
one commit, the names of all manifests and of the list have the same id.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.manifests import added_files, emptied_manifests, read_manifest_list
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.folders import may_collect
from sparkport.spark.lake.lake import Lake

__all__ = ["manifests_of_unmade"]

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MANIFEST = re.compile(rf"({_ID})-m\d+\.avro")
_LIST = re.compile(rf"snap-\d+-\d+-({_ID})\.avro")


def manifests_of_unmade(lake: Lake, before: TableState, is_left: Callable[[str], bool]) -> set[str]:
    """Manifests, and lists of them, of commits that were to add files of statements cut off.

    `is_left` tells whether a file is of such a statement, which may be gone already. Raises:
    OSError, ValueError when that cannot be found out; SparkportError.
    """
    properties = before.metadata.properties
    if before.io is None or not may_collect(properties):
        return set()
    default = f"{before.metadata.location.rstrip('/')}/metadata"
    folder = properties.get("write.metadata.path", default).rstrip("/")
    listed = storage_at(folder, before.file_properties).files_below(folder)
    # What was committed until now, and so after the files were listed, is known.
    state = lake.current(before.identifier)
    reached = _reached(state)
    by_commit: dict[str, set[str]] = {}
    unmade = set()
    for file in listed:
        found = _MANIFEST.fullmatch(_name(file)) or _LIST.fullmatch(_name(file))
        if found is None or _name(file) in reached:
            continue
        by_commit.setdefault(found[1], set()).add(file)
        if found.re is _MANIFEST and found[1] not in unmade and _adds(state, file, is_left):
            unmade.add(found[1])
    return {file for commit in unmade for file in by_commit[commit]}


def _reached(state: TableState) -> set[str]:
    """The names of all manifests, and lists of them, that snapshots lead to."""
    if state.io is None:
        raise ValueError("only Spark can read the table's metadata")
    reached = set()
    for snapshot in state.metadata.snapshots:
        if not snapshot.manifest_list:
            raise ValueError("a snapshot does not name its manifests")
        reached.add(_name(snapshot.manifest_list))
        live = read_manifest_list(state.io, snapshot.manifest_list)
        reached |= {_name(each.path) for each in live}
        reached |= set(map(_name, emptied_manifests(state.io, snapshot.manifest_list)))
    return reached


def _adds(state: TableState, manifest: str, is_left: Callable[[str], bool]) -> bool:
    assert state.io is not None
    try:
        return any(map(is_left, added_files(state.io, manifest)))
    except Exception:  # noqa: BLE001 - it was cut off, or another server has removed it
        return False


def _name(location: str) -> str:
    return location.rpartition("/")[2]
