"""What a statement must not leave behind if it fails: its files, staged and in the table.

Strategy: a new data file is written in the table's own folder, where it stays when the statement is
committed. Before that, something tells another server what to remove if this one dies (sweep.py):
where the warehouse is a folder, a journal of the statement names the file. In an object store the
file's name itself tells it (store_folder.py).

Every server has a folder of its own, which shows whether it lives (liveness.py), inside a folder
that only the server's user can use. What a statement puts aside while it runs is there.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.errors import Conflict
from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.lake import staging_folder
from sparkport.spark.lake.heading import Heading
from sparkport.spark.lake.liveness import Hold, Life
from sparkport.spark.lake.staging_folder import JournalFile
from sparkport.spark.lake.store_folder import Store, StoreFolder

if TYPE_CHECKING:
    from sparkport.spark.iceberg.table_state import TableState

__all__ = ["WRITTEN_BY", "Staging", "StagingArea"]

WRITTEN_BY = "written-by"
"""Note in a journal: Spark writes files whose names bear this id."""

_log = logging.getLogger(__name__)


class StagingArea:
    """The statements of a server on a lake.

    No folder is made before a statement needs it. Thread-safe.
    """

    storage = LocalStorage()
    """Holds what statements put aside."""

    def __init__(
        self,
        root: Path,
        properties: Mapping[str, str] | None = None,
        hold: Hold | None = None,
        store: Store | None = None,
    ) -> None:
        """`root` has the folders of this machine's servers; `store` replaces journals in there.

        `properties` are those of the storages; `hold` has the JVM hold a lock.
        """
        self.root = root
        self.store = store
        self.properties = dict(properties or {})
        self._hold = hold
        self._guard = threading.Lock()
        self._folder: Path | None = None
        self._life: Life | None = None
        self._in_store: StoreFolder | None = None

    def begin(self, identifier: Identifier, state: TableState | None = None) -> Staging:
        """Begin a statement that changes a table, of which it has read `state`.

        It makes no folder until it writes something.
        """
        return Staging(self, identifier, state)

    def begin_new(self, identifier: Identifier) -> Staging:
        """Begin a statement that makes a table or a view."""
        return Staging(self, identifier, None, Heading(identifier, str(uuid.uuid4())))

    def prefix(self) -> str:
        """What names of branches must begin with, so that another server can remove them."""
        folder = self.folder_in_store()
        return "" if folder is None else folder.server

    def folder_in_store(self) -> StoreFolder | None:
        """This server's folder in the object store; None where journals are used.

        It is another one after this server could have been taken for dead.
        """
        if self.store is None:
            return None
        with self._guard:
            before = self._in_store
            if before is not None and before.is_certain:
                return before
            found = self._in_store = StoreFolder(self.store, self.folder)
        if before is not None:
            before.close()
        return found

    def folder(self) -> Path:
        """The folder of this server.

        Raises: PreconditionFailed when others could change what is in there; OSError.
        """
        with self._guard:
            if self._folder is None:
                folder = staging_folder.new_server_folder(self.root)
                self._life = Life(folder, self._hold)
                self._folder = folder
            return self._folder

    def close(self) -> None:
        """Release the folder. Never raises.

        What statements have left there is removed by the next server.
        """
        with self._guard:
            folder, life, self._folder, self._life = self._folder, self._life, None, None
            in_store, self._in_store = self._in_store, None
        if in_store is not None:
            in_store.close()
        if folder is not None:
            staging_folder.remove_unless_used(folder)
        if life is not None:
            life.end()


class Staging:
    """What a statement has written. For one thread at a time."""

    storage = StagingArea.storage
    """Holds the files in `folder`."""

    def __init__(
        self,
        area: StagingArea,
        identifier: Identifier,
        state: TableState | None,
        heading: Heading | None = None,
    ) -> None:
        is_new, heading = heading is not None, heading or Heading.of(identifier, state)
        in_store = area.folder_in_store()
        self.identifier = identifier
        self._state = state
        self._area = area
        self._in_store = in_store
        self.id = uuid.uuid4().hex if in_store is None else in_store.statement_id(heading)
        """The statement's id, which is also in the summary of the snapshot that it makes."""
        self._journal: _Journal = (
            _JournalInFolder(area, self.id, heading)
            if in_store is None
            else _NotesInStore(in_store, heading, is_new=is_new)
        )
        self._folder: Path | None = None
        self._locations: list[str] = []
        self._rows: list[str] = []
        self.is_named_by_spark = False
        """Whether Spark may have written files for it, whose names bear its id."""

    @property
    def folder(self) -> Path:
        """A folder of this machine for files that never become the table's.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        if self._folder is None:
            with writing(self.identifier):
                folder = self._area.folder() / self.id
                staging_folder.new_folder(folder)
            self._folder = folder
        return self._folder

    def location(self, name: str) -> str:
        """The location of a file in `folder`.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        return str(self.folder / name)

    def for_spark(self, name: str) -> tuple[Storage, str]:
        """Where Spark's executors can read a file that never becomes the table's.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        store = self._area.store
        if store is None or self._in_store is None or not store.for_rows:
            return self.storage, self.location(name)
        with writing(self.identifier):
            self._in_store.begin()
            location = self._in_store.row_location(self.id, name)
            self._rows.append(location)
            return store.storage(), location

    def will_write(self, *locations: str) -> None:
        """Have another server find files, before they are written, if this server dies.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        with writing(self.identifier):
            self._journal.note([{"file": location} for location in locations])
        self._locations += locations

    def will_branch(self, branch: str) -> None:
        """Have another server find a branch of the table, before it is made.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        with writing(self.identifier):
            self._journal.note([{"branch": branch}])

    def will_run_spark(self) -> None:
        """Have another server look for files that bear the statement's id: Spark names them.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        with writing(self.identifier):
            self._journal.note([{WRITTEN_BY: self.id}])
        self.is_named_by_spark = True

    def will_fill(self, folder: str) -> None:
        """Have another server find a folder whose name ends with the statement's id.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        with writing(self.identifier):
            self._journal.note([{"folder": folder}])

    def expect_journal(self) -> None:
        """Raises: Conflict when this server was taken for dead, as after its machine hung."""
        if not self._journal.is_certain():
            raise Conflict(
                f"what was written for table {self.identifier} has been removed by another server "
                "meanwhile; nothing was changed: run it again"
            )

    def end(self, is_made: bool | None) -> None:
        """End as the commit has ended; None when nobody knows whether it was made. Never raises."""
        if is_made is None:
            self.leave()
        elif is_made:
            self.done()
        else:
            self.discard()

    def done(self) -> None:
        """End after a commit: the files are the table's now. Never raises."""
        self._close()

    def discard(self) -> None:
        """Remove all files that were written. Never raises.

        What cannot be removed now is left to the next server.
        """
        self._locations = self._not_removed(self._locations)
        if self._locations and self._in_store is None:
            self.leave()
            return
        if self._in_store is not None:
            self._in_store.remove_later(self._locations, self._properties)
        self._close()

    def leave(self) -> None:
        """End without knowing whether it is committed: the next server will find out.

        Never raises.
        """
        if self._in_store is not None:
            self._in_store.keep()
        self._remove_folder()

    def _properties(self) -> Mapping[str, str]:
        """The properties of the storages of the table's files, as they are now."""
        return self._area.properties if self._state is None else self._state.file_properties

    def _not_removed(self, locations: Sequence[str]) -> list[str]:
        """Remove files, and return those that cannot be removed now. Never raises."""
        try:
            return delete_files(locations, self._properties()) if locations else []
        except Exception:  # noqa: BLE001 - the catalog, which has the properties, does not answer
            _log.warning("files of statement %s cannot be removed", self.id, exc_info=True)
            return list(locations)

    def _close(self) -> None:
        with suppress(OSError):
            self._journal.end()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            staging_folder.remove_folder(self._folder)
            self._folder = None
        if self._rows and self._in_store is not None and self._area.store is not None:
            properties = self._area.store.properties
            self._in_store.remove_later(delete_files(self._rows, properties()), properties)
            self._rows = []


