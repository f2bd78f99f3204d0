"""The columns and constraints of a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog import Constraints, rowid_field
from sparkport.engine.columns import expect_column, expect_columns, find_column

__all__ = ["Definition", "TableName", "define"]

_PRIVATE_METADATA = (b"check_constraints", b"can_produce_statistics", b"pandas")
"""Keys of a schema's metadata that are not the user's.

The first two would mislead the client (airport §3.6).
"""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name for messages. `str` includes the schema, `name` does not, as in DuckDB's."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """Columns and constraints of a table.

    Every ALTER makes a new object, so comparing identities tells whether there was an ALTER.
    """

    columns: pa.Schema
    """The columns without the row id. A NOT NULL column is not nullable."""
    constraints: Constraints
    arrow_schema: pa.Schema
    """The columns as published: with the row id, last (airport §16 T7)."""

    def position(self, name: str) -> int | None:
        """The position of a column, found by its name as DuckDB compares names."""
        return find_column(self.columns, name)

    def expect(self, name: str, table: TableName) -> int:
        """The position of a column. Raises: NotFound."""
        return expect_column(self.columns, name, table)


def define(columns: pa.Schema, constraints: Constraints) -> Definition:
    """Make a definition of columns and of constraints that were validated for them.

    Raises: BadRequest for columns that a table cannot have.
    """
    expect_columns(columns)
    metadata = {k: v for k, v in (columns.metadata or {}).items() if k not in _PRIVATE_METADATA}
    fields = [
        field.with_nullable(field.nullable and field.name not in constraints.not_null)
        for field in columns
    ]
    return Definition(
        pa.schema(fields, metadata or None),
        constraints,
        pa.schema([*fields, rowid_field()], metadata or None),
    )
