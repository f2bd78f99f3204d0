"""Folders of tables and views that a server was making when it died.

Strategy: such a folder has a name that ends with the statement's id, so it is no other's. If the
table or view was published, its metadata are in there, and the folder stays. Otherwise nobody has
ever seen it, and it goes with all that is in it.
"""

from __future__ import annotations

import logging

from sparkport.errors import NotFound
from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.lake.folders import FOLDER_PROPERTY, remove_empty_folders
from sparkport.spark.lake.lake import Lake
from sparkport.spark.write.leftovers import is_below, plain

__all__ = ["remove_unmade"]

_log = logging.getLogger(__name__)


def remove_unmade(lake: Lake, identifier: Identifier, folder: str, statement: str) -> bool:
    """Remove the folder of a table or view, if it was not made; whether nothing remains to be done.

    A folder that is not below the warehouse, or not the statement's, is not touched. Raises:
    OSError, SparkportError.
    """
    warehouse = lake.catalog.warehouse
    if (
        warehouse is None
        or not folder.endswith(f"-{statement}")
        or not is_below(lake, folder, warehouse)
        or not is_below(lake, f"{folder}/file", warehouse)
    ):
        return False
    if _is_made(lake, identifier, folder):
        return True
    files = storage_at(folder, lake.file_properties).files_below(folder)
    left = delete_files(files, lake.file_properties)
    if not left:
        remove_empty_folders(folder)
    _log.info("%s: removed %d files of what was not made", identifier, len(files) - len(left))
    return not left


def _is_made(lake: Lake, identifier: Identifier, folder: str) -> bool:
    """Whether anything in the catalog has its metadata there, or the table says that it is its."""
    lake.catalog.changed()
    inside = f"{plain(folder)}/"
    for namespace in lake.catalog.listing().namespaces.values():
        for entry in namespace.entries.values():
            if plain(entry.location).startswith(inside):
                return True
    try:
        found = lake.current(identifier).metadata
    except NotFound:
        return False
    return found.properties.get(FOLDER_PROPERTY) == folder
