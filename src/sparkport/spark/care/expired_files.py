"""Files that only forgotten snapshots led to: a note of them, and their removal.

Strategy: before snapshots are forgotten, a note beside the table's metadata names the files that
only they lead to. It is a hint, not an order. A file is removed when the note is old enough, so
that those who have begun to read can end; when the file is below the table's own places; and when
no table of the catalog leads to it any more. So a note whose commit was never made removes nothing
that is needed, and work that was cut off is simply done again.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field

from sparkport.engine.cache import Cache
from sparkport.errors import NotFound
from sparkport.spark.care.reached_files import Files, Pause, key_of, needed_of
from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.next_metadata import metadata_folder
from sparkport.spark.iceberg.storage import MissingFile, Storage
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.folders import may_collect
from sparkport.spark.lake.heading import places_of
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.lease import StoreClock
from sparkport.spark.write.leftovers import is_below, plain, states_of

__all__ = [
    "NOTE",
    "Removed",
    "drop_note",
    "named_in_notes",
    "note_folder",
    "remove_all",
    "remove_forgotten",
    "unneeded",
    "write_note",
]

_log = logging.getLogger(__name__)

NOTE = "sparkport-forgotten-"
"""The beginning of the names of notes."""
_PLANNING_SECONDS = 30.0
"""For how long others may still plan with a snapshot that was forgotten."""
_AT_ONCE = 500
"""How many files are removed between two pauses."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed."""

    files: int = 0
    """Data files, delete files, statistics, and other files that are not manifests."""
    bytes: int = 0
    """As far as their sizes are known."""
    manifests: int = 0
    """Manifests and manifest lists."""
    waiting: int = field(default=0, compare=False)
    """Notes of files that somebody may still read."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What several notes name."""

    manifests: set[str] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    """With their sizes."""


@dataclass(frozen=True, slots=True)
class _Note:
    """What a note says."""

    location: str
    snapshots: frozenset[int]
    files: Files

    @classmethod
    def of(cls, location: str, text: bytes) -> _Note:
        """Raises: ValueError, KeyError, TypeError for a text that is not a note."""
        said = json.loads(text)
        files = map(str, said["files"])
        sizes = dict(zip(files, map(int, said["sizes"]), strict=True))
        lists = tuple(map(str, said["lists_and_manifests"]))
        return cls(location, frozenset(map(int, said["snapshots"])), Files(lists, sizes))


def note_folder(state: TableState) -> str:
    """The folder of a table's metadata, where its notes are."""
    metadata = state.metadata
    return metadata_folder(
        {"location": metadata.location.rstrip("/"), "properties": metadata.properties}
    )


def write_note(state: TableState, snapshots: Set[int], files: Files) -> str:
    """Note files that nobody needs any more once these snapshots are forgotten. Raises: OSError."""
    location = f"{note_folder(state)}/{NOTE}{uuid.uuid4().hex}.json"
    said = {
        "snapshots": sorted(snapshots),
        "lists_and_manifests": list(files.lists_and_manifests),
        "files": list(files.files),
        "sizes": list(files.files.values()),
    }
    storage_at(location, state.file_properties).write(location, json.dumps(said).encode())
    return location


def drop_note(state: TableState, location: str) -> None:
    """Remove a note whose commit was not made. Never raises: an old note does no harm."""
    delete_java_files([location], state.file_properties)


