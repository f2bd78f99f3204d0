"""ALTER TABLE: compute the segments of the altered table.

Nothing here changes a table: `MemoryTable` makes the result its current version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.alterations import Alteration, Retyping
from sparkport.engine.constraints.compute import computed_values, default_values
from sparkport.engine.constraints.enforce import columns_of, enforce
from sparkport.engine.databases import Check
from sparkport.memory.commit import read_columns
from sparkport.memory.definition import Definition, TableName, define
from sparkport.memory.segments import Segment
from sparkport.memory.versions import Version

__all__ = [
    "Altered",
    "altered",
    "same_rows",
    "with_new_column",
    "with_new_type",
    "with_values",
    "without_column",
]

Segments = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Altered:
    """Definition and rows of a table after ALTER TABLE."""

    definition: Definition
    segments: Segments


def altered(
    change: Alteration, segments: Segments, table: TableName, check: Check | None
) -> Altered:
    """Combine a change with the rows it leads to.

    Raises: ConstraintViolation when the rows do not fulfil what the change requires.
    """
    definition, required = define(change.columns, change.constraints), change.required
    if required and segments:
        needed = columns_of(required, definition.columns.names)
        rows = read_columns(definition, segments, [*needed, ROWID_NAME])
        enforce(table.name, required, rows, rows.select, row_id=ROWID_NAME, check=check)
    return Altered(definition, segments)


def same_rows(version: Version, change: Alteration, check: Check | None) -> Segments:
    return version.segments


def with_new_column(version: Version, change: Alteration, check: Check | None) -> Segments:
    """The rows with the added column: its default where it has one, else NULL."""
    added = default_values(change.field, [segment.rows for segment in version.segments], check)
    return tuple(
        segment.with_columns((*segment.columns, values))
        for segment, values in zip(version.segments, added, strict=True)
    )


def without_column(version: Version, change: Alteration, check: Check | None) -> Segments:
    return tuple(
        segment.with_columns(
            column for index, column in enumerate(segment.columns) if index != change.position
        )
        for segment in version.segments
    )


def with_new_type(
    version: Version, change: Retyping, check: Check | None, table: TableName
) -> Segments:
    """The rows with the values that DuckDB computes for the column.

    Raises: BadRequest when it cannot.
    """
    rows = (
        pa.RecordBatch.from_arrays(list(each.columns), schema=version.definition.columns)
        for each in version.segments
    )
    values = computed_values(rows, change.expression, change.field, table.name, check)
    return with_values(version, change, values)


def with_values(version: Version, change: Alteration, values: Iterable[pa.Array]) -> Segments:
    """The rows with new values in the changed column; `values` has an array for each segment."""
    return tuple(
        segment.with_columns(
            new if index == change.position else column
            for index, column in enumerate(segment.columns)
        )
        for segment, new in zip(version.segments, values, strict=True)
    )
