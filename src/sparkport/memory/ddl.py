"""ALTER TABLE: what a version becomes. Nothing here changes anything; `MemoryTable` makes the
result current.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, RemoveColumnOptions
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.columns import DEFAULT, default_of, one_field
from sparkport.engine.constraints.alter import (
    constraints_using,
    constraints_without,
    with_constraint,
    with_renamed_column,
)
from sparkport.engine.constraints.compute import computed_values, default_values
from sparkport.engine.constraints.enforce import columns_of, concerning, enforce
from sparkport.engine.constraints.expressions import expect_computable, expect_default
from sparkport.engine.constraints.validate import validate_constraints
from sparkport.engine.databases import Check
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import AlreadyExists, BadRequest, PreconditionFailed
from sparkport.memory.commit import read_columns
from sparkport.memory.definition import Definition, TableName, define
from sparkport.memory.segments import Segment
from sparkport.memory.versions import Version

__all__ = [
    "Altered",
    "add_column",
    "add_constraint",
    "change_column_type",
    "checked",
    "drop_not_null",
    "remove_column",
    "rename_column",
    "retyped",
    "set_default",
    "set_not_null",
]


@dataclass(frozen=True, slots=True)
class Altered:
    """What a table becomes."""

    definition: Definition
    segments: tuple[Segment, ...]


def add_column(
    version: Version,
    column_schema: pa.Schema,
    options: AddColumnOptions,
    table: TableName,
    check: Check | None = None,
) -> Altered | None:
    """Rows that exist already get the default, where the field has one, else NULL."""
    field, definition = one_field(column_schema), version.definition
    refuse_unsupported(pa.schema([field]), f"table {table}")
    if (known := definition.position(field.name)) is not None:
        if options.if_column_not_exists:
            return None
        raise AlreadyExists(
            f"column {definition.columns.names[known]} exists already in table {table}"
        )
    if default := default_of(field):
        expect_default(default, f"the default of column {field.name}")
    columns = definition.columns.append(field)
    constraints = validate_constraints(columns, definition.constraints)
    added = list(default_values(field, [segment.rows for segment in version.segments], check))
    segments = tuple(
        segment.with_columns((*segment.columns, values))
        for segment, values in zip(version.segments, added, strict=True)
    )
    return checked(
        Altered(define(columns, constraints), segments), [field.name], table, check=check
    )


def remove_column(
    version: Version, name: str, options: RemoveColumnOptions, table: TableName
) -> Altered | None:
    """Constraints that use the column forbid it, or go with it when `cascade` says so."""
    definition = version.definition
    position = definition.position(name)
    if position is None and options.if_column_exists:
        return None
    position = definition.expect(name, table)
    if len(definition.columns) == 1:
        raise PreconditionFailed(
            f"column {name} is the only one of table {table}: drop the table instead"
        )
    name = definition.columns.names[position]
    using = constraints_using(definition.constraints, definition.columns.names, name)
    if using and not options.cascade:
        raise PreconditionFailed(
            f"column {name} of table {table} is used by {using[0]}: drop it with CASCADE to drop that too"
        )
    segments = tuple(
        segment.with_columns(
            column for index, column in enumerate(segment.columns) if index != position
        )
        for segment in version.segments
    )
    columns = definition.columns.remove(position)
    constraints = constraints_without(definition.constraints, definition.columns.names, name)
    return Altered(define(columns, constraints), segments)


def rename_column(version: Version, name: str, new_name: str, table: TableName) -> Altered:
    """Constraints follow. Raises: PreconditionFailed when a CHECK cannot be rewritten for
    certain.
    """
    definition = version.definition
    position = definition.expect(name, table)
    name = definition.columns.names[position]
    taken = definition.position(new_name)
    if new_name == name or taken not in (None, position):
        raise AlreadyExists(f"column {new_name} exists already in table {table}")
    constraints = with_renamed_column(
        definition.constraints, definition.columns.names, name, new_name
    )
    columns = definition.columns.set(
        position, definition.columns.field(position).with_name(new_name)
    )
    refuse_unsupported(columns, f"table {table}")
    define(columns, constraints)
    return Altered(define(columns, validate_constraints(columns, constraints)), version.segments)


def set_default(version: Version, name: str, expression: str, table: TableName) -> Altered:
    """The client computes it, so it need only be an expression."""
    position = version.definition.expect(name, table)
    expect_default(expression, f"the default of column {name}")
    field = version.definition.columns.field(position)
    return _with_field(
        version,
        position,
        field.with_metadata({**(field.metadata or {}), DEFAULT: expression.encode()}),
    )


def set_not_null(version: Version, name: str, table: TableName) -> Altered | None:
    """Raises: ConstraintViolation when the column holds NULLs."""
    definition = version.definition
    position = definition.expect(name, table)
    field = definition.columns.field(position)
    if not field.nullable:
        return None
    required = {*definition.constraints.not_null, field.name}
    constraints = replace(
        definition.constraints,
        not_null=tuple(own for own in definition.columns.names if own in required),
    )
    altered = Altered(define(definition.columns, constraints), version.segments)
    return checked(altered, [field.name], table, Constraints(not_null=(field.name,)))


def drop_not_null(version: Version, name: str, table: TableName) -> Altered | None:
    """Raises: PreconditionFailed for a column of the primary key."""
    definition = version.definition
    position = definition.expect(name, table)
    field = definition.columns.field(position)
    if field.nullable:
        return None
    if field.name in definition.constraints.primary_key:
        raise PreconditionFailed(
            f"column {field.name} of table {table} is in the primary key, so it cannot be NULL"
        )
    remaining = tuple(own for own in definition.constraints.not_null if own != field.name)
    columns = definition.columns.set(position, field.with_nullable(True))
    return Altered(
        define(columns, replace(definition.constraints, not_null=remaining)), version.segments
    )


def change_column_type(
    version: Version,
    column_schema: pa.Schema,
    expression: str,
    table: TableName,
    check: Check | None = None,
) -> Altered:
    """Raises: BadRequest when DuckDB cannot compute the values; ConstraintViolation when they break
    a constraint.
    """
    wanted, definition = one_field(column_schema), version.definition
    position = definition.expect(wanted.name, table)
    old = definition.columns.field(position)
    field = wanted.with_name(old.name).with_nullable(old.nullable)
    field = field.with_metadata({**(old.metadata or {}), **(wanted.metadata or {})} or None)
    refuse_unsupported(pa.schema([field]), f"table {table}")
    expression = expression.strip() or f'"{old.name}"'
    what = f"the expression {expression[:200]} for column {field.name}"
    expect_computable(expression, definition.columns, what, table.name)
    rows = (
        pa.RecordBatch.from_arrays(list(each.columns), schema=definition.columns)
        for each in version.segments
    )
    arrays = list(computed_values(rows, expression, field, table.name, check))
    return retyped(version, position, field, lambda index, _: arrays[index], table, check)


def add_constraint(
    version: Version, text: str, table: TableName, check: Check | None = None
) -> Altered | None:
    """Raises: ConstraintViolation when the rows do not fulfil it; PreconditionFailed for a second
    primary key.
    """
    definition = version.definition
    merged, added = with_constraint(
        definition.columns, definition.constraints, text, table, table.name
    )
    if merged == definition.constraints:
        return None
    altered = Altered(define(definition.columns, merged), version.segments)
    return checked(altered, definition.columns.names, table, added, check)


def retyped(
    version: Version,
    position: int,
    field: pa.Field,
    values: Callable[[int, pa.Array], pa.Array],
    table: TableName,
    check: Check | None = None,
) -> Altered:
    """Give a column another type; `values` gives the new values of the segment of an index, from
    the old ones.
    """
    definition = version.definition
    columns = definition.columns.set(position, field)
    try:
        constraints = validate_constraints(columns, definition.constraints)
    except BadRequest as error:
        raise PreconditionFailed(
            f"column {field.name} of table {table} cannot become {field.type}: {error.message}"
        ) from error
    segments = []
    for index, segment in enumerate(version.segments):
        new = values(index, segment.columns[position])
        segments.append(
            segment.with_columns(
                new if i == position else column for i, column in enumerate(segment.columns)
            )
        )
    return checked(
        Altered(define(columns, constraints), tuple(segments)), [field.name], table, check=check
    )


def _with_field(version: Version, position: int, field: pa.Field) -> Altered:
    definition = version.definition
    return Altered(
        define(definition.columns.set(position, field), definition.constraints), version.segments
    )


def checked(
    altered: Altered,
    columns: Sequence[str],
    table: TableName,
    constraints: Constraints | None = None,
    check: Check | None = None,
) -> Altered:
    """The same, when the rows fulfil the constraints on the given columns. Raises:
    ConstraintViolation.
    """
    definition = altered.definition
    concerned = concerning(definition.constraints, columns) if constraints is None else constraints
    if not concerned or not altered.segments:
        return altered
    needed = columns_of(concerned, definition.columns.names)
    rows = read_columns(definition, altered.segments, [*needed, ROWID_NAME])
    enforce(table.name, concerned, rows, rows.select, row_id=ROWID_NAME, check=check)
    return altered
