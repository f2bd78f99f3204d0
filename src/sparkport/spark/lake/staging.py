"""What a statement must not leave behind if it fails: its files, staged and in the table.

Strategy: a new data file is written in the table's own folder, where it stays when the statement is
committed. Before that its name goes into a journal. A server that dies leaves the journal, which
tells the next server what to remove (sweep.py). Every server has a folder of its own, which shows
whether it lives (liveness.py), inside a folder that only the server's user can use.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.errors import Conflict
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake import staging_folder
from sparkport.spark.lake.liveness import Hold, Life
from sparkport.spark.lake.staging_folder import JournalFile

if TYPE_CHECKING:
    from sparkport.spark.iceberg.table_state import TableState

__all__ = ["Staging", "StagingArea"]

_log = logging.getLogger(__name__)


class StagingArea:
    """The statements of a server on a lake.

    No folder is made before a statement needs it. Thread-safe.
    """

    storage = LocalStorage()
    """Holds what statements stage and spill.

    Spark's executors must find it under the same paths.
    """

    def __init__(
        self, root: Path, properties: Mapping[str, str] | None = None, hold: Hold | None = None
    ) -> None:
        """`properties` are for PyIceberg's file systems; `hold` has the JVM hold a lock."""
        self.root = root
        self.properties = dict(properties or {})
        self._hold = hold
        self._guard = threading.Lock()
        self._folder: Path | None = None
        self._life: Life | None = None

    def begin(self, identifier: Identifier, state: TableState | None = None) -> Staging:
        """Begin a statement that changes a table, of which it has read `state`.

        It makes no folder until it writes something.
        """
        return Staging(self, identifier, state)

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
        if folder is not None:
            staging_folder.remove_unless_used(folder)
        if life is not None:
            life.end()


class Staging:
    """What a statement has written. For one thread at a time."""

    storage = StagingArea.storage
    """Holds the files in `folder`."""

    def __init__(self, area: StagingArea, identifier: Identifier, state: TableState | None) -> None:
        self.id = uuid.uuid4().hex
        """The statement's id, which is also in the summary of the snapshot that it makes."""
        self.identifier = identifier
        self._state = state
        self._area = area
        self._folder: Path | None = None
        self._journal: JournalFile | None = None
        self._locations: list[str] = []

    @property
    def folder(self) -> Path:
        """A folder for files that never become the table's. Spark's executors can read them.

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

    def will_write(self, *locations: str) -> None:
        """Note files in the journal before they are written outside of `folder`.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        self._note([{"file": location} for location in locations])
        self._locations += locations

    def will_branch(self, branch: str) -> None:
        """Note a branch of the table in the journal before it is made.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        self._note([{"branch": branch}])

    def expect_journal(self) -> None:
        """Raises: Conflict when this server was taken for dead, as after its machine hung."""
        if self._journal is not None and not self._journal.exists():
            raise Conflict(
                f"what was written for table {self.identifier} has been removed by another server "
                "meanwhile; nothing was changed: run it again"
            )

    def done(self) -> None:
        """End after a commit: the files are the table's now. Never raises."""
        self._end()

    def discard(self) -> None:
        """Remove all files that were written. Never raises.

        What cannot be removed now is left to the next server.
        """
        left = []
        for location in self._locations:
            try:
                storage_at(location, self._area.properties).delete(location)
            except Exception:  # noqa: BLE001 - see above
                _log.warning("a file of statement %s cannot be removed", self.id, exc_info=True)
                left.append(location)
        self._locations = left
        if left:
            self.leave()
        else:
            self._end()

    def leave(self) -> None:
        """End without knowing whether it is committed: the next server will find out.

        Never raises.
        """
        self._remove_folder()

    def _note(self, notes: Sequence[Mapping[str, Any]]) -> None:
        with writing(self.identifier):
            if self._journal is None:
                self._journal = JournalFile.of(self._area.folder(), self.id)
                notes = [self._heading(), *notes]
            self._journal.append(map(json.dumps, notes))

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
                self._journal.remove()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            staging_folder.remove_folder(self._folder)
            self._folder = None
