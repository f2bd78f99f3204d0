"""Where the files of tables are, and how they go when a table is dropped.

Strategy: a table that is made here gets a folder that nothing else will ever use: its name ends in
random digits, because a renamed table keeps its folder and another one may take its old name. Such
a folder is removed as a whole, with whatever writers that failed have left in it. Of tables that
others have made only those files go that the table itself names, and only if it names none outside
of its own places: files that were imported belong to somebody else.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import IcebergHandle
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake

__all__ = [
    "FOLDER_PROPERTY",
    "folder_is_own",
    "namespace_folder",
    "new_folder",
    "places_hold_all",
    "places_of",
    "remove_empty_folders",
    "remove_files",
    "remove_folder",
    "view_files",
]

FOLDER_PROPERTY = "sparkport.folder"
"""The table property: the folder that was made for the table. Another location means that it has
been moved.
"""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 60
_PLACES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Properties of Iceberg that send files elsewhere."""


def new_folder(lake: Lake, identifier: Identifier) -> str | None:
    """A folder for a new table; None where the catalog chooses one itself.

    Names of users do not become paths as they are: `../..` is a name, too.
    """
    warehouse = lake.catalog.warehouse
    if warehouse is None or lake.catalog.chooses_folders:
        return None
    return "/".join(
        [
            warehouse,
            *map(_safe, identifier.namespace),
            f"{_safe(identifier.name)}-{uuid.uuid4().hex[:16]}",
        ]
    )


def namespace_folder(lake: Lake, parts: tuple[str, ...]) -> str | None:
    """Where the folders of a namespace's tables are; None where the catalog chooses them itself."""
    folder = new_folder(lake, Identifier(lake.catalog.name, parts, "t"))
    return None if folder is None else folder.rpartition("/")[0]


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name)[:_LONGEST] or "_"


def folder_is_own(lake: Lake, identifier: Identifier, handle: IcebergHandle) -> bool:
    """Whether a table's folder was made for it alone, and no other table of the catalog has its
    metadata in there.
    """
    properties, location = dict(handle.table.properties()), str(handle.table.location()).rstrip("/")
    return (
        properties.get(FOLDER_PROPERTY) == location
        and _may_collect(properties)
        and not _others_inside(lake, identifier, location)
    )


def places_hold_all(lake: Lake, identifier: Identifier, handle: IcebergHandle) -> bool:
    """Whether a table that others have made owns all files that it names: they are in the
    warehouse, in its own places.

    So not if somebody has registered it from elsewhere or twice, or has imported files into it.
    """
    properties, location = dict(handle.table.properties()), str(handle.table.location()).rstrip("/")
    warehouse = lake.catalog.warehouse
    if (
        warehouse is None
        or not _may_collect(properties)
        or not _plain(location).startswith(f"{_plain(warehouse)}/")
    ):
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


def places_of(properties: Mapping[str, str], location: str) -> list[str]:
    """The folders that the files of a table are in."""
    return [
        location.rstrip("/"),
        *(properties[name].rstrip("/") for name in _PLACES if properties.get(name)),
    ]


def _may_collect(properties: Mapping[str, str]) -> bool:
    """Iceberg's own way to say that a table's files are used by somebody else, too."""
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
    """`file:///a`, `file:/a` and `/a` are one place."""
    return re.sub(r"^file:/+", "/", location)


def remove_folder(io: Any, folder: str) -> None:
    """Remove a folder that is a table's own, with all that is in it."""
    with translated("the folder of a table"):
        # With a slash at its end: for object stores it is the beginning of names, also of `t-1` and
        # `t-10`.
        io.deletePrefix(f"{folder}/")


def view_files(lake: Lake, identifier: Identifier, metadata: str) -> list[str]:
    """The files that describe a view in its present and in its former versions."""
    warehouse = lake.catalog.warehouse
    folder = metadata.rpartition("/")[0]
    if warehouse is None or not _plain(folder).startswith(f"{_plain(warehouse)}/"):
        return []
    iceberg = lake.gateway.jvm.org.apache.iceberg
    configuration = lake.spark.sparkContext._jsc.hadoopConfiguration()

    def uuid_in(file: str) -> str | None:
        try:
            source = iceberg.hadoop.HadoopInputFile.fromLocation(file, configuration)
            return str(iceberg.view.ViewMetadataParser.read(source).uuid())
        except Exception:  # noqa: BLE001 - it describes something else
            return None

    with translated(f"view {identifier}"):
        path, system = _hadoop(lake, folder)
        own = uuid_in(metadata)
        files = [str(status.getPath()) for status in system.listStatus(path)]
        return [file for file in files if own is not None and uuid_in(file) == own]


def remove_files(lake: Lake, files: Sequence[str], folder: str) -> None:
    """Remove files, and the folder that they are in if nothing else is."""
    with translated("files"):
        for file in files:
            path, system = _hadoop(lake, file)
            system.delete(path, False)
    remove_empty_folders(lake, folder)


def remove_empty_folders(lake: Lake, folder: str) -> None:
    """Remove a folder if there is nothing but empty folders in it."""
    with translated("a folder"):
        path, system = _hadoop(lake, folder)
        if system.exists(path):
            _remove_empty(system, path)


def _remove_empty(system: Any, path: Any) -> bool:
    for status in system.listStatus(path):
        if not status.isDirectory() or not _remove_empty(system, status.getPath()):
            return False
    return bool(system.delete(path, False))


def _hadoop(lake: Lake, place: str) -> tuple[Any, Any]:
    """org.apache.hadoop.fs.Path, and the FileSystem that it is in."""
    path = lake.gateway.jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(lake.spark.sparkContext._jsc.hadoopConfiguration())
