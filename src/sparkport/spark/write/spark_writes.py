"""Statements that Spark carries out, from rows that were staged as Parquet.

These are statements that are too large for this process, and those on files that only Spark can
write: sorted tables, partitions by hash, other formats than Parquet, storage that this process
cannot reach.

Strategy: Spark works on a temporary branch of the table, which no reader sees. Then a single commit
swaps the table to what the branch shows, and removes the branch, if the table has not changed since
the branch was made. Otherwise everything is checked and done again from the staged rows. An INSERT
that cannot violate a key needs no branch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context, Operation
from sparkport.errors import NotFound, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.iceberg.plan import plan_rows
from sparkport.spark.iceberg.positions import numbers_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.named_writes import run_named
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.lake.changes import TableChange, WrittenFile
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.staging import Staging
from sparkport.spark.lake.transaction import BRANCH_PREFIX
from sparkport.spark.write.branches import BRANCH
from sparkport.spark.write.commit import STATEMENT, attempts
from sparkport.spark.write.keys import KeyCheck
from sparkport.spark.write.leftovers import remove_files_by_spark
from sparkport.spark.write.publish import drop_branch
from sparkport.spark.write.staged_rows import staged_rows
from sparkport.spark.write.verify import changed_by_others, verified, verify_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkWrite", "can_change", "own_session", "publish_by_spark"]

_log = logging.getLogger(__name__)
_MAIN = "main"
_BROADCAST_BYTES = 128 * 1024 * 1024
"""Most bytes of a source that is sent to all executors, so that the table need not be shuffled."""
_SUMMARY = "spark.sql.iceberg.snapshot-property."


@dataclass(frozen=True, slots=True, eq=False)
class SparkWrite:
    """A statement for Spark."""

    operation: Operation
    source: tuple[WrittenFile, ...]
    """The staged rows: stored columns, and `_row_id` where rows are changed."""
    columns: tuple[str, ...]
    """The columns that the statement has, without the row id."""
    change: TableChange
    """What it has read, removes and can violate; `files` are the staged ones."""
    inserts: bool = False
    """Whether staged rows of an UPDATE that have no row id are new rows."""

    @property
    def identifier(self) -> Identifier:
        return self.change.identifier


def can_change(state: TableState, operation: Operation) -> bool:
    """Whether Spark can find rows by their ids: it cannot while it rewrites whole files."""
    statement = "delete" if operation is Operation.DELETE else "merge"
    return state.metadata.properties.get(f"write.{statement}.mode") == "merge-on-read"


def publish_by_spark(
    lake: Lake, ctx: Context, write: SparkWrite, staging: Staging, summary: Mapping[str, str]
) -> None:
    """Have Spark run a statement, and make it visible.

    Raises: Conflict, ConstraintViolation, NotFound, Unsupported.
    """
    if lake.transactions.collecting(ctx) is not None:
        raise Unsupported(
            f"this change of table {write.identifier} is left to Spark, which cannot do it inside "
            "a transaction: run it outside, or in smaller parts"
        )
    if write.operation is not Operation.INSERT and not can_change(
        write.change.base, write.operation
    ):
        raise Unsupported(
            f"Spark can change rows of table {write.identifier} by their ids only with "
            "merge-on-read: set its properties write.update.mode, write.merge.mode and "
            "write.delete.mode to merge-on-read, and run it again"
        )
    staging.will_run_spark()
    try:
        _publish(lake, ctx, write, staging, summary)
    except OutcomeUnknown:
        raise
    except BaseException:
        lake.attempt(
            "files of a statement that failed",
            partial(remove_files_by_spark, lake, write.identifier, staging.id),
        )
        raise
    lake.changed(write.identifier)
    # The change is made. An error from here on must not hide that.
    lake.attempt(
        "what a transaction reads after a statement",
        lambda: lake.transactions.show(ctx.parent_transaction_id, lake.current(write.identifier)),
    )


def _publish(
    lake: Lake, ctx: Context, write: SparkWrite, staging: Staging, summary: Mapping[str, str]
) -> None:
    if write.operation is Operation.INSERT and not (
        write.change.keys.unique or write.change.keys.primary_key
    ):
        verify_columns(write.change, lake.current(write.identifier))
        _append(lake, ctx, write, summary)
        return
    branch = f"{BRANCH_PREFIX}{staging.id}"
    staging.will_branch(branch)
    try:
        _publish_branch(lake, ctx, write, staging, summary, branch)
    finally:
        lake.attempt(
            "the branch of a statement", partial(drop_branch, lake, write.identifier, branch)
        )


def _append(lake: Lake, ctx: Context, write: SparkWrite, summary: Mapping[str, str]) -> None:
    """Have Spark add the rows to the table itself.

    It may fail, or be cancelled, after it has committed them.
    """
    try:
        _run(lake, ctx, write, summary, None)
    except Exception as error:
        if not _is_there(lake, write.identifier, summary[STATEMENT], error):
            raise
        _log.warning(
            "table %s: Spark has added the rows of a statement, and failed then", write.identifier
        )


def _is_there(lake: Lake, identifier: Identifier, statement: str, error: Exception) -> bool:
    """Whether a failed statement has made a snapshot all the same. Raises: OutcomeUnknown."""
    try:
        lake.changed(identifier)
        snapshots = lake.current(identifier).metadata.snapshots
    except Exception:  # noqa: BLE001 - the outcome is unknown, whatever it is
        _log.warning(
            "table %s: it cannot be seen whether Spark has changed it", identifier, exc_info=True
        )
        raise OutcomeUnknown(
            f"Spark was to add rows to table {identifier} and failed, and nobody knows whether it "
            "has added them: look at the table before you try again"
        ) from error
    summaries = [each.summary for each in snapshots if each.summary is not None]
    return any(each.additional_properties.get(STATEMENT) == statement for each in summaries)


def _publish_branch(
    lake: Lake,
    ctx: Context,
    write: SparkWrite,
    staging: Staging,
    summary: Mapping[str, str],
    branch: str,
) -> None:
    keys = KeyCheck(lake, write.change, ctx.check)
    keys.against(lake.current(write.identifier))
    with lake.locked(write.identifier):
        for _ in attempts(ctx, f"table {write.identifier}"):
            base = _branched(lake, ctx, write, keys, branch)
            if base is None:
                continue
            _run(lake, ctx, write, {**summary, BRANCH: branch}, branch)
            staging.expect_journal()  # else the branch may have been removed
            if _swapped(lake, write.identifier, base, branch):
                return
            drop_branch(lake, write.identifier, branch)


def _branched(
    lake: Lake, ctx: Context, write: SparkWrite, keys: KeyCheck, branch: str
) -> TableState | None:
    """Check the present state and create a branch from it; None when another writer was faster."""
    with translated(f"table {write.identifier}"):
        draft = begin(lake, write.identifier)
        _verify(lake, ctx, write, draft.state)
        keys.against(draft.state)
        draft.transaction.manageSnapshots().createBranch(branch).commit()
        return draft.state if commit(draft) else None


def _verify(lake: Lake, ctx: Context, write: SparkWrite, now: TableState) -> None:
    """Check that the rows and columns were not changed.

    Where only Spark can read the files, Spark looks for the rows. Raises: Conflict, NotFound.
    """
    change = write.change
    if plan_rows(now, numbers_of(change.removed)) is not None:
        verified(change, now)
        return
    verify_columns(change, now)
    if not len(change.removed) or now.snapshot is None:
        return
    sequence = -1 if change.base.snapshot is None else change.base.snapshot.sequence_number
    staged = _staged(lake, lake.spark, write).select("_row_id")
    table = lake.spark.sql(
        f"SELECT _row_id, _last_updated_sequence_number AS updated FROM {write.identifier.sql} "
        f"VERSION AS OF {now.snapshot.snapshot_id}"
    )
    found = staged.join(table, "_row_id").selectExpr("count(*)", f"count_if(updated > {sequence})")
    job = start_job(lake.spark.sparkContext, ctx, f"table {write.identifier}", found.collect)
    ctx.on_cancel(job.cancel)
    ((present, changed),) = job.result(meanwhile=lake.relay.make_room)
    if changed:
        raise changed_by_others(change, "a row")
    if present < len(change.removed):
        raise NotFound(
            f"{len(change.removed) - present} of the rows do not exist in table "
            f"{write.identifier} any more"
        )


def _swapped(lake: Lake, identifier: Identifier, base: TableState, branch: str) -> bool:
    """Swap the table to what the branch shows; False when the table has changed meanwhile."""
    for _ in attempts(Context(), f"table {identifier}"):
        with translated(f"table {identifier}"):
            draft = begin(lake, identifier)
            now = draft.state
            if _head(now) != _head(base) or now.definition is not base.definition:
                return False
            builder = lake.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(draft.base)
            head = now.metadata.refs[branch].snapshot_id
            after = builder.setBranchSnapshot(head, _MAIN).removeRef(branch).build()
            if commit(draft, after):
                return True
    return False


def _head(state: TableState) -> int | None:
    return None if state.snapshot is None else state.snapshot.snapshot_id


def _run(
    lake: Lake, ctx: Context, write: SparkWrite, summary: Mapping[str, str], branch: str | None
) -> None:
    session = own_session(
        lake.spark, {f"{_SUMMARY}{name}": value for name, value in summary.items()}
    )
    source = _staged(lake, session, write)
    target = (
        write.identifier.sql
        if branch is None
        else f"{write.identifier.sql}.{quoted('branch_' + branch)}"
    )
    job = start_job(
        lake.spark.sparkContext,
        ctx,
        f"table {write.identifier}",
        lambda: _execute(session, write, source, target, summary[STATEMENT]),
    )
    ctx.on_cancel(job.cancel)
    try:
        job.result(meanwhile=lake.relay.make_room)
    except BaseException:
        job.stop()  # else it might change the table, or the branch, after it was looked at
        raise


def _staged(lake: Lake, session: SparkSession, write: SparkWrite) -> DataFrame:
    locations = [file.path for file in write.source]
    with writing(write.identifier):
        return staged_rows(session, locations, lake.file_properties)


def _execute(
    session: SparkSession, write: SparkWrite, source: DataFrame, target: str, statement: str
) -> None:
    size = sum(file.size for file in write.source)
    if write.operation is Operation.UPDATE and size <= _BROADCAST_BYTES:
        source = source.hint("broadcast")
    source.createOrReplaceTempView("staged")
    java: Any = session._jsparkSession
    plan = java.sessionState().sqlParser().parsePlan(_sql(write, target))
    run_named(session, plan, statement)


def _sql(write: SparkWrite, target: str) -> str:
    match write.operation:
        case Operation.INSERT:
            names = ", ".join(quoted(name) for name in write.columns)
            return f"INSERT INTO {target} BY NAME SELECT {names} FROM staged"
        case Operation.UPDATE:
            values = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in write.columns)
            merge = f"MERGE INTO {target} AS t USING staged AS s ON t._row_id = s._row_id"
            return f"{merge} WHEN MATCHED THEN UPDATE SET {values}{_inserting(write)}"
        case Operation.DELETE:
            return f"DELETE FROM {target} WHERE _row_id IN (SELECT _row_id FROM staged)"


def _inserting(write: SparkWrite) -> str:
    if not write.inserts:
        return ""
    names = ", ".join(quoted(name) for name in write.columns)
    values = ", ".join(f"s.{quoted(name)}" for name in write.columns)
    return f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"


def own_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session like the given one, with settings and temporary views of its own."""
    from pyspark.sql import SparkSession

    java: Any = spark._jsparkSession
    session = SparkSession(spark.sparkContext, java.cloneSession())
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
