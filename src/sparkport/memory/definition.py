"""What the rows of a table look like."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog import Constraints, find_rowid_column, rowid_field
from sparkport.catalog.names import folded
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.errors import BadRequest, NotFound

__all__ = ["Definition", "TableName", "define"]

_PRIVATE_METADATA = (b"check_constraints", b"can_produce_statistics", b"pandas")
"""Keys of the schema's metadata that are not the user's: the first two would mislead the client (airport §3.6)."""


@dataclass(frozen=True, slots=True)
class TableName:
    """How messages name a table: with its schema, except where DuckDB names it without."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """Columns and constraints of a table. Every ALTER makes a new one, so its identity tells whether there was one."""

    columns: pa.Schema
    """Without the row id; NOT NULL columns are not nullable."""
    constraints: Constraints
    arrow_schema: pa.Schema
    """As published: with the row id, last (airport §16 T7)."""

    def position(self, name: str) -> int | None:
        """Where the column is, as DuckDB compares names: whatever the case of ASCII letters."""
        position = self.columns.get_field_index(name)
        if position >= 0:
            return int(position)
        wanted = folded(name)
        return next((i for i, own in enumerate(self.columns.names) if folded(own) == wanted), None)

    def expect(self, name: str, table: TableName) -> int:
        """Raises: NotFound."""
        position = self.position(name)
        if position is None:
            raise NotFound(f"column {name} does not exist in table {table}")
        return position


def define(columns: pa.Schema, constraints: Constraints) -> Definition:
    """Make a definition of columns and of constraints that hold for them already.

    Raises: BadRequest for columns that cannot be those of a table.
    """
    if len(columns) == 0:
        raise BadRequest("a table needs at least one column")
    seen: set[bytes] = set()
    for name in columns.names:
        if not name:
            raise BadRequest("a column needs a name")
        if folded(name) == folded(ROWID_NAME):
            raise BadRequest(f"a column cannot be called {name}: the name is reserved for the row id")
        if folded(name) in seen:
            raise BadRequest(f"there are two columns called {name}; case makes no difference")
        seen.add(folded(name))
    if (marked := find_rowid_column(columns)) is not None:
        raise BadRequest(f"column {columns.names[marked]} is marked as row id: the table makes its own")
    metadata = {k: v for k, v in (columns.metadata or {}).items() if k not in _PRIVATE_METADATA}
    fields = [field.with_nullable(field.nullable and field.name not in constraints.not_null) for field in columns]
    return Definition(
        pa.schema(fields, metadata or None),
        constraints,
        pa.schema([*fields, rowid_field()], metadata or None),
    )