def remove_forgotten(
    lake: Lake,
    identifier: Identifier,
    settings: CareSettings,
    pause: Pause,
    in_use: Callable[[], Set[int] | None] = frozenset,
    *,
    planning_seconds: float = _PLANNING_SECONDS,
) -> Removed:
    """Remove the files of forgotten snapshots of a table, as far as it is time.

    `in_use` tells the snapshots that other servers read, or None if nobody knows; then only
    manifests go. Raises: OSError, ValueError, SparkportError when something cannot be looked at;
    what `pause` raises.
    """
    try:
        state = lake.current(identifier)
    except NotFound:
        return Removed()  # its files went with it, or are somebody's
    if state.io is None or not may_collect(state.metadata.properties):
        return Removed()
    folder = note_folder(state)
    storage = storage_at(folder, state.file_properties)
    notes = list(_notes(storage, folder))
    if not notes:
        return Removed()
    read, elsewhere = lake.transactions.snapshots_read(identifier), in_use()
    due, later = _Named(), _Named()
    settled: list[_Note] = []
    clock = StoreClock(storage, folder)
    for note in notes:
        age = clock.age(note.location)
        has_planned = age >= planning_seconds
        has_read = (
            age >= max(planning_seconds, settings.file_seconds)
            and elsewhere is not None
            and not note.snapshots & (read | elsewhere)
        )
        (due if has_planned else later).manifests.update(note.files.lists_and_manifests)
        (due if has_read else later).files.update(note.files.files)
        if has_read:
            settled.append(note)
    # What a younger note names, too, was needed until then.
    manifests = [
        each
        for each in sorted(due.manifests - later.manifests)
        if _gone.find(key_of(each), None) is None
    ]
    sizes = {each: size for each, size in due.files.items() if each not in later.files}
    going = unneeded(lake, state, (*sizes, *manifests), pause)
    manifests = [each for each in manifests if each in going]
    files = [each for each in sizes if each in going]
    left = remove_all([*manifests, *files], state, pause)
    for each in manifests:
        if each not in left:
            _gone.add(key_of(each), True)
    for note in settled:
        named = (*note.files.lists_and_manifests, *note.files.files)
        if left.isdisjoint(named):
            storage.delete(note.location)
    return Removed(
        sum(each not in left for each in files),
        sum(sizes[each] for each in files if each not in left),
        sum(each not in left for each in manifests),
        len(notes) - len(settled),
    )


def unneeded(lake: Lake, state: TableState, locations: Iterable[str], pause: Pause) -> set[str]:
    """Those of the files that are in the table's own places, and that nothing leads to.

    All tables of the catalog are asked that have the same uuid: a table may be registered twice.
    Raises: OSError, ValueError, SparkportError when that cannot be found out; what `pause` raises.
    """
    metadata = state.metadata
    places = list(dict.fromkeys(places_of(metadata.properties, metadata.location)))
    folders: dict[str, bool] = {}
    own = set()
    for location in locations:
        folder, _, name = location.rpartition("/")
        if folder not in folders:
            folders[folder] = any(is_below(lake, f"{folder}/file", place) for place in places)
        if folders[folder] and name not in ("", ".", ".."):
            own.add(location)
    if not own:
        return own
    keys = set(map(key_of, own))
    # The table itself is among them, as it is now.
    tables = states_of(str(metadata.table_uuid), [*map(plain, places), *places], lake)
    for each in (state, *tables):
        keys -= needed_of(each, keys, pause)
    return {each for each in own if key_of(each) in keys}


def remove_all(locations: Iterable[str], state: TableState, pause: Pause) -> set[str]:
    """Remove files of a table, and return those that could not be removed.

    Raises: what `pause` raises; then some are removed, and others are not.
    """
    wanted, left = list(locations), set[str]()
    for start in range(0, len(wanted), _AT_ONCE):
        pause()
        left.update(delete_java_files(wanted[start : start + _AT_ONCE], state.file_properties))
    return left


def named_in_notes(state: TableState) -> set[str]:
    """The keys of all files that the notes of a table name, and of the notes. Raises: OSError."""
    folder = note_folder(state)
    return {
        key_of(each)
        for note in _notes(storage_at(folder, state.file_properties), folder)
        for each in (note.location, *note.files.lists_and_manifests, *note.files.files)
    }


def _notes(storage: Storage, folder: str) -> Iterator[_Note]:
    """The notes of a table that can be read. Raises: OSError."""
    for location in storage.files_below(folder):
        if not location.rpartition("/")[2].startswith(NOTE):
            continue
        note = _read_notes.find(location, None)
        if note is None:
            try:
                with storage.open_once(location) as source:
                    text = source.read()
                note = _Note.of(location, text)
            except MissingFile:
                continue  # another server has just removed it
            except (ValueError, KeyError, TypeError):
                _log.warning("a note of forgotten files cannot be read: it stays", exc_info=True)
                continue
            _read_notes.add(location, note, len(text))
        yield note


_read_notes: Cache[str, _Note] = Cache(16 * 1024 * 1024)
"""Notes never change."""
_gone: Cache[str, bool] = Cache(100_000, math.inf)
"""Keys of manifests that were removed, so that nobody asks for it again while files stay."""
