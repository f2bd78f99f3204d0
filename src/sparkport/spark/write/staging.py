"""What a statement must not leave behind if it fails: files that Spark is to read, and whatever is written elsewhere.

Strategy: a new data file is made in the table's own folder, where it stays when the statement is committed. Before that its
name goes into a journal. A server that dies leaves the journal, and so tells the next one what to remove (sweep.py). Every
server has a folder of its own, with a lock that the system gives up for it when it dies.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sparkport.spark.files.locations import local_path
from sparkport.spark.files.parquet_output import writing
from sparkport.spark.identifiers import Identifier
from sparkport.spark.write.processes import process_of

if TYPE_CHECKING:
    from sparkport.spark.lake import Lake
    from sparkport.spark.state import TableState

__all__ = ["JOURNAL", "LOCK", "Staging", "StagingArea", "delete_file", "host_of"]

_log = logging.getLogger(__name__)

LOCK = "lock"
"""The file of a server's folder that it holds a lock on; it names the processes that commit for it."""
JOURNAL = ".journal"


def host_of(folder: Path) -> str:
    """The machine of the server that a folder belongs to, or did."""
    return folder.name.rpartition("-")[0]


def delete_file(location: str, properties: Mapping[str, str]) -> None:
    """Remove a file that may not be there. `properties` are those of PyIceberg's file systems. Raises: OSError."""
    local = local_path(location)
    with suppress(FileNotFoundError):
        if local is not None:
            os.unlink(local)
        else:
            from pyiceberg.io.pyarrow import PyArrowFileIO

            PyArrowFileIO(dict(properties)).delete(location)


class StagingArea:
    """The statements of one server on one lake. Nothing is made before the first of them needs it. Thread-safe."""

    def __init__(self, root: Path, properties: Mapping[str, str] | None = None, processes: Sequence[int] = ()) -> None:
        """`properties` are those of PyIceberg's file systems, `processes` others that commit for this one: Spark's JVM."""
        self.root = root
        self.properties = dict(properties or {})
        self._processes = processes
        self._guard = threading.Lock()
        self._folder: Path | None = None
        self._lock: IO[str] | None = None

    def begin(self, identifier: Identifier, state: TableState | None = None) -> Staging:
        """A statement that changes a table, of which it has seen a state. Costs nothing until it writes something."""
        return Staging(self, identifier, state)

    def folder(self) -> Path:
        """The server's own. Raises: OSError."""
        with self._guard:
            while self._folder is None:
                self._try_to_make_folder()
            return self._folder

    def _try_to_make_folder(self) -> None:
        folder = self.root / f"{socket.gethostname()}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        lock = open(folder / LOCK, "w", encoding="utf-8")  # noqa: SIM115 - held as long as the server lives
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / LOCK).exists():  # another server has found it without a lock, and swept it away
            lock.close()
            return
        json.dump([list(process_of(number)) for number in self._processes], lock)
        lock.flush()
        self._folder, self._lock = folder, lock

    def sweep(self, lake: Lake) -> None:
        """Remove what servers of this machine that have died have left behind. Never raises."""
        from sparkport.spark.write.sweep import sweep  # which needs the lake, which needs this

        lake.quietly("sweeping the staging area", lambda: sweep(self.root, lake))

    def close(self) -> None:
        """Let go of the folder. What statements have left there is swept by the next server. Never raises."""
        with self._guard:
            folder, lock, self._folder, self._lock = self._folder, self._lock, None, None
        with suppress(OSError):
            if folder is not None and all(each.name == LOCK for each in folder.iterdir()):
                shutil.rmtree(folder)
        if lock is not None:
            lock.close()


class Staging:
    """One statement. For one thread at a time."""

    def __init__(self, area: StagingArea, identifier: Identifier, state: TableState | None) -> None:
        self.id = uuid.uuid4().hex
        """Also in the summary of the snapshot that it makes."""
        self.identifier = identifier
        self._state = state
        self._area = area
        self._folder: Path | None = None
        self._journal: Path | None = None
        self._locations: list[str] = []

    @property
    def folder(self) -> Path:
        """For files that never become the table's, where Spark's executors can read them.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        if self._folder is None:
            with writing(self.identifier):
                folder = self._area.folder() / self.id
                folder.mkdir(exist_ok=True)
            self._folder = folder
        return self._folder

    def will_write(self, *locations: str) -> None:
        """Note files before they are made outside of `folder`.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        self._note([{"file": location} for location in locations])
        self._locations += locations

    def will_branch(self, branch: str) -> None:
        """Note a branch of the table before it is made. Raises: as `will_write`."""
        self._note([{"branch": branch}])

    def done(self) -> None:
        """It is committed: what was written is the table's now. Never raises."""
        self._end()

    def discard(self) -> None:
        """Remove all files that were written. Never raises; what cannot be removed now is left to the next server."""
        left = []
        for location in self._locations:
            try:
                delete_file(location, self._area.properties)
            except Exception:  # noqa: BLE001 - see above
                _log.warning("a file of statement %s cannot be removed", self.id, exc_info=True)
                left.append(location)
        self._locations = left
        if left:
            self.leave()
        else:
            self._end()

    def leave(self) -> None:
        """Nobody knows whether it is committed: the next server will look. Never raises."""
        self._remove_folder()

    def _note(self, notes: Sequence[Mapping[str, Any]]) -> None:
        with writing(self.identifier):
            if self._journal is None:
                self._journal = self._area.folder() / f"{self.id}{JOURNAL}"
                notes = [self._heading(), *notes]
            with open(self._journal, "a", encoding="utf-8") as journal:
                journal.writelines(json.dumps(note) + "\n" for note in notes)
                journal.flush()
                os.fsync(journal.fileno())

    def _heading(self) -> Mapping[str, Any]:
        table, state = self.identifier, self._state
        return {
            "table": [table.catalog, list(table.namespace), table.name],
            "uuid": "" if state is None else str(state.metadata.table_uuid),
            "metadata": "" if state is None else state.metadata_location,
        }

    def _end(self) -> None:
        with suppress(OSError):
            if self._journal is not None:
                self._journal.unlink(missing_ok=True)
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
