"""Changes of a table that Spark computes and writes by itself, from a statement in SQL.

Strategy: Spark runs the statement on a working branch, which begins with what the statement reads,
and which no reader sees. What the branch has then, and the table had not, is an ordinary change:
new files, and rows that are removed. Its new rows are checked, and it is published like any other
change, into the table or into a transaction. The commit that publishes it removes the branch.

Others may change the table meanwhile. New rows are added to whatever it is then. A change of rows
that others have changed is done again, and so is every MERGE, whose rows may match new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sparkport.catalog import Constraints, Context
from sparkport.engine.constraints.enforce import columns_of, concerning, enforce_rows, keys_of
from sparkport.engine.discretion import discreet
from sparkport.errors import BadRequest, Conflict, NotWritable, PreconditionFailed
from sparkport.spark.iceberg.deletes import deleted_bitmap
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.plan import DataFile, plan_files
from sparkport.spark.iceberg.positions import array_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import needs_decoding
from sparkport.spark.iceberg.types.stored_arrays import STORED_BY_OTHERS
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import (
    NO_ROWS,
    Located,
    Location,
    TableChange,
    WrittenFile,
)
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.staging import Staging
from sparkport.spark.lake.transaction import BRANCH_PREFIX
from sparkport.spark.lake.version_log import number_of
from sparkport.spark.write.branches import BRANCH
from sparkport.spark.write.commit import attempts, summary_of, view_of
from sparkport.spark.write.kept_rows import KeptRows, kept_rows
from sparkport.spark.write.keys import new_rows
from sparkport.spark.write.leftovers import remove_files_by_spark
from sparkport.spark.write.publish import drop_branch, publish
from sparkport.spark.write.reserved_columns import ReservedColumns

__all__ = ["Outcome", "SparkStatement", "change_by_spark"]


@dataclass(frozen=True, slots=True, eq=False)
class SparkStatement:
    """A statement that changes a table, and that may be run."""

    identifier: Identifier
    operation: str
    """insert, overwrite, update, delete or merge"""
    assigned: tuple[str, ...] | None
    """The columns that are changed in rows that are there; None for all."""
    check: Callable[[TableState], None]
    """Raises what is wrong with it, before anything is written. It gets the state that it reads."""
    run: Callable[[TableState, str, Mapping[str, str], Callable[[], None]], None]
    """Has Spark carry it out.

    It gets the state of the table that it reads, the branch to write to as SQL, the summary of the
    snapshot, and what to call before Spark begins. The names of new files bear the statement's id.
    """


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement has done."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: int = 0
    version: int | None = None
    """The table's version after it; None in a transaction that is not committed yet."""

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted


def change_by_spark(lake: Lake, ctx: Context, statement: SparkStatement) -> Outcome:
    """Run a statement, and publish what it has changed, now or with its transaction.

    Raises: Conflict, ConstraintViolation, NotFound, NotWritable; what Spark raises. Then nothing
    has changed.
    """
    if statement.operation == "insert":
        return _change(lake, ctx, statement)
    # Statements of this server that would only undo each other's work wait for each other.
    with lake.locked(("spark_run", statement.identifier)):
        for _ in attempts(ctx, f"table {statement.identifier}"):
            try:
                return _change(lake, ctx, statement)
            except OutcomeUnknown:
                raise
            except Conflict:
                if lake.transactions.collecting(ctx) is not None:
                    raise
    raise AssertionError("the attempts end with a Conflict")


