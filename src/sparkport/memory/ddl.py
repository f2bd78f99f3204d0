"""ALTER TABLE: what a version becomes. Nothing here changes anything; `MemoryTable` makes the result current."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, RemoveColumnOptions
from sparkport.catalog.constraints.enforce import columns_of, concerning, enforce
from sparkport.catalog.constraints.expressions import expect_expression, renamed_in, used_columns
from sparkport.catalog.constraints.validate import parse_constraint, renamed, validate_constraints
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.catalog.types import publishable_schema, refuse_unsupported
from sparkport.errors import AlreadyExists, BadRequest, PreconditionFailed
from sparkport.memory.commit import read_columns
from sparkport.memory.compute import computed_column, default_column
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
    "one_field",
    "remove_column",
    "rename_column",
    "retyped",
    "set_default",
    "set_not_null",
]

DEFAULT = b"default"
"""Key of the field metadata with a column's default (airport §3.6)."""


@dataclass(frozen=True, slots=True)
class Altered:
    """What a table becomes."""

    definition: Definition
    segments: tuple[Segment, ...]


def one_field(column_schema: pa.Schema) -> pa.Field:
    """The field, with plain values where it is dictionary encoded. Raises: BadRequest unless there is exactly one."""
    if len(column_schema) != 1:
        raise BadRequest(f"the column schema must contain exactly one field, not {len(column_schema)}")
    return publishable_schema(column_schema).field(0)


def add_column(
    version: Version, column_schema: pa.Schema, options: AddColumnOptions, table: TableName
) -> Altered | None:
    """Rows that exist already get the default, where the field has one, else NULL."""
    field, definition = one_field(column_schema), version.definition
    refuse_unsupported(pa.schema([field]), f"table {table}")
    if (known := definition.position(field.name)) is not None:
        if options.if_column_not_exists:
            return None
        raise AlreadyExists(f"column {definition.columns.names[known]} exists already in table {table}")
    if default := (field.metadata or {}).get(DEFAULT):
        expect_expression(default.decode(), f"the default of column {field.name}")
    columns = definition.columns.append(field)
    constraints = validate_constraints(columns, definition.constraints)
    added = default_column(field, [segment.rows for segment in version.segments])
    segments = tuple(
        segment.with_columns((*segment.columns, values))
        for segment, values in zip(version.segments, added, strict=True)
    )
    return checked(Altered(define(columns, constraints), segments), [field.name], table)


def remove_column(version: Version, name: str, options: RemoveColumnOptions, table: TableName) -> Altered | None:
    """Constraints that use the column forbid it, or go with it when `cascade` says so."""
    definition = version.definition
    position = definition.position(name)
    if position is None and options.if_column_exists:
        return None
    position = definition.expect(name, table)
    if len(definition.columns) == 1:
        raise PreconditionFailed(f"column {name} is the only one of table {table}: drop the table instead")
    name = definition.columns.names[position]
    using = _using(definition, name)
    if using and not options.cascade:
        raise PreconditionFailed(
            f"column {name} of table {table} is used by {using[0]}: drop it with CASCADE to drop that too"
        )
    segments = tuple(
        segment.with_columns(column for index, column in enumerate(segment.columns) if index != position)
        for segment in version.segments
    )
    columns = definition.columns.remove(position)
    return Altered(define(columns, _without(definition, name)), segments)


def _using(definition: Definition, name: str) -> list[str]:
    constraints, names = definition.constraints, definition.columns.names
    using = [f"the primary key ({', '.join(constraints.primary_key)})"] if name in constraints.primary_key else []
    using += [f"UNIQUE({', '.join(key)})" for key in constraints.unique if name in key]
    using += [f"CHECK({check})" for check in constraints.checks if name in used_columns(check, names)]
    return using


def _without(definition: Definition, name: str) -> Constraints:
    constraints, names = definition.constraints, definition.columns.names
    return Constraints(
        not_null=tuple(column for column in constraints.not_null if column != name),
        checks=tuple(check for check in constraints.checks if name not in used_columns(check, names)),
        unique=tuple(key for key in constraints.unique if name not in key),
        primary_key=() if name in constraints.primary_key else constraints.primary_key,
    )


def rename_column(version: Version, name: str, new_name: str, table: TableName) -> Altered:
    """Constraints follow. Raises: PreconditionFailed when a CHECK cannot be rewritten for certain."""
    definition = version.definition
    position = definition.expect(name, table)
    name = definition.columns.names[position]
    taken = definition.position(new_name)
    if new_name == name or taken not in (None, position):
        raise AlreadyExists(f"column {new_name} exists already in table {table}")
    names = definition.columns.names
    checks = [
        renamed_in(check, name, new_name) if name in used_columns(check, names) else check
        for check in definition.constraints.checks
    ]
    columns = definition.columns.set(position, definition.columns.field(position).with_name(new_name))
    constraints = renamed(definition.constraints, name, new_name, checks)
    refuse_unsupported(columns, f"table {table}")
    define(columns, constraints)
    return Altered(define(columns, validate_constraints(columns, constraints)), version.segments)


