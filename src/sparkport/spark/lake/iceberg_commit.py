"""Change a table by one commit, made only if the table is still as it was when it was checked.

Strategy: Iceberg's own transactions try again on top of whatever was committed meanwhile. But what
is checked here before a change (there is no NULL, no constraint uses the column) must still be true
when the change is made. So Iceberg's transaction only builds the new metadata, and the catalog is
asked to swap them for exactly the metadata that the checks have seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from sparkport.catalog import Constraints
from sparkport.errors import AlreadyExists, Conflict, Unsupported
from sparkport.spark.iceberg.definition import (
    Definition,
)
from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import type_tags_in
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.drafted_columns import describe, java_schema, staged_schema
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.kept_tables import KeptTable
from sparkport.spark.lake.lake import Lake, WrittenMetadata
from sparkport.spark.lake.outcomes import Expected, OutcomeUnknown, marked, was_made_despite
from sparkport.spark.lake.shared_catalog import NewMetadata
from sparkport.spark.lake.unpublished import Unpublished
from sparkport.spark.lake.version_notes import history_to_keep
from sparkport.spark.lake.version_timeline import HISTORY

__all__ = [
    "Draft",
    "alter",
    "begin",
    "commit",
    "commit_together",
    "forget",
    "remove_files",
]

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A change that is being built."""

    lake: Lake
    state: TableState
    """The state that the change is made to."""
    transaction: Any
    """An org.apache.iceberg.Transaction, which is never committed itself."""
    table: Any
    """The org.apache.iceberg.Table. Unlike the transaction's own, it can be scanned."""
    base: Any
    """The org.apache.iceberg.TableMetadata of `state`."""
    operations: Any
    """The org.apache.iceberg.TableOperations that the table was loaded with."""
    commits: int = 0
    """How many commits ago the JVM has loaded the table."""
    written: list[str] = field(default_factory=list)
    """Data files that were written for the change.

    Such a change is too costly to be tried again.
    """
    is_unknown: threading.Event = field(default_factory=threading.Event)
    """Set when it is not known whether the change was made."""

    @property
    def identifier(self) -> Identifier:
        return self.state.identifier

    @property
    def definition(self) -> Definition:
        return self.state.definition

    @property
    def type_tags(self) -> dict[int, str]:
        """The declared types of all columns.

        Dropped columns are among them: time travel still reads them.
        """
        return type_tags_in(self.state.metadata.properties)

    def schema(self) -> Schema:
        """The columns as the transaction will leave them."""
        return staged_schema(self.lake, self.transaction)

    def new_type(self, stored: NestedField) -> Any:
        """The org.apache.iceberg.types.Type of a field.

        Iceberg gives the fields inside it new ids.
        """
        return java_schema(self.lake, Schema(stored)).columns().get(0).type()

    def name_of(self, field_id: int) -> str:
        """Iceberg's name for a field at any depth.

        Raises: Unsupported where another field could have the same name.
        """
        schema = self.transaction.table().schema()
        name = str(schema.findColumnName(field_id))
        if int(schema.findField(name).fieldId()) != field_id:
            raise Unsupported(
                f"Iceberg cannot tell field {name} of table {self.identifier} from another one: "
                "rename one of them"
            )
        return name

    def describe(
        self,
        columns: pa.Schema | None = None,
        constraints: Constraints | None = None,
        type_tags: Mapping[int, str] | None = None,
    ) -> None:
        """Write the properties for what Iceberg lacks.

        An argument that is None leaves its part as it is.
        """
        describe(
            self.lake,
            self.transaction,
            self.definition.columns if columns is None else columns,
            self.definition.constraints if constraints is None else constraints,
            self.type_tags if type_tags is None else type_tags,
        )


