"""CREATE and ALTER TABLE for every backend: what a statement makes of columns and constraints.

Each function checks first the statement by itself, then the columns of the table, then its
constraints. It changes nothing. The backend then checks the rows (`Alteration.required`) and its
own conditions, and makes the change. Fields of structs are in field_alterations.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, RemoveColumnOptions
from sparkport.engine.columns import (
    DEFAULT,
    default_of,
    expect_column,
    expect_columns,
    expect_name,
    find_column,
    one_field,
)
from sparkport.engine.constraints.alter import (
    constraints_using,
    constraints_without,
    with_constraint,
    with_renamed_column,
)
from sparkport.engine.constraints.compute import is_plain_cast
from sparkport.engine.constraints.enforce import concerning
from sparkport.engine.constraints.expressions import expect_computable, expect_default
from sparkport.engine.constraints.sandbox import quoted
from sparkport.engine.constraints.validate import validate_constraints
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import AlreadyExists, BadRequest, PreconditionFailed

__all__ = [
    "Alteration",
    "Definition",
    "NamedTable",
    "Retyping",
    "add_column",
    "add_constraint",
    "change_column_type",
    "constraints_of_new_type",
    "drop_not_null",
    "new_table",
    "remove_column",
    "rename_column",
    "set_default",
    "set_not_null",
]


class NamedTable(Protocol):
    """A table as messages name it: `str` is the full name, `name` what DuckDB would say."""

    @property
    def name(self) -> str: ...


class Definition(Protocol):
    """The columns of a table, without the row id, and its constraints."""

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def constraints(self) -> Constraints: ...


@dataclass(frozen=True, slots=True)
class Alteration:
    """What a table becomes, if its rows allow it."""

    columns: pa.Schema
    constraints: Constraints
    position: int
    """Position of the column that the statement names: in `columns`, or before it was removed."""
    required: Constraints = dataclasses.field(default_factory=Constraints)
    """What the rows must fulfil, with their new values, before the change is made."""

    @property
    def field(self) -> pa.Field:
        """The column that the statement names, as it will be."""
        return self.columns.field(self.position)


@dataclass(frozen=True, slots=True)
class Retyping(Alteration):
    """A column gets another type, and new values."""

    expression: str = ""
    """SQL for the new values, computed from all columns as they were."""
    is_plain: bool = True
    """Whether the expression only casts the column."""


def new_table(
    columns: pa.Schema, constraints: Constraints, name: str
) -> tuple[pa.Schema, Constraints]:
    """Columns and constraints of a new table, with NOT NULL in both.

    Raises: BadRequest for impossible columns, defaults or constraints; Unsupported for a type.
    """
    refuse_unsupported(columns, f"table {name}")
    expect_columns(columns)
    for field in columns:
        if default := default_of(field):
            expect_default(default, f"the default of column {field.name}")
    constraints = validate_constraints(columns, constraints, name)
    fields = [field.with_nullable(field.name not in constraints.not_null) for field in columns]
    return pa.schema(fields, columns.metadata), constraints


def add_column(
    definition: Definition, table: NamedTable, column_schema: pa.Schema, options: AddColumnOptions
) -> Alteration | None:
    """Add a column at the end; None when it exists and the options allow that.

    Raises: AlreadyExists; BadRequest for an impossible name or default; Unsupported for a type.
    """
    field = one_field(column_schema)
    expect_name(field.name)
    refuse_unsupported(pa.schema([field]), f"table {table}")
    if default := default_of(field):
        expect_default(default, f"the default of column {field.name}")
    known = find_column(definition.columns, field.name)
    if known is not None:
        if options.if_column_not_exists:
            return None
        raise AlreadyExists(
            f"column {definition.columns.names[known]} exists already in table {table}"
        )
    columns = definition.columns.append(field)
    constraints = validate_constraints(columns, definition.constraints)
    required = concerning(constraints, [field.name])
    return Alteration(columns, constraints, len(definition.columns), required)


def remove_column(
    definition: Definition, table: NamedTable, name: str, options: RemoveColumnOptions
) -> Alteration | None:
    """Remove a column; None when it does not exist and the options allow that.

    Raises: NotFound; PreconditionFailed for the last column, and for a column that a constraint
    uses, unless the options say cascade, which removes the constraint, too.
    """
    columns, constraints = definition.columns, definition.constraints
    if options.if_column_exists and find_column(columns, name) is None:
        return None
    position = expect_column(columns, name, table)
    own = columns.names[position]
    if len(columns) == 1:
        raise PreconditionFailed(
            f"column {own} is the only one of table {table}: drop the table instead"
        )
    using = constraints_using(constraints, columns.names, own)
    if using and not options.cascade:
        raise PreconditionFailed(
            f"column {own} of table {table} is used by {using[0]}: "
            "drop it with CASCADE to drop that too"
        )
    left = constraints_without(constraints, columns.names, own)
    return Alteration(columns.remove(position), left, position)


def rename_column(
    definition: Definition, table: NamedTable, name: str, new_name: str
) -> Alteration:
    """Rename a column, also in constraints.

    Raises: NotFound; AlreadyExists; BadRequest for an impossible name; PreconditionFailed when a
    CHECK cannot be rewritten for certain.
    """
    expect_name(new_name)
    columns = definition.columns
    position = expect_column(columns, name, table)
    own = columns.names[position]
    if new_name == own or find_column(columns, new_name) not in (None, position):
        raise AlreadyExists(f"column {new_name} exists already in table {table}")
    constraints = with_renamed_column(definition.constraints, columns.names, own, new_name)
    renamed = columns.set(position, columns.field(position).with_name(new_name))
    refuse_unsupported(renamed, f"table {table}")
    return Alteration(renamed, validate_constraints(renamed, constraints), position)


def set_default(
    definition: Definition, table: NamedTable, name: str, expression: str
) -> Alteration:
    """Give a column a default for rows that are inserted from now on.

    Raises: NotFound; BadRequest.
    """
    expect_default(expression, f"the default of column {name}")
    position = expect_column(definition.columns, name, table)
    field = definition.columns.field(position)
    field = field.with_metadata({**(field.metadata or {}), DEFAULT: expression.encode()})
    return Alteration(definition.columns.set(position, field), definition.constraints, position)


def set_not_null(definition: Definition, table: NamedTable, name: str) -> Alteration | None:
    """Forbid NULLs in a column; None when they are forbidden already. Raises: NotFound."""
    position = expect_column(definition.columns, name, table)
    field = definition.columns.field(position)
    if not field.nullable:
        return None
    columns = definition.columns.set(position, field.with_nullable(False))
    not_null = tuple(own.name for own in columns if not own.nullable)
    return Alteration(
        columns,
        replace(definition.constraints, not_null=not_null),
        position,
        Constraints(not_null=(field.name,)),
    )


def drop_not_null(definition: Definition, table: NamedTable, name: str) -> Alteration | None:
    """Allow NULLs in a column; None when they are allowed already.

    Raises: NotFound; PreconditionFailed for a column of the primary key.
    """
    position = expect_column(definition.columns, name, table)
    field = definition.columns.field(position)
    if field.nullable:
        return None
    if field.name in definition.constraints.primary_key:
        raise PreconditionFailed(
            f"column {field.name} of table {table} is in the primary key, so it cannot be NULL"
        )
    left = tuple(own for own in definition.constraints.not_null if own != field.name)
    columns = definition.columns.set(position, field.with_nullable(True))
    return Alteration(columns, replace(definition.constraints, not_null=left), position)


def change_column_type(
    definition: Definition, table: NamedTable, column_schema: pa.Schema, expression: str
) -> Retyping | None:
    """Give a column another type; None when nothing would change.

    The values are computed by an expression, or by a cast when it is empty. The column keeps its
    default, and whether it may be NULL. All other metadata of a field belong to its type.

    Raises: NotFound; Unsupported for a type; BadRequest for an expression that DuckDB cannot
    compute; PreconditionFailed when a constraint makes no sense for the new type.
    """
    wanted = one_field(column_schema)
    position = expect_column(definition.columns, wanted.name, table)
    old = definition.columns.field(position)
    default = default_of(old)
    metadata = {**({DEFAULT: default.encode()} if default else {}), **(wanted.metadata or {})}
    field = wanted.with_name(old.name).with_nullable(old.nullable).with_metadata(metadata or None)
    refuse_unsupported(pa.schema([field]), f"table {table}")
    text = expression.strip() or quoted(old.name)
    what = f"the expression {text[:200]} for column {field.name}"
    expect_computable(text, definition.columns, what, table.name)
    is_plain = is_plain_cast(text, field)
    if is_plain and field.equals(old, check_metadata=True):
        return None
    columns = definition.columns.set(position, field)
    constraints = constraints_of_new_type(definition, table, columns, position)
    required = concerning(constraints, [field.name])
    return Retyping(columns, constraints, position, required, text, is_plain)


def constraints_of_new_type(
    definition: Definition, table: NamedTable, columns: pa.Schema, position: int
) -> Constraints:
    """Check the constraints for columns of which one has another type.

    Raises: PreconditionFailed.
    """
    try:
        return validate_constraints(columns, definition.constraints)
    except BadRequest as error:
        field = columns.field(position)
        raise PreconditionFailed(
            f"column {field.name} of table {table} cannot become {field.type}: {error.message}"
        ) from error


def add_constraint(definition: Definition, table: NamedTable, text: str) -> Alteration | None:
    """Add a constraint, given as SQL; None when the table has it already.

    Raises: BadRequest; Unsupported for a foreign key; PreconditionFailed for a second primary key.
    """
    old = definition.constraints
    merged, added = with_constraint(definition.columns, old, text, table, table.name)
    if merged == old:
        return None
    columns = pa.schema(
        [field.with_nullable(field.name not in merged.not_null) for field in definition.columns],
        definition.columns.metadata,
    )
    return Alteration(columns, merged, 0, added)
