"""What a server that has died may have left of a table: how it is told from what the table has."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sparkport.errors import NotFound
from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.manifests import read_manifest, read_manifest_list
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.heading import Heading
from sparkport.spark.lake.lake import Lake

__all__ = ["files_of", "is_below", "plain", "report", "state_of", "states_of"]

_log = logging.getLogger(__name__)


def state_of(heading: Heading, lake: Lake) -> TableState | None:
    """The table, under any name; None if there is none. Raises: SparkportError."""
    try:
        state = lake.current(heading.identifier)
        if str(state.metadata.table_uuid) == heading.uuid:
            return state
    except NotFound:
        pass
    folder = plain(heading.metadata).rpartition("/")[0]
    return next(iter(states_of(heading.uuid, [folder], lake)), None)


def states_of(uuid: str, folders: Iterable[str], lake: Lake) -> list[TableState]:
    """All tables with this uuid whose metadata are in these folders. Raises: SparkportError."""
    wanted = tuple(f"{folder}/" for folder in folders if folder)
    entries = [
        entry
        for namespace in lake.catalog.listing().namespaces.values()
        for entry in namespace.entries.values()
        if entry.kind is Kind.ICEBERG and plain(entry.location).startswith(wanted)
    ]
    states = [lake.state(entry.identifier, entry.location) for entry in entries]
    return [state for state in states if str(state.metadata.table_uuid) == uuid]


def files_of(state: TableState, wanted: Iterable[str]) -> set[str]:
    """Those of the files that a snapshot of the table leads to.

    Files are compared by the last part of their names, which no other file has: a store has several
    names for one place. Raises: ValueError, OSError when that cannot be found out.
    """
    locations = set(wanted)
    if not locations:
        return set()
    if state.io is None:
        raise ValueError("only Spark can read the table's metadata")
    names = {_name(location) for location in locations}
    found: set[str] = set()
    seen: set[str] = set()
    for snapshot in state.metadata.snapshots:
        if not snapshot.manifest_list:
            raise ValueError("a snapshot does not name its manifests")
        for manifest in read_manifest_list(state.io, snapshot.manifest_list):
            if manifest.path not in seen:
                seen.add(manifest.path)
                found |= names & {_name(each.path) for each in read_manifest(state.io, manifest)}
    return {location for location in locations if _name(location) in found}


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def is_below(lake: Lake, location: str, place: str) -> bool:
    """Whether a file is in a folder, at any depth, and no link on the way leads elsewhere."""
    file, folder = plain(location), plain(place).rstrip("/")
    if (
        not folder
        or not file.startswith(f"{folder}/")
        or {"", ".", ".."} & set(file[len(folder) + 1 :].split("/"))
    ):
        return False
    storage = storage_at(location, lake.file_properties)
    real, inside = storage.resolved(folder), storage.resolved(file.rpartition("/")[0])
    return inside == real or inside.startswith(f"{real}/")


def report(who: str, heading: Heading, names: Sequence[str], why: str) -> None:
    """Say in the log what stays, and why."""
    # As `repr`: text of a journal must not be able to forge lines of the log.
    shown = ", ".join(map(repr, names[:3]))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    _log.warning("%s of table %s names %s%s, %s", who, heading.identifier, shown, more, why)


def plain(location: str) -> str:
    """Write a location in one way: `file:///a`, `file:/a` and `/a` are the same place."""
    return local_path(location) or location