def alter(lake: Lake, identifier: Identifier, edit: Callable[[Draft], bool]) -> None:
    """Change a table by one commit.

    `edit` returns whether there is anything to commit, and is called again after a conflict.
    Raises: Conflict when the table is changed again and again, or once while files were rewritten;
    what `edit` raises.
    """
    for _ in range(_ATTEMPTS):
        with translated(f"table {identifier}"):
            draft = begin(lake, identifier)
            is_done = False
            try:
                is_done = not edit(draft) or commit(draft)
            finally:
                if not is_done:
                    lake.attempt("files of a change that was not made", partial(forget, draft))
        if is_done:
            lake.changed(identifier)
            return
        if draft.written:
            break
    raise Conflict(
        f"table {identifier} was changed by somebody else at the same time; nothing was changed: "
        "try again"
    )


def begin(lake: Lake, identifier: Identifier) -> Draft:
    """Begin a change of a table as it is now. Raises: NotFound, Unsupported."""
    kept = _kept(lake, identifier)
    if kept is not None:
        return _on_kept(lake, identifier, kept)
    handle = lake.gateway.iceberg(identifier)
    if handle is None:
        raise Unsupported(
            f"table {identifier} is not an Iceberg table: change it where it was made"
        )
    transaction = handle.table.newTransaction()
    base = transaction.table().operations().current()
    state = lake.state(identifier, str(base.metadataFileLocation()))
    return Draft(lake, state, transaction, handle.table, base, handle.table.operations())


def _kept(lake: Lake, identifier: Identifier) -> KeptTable | None:
    """A table as it is now, if only this server has changed it since the JVM has loaded it."""
    kept = lake.kept.find(identifier)
    entry = None if kept is None else lake.entry(identifier)
    if kept is None or entry is None or entry.location == kept.location:
        return None if entry is None else kept
    text = lake.written_text(identifier, entry.location)
    if text is None:
        return None
    iceberg = lake.gateway.jvm.org.apache.iceberg
    metadata = iceberg.TableMetadataParser.fromJson(entry.location, text)
    is_same = str(metadata.uuid()) == str(kept.metadata.uuid())
    return replace(kept, location=entry.location, metadata=metadata) if is_same else None


def _on_kept(lake: Lake, identifier: Identifier, kept: KeptTable) -> Draft:
    """Begin a change of a table that the JVM has already as it is now."""
    iceberg, base = lake.gateway.jvm.org.apache.iceberg, kept.metadata
    # The only transactions that begin with given metadata, and do not ask the catalog for others.
    transaction = iceberg.Transactions.replaceTableTransaction(
        str(identifier), kept.operations, base
    )
    table = iceberg.BaseTable(kept.operations.temp(base), str(identifier))
    state = lake.state(identifier, kept.location)
    return Draft(lake, state, transaction, table, base, kept.operations, kept.commits)


def commit(draft: Draft, metadata: Any = None, forgotten: Set[int] = frozenset()) -> bool:
    """Make the change; False when another writer was faster.

    `metadata`, where given, are committed instead of the draft's; `forgotten` are snapshots that
    they do not have any more. Raises: OutcomeUnknown when it
    cannot be found out whether the change was made; what the catalog raises, when the change was
    certainly not made.
    """
    after = draft.transaction.table().operations().current() if metadata is None else metadata
    if after == draft.base:
        return True
    after = _with_history(draft, marked(draft.lake, draft.base, after), forgotten)
    proposed = _proposed(draft, after)
    try:
        draft.lake.catalog.swap(draft.identifier, proposed)
    except BaseException as error:  # noqa: BLE001 - an interrupt, too, leaves it open
        try:
            return was_made_despite(error, draft.lake, draft.state, Expected.of(after))
        except OutcomeUnknown:
            draft.is_unknown.set()
            raise
    _keep(draft, proposed)
    return True


