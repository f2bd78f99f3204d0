"""Merge rows of a query into a table by a key: update or delete existing rows, insert the others.

Strategy: when all rows have come, the table's rows with their keys are looked for, some keys at a
time. The change is then built and committed like that of any statement. The client sees the table
only through this function, so nothing binds it to an older state: if another writer has changed one
of those rows meanwhile, or has inserted one of the keys, everything is looked up again in the new
state. To notice such an insert, the key counts as UNIQUE for inserted rows, whether the table says
so or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints, Context, Operation
from sparkport.catalog.quotas import StagedBytes
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.compute import default_values
from sparkport.engine.constraints.enforce import columns_of, concerning, enforce_rows
from sparkport.errors import Conflict, ConstraintViolation, PreconditionFailed
from sparkport.spark.iceberg.definition import Definition
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.parquet_output import ROW_ID
from sparkport.spark.iceberg.positions import between
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import NO_ROWS, HeldRows, TableChange, WrittenFile
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.commit import attempts, summary_of
from sparkport.spark.write.data_files import DataFileWriter, can_write, encoded
from sparkport.spark.write.matching import Matches, find_matches, rows_with, shown_key
from sparkport.spark.write.publish import publish
from sparkport.spark.write.row_spool import RowSpool
from sparkport.spark.write.rows import RowLookup
from sparkport.spark.write.source import SourceWriter
from sparkport.spark.write.spark_writes import SparkWrite, publish_by_spark

__all__ = ["Counts", "Target", "delete_matching", "upsert_rows"]

_MOST_VIOLATIONS = 10
"""How often another writer may have inserted a key before it counts as a violated constraint."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table as it was when the first row came."""

    identifier: Identifier
    definition: Definition
    key: tuple[str, ...]
    given: tuple[str, ...]
    """The columns that the rows have, the key among them."""


@dataclass(frozen=True, slots=True)
class Counts:
    inserted: int
    updated: int


def upsert_rows(lake: Lake, ctx: Context, target: Target, rows: RowSpool) -> Counts:
    """Update the rows that have one of the keys and insert the others, by one commit.

    The keys are distinct and not NULL. In memory are a group of keys (key_groups.py) and the ids of
    updated rows.

    Raises: ConstraintViolation, Conflict; PreconditionFailed for a key that the table has twice;
    Unsupported; LimitExceeded when the ids of the rows exceed the caller's quota.
    """
    updated = 0

    def change_of(base: TableState, staging: Staging, held: StagedBytes) -> TableChange:
        nonlocal updated
        change = _Upsert(lake, ctx, target, base, staging).change(rows, held)
        updated = len(change.removed)
        return change

    _commit(lake, ctx, target, "upsert", change_of)
    return Counts(rows.rows - updated, updated)


def delete_matching(lake: Lake, ctx: Context, target: Target, keys: RowSpool) -> int:
    """Delete all rows that have one of the keys, by one commit, and return their number.

    Raises: Conflict; Unsupported; LimitExceeded when the ids of the rows exceed the caller's quota.
    """
    deleted = 0

    def change_of(base: TableState, staging: Staging, held: StagedBytes) -> TableChange:
        nonlocal deleted
        found = [NO_ROWS]
        for group, _ in keys.groups(target.key):
            with closing(rows_with(lake, ctx, base, group)) as matching:
                for ids in matching:
                    held.hold(ids.nbytes)
                    found.append(ids)
        ids = pa.concat_arrays(found).unique().sort()
        deleted = len(ids)
        return TableChange(base, removed=ids)

    _commit(lake, ctx, target, "merge_delete", change_of)
    return deleted


def _commit(
    lake: Lake,
    ctx: Context,
    target: Target,
    operation: str,
    change_of: Callable[[TableState, Staging, StagedBytes], TableChange],
) -> None:
    violations = 0
    for _ in attempts(ctx, f"table {target.identifier}"):
        base = _present(lake, target)
        staging, held = lake.staging.begin(target.identifier, base), StagedBytes(ctx.quotas)
        try:
            change = change_of(base, staging, held)
            try:
                if not change.is_empty:
                    _publish(lake, ctx, change, staging, operation)
            except (Conflict, ConstraintViolation) as error:
                violations += isinstance(error, ConstraintViolation)
                if (
                    _head(lake.current(target.identifier)) == _head(base)
                    or violations > _MOST_VIOLATIONS
                ):
                    raise
                staging.discard()
                continue
        except OutcomeUnknown:
            staging.leave()
            raise
        except BaseException:
            staging.discard()
            raise
        finally:
            held.close()
        staging.done()
        return


