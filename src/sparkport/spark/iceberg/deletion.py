"""Removal of many files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sparkport.spark.iceberg.locations import local_path, storage_at

__all__ = ["delete_files", "delete_java_files"]

_log = logging.getLogger(__name__)

_AT_ONCE = 8
"""Requests to an object store that run at a time."""


def delete_files(locations: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """Remove files, and return those that could not be removed. Never raises.

    `properties` are those of the storages. A file that does not exist counts as removed.
    """
    wanted = list(dict.fromkeys(locations))
    if len(wanted) < 2 or all(local_path(each) is not None for each in wanted):
        removed = [_is_removed(each, properties) for each in wanted]
    else:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sparkport-removal") as threads:
            removed = list(threads.map(lambda each: _is_removed(each, properties), wanted))
    return [location for location, is_gone in zip(wanted, removed, strict=True) if not is_gone]


def delete_java_files(locations: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """As `delete_files`, for files that Java may have written.

    In a folder of this machine Hadoop keeps a checksum beside each of them.
    """
    wanted = list(locations)
    checksums = [
        f"{folder}/.{name}.crc"
        for folder, _, name in (each.rpartition("/") for each in wanted)
        if local_path(folder) is not None
    ]
    return delete_files([*wanted, *checksums], properties)


def _is_removed(location: str, properties: Mapping[str, str]) -> bool:
    try:
        storage_at(location, properties).delete(location)
    except Exception:  # noqa: BLE001 - the caller decides what to do about it
        _log.warning("a file cannot be removed", exc_info=True)
        return False
    return True
