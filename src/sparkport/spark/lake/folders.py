"""Where the files of tables are, and how they are removed when a table is dropped.

Strategy: a table that is made here gets a folder that nothing else will ever use. Its name ends in
random digits, because a renamed table keeps its folder and another table may take its old name.
Such a folder is removed as a whole, with all that failed writers have left in it. Of a table that
another engine made, only the files that the table itself names are removed, and only if all of them
are in its own places: imported files belong to another owner.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sparkport.spark.iceberg import local_storage
from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.table_state import metadata_text
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import IcebergHandle
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.heading import places_of
from sparkport.spark.lake.lake import Lake

__all__ = [
    "FOLDER_PROPERTY",
    "folder_is_own",
    "is_own_folder",
    "may_collect",
    "namespace_folder",
    "new_folder",
    "places_hold_all",
    "remove_empty_folders",
    "remove_files",
    "remove_folder",
    "remove_named_files",
    "view_files",
]

FOLDER_PROPERTY = "sparkport.folder"
"""Table property: the folder that was made for the table.

A table with another location has been moved.
"""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 60
_VIEW = re.compile(r"/[^/]*\.metadata\.json(\.gz)?$")


def new_folder(lake: Lake, identifier: Identifier, digits: str = "") -> str | None:
    """A folder for a new table; None where the catalog chooses it.

    Its name ends with the digits, or with random ones. Names that users give are made safe first:
    `../..` is a name, too.
    """
    warehouse = lake.catalog.warehouse
    if warehouse is None or lake.catalog.chooses_folders:
        return None
    return "/".join(
        [
            warehouse,
            *map(_safe, identifier.namespace),
            f"{_safe(identifier.name)}-{digits or uuid.uuid4().hex[:16]}",
        ]
    )


def namespace_folder(lake: Lake, parts: tuple[str, ...]) -> str | None:
    """Where the folders of a namespace's tables are; None where the catalog chooses."""
    folder = new_folder(lake, Identifier(lake.catalog.name, parts, "t"))
    return None if folder is None else folder.rpartition("/")[0]


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name)[:_LONGEST] or "_"


def folder_is_own(lake: Lake, identifier: Identifier, handle: IcebergHandle) -> bool:
    """Whether a table's folder was made for it alone.

    False, too, when another table of the catalog has its metadata in there.
    """
    return is_own_folder(
        lake, identifier, dict(handle.table.properties()), str(handle.table.location())
    )


def is_own_folder(
    lake: Lake, identifier: Identifier, properties: Mapping[str, str], location: str
) -> bool:
    """As `folder_is_own`, for a table with these properties at this location."""
    location = location.rstrip("/")
    return (
        properties.get(FOLDER_PROPERTY) == location
        and may_collect(properties)
        and not _others_inside(lake, identifier, location)
    )


def places_hold_all(lake: Lake, identifier: Identifier, handle: IcebergHandle) -> bool:
    """Whether a table that another engine made owns all files that it names.

    They must be in the warehouse, in the table's own places. That is not so when the table was
    registered from elsewhere or twice, or when files were imported into it.
    """
    properties, location = dict(handle.table.properties()), str(handle.table.location()).rstrip("/")
    warehouse = lake.catalog.warehouse
    if warehouse is None or not may_collect(properties) or not _is_inside(location, warehouse):
        return False
    uuid = lake.state(identifier, handle.location).metadata.table_uuid
    for other in _others_inside(lake, identifier, location):
        if (
            other.kind is Kind.ICEBERG
            and lake.state(other.identifier, other.location).metadata.table_uuid == uuid
        ):
            return False
    places = places_of(properties, location)
    inside = " OR ".join(
        "startswith(regexp_replace(file_path, '^file:/+', '/'), ?)" for _ in places
    )
    query = f"SELECT 1 FROM {identifier.sql}.all_files WHERE NOT ({inside}) LIMIT 1"
    return not lake.collected(
        f"table {identifier}", query, [f"{_plain(place)}/" for place in places]
    )


def may_collect(properties: Mapping[str, str]) -> bool:
    """Whether files may be removed: Iceberg's property for tables that share theirs says no."""
    return properties.get("gc.enabled", "true").lower() == "true"


def _others_inside(lake: Lake, identifier: Identifier, folder: str) -> list[CatalogEntry]:
    """Other tables and views of the catalog whose metadata are in that folder."""
    return [
        entry
        for namespace in lake.catalog.listing().namespaces.values()
        for entry in namespace.entries.values()
        if entry.identifier != identifier
        and _plain(entry.location).startswith(f"{_plain(folder)}/")
    ]


def _plain(location: str) -> str:
    """Write a location in one way: `file:///a`, `file:/a` and `/a` are the same place."""
    return re.sub(r"^file:/+", "/", location)


def remove_folder(table: Any, folder: str) -> None:
    """Remove a folder that belongs to this org.apache.iceberg.Table alone, with all that is in it.

    Java does it: it can reach every place.
    """
    with translated("the folder of a table"):
        # With a slash at the end: an object store removes by prefix, and `t-1` is one of `t-10`,
        # too.
        table.io().deletePrefix(f"{folder}/")


def remove_named_files(lake: Lake, handle: IcebergHandle) -> None:
    """Remove all files that a table names."""
    with translated("the files of a table"):
        remove = lake.gateway.jvm.org.apache.iceberg.CatalogUtil.dropTableData
        remove(handle.table.io(), handle.metadata)


def view_files(lake: Lake, identifier: Identifier, metadata: str) -> list[str]:
    """The files that describe a view in its present and former versions.

    None where this process cannot reach them. Raises: OSError.
    """
    warehouse = lake.catalog.warehouse
    folder = metadata.rpartition("/")[0]
    io = lake.io(identifier, metadata)
    if io is None or warehouse is None or not _is_inside(folder, warehouse):
        return []

    def uuid_in(file: str) -> str | None:
        try:
            found = json.loads(metadata_text(io, file)).get("view-uuid")
        except (ValueError, AttributeError):  # it describes something else
            return None
        return found if isinstance(found, str) else None

    own = uuid_in(metadata)
    if own is None:
        return []
    storage = storage_at(folder, lake.properties_of(identifier))
    files = [each for each in storage.files_below(folder) if _VIEW.search(each)]
    return [each for each in files if uuid_in(each) == own]


def remove_files(lake: Lake, identifier: Identifier, files: Sequence[str], folder: str) -> None:
    """Remove files of a view, and then their folder if it is empty."""
    delete_java_files(files, lake.properties_of(identifier))
    remove_empty_folders(folder)


def remove_empty_folders(folder: str) -> None:
    """Remove a folder that has nothing but empty folders in it, where there are folders.

    Raises: OSError.
    """
    path = local_path(folder)
    if path is not None:
        local_storage.remove_empty_folders(path)


def _is_inside(folder: str, warehouse: str) -> bool:
    return _plain(folder).startswith(f"{_plain(warehouse)}/")
