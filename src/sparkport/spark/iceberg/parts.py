"""What one reader reads: a data file, or some row groups of it.

Small and picklable, because it is sent to Spark's workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DeleteVector", "FilePart"]


@dataclass(frozen=True, slots=True)
class DeleteVector:
    """The location of a delete vector: a blob in a Puffin file."""

    path: str
    offset: int
    length: int
    rows: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """A data file to be read, whole or in part."""

    path: str
    rows: int
    """Rows of the whole file, including deleted ones."""
    size: int
    """Bytes of the whole file."""
    first_row_id: int | None = None
    may_hold_row_ids: bool = True
    """False: the file certainly has no column of row ids, so they follow from positions."""
    vector: DeleteVector | None = None
    position_deletes: tuple[str, ...] = ()
    """Parquet files of format version 2 that may hold deleted positions of this file."""
    partition: tuple[tuple[int, Any], ...] = ()
    """Identity partition values, by the source column's id, for files without the column."""
    row_groups: tuple[int, int | None] | None = None
    """From the first row group up to, but not including, the second; None is the end."""
    split_offsets: tuple[int, ...] = ()
    """Where the row groups begin, as far as the manifest tells."""
    bytes: int = 0
    """About how many bytes of the file are read."""
