"""Files in a table's own folder that nothing leads to: what writers have left that were cut off.

Strategy: only a folder that was made for the table alone is looked at. A file goes if no snapshot,
no metadata in the log, no statistics and no note of forgotten files lead to it, and if it is so old
that no statement can still be writing it. Metadata files that are in no log any more go earlier:
nobody writes them again, and what they told of old versions is noted in the present metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from sparkport.errors import NotFound
from sparkport.spark.care.expired_files import (
    Removed,
    named_in_notes,
    note_folder,
    remove_all,
    unneeded,
)
from sparkport.spark.care.reached_files import Pause, key_of
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.metadata_heads import number_in_name
from sparkport.spark.iceberg.storage import MissingFile, Storage
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.folders import is_own_folder
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.lease import StoreClock
from sparkport.spark.lake.version_log import log_of
from sparkport.spark.lake.version_timeline import Timeline

__all__ = ["remove_orphans"]

_DAY = 86_400.0
_HOUR = 3_600.0
_MOST_FILES = 5_000
"""How many files one pass removes."""
_METADATA = re.compile(r"[^/]*\.metadata\.json(\.gz)?")
_OTHERS = re.compile(r"version-hint\.text|_SUCCESS")
"""Files of other engines that nothing names."""


def remove_orphans(
    lake: Lake,
    identifier: Identifier,
    settings: CareSettings,
    pause: Pause,
    *,
    seconds: float = 3 * _DAY,
    metadata_seconds: float = _HOUR,
) -> Removed | None:
    """Remove files of a table that nothing leads to; None where its folder is not its own.

    Files must be older than `seconds`, by the clock of the storage; metadata files that are in no
    log, than `metadata_seconds`. Raises: OSError, ValueError, SparkportError when something cannot
    be looked at; what `pause` raises.
    """
    try:
        state = lake.current(identifier)
    except NotFound:
        return None
    metadata = state.metadata
    if state.io is None or not is_own_folder(
        lake, identifier, metadata.properties, metadata.location
    ):
        return None
    folder = metadata.location.rstrip("/")
    storage = storage_at(folder, state.file_properties)
    pause()
    files = [each for each in storage.files_below(folder) if _is_candidate(each)]
    # What was committed until now, and so after the files were listed, is known.
    state = lake.current(identifier)
    if state.metadata.table_uuid != metadata.table_uuid or state.io is None:
        return None
    noted = named_in_notes(state)
    going = unneeded(lake, state, [each for each in files if key_of(each) not in noted], pause)
    if not going:
        return Removed()
    if not _is_told(state):
        going = {each for each in going if not _is_metadata(each)}
    ages = _Ages(storage, note_folder(state), seconds, metadata_seconds)
    old, sizes = _first(ages.old(sorted(going), pause), _MOST_FILES)
    left = remove_all(old, state, pause)
    gone = [each for each in old if each not in left]
    return Removed(
        sum(not each.endswith(".avro") for each in gone),
        sum(sizes[each] for each in gone),
        sum(each.endswith(".avro") for each in gone),
    )


def _is_candidate(location: str) -> bool:
    """Whether a file could be an orphan. A checksum goes with the file that it is of."""
    name = location.rpartition("/")[2]
    is_checksum = local_path(location) is not None and re.fullmatch(r"\..*\.crc", name)
    return not is_checksum and _OTHERS.fullmatch(name) is None


def _is_metadata(location: str) -> bool:
    return _METADATA.fullmatch(location.rpartition("/")[2]) is not None


def _is_told(state: TableState) -> bool:
    """Whether the numbers of versions are known without metadata files that are in no log."""
    timeline, commits = Timeline(state), log_of(state).commits
    if number_in_name(commits) == 0:
        return True  # the log goes back to the creation
    entries = [timeline.at(commit) for commit in commits]
    return any(each is not None and each.number is not None for each in entries)


class _Ages:
    """Tells how old files are, and how large."""

    def __init__(
        self, storage: Storage, folder: str, seconds: float, metadata_seconds: float
    ) -> None:
        self._storage = storage
        self._clock = StoreClock(storage, folder)
        self._seconds = seconds
        self._metadata_seconds = metadata_seconds

    def old(self, files: Sequence[str], pause: Pause) -> Iterator[tuple[str, int]]:
        """Those that are old enough, with their sizes in bytes. Raises: OSError."""
        for number, file in enumerate(files):
            if number % 100 == 0:
                pause()
            least = self._metadata_seconds if _is_metadata(file) else self._seconds
            with suppress(MissingFile):  # another server has removed it
                if self._clock.age(file) >= least:
                    yield file, self._storage.size(file)


def _first(found: Iterator[tuple[str, int]], most: int) -> tuple[list[str], dict[str, int]]:
    sizes: dict[str, int] = {}
    for file, size in found:
        sizes[file] = size
        if len(sizes) >= most:
            break
    return list(sizes), sizes
