"""The columns of tables made by DDL: which are possible, how they are found, their defaults."""

from __future__ import annotations

import pyarrow as pa

from sparkport.catalog.names import folded
from sparkport.catalog.rowid import ROWID_NAME, find_rowid_column
from sparkport.engine.types import publishable_schema
from sparkport.errors import BadRequest, NotFound

__all__ = [
    "DEFAULT",
    "default_of",
    "expect_column",
    "expect_columns",
    "expect_name",
    "find_column",
    "one_field",
]

DEFAULT = b"default"
"""Key of the field metadata with a column's default (airport §3.6)."""


def default_of(field: pa.Field) -> str:
    """The default of a column, as SQL of DuckDB; empty if it has none."""
    text: bytes = (field.metadata or {}).get(DEFAULT, b"")
    return text.decode()


def find_column(columns: pa.Schema, name: str) -> int | None:
    """The position of a column. As in DuckDB, the case of ASCII letters makes no difference."""
    position = columns.get_field_index(name)
    if position >= 0:
        return int(position)
    wanted = folded(name)
    return next((index for index, own in enumerate(columns.names) if folded(own) == wanted), None)


def expect_column(columns: pa.Schema, name: str, table: object) -> int:
    """The position of a column, as by `find_column`. Raises: NotFound."""
    position = find_column(columns, name)
    if position is None:
        raise NotFound(f"column {name} does not exist in table {table}")
    return position


def expect_name(name: str) -> None:
    """Raises: BadRequest for a name that a column cannot have."""
    if not name:
        raise BadRequest("a column needs a name")
    if folded(name) == folded(ROWID_NAME):
        raise BadRequest(f"a column cannot be called {name}: the name is reserved for the row id")


def expect_columns(columns: pa.Schema) -> None:
    """Raises: BadRequest for columns that a table cannot have."""
    if len(columns) == 0:
        raise BadRequest("a table needs at least one column")
    seen: set[bytes] = set()
    for name in columns.names:
        expect_name(name)
        if folded(name) in seen:
            raise BadRequest(f"there are two columns called {name}; case makes no difference")
        seen.add(folded(name))
    if (marked := find_rowid_column(columns)) is not None:
        raise BadRequest(
            f"column {columns.names[marked]} is marked as row id: the table makes its own"
        )


def one_field(column_schema: pa.Schema) -> pa.Field:
    """The only field of a schema, with a dictionary decoded. Raises: BadRequest for several."""
    if len(column_schema) != 1:
        raise BadRequest(
            f"the column schema must contain exactly one field, not {len(column_schema)}"
        )
    return publishable_schema(column_schema).field(0)
