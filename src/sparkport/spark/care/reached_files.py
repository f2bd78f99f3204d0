"""Which files the snapshots of a table lead to, and which files only some of them lead to.

Strategy: manifest lists and manifests never change, and are remembered (iceberg/manifests.py). Of
the snapshots that stay, manifests are read only until it is clear of every file in question that
it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.iceberg.manifests import (
    Manifest,
    ManifestEntry,
    emptied_manifests,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.table_state import TableState

__all__ = ["Files", "Pause", "key_of", "needed_of", "only_in"]

Pause: TypeAlias = Callable[[], None]
"""Called between pieces of work: it may wait, so that others are served first, or raise."""

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_READERS = 8
"""How many files of an object store are read at once."""
_PIECE = 64
"""How many files are read between two pauses."""
_AUTHORITY = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a table, by their locations."""

    lists_and_manifests: Sequence[str] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    """Data files, delete files and statistics, with their sizes in bytes."""


def key_of(location: str) -> str:
    """What tells a file from others, however its location is written.

    A store has several names. Files of two buckets may have the same key: then both count as
    needed if one of them is.
    """
    path = local_path(location)
    return re.sub("/+", "/", _AUTHORITY.sub("", location) if path is None else path)


def only_in(state: TableState, forgotten: Set[int], pause: Pause) -> Files:
    """The files that these snapshots lead to, and no other of the table.

    Raises: OSError, ValueError when that cannot be found out; what `pause` raises.
    """
    metadata = state.metadata
    gone = _Lists.of(state, [s for s in metadata.snapshots if s.snapshot_id in forgotten], pause)
    kept = _Lists.of(
        state, [s for s in metadata.snapshots if s.snapshot_id not in forgotten], pause
    )
    known = set(map(key_of, kept.locations))
    manifests = [each for path, each in gone.manifests.items() if key_of(path) not in known]
    files = {
        key_of(entry.path): (entry.path, entry.size)
        for entries in _entries(state, manifests, pause)
        for entry in entries
    }
    statistics = [*metadata.statistics, *metadata.partition_statistics]
    for each in statistics:
        if each.snapshot_id in forgotten:
            files[key_of(each.statistics_path)] = each.statistics_path, each.file_size_in_bytes
    left = set(files) - _live(state, kept.manifests.values(), set(files), pause)
    left -= {key_of(s.statistics_path) for s in statistics if s.snapshot_id not in forgotten}
    return Files(
        [each for each in gone.locations if key_of(each) not in known],
        dict(found for key, found in files.items() if key in left),
    )


def needed_of(state: TableState, keys: Set[str], pause: Pause) -> set[str]:
    """Those of the files, by their keys, that a table leads to, in whatever way.

    Raises: OSError, ValueError when that cannot be found out; what `pause` raises.
    """
    metadata = state.metadata
    lists = _Lists.of(state, metadata.snapshots, pause)
    named = [state.metadata_location, *(each.metadata_file for each in metadata.metadata_log)]
    named += [each.statistics_path for each in metadata.statistics]
    named += [each.statistics_path for each in metadata.partition_statistics]
    found = set(keys) & set(map(key_of, (*named, *lists.locations)))
    return found | _live(state, lists.manifests.values(), keys - found, pause)


@dataclass(frozen=True, slots=True)
class _Lists:
    """What the manifest lists of some snapshots name."""

    locations: Sequence[str]
    """The lists themselves, and all manifests."""
    manifests: Mapping[str, Manifest]
    """Those that have live files, by location."""

    @classmethod
    def of(cls, state: TableState, snapshots: Sequence[Snapshot], pause: Pause) -> _Lists:
        lists = [each.manifest_list for each in snapshots]
        io = _io(state)

        def read(location: str) -> tuple[tuple[Manifest, ...], tuple[str, ...]]:
            if not location:
                raise ValueError("a snapshot does not name its manifests")
            return read_manifest_list(io, location), emptied_manifests(io, location)

        manifests: dict[str, Manifest] = {}
        locations = dict.fromkeys(lists)
        for live, emptied in _read(state, lists, read, pause):
            manifests.update((each.path, each) for each in live)
            locations.update(dict.fromkeys(emptied))
        return cls([*locations, *manifests], manifests)


def _live(
    state: TableState, manifests: Iterable[Manifest], keys: Set[str], pause: Pause
) -> set[str]:
    """Those of the files that are live in any of the manifests."""
    left = set(keys)
    # Large ones first: most often they name all files in question.
    wanted = sorted(manifests, key=lambda each: -sum(each.file_counts[:2]))
    for start in range(0, len(wanted), _PIECE):
        if not left:
            break
        for entries in _entries(state, wanted[start : start + _PIECE], pause):
            left.difference_update(key_of(each.path) for each in entries)
    return set(keys) - left


def _entries(
    state: TableState, manifests: Sequence[Manifest], pause: Pause
) -> Iterator[tuple[ManifestEntry, ...]]:
    io = _io(state)
    return _read(state, manifests, lambda each: read_manifest(io, each), pause)


def _io(state: TableState) -> FileIO:
    if state.io is None:
        raise ValueError("only Spark can read the table's metadata")
    return state.io


def _read(
    state: TableState, wanted: Sequence[_Item], read: Callable[[_Item], _Found], pause: Pause
) -> Iterator[_Found]:
    """Read files of metadata, several at once where that helps: a store takes a while for each."""
    is_local = local_path(state.metadata_location) is not None
    pieces = [wanted[start : start + _PIECE] for start in range(0, len(wanted), _PIECE)]
    if is_local:
        for piece in pieces:
            pause()
            yield from map(read, piece)
        return
    with ThreadPoolExecutor(_READERS, "sparkport-care") as readers:
        for piece in pieces:
            pause()
            yield from readers.map(read, piece)
