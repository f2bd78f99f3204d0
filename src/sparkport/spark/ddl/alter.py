"""ALTER TABLE: each change is one commit of Iceberg (see `commits`), so `AT (VERSION => n)` counts
it as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, Context, RemoveColumnOptions
from sparkport.engine.columns import DEFAULT, default_of, expect_name, one_field
from sparkport.engine.constraints.alter import (
    constraints_using,
    constraints_without,
    with_constraint,
    with_renamed_column,
)
from sparkport.engine.constraints.compute import default_values
from sparkport.engine.constraints.expressions import expect_default
from sparkport.engine.constraints.validate import validate_constraints
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import AlreadyExists, ConstraintViolation, PreconditionFailed
from sparkport.spark.ddl.existing_rows import check_rows
from sparkport.spark.ddl.literals import java_literal
from sparkport.spark.ddl.rewrite import files_without, rewrite
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.types.declared import stored_field
from sparkport.spark.lake.iceberg_commit import Draft, alter, assigned
from sparkport.spark.lake.lake import Lake

__all__ = [
    "add_column",
    "add_constraint",
    "drop_not_null",
    "layout_using",
    "remove_column",
    "rename_column",
    "set_default",
    "set_not_null",
]

_DEFAULTS_SINCE = 3
"""The format version from which on a column can have a value in files from before it was added."""


def add_column(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    column_schema: pa.Schema,
    options: AddColumnOptions,
) -> None:
    """Rows that exist already get the default, where the field has one, else NULL."""
    field = one_field(column_schema)
    refuse_unsupported(pa.schema([field]), f"table {identifier}")
    expect_name(field.name)
    if default := default_of(field):
        expect_default(default, f"the default of column {field.name}")

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        if (known := definition.position(field.name)) is not None:
            if options.if_column_not_exists:
                return False
            raise AlreadyExists(
                f"column {definition.columns.names[known]} exists already in table {identifier}"
            )
        columns = definition.columns.append(field)
        constraints = validate_constraints(columns, definition.constraints)
        value, is_rewritten = _value_of_old_rows(draft, field)
        _stage_new_column(draft, field, value)
        stored, tokens = stored_field(field, draft.state.metadata.last_column_id + 1)
        draft.describe(
            columns,
            constraints,
            draft.tokens | assigned([stored], draft.schema().fields[-1:], tokens),
        )
        if is_rewritten:
            required = Constraints(not_null=() if field.nullable else (field.name,))
            rewrite(
                draft,
                ctx,
                columns,
                field,
                lambda rows: default_values(field, (batch.num_rows for batch in rows), ctx.check),
                required,
            )
        return True

    alter(lake, identifier, edit)


def _value_of_old_rows(draft: Draft, field: pa.Field) -> tuple[Any | None, bool]:
    """What Iceberg can be told about rows from before the column, and whether their files must be
    written anew.

    Raises: ConstraintViolation.
    """
    plan = plan_scan(draft.state, (), None)
    if not plan.parts and plan.readable:
        return None, False
    (values,) = default_values(field, [2])
    is_constant = bool(values[0].equals(values[1]))
    if is_constant and not values[0].is_valid:
        if not field.nullable and plan.rows:
            raise ConstraintViolation(
                f"NOT NULL constraint failed: {draft.identifier.name}.{field.name}"
            )
        # Files of which all rows are deleted are still read, and Spark misses the column in them.
        return None, not field.nullable
    stored, _ = stored_field(field, 1)
    literal = None
    if is_constant and draft.state.metadata.format_version >= _DEFAULTS_SINCE:
        literal = java_literal(draft.lake, values.slice(0, 1), field, stored.field_type)
    return literal, literal is None


def _stage_new_column(draft: Draft, field: pa.Field, value: Any | None) -> None:
    stored, _ = stored_field(field, draft.state.metadata.last_column_id + 1)
    update = draft.transaction.updateSchema()
    kind = draft.new_type(stored)
    if stored.required:
        update.allowIncompatibleChanges().addRequiredColumn(None, field.name, kind, None, value)
    else:
        update.addColumn(None, field.name, kind, None, value)
    update.commit()


def remove_column(
    lake: Lake, identifier: Identifier, name: str, options: RemoveColumnOptions
) -> None:
    """Constraints that use the column forbid it, or go with it when `cascade` says so."""

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        if definition.position(name) is None and options.if_column_exists:
            return False
        position = definition.expect(name, identifier)
        if len(definition.columns) == 1:
            raise PreconditionFailed(
                f"column {name} is the only one of table {identifier}: drop the table instead"
            )
        own = definition.columns.names[position]
        using = constraints_using(definition.constraints, definition.columns.names, own)
        if using and not options.cascade:
            raise PreconditionFailed(
                f"column {own} of table {identifier} is used by {using[0]}: drop it with CASCADE to drop that too"
            )
        field_id = definition.field_ids[position]
        if (layout := layout_using(draft, field_id)) is not None:
            raise PreconditionFailed(
                f"column {own} of table {identifier} is used by its {layout}: change that first"
            )
        draft.transaction.updateSchema().deleteColumn(draft.name_of(field_id)).commit()
        left = constraints_without(definition.constraints, definition.columns.names, own)
        draft.describe(definition.columns.remove(position), left)
        return True

    alter(lake, identifier, edit)


def layout_using(draft: Draft, field_id: int) -> str | None:
    """What of the table's layout is made of a column, so that it must stay as it is; None if
    nothing is.
    """
    metadata = draft.state.metadata
    if any(field.source_id == field_id for field in metadata.spec().fields):
        return "partitioning"
    orders = {order.order_id: order for order in metadata.sort_orders}
    order = orders.get(metadata.default_sort_order_id)
    if order is not None and any(field.source_id == field_id for field in order.fields):
        return "sort order"
    return "identifier fields" if field_id in metadata.schema().identifier_field_ids else None


def rename_column(lake: Lake, identifier: Identifier, name: str, new_name: str) -> None:
    """Constraints follow. Raises: PreconditionFailed when a CHECK cannot be rewritten for
    certain.
    """
    expect_name(new_name)

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        position = definition.expect(name, identifier)
        own = definition.columns.names[position]
        if new_name == own or definition.position(new_name) not in (None, position):
            raise AlreadyExists(f"column {new_name} exists already in table {identifier}")
        constraints = with_renamed_column(
            definition.constraints, definition.columns.names, own, new_name
        )
        columns = definition.columns.set(
            position, definition.columns.field(position).with_name(new_name)
        )
        refuse_unsupported(columns, f"table {identifier}")
        constraints = validate_constraints(columns, constraints)
        draft.transaction.updateSchema().renameColumn(
            draft.name_of(definition.field_ids[position]), new_name
        ).commit()
        draft.describe(columns, constraints)
        return True

    alter(lake, identifier, edit)


def set_default(lake: Lake, identifier: Identifier, name: str, expression: str) -> None:
    """The client computes it for its INSERTs, and we do for `upsert` and for columns that are
    added.
    """
    expect_default(expression, f"the default of column {name}")

    def edit(draft: Draft) -> bool:
        columns = draft.definition.columns
        position = draft.definition.expect(name, identifier)
        field = columns.field(position)
        field = field.with_metadata({**(field.metadata or {}), DEFAULT: expression.encode()})
        draft.describe(columns.set(position, field))
        return True

    alter(lake, identifier, edit)


def set_not_null(lake: Lake, ctx: Context, identifier: Identifier, name: str) -> None:
    """Raises: ConstraintViolation when the column holds NULLs."""

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        position = definition.expect(name, identifier)
        field = definition.columns.field(position)
        if not field.nullable:
            return False
        _require(draft, ctx, Constraints(not_null=(field.name,)))
        return True

    alter(lake, identifier, edit)


def _require(draft: Draft, ctx: Context, added: Constraints) -> None:
    """Stage that columns are NOT NULL, after the rows were checked. Raises: ConstraintViolation."""
    check_rows(draft.lake, ctx, draft.state, added)
    definition = draft.definition
    positions = [definition.expect(name, draft.identifier) for name in added.not_null]
    update = draft.transaction.updateSchema().allowIncompatibleChanges()
    for position in positions:
        update.requireColumn(draft.name_of(definition.field_ids[position]))
    update.commit()
    lacking = {
        part.path: part
        for each in positions
        for part in files_without(draft, definition.field_ids[each])
    }
    if lacking:
        field = definition.columns.field(positions[0])

        def unchanged(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
            return (batch.column(field.name) for batch in rows)

        rewrite(
            draft, ctx, definition.columns, field, unchanged, Constraints(), list(lacking.values())
        )


def drop_not_null(lake: Lake, identifier: Identifier, name: str) -> None:
    """Raises: PreconditionFailed for a column of the primary key."""

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        position = definition.expect(name, identifier)
        field = definition.columns.field(position)
        if field.nullable:
            return False
        if field.name in definition.constraints.primary_key:
            raise PreconditionFailed(
                f"column {field.name} of table {identifier} is in the primary key, so it cannot be NULL"
            )
        field_id = definition.field_ids[position]
        if field_id in draft.state.metadata.schema().identifier_field_ids:
            raise PreconditionFailed(
                f"column {field.name} of table {identifier} is one of its identifier fields, so it cannot be NULL"
            )
        draft.transaction.updateSchema().makeColumnOptional(draft.name_of(field_id)).commit()
        return True

    alter(lake, identifier, edit)


def add_constraint(lake: Lake, ctx: Context, identifier: Identifier, text: str) -> None:
    """Raises: ConstraintViolation when the rows do not fulfil it; PreconditionFailed for a second
    primary key.
    """

    def edit(draft: Draft) -> bool:
        definition, old = draft.definition, draft.definition.constraints
        merged, added = with_constraint(definition.columns, old, text, identifier, identifier.name)
        if merged == old:
            return False
        if added.not_null:
            _require(draft, ctx, added)
        else:
            check_rows(lake, ctx, draft.state, added)
        draft.describe(constraints=replace(merged, not_null=()))
        return True

    alter(lake, identifier, edit)
