"""Where a statement's change goes: into the table, or to a branch until its transaction ends.

Strategy: on the branch the transaction reads its own writes, and no other reader does. To publish
it, all its statements together are put on top of the table as it is then, as one snapshot. The same
swap of metadata removes the branch, whose own snapshots are not kept. Several tables are all
verified, under this server's locks, before the first is swapped; most catalogs swap them together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints, Context, TransactionState
from sparkport.engine.discretion import discreet
from sparkport.errors import Conflict, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import Location, TableChange
from sparkport.spark.lake.iceberg_commit import (
    Draft,
    begin,
    commit,
    commit_together,
    forget,
)
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.staging import Staging
from sparkport.spark.lake.transaction import Pending, Transaction
from sparkport.spark.lake.unpublished import Unpublished
from sparkport.spark.write.branches import remove_branch_files, without_branch
from sparkport.spark.write.commit import add_rows, attempts, commit_change
from sparkport.spark.write.data_files import write_held
from sparkport.spark.write.keys import KeyCheck
from sparkport.spark.write.new_objects import at_once, created_first, publish_each, settle
from sparkport.spark.write.verify import verified

__all__ = ["drop_branch", "publish", "publish_transaction", "roll_back"]

_log = logging.getLogger(__name__)


def publish(
    lake: Lake, ctx: Context, change: TableChange, staging: Staging, summary: Mapping[str, str]
) -> bool:
    """Commit a statement's change. False when it waits for the end of its transaction.

    Raises: Conflict, ConstraintViolation, NotFound, TransactionNotActive; then nothing has changed.
    """
    transaction = lake.transactions.collecting(ctx)
    if transaction is not None:
        with transaction.lock:
            # The transaction may have been published while this waited for its lock.
            if lake.transactions.collecting(ctx) is transaction:
                lake.transactions.writes(transaction, ctx.quotas)
                written = write_held(change, change.base, staging)
                _add(lake, ctx, transaction, written, staging, summary)
                return False
        # These were found in the transaction's own state of the table, which is gone.
        if len(change.removed) or change.keys:
            raise Conflict(
                f"the transaction of this change of table {change.identifier} ended meanwhile: run "
                "it again"
            )
    state, _ = commit_change(lake, ctx, change, staging, summary)
    lake.transactions.show(ctx.parent_transaction_id, state)
    return True


def _add(
    lake: Lake,
    ctx: Context,
    transaction: Transaction,
    change: TableChange,
    staging: Staging,
    summary: Mapping[str, str],
) -> None:
    transaction.expect_published(change.identifier)
    pending = transaction.pending.get(change.identifier)
    if pending is None:
        staging.will_branch(transaction.branch)
    elif change.base is not transaction.seen.get(change.identifier) and len(change.removed):
        raise Conflict(
            f"another statement of the same transaction changed table {change.identifier} "
            "meanwhile: run it again"
        )
    try:
        state, location = commit_change(lake, ctx, change, staging, summary, transaction.branch)
    except OutcomeUnknown as error:
        # The branch may differ from what the transaction would publish.
        roll_back(lake, transaction)
        _attempt_drop(lake, change.identifier, transaction.branch)
        lake.transactions.end(transaction.id, TransactionState.ABORTED)
        raise OutcomeUnknown(
            f"the catalog did not say whether a change of table {change.identifier} was made: its "
            "transaction was rolled back, and nothing of it was published"
        ) from error
    if pending is None:
        transaction.pending[change.identifier] = Pending(replace(change, scratch=()), [staging])
    else:
        pending.change = _joined(pending.change, change, location)
        pending.stagings.append(staging)
    lake.transactions.show(transaction.id, state)


def _joined(before: TableChange, later: TableChange, location: Location) -> TableChange:
    """Join two changes into one, on top of what the first has read."""
    own = {file.path for file in before.files}
    gone = dict(before.gone)
    removed = [before.removed]
    for found in location.found:
        if found.part.path in own:
            known = gone.get(found.part.path)
            gone[found.part.path] = (
                found.positions if known is None else _union([known, found.positions])
            )
        else:
            removed.append(found.row_ids)
    keys = Constraints(
        unique=tuple(dict.fromkeys([*before.keys.unique, *later.keys.unique])),
        primary_key=before.keys.primary_key or later.keys.primary_key,
    )
    return replace(
        before,
        files=(*before.files, *later.files),
        removed=_union(removed),
        location=None,
        gone=gone,
        keys=keys,
        is_exact=before.is_exact or later.is_exact,
    )


def _union(arrays: list[pa.Array]) -> pa.Array:
    values = pc.unique(pa.concat_arrays(arrays))
    return values.take(pc.array_sort_indices(values))


def publish_transaction(lake: Lake, ctx: Context, transaction: Transaction) -> None:
    """Make all changes of a transaction visible; it goes on without any.

    Raises: Conflict, ConstraintViolation, after the transaction is rolled back.
    """
    with transaction.lock:
        try:
            transaction.expect_active()
            _publish_all(lake, ctx, transaction)
        except BaseException:
            roll_back(lake, transaction)
            raise
        lake.transactions.settled(transaction)


def _publish_all(lake: Lake, ctx: Context, transaction: Transaction) -> None:
    identifiers, wanted = sorted(transaction.pending, key=str), transaction.changed
    made = list(transaction.made.values())
    with ExitStack() as locks:
        for lock in (*identifiers, *sorted((each.lock for each in made), key=str)):
            locks.enter_context(lake.locked(lock))
        checks = {
            each: KeyCheck(lake, transaction.pending[each].change, ctx.check)
            for each in identifiers
        }
        published: list[Identifier] = []
        try:
            with created_first(lake, transaction, published):
                for _ in attempts(ctx, "a table of the transaction"):
                    _publish_more(lake, ctx, transaction, checks, published)
                    if not transaction.changed:
                        return
        except SparkportError as error:
            waiting = transaction.changed
            unknown = [each for each in wanted if each not in published and each not in waiting]
            if published or (unknown and waiting):
                raise _half(error, published, unknown, waiting) from error
            raise


def _publish_more(
    lake: Lake,
    ctx: Context,
    transaction: Transaction,
    checks: Mapping[Identifier, KeyCheck],
    published: list[Identifier],
) -> None:
    """Publish what is pending, up to the first that another writer has changed meanwhile."""
    drafts: dict[Identifier, tuple[Draft, Any]] = {}
    try:
        for each in sorted(transaction.pending, key=str):
            drafts[each] = _draft(lake, ctx, transaction, each, checks[each])
        together = at_once(lake, transaction)
        if together or (lake.catalog.swaps_together and len(drafts) > 1):
            if _swapped_together(transaction, drafts, together):
                published += [*drafts, *(each.identifier for each in together)]
                for made in together:
                    settle(lake, transaction, made)
                for each, (draft, _) in drafts.items():
                    _settle(lake, transaction, each, draft)
            return
        for each, (draft, metadata) in drafts.items():
            if not _swapped(transaction, each, draft, metadata):
                return
            published.append(each)
            _settle(lake, transaction, each, draft)
        publish_each(lake, transaction, list(transaction.made.values()), published)
    finally:
        _forget(lake, {each: drafts[each] for each in drafts if each not in published})


def _swapped(transaction: Transaction, identifier: Identifier, draft: Draft, metadata: Any) -> bool:
    """Publish a table; False when another writer was faster.

    If the outcome is unknown, the table is no longer pending: a rollback would remove its files.
    """
    try:
        with translated(f"table {identifier}"):
            return commit(draft, metadata)
    except OutcomeUnknown:
        for staging in transaction.pending.pop(identifier).stagings:
            staging.leave()
        raise


def _swapped_together(
    transaction: Transaction,
    drafts: Mapping[Identifier, tuple[Draft, Any]],
    made: Sequence[Unpublished],
) -> bool:
    """Publish several objects at once; False when another writer was faster with one of them."""
    names = " and ".join(map(str, [*drafts, *(each.identifier for each in made)]))
    try:
        with translated(names):
            return commit_together(list(drafts.values()), made)
    except OutcomeUnknown as error:
        for identifier in drafts:
            for staging in transaction.pending.pop(identifier).stagings:
                staging.leave()
        for each in made:
            transaction.made.pop(each.identifier).leave()
        raise OutcomeUnknown(
            f"the catalog did not say whether the changes of {names} were made, all or none: look "
            "at one of them before you try again"
        ) from error


def _settle(lake: Lake, transaction: Transaction, identifier: Identifier, draft: Draft) -> None:
    """Clean up after a table was published. Never raises."""
    for staging in transaction.pending.pop(identifier).stagings:
        staging.done()
    lake.attempt(
        "files of a branch",
        partial(remove_branch_files, draft, transaction.branch, with_rows=False),
    )
    lake.changed(identifier)
    transaction.seen.pop(identifier, None)
    lake.attempt(
        "what a transaction reads after it was published",
        lambda: lake.transactions.show(transaction.id, lake.current(identifier)),
    )


def _draft(
    lake: Lake, ctx: Context, transaction: Transaction, identifier: Identifier, keys: KeyCheck
) -> tuple[Draft, Any]:
    """Build a transaction's change of a table on top of its present state.

    Returns the draft, and the metadata to commit.
    """
    pending = transaction.pending[identifier]
    shows = ctx.access.shows(identifier.schema_name, identifier.name)
    with translated(f"table {identifier}"):
        draft = begin(lake, identifier)
        location = verified(pending.change, draft.state)
        with discreet(shows, f"table {identifier}"):
            keys.against(draft.state)
        summary = {"sparkport.operation": "transaction", "sparkport.transaction": transaction.id}
        if ctx.principal:
            summary["sparkport.principal"] = ctx.principal
        if ctx.trace_id:
            summary["sparkport.trace-id"] = ctx.trace_id
        if not pending.change.is_empty:
            add_rows(draft, draft.state, pending.change, location, pending.stagings[0], summary)
        for staging in pending.stagings:
            staging.expect_journal()
        after = draft.transaction.table().operations().current()
        return draft, without_branch(lake, after, transaction.branch)


def _half(
    error: SparkportError,
    published: list[Identifier],
    unknown: list[Identifier],
    waiting: list[Identifier],
) -> SparkportError:
    parts = [
        (published, "its changes are in"),
        (unknown, "nobody knows of"),
        (waiting, "they are not in"),
    ]
    told = ", ".join(f"{how} {' and '.join(map(str, tables))}" for tables, how in parts if tables)
    kind, perhaps = (OutcomeUnknown, "" if published else "perhaps ") if unknown else (Conflict, "")
    return kind(f"{perhaps}the transaction was published in part: {told} ({error.message})")


def _forget(lake: Lake, drafts: Mapping[Identifier, tuple[Draft, Any]]) -> None:
    for draft, _ in drafts.values():
        lake.attempt("files of a commit that was not made", partial(forget, draft))


def roll_back(lake: Lake, transaction: Transaction) -> None:
    """Undo what a transaction has not published. Never raises."""
    with transaction.lock:
        for identifier, pending in transaction.pending.items():
            _attempt_drop(lake, identifier, transaction.branch)
            for staging in pending.stagings:
                staging.discard()
        for made in transaction.made.values():
            made.discard()
        transaction.pending, transaction.made = {}, {}
        transaction.seen = {}
        lake.transactions.settled(transaction)


def _attempt_drop(lake: Lake, identifier: Identifier, branch: str) -> None:
    what = f"the branch of a transaction on table {identifier}"
    lake.attempt(what, partial(drop_branch, lake, identifier, branch))


def drop_branch(lake: Lake, identifier: Identifier, branch: str) -> None:
    """Remove a branch, its snapshots, and all files that they have added, if it exists."""
    for _ in attempts(Context(), f"table {identifier}"):
        with translated(f"table {identifier}"):
            draft = begin(lake, identifier)
            if branch not in draft.state.metadata.refs or commit(
                draft, without_branch(lake, draft.base, branch)
            ):
                lake.changed(identifier)
                lake.attempt(
                    "files of a branch", partial(remove_branch_files, draft, branch, with_rows=True)
                )
                return