def _publish(
    lake: Lake, ctx: Context, change: TableChange, staging: Staging, operation: str
) -> None:
    summary = summary_of(ctx, operation, staging)
    if not change.files or can_write(change.base):
        publish(lake, ctx, change, staging, summary)
    else:
        names = tuple(field.name for field in change.base.schema.fields)
        write = SparkWrite(Operation.UPDATE, change.files, names, change, inserts=True)
        publish_by_spark(lake, ctx, write, staging, summary)


def _present(lake: Lake, target: Target) -> TableState:
    state = lake.current(target.identifier)
    if state.definition is not target.definition:
        raise Conflict(
            f"table {target.identifier} was altered while the statement ran; nothing was changed: "
            "run it again"
        )
    return state


def _head(state: TableState) -> int | None:
    return None if state.snapshot is None else state.snapshot.snapshot_id


def _expect_single(target: Target, keys: pa.Table, matches: Matches) -> None:
    twice = pc.equal(
        matches.places.slice(1), matches.places.slice(0, max(0, len(matches.places) - 1))
    )
    if twice.true_count:
        place = matches.places.slice(1).filter(twice)[0].as_py()
        raise PreconditionFailed(
            f'the key "{shown_key(keys, place)}" is in table {target.identifier} more than once: '
            "an upsert needs a key that tells its rows apart"
        )


