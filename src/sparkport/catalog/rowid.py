"""The row id: the column that identifies a row for UPDATE and DELETE."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["NO_ROW_ID", "ROWID_MARKER", "ROWID_NAME", "find_rowid_column", "rowid_field"]

ROWID_NAME = "rowid"
"""The client's name for the row id in exchanges and filters, whatever its field (airport §7.2)."""
ROWID_MARKER = b"is_rowid"
"""Key of the field metadata that marks the row id; the value must not be empty (airport §3.6)."""
NO_ROW_ID = -1
"""What is published of rows that have no ids.

Without a row id column, an UPDATE would end in the client's own internal error (T39). With it the
statement reaches the server, which can say why it refuses.
"""


def find_rowid_column(arrow_schema: pa.Schema) -> int | None:
    """Return the index of the row id column, or None.

    It is the column marked `is_rowid` with a non-empty value, or else the column named exactly
    `rowid`. The marker wins over the name, so that a row id may have any name.
    """
    named: int | None = None
    for index, field in enumerate(arrow_schema):
        if (field.metadata or {}).get(ROWID_MARKER):
            return index
        if field.name == ROWID_NAME and named is None:
            named = index
    return named


def rowid_field(name: str = ROWID_NAME, data_type: pa.DataType | None = None) -> pa.Field:
    """Make the Arrow field of a row id, which belongs last in the schema (airport §16 T7)."""
    return pa.field(name, data_type or pa.int64(), nullable=False, metadata={ROWID_MARKER: b"1"})
