"""The row id: the column that identifies a row for UPDATE and DELETE."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["ROWID_MARKER", "ROWID_NAME", "find_rowid_column", "rowid_field"]

ROWID_NAME = "rowid"
"""What the client calls the row id in exchanges and filters, whatever the published field is called
(airport §7.2).
"""
ROWID_MARKER = b"is_rowid"
"""Key of the field metadata that marks the row id; the value must not be empty (airport §3.6)."""


def find_rowid_column(arrow_schema: pa.Schema) -> int | None:
    """Index of the row id column, or None: marked `is_rowid` with a non-empty value, else named
    exactly `rowid`.

    A marker wins over the name, so that a table whose row id is called otherwise is read as it
    means itself.
    """
    named: int | None = None
    for index, field in enumerate(arrow_schema):
        if (field.metadata or {}).get(ROWID_MARKER):
            return index
        if field.name == ROWID_NAME and named is None:
            named = index
    return named


def rowid_field(name: str = ROWID_NAME, data_type: pa.DataType | None = None) -> pa.Field:
    """The Arrow field with which a table publishes its row id; it belongs last in the schema
    (airport §16 T7).
    """
    return pa.field(name, data_type or pa.int64(), nullable=False, metadata={ROWID_MARKER: b"1"})