class _Upsert:
    """Builds the change for one state of the table."""

    def __init__(
        self, lake: Lake, ctx: Context, target: Target, base: TableState, staging: Staging
    ) -> None:
        self._lake = lake
        self._ctx = ctx
        self._target = target
        self._base = base
        self._staging = staging
        self._lookup = RowLookup(base, base.file_properties, ctx.check)
        columns = target.definition.columns
        self._rest = [field for field in columns if field.name not in target.given]

    def change(self, rows: RowSpool, held: StagedBytes) -> TableChange:
        updated = [NO_ROWS]
        has_updates = False
        writer: DataFileWriter | SourceWriter | None = None
        try:
            for keys, pieces in rows.groups(self._target.key):
                matches = find_matches(self._lake, self._ctx, self._base, keys)
                _expect_single(self._target, keys, matches)
                held.hold(matches.row_ids.nbytes)
                updated.append(matches.row_ids)
                if writer is None:
                    # Rows of later groups may be updates, too.
                    has_updates = bool(len(matches.row_ids)) or keys.num_rows < rows.rows
                    writer = self._writer(with_row_ids=has_updates)
                start = 0
                for piece in pieces:
                    self._ctx.check()
                    end = start + sum(batch.num_rows for batch in piece)
                    for batch in self._written(
                        piece, _within(matches, start, end), with_row_ids=has_updates
                    ):
                        writer.write(batch)
                    start = end
            few, files = _ended(writer)
        except BaseException:
            if writer is not None:
                writer.abort()
            raise
        removed = pa.concat_arrays(updated).sort()
        keys = self._keys(has_inserts=len(removed) < rows.rows)
        location = self._lookup.located(removed)
        return TableChange(self._base, files, removed, location, keys=keys, held=few)

    def _writer(self, *, with_row_ids: bool) -> DataFileWriter | SourceWriter:
        """A writer of files for the table, or for Spark to MERGE.

        Rows without an id get new ids.
        """
        if can_write(self._base):
            return DataFileWriter(self._base, self._staging, with_row_ids=with_row_ids)
        names = [field.name for field in self._base.schema.fields]
        return SourceWriter(self._base, self._staging, names, with_row_ids=True)

    def _keys(self, *, has_inserts: bool) -> Constraints:
        """The keys that must be compared with other rows.

        An update does not change the merge key.
        """
        key, constraints = set(self._target.key), self._target.definition.constraints
        if not has_inserts:
            constraints = concerning(constraints, self._target.given)
        unique = [each for each in constraints.unique if has_inserts or not key.issuperset(each)]
        primary = (
            constraints.primary_key
            if has_inserts or not key.issuperset(constraints.primary_key)
            else ()
        )
        if has_inserts and not any(key == set(each) for each in (primary, *unique)):
            unique.append(self._target.key)
        return Constraints(unique=tuple(unique), primary_key=primary)

    def _written(
        self, piece: Sequence[pa.RecordBatch], matches: Matches, *, with_row_ids: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows as they will be stored."""
        declared = pa.Table.from_batches(piece)
        (stored,) = (
            pa.Table.from_batches([encoded(self._base, batch) for batch in piece])
            .combine_chunks()
            .to_batches()
        )
        if len(matches.row_ids):
            yield from self._updated(declared, stored, matches)
        new = pa.arange(0, declared.num_rows)
        if len(matches.places):
            new = new.filter(pc.invert(pc.is_in(new, value_set=matches.places)))
        if len(new):
            inserted = self._inserted(declared.take(new), stored.take(new))
            if with_row_ids:
                inserted = inserted.append_column(ROW_ID.name, pa.nulls(len(new), pa.int64()))
            yield inserted

    def _updated(
        self, declared: pa.Table, stored: pa.RecordBatch, matches: Matches
    ) -> Iterator[pa.RecordBatch]:
        order = pc.array_sort_indices(matches.row_ids)
        ids, places = matches.row_ids.take(order), matches.places.take(order)
        self._enforce_on_updated(declared, ids, places)
        new = stored.take(places)
        if not self._rest:
            yield new.append_column(ROW_ID.name, ids)
            return
        for old in self._lookup.stored_rows(ids, [field.name for field in self._rest]):
            own = old.column(ROWID_NAME)
            values = new.take(pc.index_in(own, value_set=ids))
            kept = old.drop_columns([ROWID_NAME])
            yield pa.RecordBatch.from_arrays(
                [*kept.columns, *values.columns, own],
                names=[*kept.schema.names, *values.schema.names, ROW_ID.name],
            )

    def _enforce_on_updated(self, declared: pa.Table, ids: pa.Array, places: pa.Array) -> None:
        constraints = concerning(self._target.definition.constraints, self._target.given)
        constraints = Constraints(not_null=constraints.not_null, checks=constraints.checks)
        needed = columns_of(constraints, self._target.definition.columns.names)
        if not needed:
            return
        rows = declared.select([name for name in needed if name in self._target.given]).take(places)
        rest = [name for name in needed if name not in self._target.given]
        if rest:
            old = self._lookup.take(ids, rest)
            for name in rest:
                rows = rows.append_column(name, old.column(name))
        enforce_rows(self._target.identifier.name, constraints, rows, self._ctx.check)

    def _inserted(self, declared: pa.Table, stored: pa.RecordBatch) -> pa.RecordBatch:
        count = stored.num_rows
        defaults = pa.RecordBatch.from_arrays(
            [next(iter(default_values(field, [count], self._ctx.check))) for field in self._rest],
            schema=pa.schema(self._rest),
        )
        constraints = self._target.definition.constraints
        if constraints:
            needed = columns_of(constraints, self._target.definition.columns.names)
            columns = {
                name: declared.column(name) if name in self._target.given else defaults.column(name)
                for name in needed
            }
            enforce_rows(
                self._target.identifier.name, constraints, pa.table(columns), self._ctx.check
            )
        if not self._rest:
            return stored
        rest = encoded(self._base, defaults)
        return pa.RecordBatch.from_arrays(
            [*stored.columns, *rest.columns], names=[*stored.schema.names, *rest.schema.names]
        )


def _ended(
    writer: DataFileWriter | SourceWriter | None,
) -> tuple[tuple[HeldRows, ...], tuple[WrittenFile, ...]]:
    if isinstance(writer, DataFileWriter):
        return writer.held_or_files()
    return (), () if writer is None else tuple(writer.finish())


def _within(matches: Matches, start: int, end: int) -> Matches:
    """The matches of keys from `start` to before `end`, with places counted from `start`."""
    before = len(between(matches.places, None, start - 1))
    places = between(matches.places, start, end - 1)
    return Matches(pc.subtract(places, start), matches.row_ids.slice(before, len(places)))
