"""What a server that has died may have left of a table: how it is told from what the table has."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from sparkport.errors import NotFound
from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.manifests import read_manifest, read_manifest_list
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.heading import Heading, places_of
from sparkport.spark.lake.lake import Lake

__all__ = [
    "NAMED_BY_SPARK",
    "files_by_spark",
    "files_of",
    "is_below",
    "plain",
    "remove_files_by_spark",
    "report",
    "state_of",
    "states_of",
]

_log = logging.getLogger(__name__)

NAMED_BY_SPARK = r"\d+-\d+-{id}(-\d+)?-\d+(-deletes)?\.[a-z]+"
"""The names of files that Spark writes for a statement (jvm/named_writes.py), for `format`."""


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


def files_by_spark(state: TableState, statement: str) -> set[str]:
    """The files in a table's places that Spark has written for a statement. Raises: OSError."""
    own = re.compile(NAMED_BY_SPARK.format(id=re.escape(statement)))
    found = set()
    for place in dict.fromkeys(places_of(state.metadata.properties, state.metadata.location)):
        for file in storage_at(place, state.file_properties).files_below(place):
            folder, _, name = file.rpartition("/")
            if name.startswith(".") and name.endswith(_CHECKSUM):
                name = name[1:].removesuffix(_CHECKSUM)
            if own.fullmatch(name):
                found.add(f"{folder}/{name}")
    return found


_CHECKSUM = ".crc"
"""How names of checksums end, which Java's local file system keeps beside each file."""


def remove_files_by_spark(lake: Lake, identifier: Identifier, statement: str) -> None:
    """Remove what Spark has written for a statement that failed, and no snapshot leads to.

    Raises: SparkportError, ValueError, OSError when something may be left.
    """
    state = lake.current(identifier)
    found = files_by_spark(state, statement)
    if delete_java_files(found - files_of(state, found), state.file_properties):
        raise OSError(f"files of a statement on table {identifier} cannot be removed now")


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