def set_default(version: Version, name: str, expression: str, table: TableName) -> Altered:
    """The client computes it, so it need only be an expression."""
    position = version.definition.expect(name, table)
    expect_expression(expression, f"the default of column {name}")
    field = version.definition.columns.field(position)
    return _with_field(version, position, field.with_metadata({**(field.metadata or {}), DEFAULT: expression.encode()}))


def set_not_null(version: Version, name: str, table: TableName) -> Altered | None:
    """Raises: ConstraintViolation when the column holds NULLs."""
    definition = version.definition
    position = definition.expect(name, table)
    field = definition.columns.field(position)
    if not field.nullable:
        return None
    required = {*definition.constraints.not_null, field.name}
    constraints = replace(
        definition.constraints, not_null=tuple(own for own in definition.columns.names if own in required)
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
        raise PreconditionFailed(f"column {field.name} of table {table} is in the primary key, so it cannot be NULL")
    remaining = tuple(own for own in definition.constraints.not_null if own != field.name)
    columns = definition.columns.set(position, field.with_nullable(True))
    return Altered(define(columns, replace(definition.constraints, not_null=remaining)), version.segments)


def change_column_type(version: Version, column_schema: pa.Schema, expression: str, table: TableName) -> Altered:
    """Raises: BadRequest when DuckDB cannot compute the values; ConstraintViolation when they break a constraint."""
    wanted, definition = one_field(column_schema), version.definition
    position = definition.expect(wanted.name, table)
    old = definition.columns.field(position)
    field = wanted.with_name(old.name).with_nullable(old.nullable)
    field = field.with_metadata({**(old.metadata or {}), **(wanted.metadata or {})} or None)
    refuse_unsupported(pa.schema([field]), f"table {table}")
    expression = expression.strip() or f'"{old.name}"'
    arrays = computed_column(definition.columns, version.segments, expression, field, table.name)
    return retyped(version, position, field, lambda index, _: arrays[index], table)


def add_constraint(version: Version, text: str, table: TableName) -> Altered | None:
    """Raises: ConstraintViolation when the rows do not fulfil it; PreconditionFailed for a second primary key."""
    definition, new = version.definition, parse_constraint(text)
    old = definition.constraints
    if old.primary_key and new.primary_key:
        raise PreconditionFailed(f"table {table} has a primary key already")
    merged = Constraints(
        not_null=(*old.not_null, *new.not_null),
        checks=(*old.checks, *new.checks),
        unique=(*old.unique, *new.unique),
        primary_key=new.primary_key or old.primary_key,
    )
    merged = validate_constraints(definition.columns, merged, table.name)
    if merged == old:
        return None
    added = Constraints(
        not_null=tuple(name for name in merged.not_null if name not in old.not_null),
        checks=tuple(check for check in merged.checks if check not in old.checks),
        unique=tuple(key for key in merged.unique if key not in old.unique),
        primary_key=() if old.primary_key else merged.primary_key,
    )
    altered = Altered(define(definition.columns, merged), version.segments)
    return checked(altered, definition.columns.names, table, added)


def retyped(
    version: Version, position: int, field: pa.Field, values: Callable[[int, pa.Array], pa.Array], table: TableName
) -> Altered:
    """Give a column another type; `values` gives the new values of the segment of an index, from the old ones."""
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
            segment.with_columns(new if i == position else column for i, column in enumerate(segment.columns))
        )
    return checked(Altered(define(columns, constraints), tuple(segments)), [field.name], table)


def _with_field(version: Version, position: int, field: pa.Field) -> Altered:
    definition = version.definition
    return Altered(define(definition.columns.set(position, field), definition.constraints), version.segments)


def checked(
    altered: Altered, columns: Sequence[str], table: TableName, constraints: Constraints | None = None
) -> Altered:
    """The same, when the rows fulfil the constraints on the given columns. Raises: ConstraintViolation."""
    definition = altered.definition
    concerned = concerning(definition.constraints, columns) if constraints is None else constraints
    if not concerned or not altered.segments:
        return altered
    needed = columns_of(concerned, definition.columns.names)
    rows = read_columns(definition, altered.segments, [*needed, ROWID_NAME])
    enforce(table.name, concerned, rows, rows.select, row_id=ROWID_NAME)
    return altered
