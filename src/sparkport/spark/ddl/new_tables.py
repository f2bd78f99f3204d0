"""A table that Spark fills before anybody sees it: CREATE and REPLACE TABLE … AS SELECT.

Strategy: Iceberg drafts the table in a transaction that is never committed by itself. Spark appends
to the draft. What the draft has become is then published by the lake's own compare-and-swap, alone
or with all else that a transaction has changed.

All data files are in a folder of their own, whose name ends with the statement's id: the folder of
a new table, or one inside the data of a table that is replaced. It is noted before anything is
written, so that another server removes it if this one dies.

If another writer has changed a table that is to be replaced, the same files are put on a new draft;
but not if they were computed from the rows of that table, which are others now.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.table.snapshots import Operation

from sparkport.catalog import Constraints, CreateTableOptions
from sparkport.errors import AlreadyExists, Conflict, SparkportError
from sparkport.spark.ddl.create_table import Layout, draft_table, expect_place, proposed_table
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake import folders
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import Expected, OutcomeUnknown, was_made_despite
from sparkport.spark.lake.shared_catalog import Beaten, Refused
from sparkport.spark.lake.unpublished import Unpublished
from sparkport.spark.lake.version_log import number_of
from sparkport.spark.lake.version_timeline import VERSION

__all__ = ["NewTable", "has_rows_of"]

_DATA_PATH = "write.data.path"


class NewTable(Unpublished):
    """A table that is new, or will replace one, and that is not published yet."""

    is_view = False

    def __init__(
        self,
        lake: Lake,
        identifier: Identifier,
        replaced: TableState | None,
        columns: pa.Schema,
        comment: str,
        layout: Layout,
        read: TableState | None = None,
    ) -> None:
        """Drafts the table. Nothing is written yet, but the folder is noted.

        `read` is the state that the query reads of the table that it replaces. Raises: what Iceberg
        says about the columns and partitions, and what `Staging` raises.
        """
        self.identifier = identifier
        self.catalog = lake.catalog
        self.is_new = replaced is None
        self.columns = columns
        self.token = f"sparkport-{uuid.uuid4().hex}"
        """The name under which plans of Spark have it."""
        self._lake = lake
        self._comment = comment
        self._layout = layout
        self._state = replaced
        self._read = read
        self.staging = (
            lake.staging.begin_new(identifier)
            if replaced is None
            else lake.staging.begin(identifier, replaced)
        )
        self._folder = (
            folders.new_folder(lake, identifier, self.staging.id) if self.is_new else None
        )
        self._summary: dict[str, str] = {}
        self._inserts = 0
        self._is_left = False
        self._guard = threading.Lock()
        self._is_filling = False
        self._is_discarded = False
        with translated(f"table {identifier}"):
            self._transaction = self._drafted()
            self._place = self._folder or f"{self._data_path()}/{self.staging.id}"
            self.staging.will_fill(self._place)

    def _drafted(self) -> Any:
        return draft_table(
            self._lake,
            self.identifier,
            self.columns,
            Constraints(),
            CreateTableOptions(comment=self._comment),
            self._folder,
            is_new=self.is_new,
            layout=self._layout,
        )

    def _data_path(self) -> str:
        table = self._transaction.table()
        path = table.properties().get(_DATA_PATH) or f"{table.location()}/data"
        return str(path).rstrip("/")

    # -------------------------------------------------------------------------------- Spark's part

    def summary(self, given: Mapping[str, str]) -> dict[str, str]:
        """What the summary of each snapshot says, with the number of the version that it makes."""
        number = 0 if self._state is None else number_of(self._lake, self._state) + 1
        self._summary = {**given, VERSION: str(number)}
        return self._summary

    @contextmanager
    def filling(self) -> Iterator[Any]:
        """The org.apache.iceberg.Table that Spark appends to, inside of the block.

        Meanwhile it cannot be published. If it is discarded, the block ends with a Conflict.
        """
        with self._guard:
            self._is_filling = True
        try:
            if self._folder is not None:
                yield self._transaction.table()
            else:
                properties = {} if self._state is None else self._state.metadata.properties
                self._set_data_path(self._place)
                try:
                    yield self._transaction.table()
                finally:
                    self._set_data_path(properties.get(_DATA_PATH))
            self._inserts += 1
        finally:
            with self._guard:
                self._is_filling = False
            if self._is_discarded:
                self._remove()
        if self._is_discarded:
            raise Conflict(
                f"the transaction that makes {self.identifier} ended meanwhile: run it again"
            )

    def _set_data_path(self, path: str | None) -> None:
        update = self._transaction.updateProperties()
        (update.remove(_DATA_PATH) if path is None else update.set(_DATA_PATH, path)).commit()

    def present_table(self) -> Any:
        """An org.apache.iceberg.Table as it is now. Unlike the transaction's, it can be scanned."""
        operations = self._operations.temp(self._metadata())
        return self._lake.gateway.jvm.org.apache.iceberg.BaseTable(operations, self.token)

    def _metadata(self) -> Any:
        return self._transaction.table().operations().current()

    def counted(self, since: int = 0) -> tuple[int, int]:
        """Rows and files that were added, by all snapshots after the first `since`."""
        rows = files = 0
        for snapshot in self._own_snapshots(self._transaction)[since:]:
            summary = snapshot.summary()
            rows += int(summary.get("added-records") or 0)
            files += int(summary.get("added-data-files") or 0)
        return rows, files

    @property
    def snapshots(self) -> int:
        return len(self._own_snapshots(self._transaction))

    def _own_snapshots(self, transaction: Any) -> list[Any]:
        """The org.apache.iceberg.Snapshot objects that only the draft has, the oldest first."""
        metadata, base = transaction.table().operations().current(), self._base(transaction)
        before = set() if base is None else {each.snapshotId() for each in base.snapshots()}
        return [each for each in metadata.snapshots() if each.snapshotId() not in before]

    def _base(self, transaction: Any) -> Any:
        return None if self.is_new else _operations_of(transaction).current()

    # ---------------------------------------------------------------------------------- publishing

    def proposed(self) -> JavaMetadata:
        if self._is_filling:
            raise Conflict(
                f"another statement of the transaction inserts into {self.identifier}: wait for it"
            )
        self._expect_place()
        with translated(f"table {self.identifier}"):
            base = self._base(self._transaction)
            now = None if self.is_new else self._lake.current(self.identifier)
            if now is not None and self._read is not None and not has_rows_of(now, self._read):
                raise Conflict(
                    f"table {self.identifier}, which the statement reads and replaces, was changed "
                    "by somebody else at the same time; nothing was changed: run it again"
                )
            is_moved = now is not None and str(base.metadataFileLocation()) != now.metadata_location
            if is_moved or self._inserts > 1:
                self._redraft(now)
            self.staging.expect_journal()
            if now is None:
                return proposed_table(self._lake, self._transaction)
            return self._replacement()

    def _replacement(self) -> JavaMetadata:
        """Metadata that are swapped only for those that they were made from.

        Iceberg's own transaction would replace whatever is there, and forget what others did.
        """
        iceberg, operations = self._lake.gateway.jvm.org.apache.iceberg, self._operations
        base, after = operations.current(), self._metadata()

        def commit() -> None:
            operations.commit(base, after)

        return JavaMetadata(iceberg, self._transaction.table().io(), base, after, commit)

    @property
    def _operations(self) -> Any:
        """The org.apache.iceberg.TableOperations that the draft was made with."""
        return _operations_of(self._transaction)

    def _expect_place(self) -> None:
        """Raises: AlreadyExists, NotFound when others have made or dropped the table meanwhile."""
        self._lake.changed(self.identifier)
        known = expect_place(self._lake, self.identifier)
        if self.is_new and known is not None:
            raise AlreadyExists(f"{known.identifier} exists already")
        if not self.is_new and (known is None or known.identifier != self.identifier):
            raise Conflict(
                f"table {self.identifier} was dropped by somebody else at the same time; nothing "
                "was changed: run it again"
            )

    def _redraft(self, now: TableState | None) -> None:
        """Put all that Spark has written on a draft of the table as it is now, as one snapshot."""
        before = self._transaction
        io, snapshots = before.table().io(), self._own_snapshots(before)
        self._state = now
        draft = self._drafted()
        table, old = draft.table(), before.table()
        if not (
            table.schema().asStruct().equals(old.schema().asStruct())
            and table.spec().equals(old.spec())
        ):
            raise Conflict(
                f"the columns of table {self.identifier} were changed by somebody else at the same "
                "time; nothing was changed: run it again"
            )
        builders = self._lake.gateway.jvm.org.apache.iceberg.DataFiles
        append = draft.newAppend()
        for snapshot in snapshots:
            for file in snapshot.addedDataFiles(io):
                # Their rows get new ids, as those of the new draft.
                append.appendFile(
                    builders.builder(table.spec()).copy(file).withFirstRowId(None).build()
                )
        for name, value in self.summary(self._summary).items():
            append.set(name, value)
        append.commit()
        self._transaction, self._inserts = draft, 1
        self._remove_manifests(before.table(), snapshots)

    def publish(self) -> bool:
        proposed = self.proposed()
        try:
            if self.is_new:
                self.catalog.create(self.identifier, proposed)
            else:
                self.catalog.swap(self.identifier, proposed)
        except BaseException as error:  # noqa: BLE001 - an interrupt, too, leaves it open
            return self.was_made_despite(error)
        return True

    def was_made_despite(self, error: BaseException) -> bool:
        if self._state is not None:
            expected = Expected.of(self._metadata())
            return was_made_despite(error, self._lake, self._state, expected)
        if isinstance(error, Beaten) and error.is_certain:
            return False
        try:
            self._lake.changed(self.identifier)
            entry = self._lake.entry(self.identifier)
            found = None if entry is None else self._lake.current(self.identifier).metadata
        except SparkportError:
            raise self._unknown() from error
        if found is not None and str(found.table_uuid) == str(self._transaction.table().uuid()):
            return True
        if isinstance(error, Refused):
            raise error.__cause__ or error
        if isinstance(error, AlreadyExists | Beaten):
            raise error
        raise self._unknown() from error

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the catalog did not say whether table {self.identifier} was made: look before you "
            "try again"
        )

    def withdraw(self) -> None:
        self._lake.changed(self.identifier)
        entry = self._lake.entry(self.identifier)
        if entry is None:
            return
        there, own = self._lake.current(self.identifier).metadata, self._metadata()
        snapshots = {int(each.snapshotId()) for each in own.snapshots()}
        if str(there.table_uuid) != str(own.uuid()) or not snapshots.issuperset(
            each.snapshot_id for each in there.snapshots
        ):
            raise Conflict(f"table {self.identifier} was changed by others already, and stays")
        self.catalog.drop(entry)

    def settle(self) -> None:
        self.staging.done()

    def leave(self) -> None:
        self._is_left = True
        self.staging.leave()

    def discard(self) -> None:
        if self._is_left:
            return
        with self._guard:
            self._is_discarded = True
            if self._is_filling:
                return  # the statement that fills it will see it
        self._remove()

    def _remove(self) -> None:
        table = self._transaction.table()
        try:
            folders.remove_folder(table, self._place)
            folders.remove_empty_folders(self._place)
            if self._folder is None:
                self._remove_manifests(table, self._own_snapshots(self._transaction))
        except Exception:  # noqa: BLE001 - another server will remove it
            self.staging.leave()
        else:
            self.staging.discard()

    def _remove_manifests(self, table: Any, snapshots: list[Any]) -> None:
        """Remove the metadata that were written for snapshots of a draft. Never raises."""
        io = table.io()

        def remove() -> None:
            for each in snapshots:
                own = [
                    one for one in each.allManifests(io) if one.snapshotId() == each.snapshotId()
                ]
                for path in (*(one.path() for one in own), each.manifestListLocation()):
                    io.deleteFile(str(path))

        self._lake.attempt("metadata of a table that was not made", partial(remove))


def _operations_of(transaction: Any) -> Any:
    """The org.apache.iceberg.TableOperations of a transaction, also of one of a caching catalog."""
    kind = transaction.getClass()
    if str(kind.getSimpleName()) == "CommitCallbackTransaction":
        field = kind.getDeclaredField("wrapped")  # it hides them
        field.setAccessible(True)
        transaction = field.get(transaction)
    return transaction.underlyingOps()


def has_rows_of(now: TableState, before: TableState) -> bool:
    """Whether a table still has the rows of an earlier state, maybe in other files."""
    if now.metadata.table_uuid != before.metadata.table_uuid:
        return False
    wanted = None if before.snapshot is None else before.snapshot.snapshot_id
    found = now.snapshot
    while found is not None and found.snapshot_id != wanted:
        if found.summary is None or found.summary.operation is not Operation.REPLACE:
            return False
        parent = found.parent_snapshot_id
        found = None if parent is None else now.metadata.snapshot_by_id(parent)
        if found is None:
            return False  # it was forgotten, and so is what has happened
    return (found is None) == (wanted is None)
