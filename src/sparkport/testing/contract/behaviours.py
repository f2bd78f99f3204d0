"""What a behaviour of DDL and DML is, and how one is run on any catalog.

The behaviours themselves are rows of the tables in made_tables.py, altered_columns.py,
altered_fields.py and changed_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import (
    ConstrainedTable,
    Constraints,
    Context,
    CreateTableOptions,
    DMLOptions,
    DynamicSchema,
    DynamicTable,
    Operation,
    ScanOptions,
    StagedTable,
)
from sparkport.errors import SparkportError

__all__ = ["Behaviour", "SetUp", "Subject", "one_column", "refusal"]


@dataclass(frozen=True, slots=True)
class SetUp:
    """A table `t` to begin with."""

    name: str
    columns: pa.Schema
    rows: Sequence[tuple[Any, ...]]
    constraints: Constraints = field(default_factory=Constraints)

    def made(self, schema: DynamicSchema, ctx: Context) -> Subject:
        """Create it. A catalog whose tables cannot all that behaviours need is skipped."""
        options = CreateTableOptions(constraints=self.constraints)
        table = schema.create_table(ctx, "t", self.columns, options)
        for kind in (StagedTable, DynamicTable, ConstrainedTable):
            if not isinstance(table, kind):
                pytest.skip(f"a new table is no {kind.__name__}")
        subject = Subject(schema, ctx)
        if self.rows:
            subject.insert(*self.rows)
        return subject


class Subject:
    """The table of a behaviour, looked up anew for each statement."""

    def __init__(self, schema: DynamicSchema, ctx: Context) -> None:
        self.schema = schema
        self.ctx = ctx

    @property
    def table(self) -> Any:
        """Of any kind: a behaviour knows what it needs."""
        return self.schema.table(self.ctx, "t")

    @property
    def columns(self) -> pa.Schema:
        """Without the row id, which is last."""
        arrow_schema: pa.Schema = self.table.arrow_schema
        return arrow_schema.remove(len(arrow_schema) - 1)

    def read(self) -> list[dict[str, Any]]:
        """All rows, in the order of their ids."""
        batches = list(self.table.scan(self.ctx, ScanOptions()))
        found = [row for batch in batches for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row["rowid"])

    @property
    def row_ids(self) -> list[int]:
        return [row["rowid"] for row in self.read()]

    def rows(self) -> list[tuple[Any, ...]]:
        names = self.columns.names
        return [tuple(row[name] for name in names) for row in self.read()]

    def insert(self, *rows: tuple[Any, ...], returning: bool = False) -> Any:
        columns = pa.schema([each.with_nullable(True) for each in self.columns])
        named = [dict(zip(columns.names, row, strict=True)) for row in rows]
        batch = pa.RecordBatch.from_pylist(named, schema=columns)
        return self.write(Operation.INSERT, [batch], returning=returning)

    def update(self, *batches: Mapping[str, Sequence[Any]], returning: bool = False) -> Any:
        """Each batch has columns, and under `rowid` which of the rows, counted from 0."""
        return self.write(
            Operation.UPDATE, [self._chosen(each) for each in batches], returning=returning
        )

    def delete(self, *places: int, returning: bool = False) -> Any:
        batch = self._chosen({"rowid": places})
        return self.write(Operation.DELETE, [batch], returning=returning)

    def _chosen(self, batch: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        columns, ids = self.columns, self.row_ids
        arrays = {
            name: pa.array([ids[place] for place in values], pa.int64())
            if name == "rowid"
            else pa.array(values, columns.field(name).type)
            for name, values in batch.items()
        }
        return pa.RecordBatch.from_pydict(arrays)

    def write(
        self, operation: Operation, batches: Iterable[pa.RecordBatch], *, returning: bool = False
    ) -> Any:
        """How many rows a statement has changed; with RETURNING, the rows that came back."""
        write = self.table.stage(self.ctx, operation, DMLOptions(returning=returning))
        try:
            answers = [write.apply(batch) for batch in batches]
        except BaseException:
            write.abort()
            raise
        changed = write.commit()
        if not returning:
            return changed
        names = self.columns.names
        rows = [row for answer in answers for row in answer.select(names).to_pylist()]
        return [tuple(row.values()) for row in rows]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A statement on a table, and what comes of it. What is None is not looked at."""

    name: str
    on: SetUp
    statement: Callable[[Subject], Any]
    rows: Sequence[tuple[Any, ...]] | None = None
    """All rows afterwards, in the order of their ids."""
    result: Any = None
    """What the statement gives back."""
    columns: Sequence[str] | None = None
    """Their names afterwards."""
    constraints: Constraints | None = None
    error: type[SparkportError] | tuple[type[SparkportError], ...] | None = None
    """With which it is refused; then nothing has changed."""
    message: str = ""
    """What the error says in backends that use the engine's statements, as a pattern."""

    def __str__(self) -> str:
        return self.name

    def expect_on(self, subject: Subject, *, messages: bool) -> None:
        """Run it. Raises: AssertionError."""
        if self.error is not None:
            self._expect_refused_on(subject, self.error, messages=messages)
            return
        result = self.statement(subject)
        if self.result is not None:
            assert result == self.result, self.name
        if self.rows is not None:
            assert subject.rows() == list(self.rows), self.name
        if self.columns is not None:
            assert subject.columns.names == list(self.columns), self.name
        if self.constraints is not None:
            assert subject.table.constraints == self.constraints, self.name

    def _expect_refused_on(
        self,
        subject: Subject,
        error: type[SparkportError] | tuple[type[SparkportError], ...],
        *,
        messages: bool,
    ) -> None:
        before = subject.table.arrow_schema, subject.table.constraints, subject.read()
        with pytest.raises(error, match=(messages and self.message) or None):
            self.statement(subject)
        after = subject.table.arrow_schema, subject.table.constraints, subject.read()
        assert before[0].equals(after[0], check_metadata=True), self.name
        assert before[1:] == after[1:], self.name


def refusal(
    name: str,
    on: SetUp,
    statement: Callable[[Subject], Any],
    error: type[SparkportError] | tuple[type[SparkportError], ...],
    message: str = "",
) -> Behaviour:
    return Behaviour(name, on, statement, error=error, message=message)


def one_column(
    name: str, kind: pa.DataType, default: str = "", *, nullable: bool = True
) -> pa.Schema:
    """The schema of one column, as ADD COLUMN and TYPE take it."""
    metadata = {"default": default} if default else None
    return pa.schema([pa.field(name, kind, nullable, metadata)])
