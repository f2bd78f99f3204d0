"""Checking constraints for tables that take rows in the contracts' forms, before they get them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import ConstrainedTable, Constraints, Context, Operation, ScanOptions
from sparkport.engine.constraints import columns_of, concerning
from sparkport.engine.constraints.enforce import enforce_keys, enforce_rows
from sparkport.errors import NotFound
from sparkport.service.closing import closing_reader
from sparkport.service.objects import PublishedTable

__all__ = ["ConstraintChecks"]

_ROWS_AT_ONCE = 65_536
"""How many rows are checked at once: enough to outweigh DuckDB's start, and little memory."""


class ConstraintChecks:
    """Checks the rows of one statement against the constraints of a `ConstrainedTable`.

    Other tables have no constraints. `add` every batch, and `check` before the table gets them.
    Keys are compared with the rows that the table had at the first `check`, so rows that were
    handed over meanwhile do not count twice. A change by another statement between the check and
    the write goes unnoticed: a `StagedTable` checks inside its commit. Not thread-safe.
    """

    def __init__(self, ctx: Context, bound: PublishedTable, operation: Operation) -> None:
        table = bound.table
        self._ctx = ctx
        self._bound = bound
        self._constraints = Constraints()
        if isinstance(table, ConstrainedTable) and operation is not Operation.DELETE:
            self._constraints = table.constraints
        self._row_id = bound.rowid_name if operation is Operation.UPDATE else None
        self._columns = [name for name in bound.arrow_schema.names if name != bound.rowid_name]
        self._given: list[str] | None = None
        self._unchecked: list[pa.RecordBatch] = []
        self._unchecked_rows = 0
        self._keys: list[pa.Table] = []
        self._existing: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Check a batch, perhaps with later batches. Raises: ConstraintViolation, NotFound."""
        if not self._constraints or not batch.num_rows:
            return
        if self._given is None:
            if self._row_id is not None:
                self._constraints = concerning(self._constraints, batch.schema.names)
            needed = columns_of(self._constraints, self._columns)
            self._given = [
                name for name in batch.schema.names if name in needed or name == self._row_id
            ]
        self._unchecked.append(batch.select(self._given))
        self._unchecked_rows += batch.num_rows
        if self._unchecked_rows >= _ROWS_AT_ONCE:
            self._check_rows()

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        """How many bytes of a batch are kept until the statement ends: its keys."""
        keys = self._key_columns()
        return int(batch.select([name for name in batch.schema.names if name in keys]).nbytes)

    def check(self) -> None:
        """Check all rows that were added.

        Raises: ConstraintViolation; NotFound for a row id that does not exist, where its row was
        read.
        """
        self._check_rows()
        if not self._keys:
            return
        changed = pa.concat_tables(self._keys)
        if self._row_id is not None:
            changed = _last_of_each(changed, self._row_id)
        enforce_keys(
            *(self._bound.table.name, self._constraints, changed, self._read_existing),
            row_id=self._row_id,
            check=self._ctx.check,
        )

    def _check_rows(self) -> None:
        if not self._unchecked:
            return
        rows = self._completed(pa.Table.from_batches(self._unchecked))
        self._unchecked, self._unchecked_rows = [], 0
        enforce_rows(self._bound.table.name, self._constraints, rows, self._ctx.check)
        if keys := self._key_columns():
            self._keys.append(rows.select(keys))

    def _completed(self, rows: pa.Table) -> pa.Table:
        """Add to the rows of an UPDATE the present values of unchanged columns that are checked."""
        missing = [
            name
            for name in columns_of(self._constraints, self._columns)
            if name not in rows.schema.names
        ]
        if self._row_id is None or not missing:
            return rows
        row_ids = rows.column(self._row_id).combine_chunks()
        present = self._scan([*missing, self._row_id], row_ids)
        positions = pc.index_in(row_ids, value_set=present.column(self._row_id).combine_chunks())
        if positions.null_count:
            unknown = row_ids.filter(positions.is_null())[0].as_py()
            raise NotFound(f"row id {unknown} does not exist in table {self._bound.title}")
        for name in missing:
            rows = rows.append_column(name, present.column(name).take(positions))
        return rows

    def _key_columns(self) -> list[str]:
        keys = (self._constraints.primary_key, *self._constraints.unique)
        names = list(dict.fromkeys(name for key in keys for name in key))
        return [*names, self._row_id] if names and self._row_id is not None else names

    def _read_existing(self, columns: Sequence[str]) -> pa.Table:
        if self._existing is None:
            self._existing = self._scan(self._key_columns())
        return self._existing.select(list(columns))

    def _scan(self, columns: Sequence[str], row_ids: pa.Array | None = None) -> pa.Table:
        """Columns of all rows as the statement sees them, or only of those with the given ids."""
        found = []
        with closing_reader(
            self._bound.table.scan(self._ctx, ScanOptions(columns=tuple(columns)))
        ) as batches:
            for batch in batches:
                self._ctx.check()
                batch = batch.select(list(columns))
                if row_ids is not None:
                    batch = batch.filter(pc.is_in(batch.column(columns[-1]), value_set=row_ids))
                found.append(batch)
        own, *_ = self._bound.forms[0]
        fields = pa.schema([own.field(name) for name in columns])
        return pa.Table.from_batches(found) if found else pa.Table.from_batches([], fields)


def _last_of_each(rows: pa.Table, row_id: str) -> pa.Table:
    """The last values of each row: when a row is updated twice, its later values count."""
    numbered = pa.table(
        {"id": rows.column(row_id), "number": pa.array(range(rows.num_rows), pa.int64())}
    )
    last = numbered.group_by("id").aggregate([("number", "max")]).column("number_max")
    return rows if len(last) == rows.num_rows else rows.take(last.sort())
