"""What servers that have died have left behind: branches, and files that no table knows.

Strategy: only servers of this machine, and only those whose lock is free. A file goes when its table is there and no
snapshot of it leads to the file, or when the table's metadata are gone too. What is not certain stays, with its journal.
"""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkport.errors import NotFound
from sparkport.spark.files.locations import local_path
from sparkport.spark.files.manifests import read_manifest, read_manifest_list
from sparkport.spark.identifiers import Identifier
from sparkport.spark.lake import Lake
from sparkport.spark.listing import Kind
from sparkport.spark.state import TableState
from sparkport.spark.write.processes import Process, have_ended
from sparkport.spark.write.publish import drop_branch
from sparkport.spark.write.staging import JOURNAL, LOCK, delete_file, host_of

__all__ = ["sweep"]

_log = logging.getLogger(__name__)

_SECONDS_TO_END = 30.0
"""A JVM outlives a server that is killed for a moment, in which it may finish a commit."""


def sweep(root: Path, lake: Lake) -> None:
    """Remove the leftovers of servers of this machine that have died, as far as they concern this lake's catalog."""
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if host_of(folder) == socket.gethostname():
            with _locked(folder) as is_ours:
                if is_ours:
                    _sweep_folder(folder, lake)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether the server of a folder is dead, and nobody else sweeps it meanwhile."""
    try:
        lock = open(folder / LOCK, "r+", encoding="utf-8")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield have_ended(_processes(lock.read()), _SECONDS_TO_END)


def _processes(text: str) -> list[Process]:
    try:
        return [Process(*each) for each in json.loads(text)]
    except (ValueError, TypeError):
        return []  # the server died while it wrote that, before anything else


def _sweep_folder(folder: Path, lake: Lake) -> None:
    for path in folder.glob(f"*{JOURNAL}"):
        try:
            journal = _Journal.read(path)
            if journal is None or (journal.identifier.catalog == lake.gateway.catalog and _is_settled(journal, lake)):
                path.unlink()
        except Exception:  # noqa: BLE001 - one of many; the others do not depend on it
            _log.warning("what a statement has left is kept for now: it cannot be looked at", exc_info=True)
    if not any(folder.glob(f"*{JOURNAL}")):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Journal:
    """What a statement has written down."""

    identifier: Identifier
    uuid: str
    metadata: str
    files: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> _Journal | None:
        """None for one that ends before anything was written. So may its last line, if the machine has died."""
        found: _Journal | None = None
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            note = json.loads(line)
            if "table" in note:
                catalog, namespace, name = note["table"]
                found = cls(Identifier(catalog, tuple(namespace), name), note["uuid"], note["metadata"])
            elif found is not None:
                found.files.extend([note["file"]] if "file" in note else [])
                found.branches.extend([note["branch"]] if "branch" in note else [])
        return found


def _is_settled(journal: _Journal, lake: Lake) -> bool:
    """Remove what a statement has left; whether nothing is left to do."""
    state = _state_of(journal, lake)
    if state is None:
        if not _is_gone(journal, lake):
            _log.warning("files of a statement on table %s are kept: the table is not found", journal.identifier)
            return False
        unknown = set(journal.files)
    else:
        for branch in journal.branches:
            drop_branch(lake, state.identifier, branch)
        unknown = set(journal.files) - _files_of(lake.current(state.identifier), journal.files)
    for location in unknown:
        delete_file(location, lake.file_properties)
    _log.info("table %s: removed %d files of a statement that was cut off", journal.identifier, len(unknown))
    return True


def _state_of(journal: _Journal, lake: Lake) -> TableState | None:
    """The table, by whatever name; None if there is none. Raises: SparkportError."""
    try:
        state = lake.current(journal.identifier)
        if not journal.uuid or str(state.metadata.table_uuid) == journal.uuid:
            return state
    except NotFound:
        pass
    folder = _plain(journal.metadata).rpartition("/")[0]
    for namespace in lake.directory.contents().namespaces.values():
        for entry in namespace.entries.values():
            if entry.kind is Kind.ICEBERG and folder and _plain(entry.location).startswith(f"{folder}/"):
                state = lake.state(entry.identifier, entry.location)
                if str(state.metadata.table_uuid) == journal.uuid:
                    return state
    return None


def _is_gone(journal: _Journal, lake: Lake) -> bool:
    """Whether a table that is not found was dropped with its files, and is not just somewhere else."""
    io = lake.io(journal.metadata) if journal.metadata else None
    return io is not None and not io.new_input(journal.metadata).exists()


def _files_of(state: TableState, wanted: list[str]) -> set[str]:
    """Which of the files any snapshot of a table leads to. Raises: ValueError, OSError when that cannot be told."""
    if not wanted:
        return set()
    if state.io is None:
        raise ValueError("only Spark can read the table's metadata")
    places = {_plain(location): location for location in wanted}
    found, seen = set(), set()
    for snapshot in state.metadata.snapshots:
        if not snapshot.manifest_list:
            raise ValueError("a snapshot does not name its manifests")
        for manifest in read_manifest_list(state.io, snapshot.manifest_list):
            if manifest.path not in seen:
                seen.add(manifest.path)
                paths = {_plain(entry.path) for entry in read_manifest(state.io, manifest)}
                found |= {location for place, location in places.items() if place in paths}
    return found


def _plain(location: str) -> str:
    """`file:///a`, `file:/a` and `/a` are one place."""
    return local_path(location) or location
