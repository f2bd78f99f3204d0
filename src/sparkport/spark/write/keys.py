"""UNIQUE and PRIMARY KEY: compare the keys of changed rows with each other and with the table's.

Strategy: the keys of the changed rows are in memory, or read back from the files that were just
written, some at a time (key_groups.py); the table's keys stream past them. Each data file is
compared once: when a commit is tried again, only files that others have added since are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints
from sparkport.catalog.filters import Between, ColumnRef, Constant, DuckType, Filter
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.enforce import enforce_keys
from sparkport.engine.constraints.parsing import DatabaseError
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.positions import among
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import TableChange, part_of
from sparkport.spark.lake.lake import Lake
from sparkport.spark.write.data_files import declared
from sparkport.spark.write.key_groups import equal_together, in_groups

__all__ = ["KeyCheck", "Stream", "have_apart_keys", "key_range", "new_rows"]

_RANGED = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}
"""Key types for which files can be skipped by the range of their values."""


class Stream:
    """Batches for DuckDB. It turns an error they raise into text; the error itself is kept here."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self.failure = error
            raise


class KeyCheck:
    """Compares the keys of a change with others; for one thread."""

    def __init__(self, lake: Lake, change: TableChange, check: Callable[[], None]) -> None:
        keys = [Constraints(unique=(key,)) for key in change.keys.unique]
        if change.keys.primary_key:
            keys.insert(0, Constraints(primary_key=change.keys.primary_key))
        self._change = change
        self._check = check
        self._keys = [_Key(lake, change, check, key) for key in keys] if change.adds_rows else []

    def against(self, now: TableState) -> None:
        """Compare with a state of the table; what was compared before is skipped.

        Raises: ConstraintViolation; Unsupported where the table's files cannot be read here.
        """
        for key in self._keys:
            key.against(now)

    @property
    def is_small(self) -> bool:
        """Whether all keys are in memory, after they were compared once."""
        return all(key.only_group is not None for key in self._keys)

    def against_new(self, others: Sequence[KeyCheck]) -> None:
        """Compare with rows of other changes that are made at the same time.

        Only for keys that are in memory. Raises: ConstraintViolation.
        """
        for key in self._keys:
            rows = [table for each in others for table in each.new_rows(key.columns)]
            if rows:
                key.expect_apart(rows)

    def new_rows(self, columns: tuple[str, ...]) -> Sequence[pa.Table]:
        """Columns of the rows that the change adds; none is empty."""
        for key in self._keys:
            if key.columns == columns and key.only_group is not None:
                return [key.only_group]
        return list(in_groups(new_rows(self._change, columns, self._check)))


def have_apart_keys(checks: Sequence[KeyCheck]) -> None:
    """Compare the keys of changes that are made at the same time, all at once.

    Only for keys that are in memory. Raises: ConstraintViolation; also for rows of a change that
    need not have other keys than the rest.
    """
    keys = {key.columns: key for check in checks for key in check._keys}
    for columns, key in keys.items():
        key.expect_distinct([rows for check in checks for rows in check.new_rows(columns)])


