"""ALTER TABLE: each statement is one commit of Iceberg (lake/iceberg_commit.py).

So `AT (VERSION => n)` counts it as one change. engine/alterations.py checks what a statement may
ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, Context, RemoveColumnOptions
from sparkport.engine import alterations
from sparkport.engine.constraints.compute import default_values
from sparkport.errors import ConstraintViolation, PreconditionFailed
from sparkport.spark.ddl.existing_rows import check_rows
from sparkport.spark.ddl.literals import java_literal
from sparkport.spark.ddl.rewrite import files_without, rewrite
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.types.declared import stored_field
from sparkport.spark.lake.drafted_columns import assigned
from sparkport.spark.lake.iceberg_commit import Draft, alter
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
"""The format version since which a column can have a value in files older than the column."""


def add_column(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    column_schema: pa.Schema,
    options: AddColumnOptions,
) -> None:
    """Add a column. Existing rows get the default, where the field has one, else NULL."""

    def edit(draft: Draft) -> bool:
        change = alterations.add_column(draft.definition, identifier, column_schema, options)
        if change is None:
            return False
        field = change.field
        value, is_rewritten = _value_of_old_rows(draft, field)
        _stage_new_column(draft, field, value)
        stored, type_tags = stored_field(field, draft.state.metadata.last_column_id + 1)
        draft.describe(
            change.columns,
            change.constraints,
            draft.type_tags | assigned([stored], draft.schema().fields[-1:], type_tags),
        )
        if is_rewritten:
            rewrite(
                draft,
                ctx,
                change.columns,
                field,
                lambda rows: default_values(field, (batch.num_rows for batch in rows), ctx.check),
                change.required,
            )
        return True

    alter(lake, identifier, edit)


def _value_of_old_rows(draft: Draft, field: pa.Field) -> tuple[Any | None, bool]:
    """The value of a new column for old rows, and whether their files must be rewritten.

    The value is a literal of Iceberg, or None. Raises: ConstraintViolation.
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
        # Spark still reads files of which all rows are deleted, and fails without the column.
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
    """Remove a column.

    Constraints that use the column forbid it, or are removed, too, when `options` say cascade.
    """

    def edit(draft: Draft) -> bool:
        change = alterations.remove_column(draft.definition, identifier, name, options)
        if change is None:
            return False
        definition = draft.definition
        field_id = definition.field_ids[change.position]
        if (layout := layout_using(draft, field_id)) is not None:
            own = definition.columns.names[change.position]
            raise PreconditionFailed(
                f"column {own} of table {identifier} is used by its {layout}: change that first"
            )
        draft.transaction.updateSchema().deleteColumn(draft.name_of(field_id)).commit()
        draft.describe(change.columns, change.constraints)
        return True

    alter(lake, identifier, edit)


def layout_using(draft: Draft, field_id: int) -> str | None:
    """The part of the table's layout that uses a column and keeps it from changing, or None."""
    metadata = draft.state.metadata
    if any(field.source_id == field_id for field in metadata.spec().fields):
        return "partitioning"
    orders = {order.order_id: order for order in metadata.sort_orders}
    order = orders.get(metadata.default_sort_order_id)
    if order is not None and any(field.source_id == field_id for field in order.fields):
        return "sort order"
    return "identifier fields" if field_id in metadata.schema().identifier_field_ids else None


def rename_column(lake: Lake, identifier: Identifier, name: str, new_name: str) -> None:
    """Rename a column, also in constraints.

    Raises: PreconditionFailed when a CHECK cannot be rewritten for certain.
    """

    def edit(draft: Draft) -> bool:
        change = alterations.rename_column(draft.definition, identifier, name, new_name)
        field_id = draft.definition.field_ids[change.position]
        draft.transaction.updateSchema().renameColumn(draft.name_of(field_id), new_name).commit()
        draft.describe(change.columns, change.constraints)
        return True

    alter(lake, identifier, edit)


def set_default(lake: Lake, identifier: Identifier, name: str, expression: str) -> None:
    """Set a default.

    The client computes it for INSERTs, this server for `upsert` and for columns that are added.
    """

    def edit(draft: Draft) -> bool:
        change = alterations.set_default(draft.definition, identifier, name, expression)
        draft.describe(change.columns)
        return True

    alter(lake, identifier, edit)


def set_not_null(lake: Lake, ctx: Context, identifier: Identifier, name: str) -> None:
    """Make a column NOT NULL. Raises: ConstraintViolation when the column holds NULLs."""

    def edit(draft: Draft) -> bool:
        change = alterations.set_not_null(draft.definition, identifier, name)
        if change is None:
            return False
        _require(draft, ctx, change.required)
        return True

    alter(lake, identifier, edit)


def _require(draft: Draft, ctx: Context, added: Constraints) -> None:
    """Check the rows, then stage that columns are NOT NULL. Raises: ConstraintViolation."""
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
    """Allow NULLs in a column. Raises: PreconditionFailed for a column of the primary key."""

    def edit(draft: Draft) -> bool:
        change = alterations.drop_not_null(draft.definition, identifier, name)
        if change is None:
            return False
        field_id = draft.definition.field_ids[change.position]
        if field_id in draft.state.metadata.schema().identifier_field_ids:
            raise PreconditionFailed(
                f"column {change.field.name} of table {identifier} is one of its identifier "
                "fields, so it cannot be NULL"
            )
        draft.transaction.updateSchema().makeColumnOptional(draft.name_of(field_id)).commit()
        return True

    alter(lake, identifier, edit)


def add_constraint(lake: Lake, ctx: Context, identifier: Identifier, text: str) -> None:
    """Add a constraint.

    Raises: ConstraintViolation when the rows do not fulfil it; PreconditionFailed for a second
    primary key.
    """

    def edit(draft: Draft) -> bool:
        change = alterations.add_constraint(draft.definition, identifier, text)
        if change is None:
            return False
        if change.required.not_null:
            _require(draft, ctx, change.required)
        else:
            check_rows(lake, ctx, draft.state, change.required)
        draft.describe(constraints=replace(change.constraints, not_null=()))
        return True

    alter(lake, identifier, edit)