def commit_together(changes: Sequence[tuple[Draft, Any]], made: Sequence[Unpublished] = ()) -> bool:
    """Make the changes of several tables, all or none; False when another writer was faster.

    Each has the metadata to commit. The catalog must be one that `swaps_together`; with objects
    that are `made` in the same moment, one that `creates_together`. Raises: as `commit`, for all of
    them; AlreadyExists.
    """
    proposed = [
        (draft, _proposed(draft, _with_history(draft, marked(draft.lake, draft.base, metadata))))
        for draft, metadata in changes
    ]
    wanted: list[tuple[Identifier, NewMetadata]] = [
        *((draft.identifier, each) for draft, each in proposed),
        *((each.identifier, each.proposed()) for each in made),
    ]
    catalog = made[0].catalog if made else changes[0][0].lake.catalog
    try:
        catalog.swap_all(wanted)
    except AlreadyExists:  # nothing was made, says the contract
        raise
    except BaseException as error:  # noqa: BLE001 - an interrupt, too, leaves it open
        try:
            if not proposed:  # what is true of one is true of all
                return min(made, key=lambda each: each.is_view).was_made_despite(error)
            draft, first = proposed[0]
            return was_made_despite(error, draft.lake, draft.state, Expected.of(first.after))
        except OutcomeUnknown:
            for draft, _ in changes:
                draft.is_unknown.set()
            raise
    for draft, each in proposed:
        _keep(draft, each)
    return True


def _with_history(draft: Draft, after: Any, forgotten: Set[int] = frozenset()) -> Any:
    """Note in new org.apache.iceberg.TableMetadata what only dropped metadata files told."""
    longest = str(after.property("write.metadata.previous-versions-max", "100"))
    most = max(1, int(longest)) if longest.isdecimal() else 1
    history = history_to_keep(draft.lake, draft.state, most, forgotten)
    if history is None or after.properties().get(HISTORY) == history:
        return after
    builder = draft.lake.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(after)
    return builder.setProperties({HISTORY: history}).build()


def _proposed(draft: Draft, after: Any) -> JavaMetadata:
    def publish() -> None:
        draft.table.operations().commit(draft.base, after)

    iceberg = draft.lake.gateway.jvm.org.apache.iceberg
    return JavaMetadata(iceberg, draft.table.io(), draft.base, after, publish)


def _keep(draft: Draft, made: JavaMetadata) -> None:
    """Remember what a table is after a commit, so that nobody reads it back. Never raises."""
    lake, identifier, location = draft.lake, draft.identifier, made.location
    if not location:
        return  # the JVM's own client of the catalog has written it

    def keep() -> None:
        written = WrittenMetadata(location, made.text())
        lake.states.add(identifier, location, written.text, draft.state.io)
        lake.keep_written(identifier, written)
        kept = KeptTable(location, made.as_loaded(), draft.operations, draft.commits + 1)
        lake.kept.keep(identifier, kept)

    lake.attempt(f"keeping what table {identifier} is now", keep)


def forget(draft: Draft) -> None:
    """Remove the files of a change that was not made."""
    if draft.is_unknown.is_set():
        return  # the table may refer to the files
    before = {snapshot.snapshotId() for snapshot in draft.base.snapshots()}
    after = draft.transaction.table().operations().current()
    new = [each for each in after.snapshots() if each.snapshotId() not in before]
    remove_files(draft, draft.written, new)


def remove_files(
    draft: Draft, paths: Sequence[str], snapshots: Sequence[Any], *, with_rows: bool | None = None
) -> None:
    """Remove files, and the metadata that were written for these snapshots alone.

    `snapshots` are org.apache.iceberg.Snapshot objects. With `with_rows` their delete files go,
    too, and their data files if it is True.
    """
    io, wanted = draft.table.io(), list(paths)
    for each in snapshots:
        if with_rows is not None:
            wanted += [str(file.location()) for file in each.addedDeleteFiles(io)]
        if with_rows:
            wanted += [str(file.location()) for file in each.addedDataFiles(io)]
        own = [one for one in each.allManifests(io) if one.snapshotId() == each.snapshotId()]
        wanted += [*(str(one.path()) for one in own), str(each.manifestListLocation())]
    if draft.state.io is not None:
        delete_java_files(wanted, draft.state.file_properties)
        return
    for path in wanted:  # only Java can reach them
        io.deleteFile(path)