def _change(lake: Lake, ctx: Context, statement: SparkStatement) -> Outcome:
    base = _base(lake, ctx, statement.identifier)
    if statement.operation != "insert" and not (base.has_row_ids or base.snapshot is None):
        raise NotWritable(
            f"rows of table {base.identifier} have no ids, so that Spark's changes of them cannot "
            "be checked: set its property format-version to 3, and insert a row"
        )
    statement.check(base)
    staging = lake.staging.begin(base.identifier, base)
    branch = f"{BRANCH_PREFIX}{staging.id}"
    # What it reads is not forgotten, also before and after there is a branch.
    with lake.transactions.scanning(None, base), _on_branch(lake, base, staging, branch):
        summary = summary_of(ctx, f"spark_run {statement.operation}", staging)
        target = f"{base.identifier.sql}.{quoted('branch_' + branch)}"
        statement.run(base, target, {**summary, BRANCH: branch}, staging.will_run_spark)
        ctx.check()
        found = _found_on(lake, base, branch)
        kept = kept_rows(found)
        with _discreet(ctx, base.identifier):
            change = _checked(ctx, statement, replace(found, scratch=(branch,)), kept)
        outcome = _counted(change, kept)
        if change.is_empty:
            drop_branch(lake, base.identifier, branch)
            staging.done()
            return replace(outcome, version=_version(lake, ctx, base))
        with _discreet(ctx, base.identifier):
            is_final = publish(lake, ctx, change, staging, summary)
    if not is_final:
        return outcome
    staging.done()
    return replace(outcome, version=_version(lake, ctx, lake.current(base.identifier)))


def _base(lake: Lake, ctx: Context, identifier: Identifier) -> TableState:
    """The state that a statement reads: that of the transaction that it is in."""
    transaction = lake.transactions.collecting(ctx)
    reader = ctx.parent_transaction_id if transaction is None else transaction.id
    return lake.transactions.seen(reader, lake.current(identifier))


def _version(lake: Lake, ctx: Context, state: TableState) -> int | None:
    return None if lake.transactions.collecting(ctx) else number_of(lake, state)


@contextmanager
def _on_branch(lake: Lake, base: TableState, staging: Staging, branch: str) -> Iterator[None]:
    """Make a branch of what the statement reads; after an error nothing of it is left."""
    try:
        staging.will_branch(branch)
        _make_branch(lake, base, branch)
        yield
    except OutcomeUnknown:
        staging.leave()  # another server finds out whether its files are in use
        raise
    except BaseException:
        try:
            drop_branch(lake, base.identifier, branch)
            if staging.is_named_by_spark:
                remove_files_by_spark(lake, base.identifier, staging.id)
        except Exception:  # noqa: BLE001 - the error that led here is the one to tell
            staging.leave()
        else:
            staging.discard()
        raise


def _make_branch(lake: Lake, base: TableState, branch: str) -> None:
    for _ in attempts(Context(), f"table {base.identifier}"):
        with translated(f"table {base.identifier}"):
            draft = begin(lake, base.identifier)
            snapshots = draft.transaction.manageSnapshots()
            if base.snapshot is None:
                snapshots.createBranch(branch).commit()
            else:
                snapshots.createBranch(branch, base.snapshot.snapshot_id).commit()
            if commit(draft):
                lake.changed(base.identifier)
                return


# ------------------------------------------------------------------------------------- what is new


def _found_on(lake: Lake, base: TableState, branch: str) -> TableChange:
    """What a branch has changed."""
    lake.changed(base.identifier)
    now = view_of(lake, lake.current(base.identifier), branch, base)
    before, after = _files(base), _files(now)
    added = [file for path, file in after.items() if path not in before]
    columns, located = ReservedColumns(base, base.file_properties), []
    for path, file in before.items():
        positions = _removed(file, after.get(path), base.file_properties)
        if positions:
            places = array_of(positions)
            ids = columns.row_ids_at(file.part, places)
            located.append(
                Located(
                    file.part,
                    places,
                    ids,
                    file.entry.spec_id,
                    file.entry.partition,
                    file.replaced,
                    file.entry.sequence_number,
                )
            )
    removed = NO_ROWS
    if located:
        every = pa.concat_arrays([each.row_ids for each in located])
        removed = every.take(pc.array_sort_indices(every))
    return TableChange(
        base,
        tuple(_written(lake, now, added)),
        removed,
        Location(tuple(located), NO_ROWS) if base.snapshot is not None else None,
    )


def _files(state: TableState) -> dict[str, DataFile]:
    files = plan_files(state)
    if files is None:
        raise NotWritable(
            f"what Spark changes in table {state.identifier} cannot be checked: only Spark can "
            "read its files"
        )
    return {file.entry.path: file for file in files}


