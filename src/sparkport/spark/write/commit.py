"""Make a change of rows visible, by a single swap of the table's metadata.

Strategy: every condition is checked against the very state that the change is put on top of, and
the swap is made only if that state is still the present (lake/iceberg_commit.py). When another
writer was faster, the same files are tried again on the new state. It is a conflict only if the
same rows were changed, or the columns. Writers of one server wait for each other rather than race,
so that only other servers and engines make a writer try again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparkport.catalog import Context
from sparkport.errors import Conflict, NotFound
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import Located, Location, TableChange, part_of
from sparkport.spark.lake.iceberg_commit import Draft, begin, commit, forget
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.plain_commit import PlainCommit, begin_plain
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.data_files import java_data_files
from sparkport.spark.write.keys import KeyCheck
from sparkport.spark.write.locate import changed_since, locate, same_snapshot
from sparkport.spark.write.vectors import java_delete_files, write_vectors

__all__ = [
    "BRANCH",
    "STATEMENT",
    "add_rows",
    "attempts",
    "changed_by_others",
    "commit_change",
    "summary_of",
    "verified",
    "verify_columns",
    "view_of",
]

STATEMENT = "sparkport.statement"
"""Key in the summary of a snapshot: the id of the statement that made it."""
BRANCH = "sparkport.branch"
"""Key in the summary of a snapshot: the working branch it was made on, and is removed with."""
_SECONDS_TO_TRY = 60.0
_LONGEST_PAUSE = 0.5


def commit_change(
    lake: Lake,
    ctx: Context,
    change: TableChange,
    staging: Staging,
    summary: Mapping[str, str],
    branch: str | None = None,
) -> tuple[TableState, Location]:
    """Make a change visible, in the table or on a branch.

    Returns the new state, and where the removed rows were. Raises: Conflict, ConstraintViolation,
    NotFound; then nothing has changed.
    """
    identifier = change.identifier
    keys = KeyCheck(lake, change, ctx.check)
    if change.keys:  # compares most of the keys before others have to wait
        keys.against(view_of(lake, lake.current(identifier), branch, change.base))
    with lake.locked(identifier):
        for _ in attempts(ctx, f"table {identifier}"):
            with translated(f"table {identifier}"):
                draft, is_made = _begun(lake, change, branch), False
                try:
                    now = view_of(lake, draft.state, branch, change.base)
                    location = verified(lake, change, now)
                    keys.against(now)
                    _put(draft, now, change, location, staging, summary, branch)
                    staging.expect_journal()
                    is_made = _swapped(draft)
                finally:
                    if not is_made:
                        lake.attempt("files of a commit that was not made", partial(_forget, draft))
            if is_made:
                return _made(lake, change, branch, draft), location
    raise AssertionError("the attempts end with a Conflict")


def _begun(lake: Lake, change: TableChange, branch: str | None) -> Draft | PlainCommit:
    """Begin a commit on the table as it is now: without Java where that can be."""
    plain = begin_plain(lake, change) if branch is None else None
    return begin(lake, change.identifier) if plain is None else plain


def _put(
    draft: Draft | PlainCommit,
    now: TableState,
    change: TableChange,
    location: Location,
    staging: Staging,
    summary: Mapping[str, str],
    branch: str | None,
) -> None:
    if isinstance(draft, PlainCommit):
        vectors = write_vectors(now, location.found, staging, now.file_properties)
        draft.written += dict.fromkeys(each.path for each in vectors)
        draft.add(change, vectors, summary)
        return
    if branch is not None and branch not in draft.state.metadata.refs:
        _create_branch(draft, branch, change.base)
    add_rows(draft, now, change, location, staging, summary, branch)


def _swapped(draft: Draft | PlainCommit) -> bool:
    return draft.commit() if isinstance(draft, PlainCommit) else commit(draft)


def _forget(draft: Draft | PlainCommit) -> None:
    if isinstance(draft, PlainCommit):
        draft.forget()
    else:
        forget(draft)


def _made(
    lake: Lake, change: TableChange, branch: str | None, draft: Draft | PlainCommit
) -> TableState:
    """The state of the table after a change.

    Raises: OutcomeUnknown for any error: the files are in use now and must stay.
    """
    try:
        lake.changed(change.identifier)
        if isinstance(draft, PlainCommit) and draft.made is not None:
            return draft.made
        return view_of(lake, lake.current(change.identifier), branch, change.base)
    except Exception as error:
        raise OutcomeUnknown(
            f"table {change.identifier} was changed, but cannot be read any more: look at the table"
        ) from error


def summary_of(ctx: Context, operation: str, staging: Staging) -> dict[str, str]:
    """Who did what, for the summary of the snapshot."""
    found = {
        STATEMENT: staging.id,
        "sparkport.operation": operation,
        "sparkport.principal": ctx.principal,
        "sparkport.trace-id": ctx.trace_id,
        "sparkport.transaction": ctx.parent_transaction_id or ctx.transaction_id,
    }
    return {name: value for name, value in found.items() if value}


def view_of(lake: Lake, state: TableState, branch: str | None, base: TableState) -> TableState:
    """The state that a change is made to: that of the table, or of a branch.

    A branch that does not exist yet begins with what the first statement has read.
    """
    if branch is None:
        return state
    ref = state.metadata.refs.get(branch)
    snapshot = base.snapshot if ref is None else state.metadata.snapshot_by_id(ref.snapshot_id)
    return lake.states.at(state, snapshot, state.schema)


def attempts(ctx: Context, what: str) -> Iterator[int]:
    """Yield while trying again makes sense, with growing pauses. Raises: Conflict; Cancelled."""
    deadline, pause, number = time.monotonic() + _SECONDS_TO_TRY, 0.01, 0
    while time.monotonic() < deadline:
        ctx.check()
        yield (number := number + 1)
        time.sleep(random.uniform(0, pause))  # noqa: S311 - so that two servers do not keep colliding
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise Conflict(
        f"{what} is changed by others all the time; nothing was changed: try again later"
    )


def _create_branch(draft: Draft, branch: str, base: TableState) -> None:
    """Create a branch at the snapshot that its transaction has read.

    In a table without snapshots, the first commit makes the branch.
    """
    if base.snapshot is not None:
        draft.transaction.manageSnapshots().createBranch(branch, base.snapshot.snapshot_id).commit()
    elif draft.state.snapshot is not None:
        draft.transaction.manageSnapshots().createBranch(branch).commit()


def verified(lake: Lake, change: TableChange, now: TableState) -> Location:
    """Where the removed rows are now.

    They are looked for only if the table has changed since the statement found them. Raises:
    Conflict when others have changed the rows or the columns; NotFound.
    """
    verify_columns(change, now)
    if change.location is not None and same_snapshot(change.base, now):
        return change.location
    location = locate(now, change.removed, now.file_properties)
    row = changed_since(change.base, now, location, now.file_properties, change.location)
    if row is not None:
        raise changed_by_others(change, f"row {row}")
    if len(location.missing):
        raise NotFound(
            f"row id {location.missing[0].as_py()} does not exist in table {change.identifier}"
        )
    return location


def changed_by_others(change: TableChange, what: str) -> Conflict:
    return Conflict(
        f"{what} of table {change.identifier} was changed by somebody else meanwhile; nothing was "
        "changed: run it again"
    )


def verify_columns(change: TableChange, now: TableState) -> None:
    """Raises: Conflict when the table was created anew meanwhile, or has other columns."""
    title = f"table {change.identifier}"
    if now.metadata.table_uuid != change.base.metadata.table_uuid:
        raise Conflict(
            f"{title} was dropped and created anew while the statement ran; nothing was changed"
        )
    if now.definition is not change.base.definition:
        raise Conflict(
            f"{title} was altered while the statement ran; nothing was changed: run it again"
        )


def add_rows(
    draft: Draft,
    now: TableState,
    change: TableChange,
    location: Location,
    staging: Staging,
    summary: Mapping[str, str],
    branch: str | None = None,
) -> None:
    """Put a change into a draft on top of `now`, as one snapshot."""
    table = draft.transaction.table()
    files = java_data_files(draft.lake, table, change.files)
    removed = [*location.found, *_removed_again(change)]
    if removed:
        update = draft.transaction.newRowDelta()
        # Without this, Iceberg takes the present vectors for concurrent ones.
        if now.snapshot is not None:
            update.validateFromSnapshot(now.snapshot.snapshot_id)
        for file in files:
            update.addRows(file)
        _add_vectors(draft, table, update, removed, staging)
    else:
        update = draft.transaction.newAppend()
        for file in files:
            update.appendFile(file)
    for name, value in summary.items():
        update.set(name, value)
    if branch is not None:
        update.set(BRANCH, branch)
        update.toBranch(branch)
    update.commit()


def _removed_again(change: TableChange) -> Iterator[Located]:
    specs = change.base.metadata.specs()
    for file in change.files:
        positions = change.gone.get(file.path)
        if positions is not None:
            fields = specs[file.spec_id].fields
            partition = {
                field.field_id: value
                for field, value in zip(fields, file.partition or (), strict=True)
            }
            yield Located(part_of(file), positions, positions, file.spec_id, partition)


def _add_vectors(
    draft: Draft, table: Any, update: Any, removed: Sequence[Located], staging: Staging
) -> None:
    written = write_vectors(draft.state, removed, staging, draft.state.file_properties)
    draft.written.append(written[0].path)
    added, replaced = java_delete_files(draft.lake, table, written)
    for file in added:
        update.addDeletes(file)
    for file in replaced:
        update.removeDeletes(file)
