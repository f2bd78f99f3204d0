"""Removal of many files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.storage import scheme_of

__all__ = ["delete_files", "delete_java_files"]

_log = logging.getLogger(__name__)


def delete_files(locations: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """Remove files, and return those that could not be removed. Never raises.

    `properties` are those of the storages. A file that does not exist counts as removed.
    """
    wanted = list(dict.fromkeys(locations))
    if len(wanted) > 1 and not any(local_path(each) is not None for each in wanted):
        by_scheme: dict[str, list[str]] = {}
        for location in wanted:
            by_scheme.setdefault(scheme_of(location), []).append(location)
        wanted = [each for every in by_scheme.values() for each in _left(every, properties)]
    return [each for each in wanted if not _is_removed(each, properties)]


def _left(locations: list[str], properties: Mapping[str, str]) -> list[str]:
    """Remove files by few requests; all of them if any could not be removed."""
    try:
        storage_at(locations[0], properties).delete_all(locations)
    except Exception:  # noqa: BLE001 - each is tried by itself then
        return locations
    return []


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
