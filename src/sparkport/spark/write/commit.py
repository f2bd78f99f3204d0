"""Make a change of rows visible, by a single swap of the table's metadata.

Strategy: every condition is checked against the very state that the change is put on top of, and
the swap is made only if that state is still the present (lake/iceberg_commit.py). When another
writer was faster, the same files are tried again on the new state. It is a conflict only if the
same rows were changed, or the columns. Writers of one server do not race: changes that are ready at
the same time are made together, by the one that comes first (members.py, decision 0037). So only
other servers and engines make a writer try again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparkport.catalog import Context
from sparkport.errors import Conflict
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import Located, Location, TableChange, part_of
from sparkport.spark.lake.groups import Group, Take
from sparkport.spark.lake.iceberg_commit import Draft, begin, commit, forget
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.plain_commit import PlainCommit, begin_plain
from sparkport.spark.lake.staging import Staging
from sparkport.spark.lake.version_log import number_of
from sparkport.spark.lake.version_timeline import VERSION
from sparkport.spark.write.branches import BRANCH, remove_branch_files, without_branch
from sparkport.spark.write.data_files import java_data_files, write_held
from sparkport.spark.write.keys import KeyCheck
from sparkport.spark.write.members import (
    Member,
    accepted,
    all_of,
    fail_all,
    joined,
    joined_summary,
)
from sparkport.spark.write.vectors import java_delete_files, write_vectors
from sparkport.spark.write.verify import verified

__all__ = [
    "STATEMENT",
    "add_rows",
    "attempts",
    "commit_change",
    "summary_of",
    "view_of",
]

STATEMENT = "sparkport.statement"
"""Key in the summary of a snapshot: the id of the statement that made it.

Of several statements it is a JSON list, and so are the other values that tell of a statement.
"""
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

    Changes of the table that are ready at the same time are made together. Returns the new state,
    and where the removed rows were. Raises: Conflict, ConstraintViolation, NotFound; then nothing
    has changed.
    """
    identifier = change.identifier
    member = Member(ctx, change, KeyCheck(lake, change, ctx.check), staging, summary)
    if change.keys:  # compares most of the keys before others have to wait
        now = view_of(lake, lake.current(identifier), branch, change.base)
        if change.is_exact:  # else rows that others have added would look like wrong ones
            verified(change, now)
        member.keys.against(now)
    if branch is not None:
        with lake.locked(identifier):
            _commit(lake, [member], branch)
    else:
        group: Group[Member] = lake.groups.of(identifier)
        group.join(member, ctx, partial(_lead, lake, identifier))
    return member.outcome()


def _lead(lake: Lake, identifier: Identifier, take: Take[Member]) -> None:
    """Make the changes that wait for a table: the small ones together, the others in their turn."""
    with lake.locked(identifier):
        members = take()
        try:
            _commit(lake, [each for each in members if each.is_small])
            for each in members:
                if not each.is_small:
                    _commit(lake, [each])
        finally:
            left = [each for each in members if not each.is_settled]
            if left:  # the thread is interrupted, and nobody knows at which point
                fail_all(left, OutcomeUnknown(_unknown(identifier)))


def _unknown(identifier: Identifier) -> str:
    return (
        f"nobody knows whether the change of table {identifier} was made: look at the table before "
        "you try again"
    )


def _commit(lake: Lake, members: Sequence[Member], branch: str | None = None) -> None:
    """Make changes by one commit, as far as they can be made. Afterwards all are settled."""
    try:
        _attempt(lake, members, branch)
    except OutcomeUnknown as error:
        left = [each for each in members if not each.is_settled]
        fail_all([each for each in left if each.objection is None], error)
    except Exception as error:  # noqa: BLE001 - each raises its own
        left = [each for each in members if not each.is_settled]
        if len(left) == 1 or isinstance(error, _Beaten):
            fail_all(left, error)
    else:
        return
    # What went wrong may be the fault of one of them, which must not harm the others.
    for each in left:
        if not each.is_settled:
            _commit(lake, [each], branch)


def _attempt(lake: Lake, members: Sequence[Member], branch: str | None) -> None:
    """Make changes by one commit. Those that cannot be made get their error.

    Raises: what keeps all of them from being made; OutcomeUnknown.
    """
    if not members:
        return
    identifier = members[0].change.identifier
    # None of the callers may end the attempts by going away: each is asked in its turn.
    for _ in attempts(Context(), f"table {identifier}"):
        with translated(f"table {identifier}"):
            draft = _begun(lake, all_of(members), branch)
            now = view_of(lake, draft.state, branch, members[0].change.base)
            # What is written for a branch belongs to its statement, until the transaction ends.
            own = lake.staging.begin(identifier, now) if branch is None else members[0].staging
            is_made: bool | None = False
            try:
                made = accepted(members, now)
                if not made:
                    return
                change = write_held(joined(made, now), now, own)
                assert change.location is not None
                _put(draft, now, change, change.location, own, joined_summary(made), branch)
                for staging in (own, *(each.staging for each in made)):
                    staging.expect_journal()
                is_made = _swapped(draft, change.scratch)
            except OutcomeUnknown:
                is_made = None
                raise
            finally:
                if not is_made:
                    lake.attempt("files of a commit that was not made", partial(_forget, draft))
                if branch is None:
                    own.end(is_made)
        if is_made:
            if isinstance(draft, Draft):
                _tidy(draft, change.scratch)
            state = _made(lake, made[0].change, branch, draft)
            for each in members:
                if each.objection is not None:
                    each.error = each.objection
                elif each.error is None:
                    each.made = state
            return
        members = [each for each in members if not each.is_settled]
    raise AssertionError("the attempts end with a Conflict")


def _begun(lake: Lake, change: TableChange, branch: str | None) -> Draft | PlainCommit:
    """Begin a commit on the table as it is now: without Java where that can be."""
    plain = begin_plain(lake, change) if branch is None and not change.scratch else None
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
        draft.add(change, vectors, summary)
        return
    if branch is not None and branch not in draft.state.metadata.refs:
        _create_branch(draft, branch, change.base)
    add_rows(draft, now, change, location, staging, summary, branch)


def _swapped(draft: Draft | PlainCommit, scratch: Sequence[str]) -> bool:
    """Make the commit, which also removes the branches that its files were written on."""
    if isinstance(draft, PlainCommit):
        return draft.commit()
    after = draft.transaction.table().operations().current()
    for branch in scratch:
        after = without_branch(draft.lake, after, branch)
    return commit(draft, after)


def _tidy(draft: Draft, scratch: Sequence[str]) -> None:
    """Remove what only these branches had, but not the rows, which are published. Never raises."""
    for branch in scratch:
        draft.lake.attempt(
            "files of a branch", partial(remove_branch_files, draft, branch, with_rows=False)
        )


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
    raise _Beaten(f"{what} is changed by others all the time; nothing was changed: try again later")


class _Beaten(Conflict):
    """Others were faster, again and again."""


def _create_branch(draft: Draft, branch: str, base: TableState) -> None:
    """Create a branch at the snapshot that its transaction has read.

    In a table without snapshots, the first commit makes the branch.
    """
    if base.snapshot is not None:
        draft.transaction.manageSnapshots().createBranch(branch, base.snapshot.snapshot_id).commit()
    elif draft.state.snapshot is not None:
        draft.transaction.manageSnapshots().createBranch(branch).commit()


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
    if branch is None:
        update.set(VERSION, str(number_of(draft.lake, draft.state) + 1))
    else:
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