def _removed(
    before: DataFile, after: DataFile | None, properties: Mapping[str, str]
) -> BitMap64 | None:
    """The positions of rows that a file has no more."""
    if after is None:
        return BitMap64(range(before.entry.rows)) - deleted_bitmap(before.part, properties)
    same = before.part.vector == after.part.vector
    if same and before.part.position_deletes == after.part.position_deletes:
        return None
    found: BitMap64 = deleted_bitmap(after.part, properties) - deleted_bitmap(
        before.part, properties
    )
    return found


def _written(lake: Lake, now: TableState, added: Sequence[DataFile]) -> Iterator[WrittenFile]:
    """New files as they can be added to another snapshot, which gives their rows ids."""
    if not added or now.snapshot is None:
        return
    described = _described(lake, now)
    for file in added:
        entry = file.entry
        fields = now.metadata.specs()[entry.spec_id].fields
        partition = tuple(entry.partition.get(each.field_id) for each in fields)
        yield WrittenFile(
            entry.path,
            entry.size,
            entry.rows,
            entry.spec_id,
            partition if fields else None,
            described[entry.path],
        )


def _described(lake: Lake, now: TableState) -> dict[str, Mapping[str, Any]]:
    """The files that a snapshot has added, in Iceberg's JSON form of files."""
    assert now.snapshot is not None
    with translated(f"table {now.identifier}"):
        draft = begin(lake, now.identifier)
        parser = lake.gateway.jvm.org.apache.iceberg.ContentFileParser
        specs = draft.base.specsById()
        files = draft.base.snapshot(now.snapshot.snapshot_id).addedDataFiles(draft.table.io())
        found = [json.loads(str(parser.toJson(each, specs.get(each.specId())))) for each in files]
    return {
        each["file-path"]: {name: each[name] for name in each if name != "first-row-id"}
        for each in found
    }


# ------------------------------------------------------------------------------------------ checks


def _checked(
    ctx: Context, statement: SparkStatement, change: TableChange, kept: KeptRows
) -> TableChange:
    """The change with the keys that it can violate, after its new rows were checked.

    Rows that were only copied are not checked: they are not the statement's.

    Raises: ConstraintViolation.
    """
    state = change.base
    constraints = state.definition.constraints
    if statement.operation == "update" and statement.assigned is not None:
        constraints = concerning(constraints, statement.assigned)
    names = state.definition.columns.names
    for_rows = Constraints(not_null=constraints.not_null, checks=constraints.checks)
    needed = {*columns_of(for_rows, names), *_encoded_columns(state)}
    if needed and change.files:
        columns = [name for name in names if name in needed]
        rows = new_rows(replace(change, gone=kept.copied), columns, ctx.check)
        with _as_given():
            for batch in rows:
                enforce_rows(state.identifier.name, for_rows, batch, ctx.check)
    is_exact = statement.operation == "merge"
    return replace(change, keys=keys_of(constraints), is_exact=is_exact)


@contextmanager
def _as_given() -> Iterator[None]:
    """Say of a value that Spark has stored, and the declared type lacks, what to do about it."""
    try:
        yield
    except PreconditionFailed as error:
        if STORED_BY_OTHERS not in error.message:
            raise
        error.replace(STORED_BY_OTHERS, "that the statement gives it: change that")
        raise BadRequest(error.message, without_values=error.without_values) from error


def _discreet(ctx: Context, table: Identifier) -> AbstractContextManager[None]:
    """Leaves values of the table out of errors, for callers who may not read all of it."""
    return discreet(ctx.access.shows(table.schema_name, table.name), f"table {table}")


def _encoded_columns(state: TableState) -> list[str]:
    """Columns whose stored values may be none of the declared type: they are decoded once."""
    columns = state.definition.columns
    return [
        column.name
        for column, stored in zip(columns, state.schema.fields, strict=True)
        if needs_decoding(stored.field_type, column)
    ]


def _counted(change: TableChange, kept: KeptRows) -> Outcome:
    added, removed = sum(file.rows for file in change.files), len(change.removed)
    return Outcome(added - kept.count, kept.updated, removed - kept.count, len(change.files))