class _Journal(ABC):
    """What tells another server what a statement has left."""

    @abstractmethod
    def note(self, notes: Sequence[Mapping[str, str]]) -> None:
        """Note files, folders or branches. Raises: OSError, PreconditionFailed."""

    @abstractmethod
    def is_certain(self) -> bool:
        """Whether no other server has acted on it. Raises: OSError."""

    @abstractmethod
    def end(self) -> None:
        """Forget it: there is nothing left to remove. Raises: OSError."""


class _JournalInFolder(_Journal):
    """A file of this machine, for one statement."""

    def __init__(self, area: StagingArea, statement: str, heading: Heading) -> None:
        self._area = area
        self._statement = statement
        self._heading = heading
        self._file: JournalFile | None = None

    def note(self, notes: Sequence[Mapping[str, str]]) -> None:
        lines: list[Mapping[str, Any]] = [*notes]
        if self._file is None:
            self._file = JournalFile.of(self._area.folder(), self._statement)
            lines.insert(0, self._heading.note())
        self._file.append(map(json.dumps, lines))

    def is_certain(self) -> bool:
        return self._file is None or self._file.exists()

    def end(self) -> None:
        if self._file is not None:
            self._file.remove()


class _NotesInStore(_Journal):
    """The name of each file, and a note of the table by the server."""

    def __init__(self, folder: StoreFolder, heading: Heading, *, is_new: bool) -> None:
        self._folder = folder
        self._heading = heading
        self._is_new = is_new

    def note(self, notes: Sequence[Mapping[str, str]]) -> None:
        folders = tuple(each["folder"] for each in notes if "folder" in each)
        is_known = bool(self._heading.places)
        self._folder.note(self._heading if is_known else replace(self._heading, places=folders))
        branches = [each["branch"] for each in notes if "branch" in each]
        if not all(self._folder.server in branch for branch in branches):
            raise Conflict(
                "the server could not reach the store for so long that others may have taken it "
                "for dead: begin the transaction again"
            )

    def is_certain(self) -> bool:
        return self._folder.is_certain

    def end(self) -> None:
        """Forget what was made; the name of a file that a snapshot leads to does no harm."""
        if self._is_new:
            self._folder.forget(self._heading.uuid)