class _Key:
    def __init__(
        self, lake: Lake, change: TableChange, check: Callable[[], None], constraint: Constraints
    ) -> None:
        self._lake = lake
        self._change = change
        self._check = check
        self._constraint = constraint
        self.columns = constraint.primary_key or constraint.unique[0]
        self._compared: list[set[FilePart]] = []
        """For each group of keys, the files that it has been compared with."""
        self.only_group: pa.Table | None = None
        """All keys of the change, if they are few, after they were compared once."""

    def against(self, now: TableState) -> None:
        is_first = not self._compared
        for number, group in enumerate(self._groups()):
            if number == len(self._compared):
                self._compared.append(set())
            self._compare(group, now, self._compared[number], is_first=is_first)
        if is_first and len(self._compared) > 1:
            self._compare_with_each_other(now)

    def _compare(
        self, changed: pa.Table, now: TableState, compared: set[FilePart], *, is_first: bool
    ) -> None:
        plan = plan_scan(now, [*self.columns, ROWID_NAME], row_filter := key_range(changed))
        if not plan.readable:
            raise Unsupported(
                f"the keys of table {now.identifier} cannot be compared: only Spark can read its "
                "files"
            )
        parts = [part for part in plan.parts if part not in compared]
        if parts or is_first:
            stream = Stream(self._existing(now, parts, row_filter))
            fields = _fields(now, self.columns)
            try:
                enforce_keys(
                    now.identifier.name,
                    self._constraint,
                    changed,
                    lambda _: pa.RecordBatchReader.from_batches(fields, stream),
                    check=self._check,
                )
            except DatabaseError as error:
                raise stream.failure or error from error
        compared.update(parts)

    def expect_apart(self, others: Sequence[pa.Table]) -> None:
        """Compare with keys of other changes. Raises: ConstraintViolation."""
        assert self.only_group is not None
        table = self._change.identifier.name
        rows = pa.concat_tables(others).select
        enforce_keys(table, self._constraint, self.only_group, rows, check=self._check)

    def expect_distinct(self, rows: Sequence[pa.Table]) -> None:
        """Compare keys of several changes with each other. Raises: ConstraintViolation."""
        every = pa.concat_tables(rows)
        table, none = self._change.identifier.name, every.slice(0, 0).select
        enforce_keys(table, self._constraint, every, none)

    def _compare_with_each_other(self, now: TableState) -> None:
        """Compare keys of different groups, too."""
        for alike in equal_together(self._changed(), self._lake.staging, now.identifier):
            enforce_keys(now.identifier.name, self._constraint, alike, alike.slice(0, 0).select)

    def _groups(self) -> Iterator[pa.Table]:
        """The keys of the changed rows.

        Most changes have a single group, which is kept.
        """
        if self.only_group is not None:
            yield self.only_group
            return
        for group in in_groups(self._changed()):
            yield group
        if len(self._compared) == 1:
            self.only_group = group

    def _changed(self) -> Iterator[pa.RecordBatch]:
        return new_rows(self._change, self.columns, self._check)

    def _existing(
        self, now: TableState, parts: Sequence[FilePart], row_filter: Filter | None
    ) -> Iterator[pa.RecordBatch]:
        """The keys of the table's rows, without those that the change removes."""
        removed = self._change.removed
        columns = [*self.columns, ROWID_NAME] if len(removed) else self.columns
        request = read_request(now, columns, row_filter, properties=now.file_properties)
        for batch in read_parts(request, parts, self._check):
            if len(removed):
                batch = batch.filter(pc.invert(among(batch.column(ROWID_NAME), removed)))
            yield batch.select(list(self.columns))


def new_rows(
    change: TableChange, columns: Sequence[str], check: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Columns of the rows that a change adds, from memory and from its files."""
    for held in change.held:
        for batch in held.rows.to_batches():
            yield declared(change.base, batch, columns)
    request = read_request(change.base, columns, properties=change.base.file_properties)
    for file in change.files:
        start = 0
        for batch in read_parts(request, [part_of(file)], check):
            rows = batch.num_rows
            if file.path in change.gone:
                positions, gone = pa.arange(start, start + rows), change.gone[file.path]
                batch = batch.filter(pc.invert(among(positions, gone)))
            start += rows
            yield batch.select(list(columns))


def _fields(state: TableState, names: Sequence[str]) -> pa.Schema:
    return pa.schema([state.definition.columns.field(name).remove_metadata() for name in names])


def key_range(changed: pa.Table) -> Filter | None:
    """A filter that all rows with one of the keys pass. It skips most files of many tables."""
    bounds = []
    for name, column in zip(changed.schema.names, changed.columns, strict=True):
        kind = _RANGED.get(column.type)
        if kind is None or not len(column) or column.null_count:
            continue
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        duck, found = DuckType(kind), pc.min_max(column)
        low, high = Constant(duck, found["min"].as_py()), Constant(duck, found["max"].as_py())
        bounds.append(Between(ColumnRef(name, duck), low, high, True, True))
    return Filter(tuple(bounds)) if bounds else None
