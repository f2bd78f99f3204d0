"""ALTER TABLE … TYPE: by Iceberg's type promotion where no stored value changes, else by rewriting.

Strategy: the declared and the stored type of a column are different things. An INTEGER and a
SMALLINT are both stored as Iceberg's int. Where the values are stored alike before and after, only
metadata change. That they are is either clear from the types, or seen by looking at every value.
Otherwise the column gets new values under a new field id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
)

from sparkport.catalog import Constraints, Context
from sparkport.engine.alterations import Retyping
from sparkport.engine.alterations import change_column_type as change_type
from sparkport.engine.constraints.compute import computed_values
from sparkport.engine.constraints.enforce import columns_of, enforce_rows
from sparkport.errors import PreconditionFailed
from sparkport.spark.ddl.alter import layout_using
from sparkport.spark.ddl.existing_rows import existing_rows
from sparkport.spark.ddl.rewrite import rewrite
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import encode, natural_type, stored_field
from sparkport.spark.iceberg.types.nested import inner_ids
from sparkport.spark.lake.drafted_columns import assigned
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.lake import Lake

__all__ = ["change_column_type"]


def change_column_type(
    lake: Lake, ctx: Context, identifier: Identifier, column_schema: pa.Schema, expression: str
) -> None:
    """Give a column another type.

    Raises: BadRequest when DuckDB cannot compute the values; ConstraintViolation when they violate
    a constraint.
    """

    def edit(draft: Draft) -> bool:
        planned = change_type(draft.definition, identifier, column_schema, expression)
        if planned is None:
            return False
        retyping = _ColumnRetyping(draft, ctx, planned)
        if retyping.stays_in_files():
            retyping.stage_metadata()
        else:
            retyping.stage_rewriting()
        return True

    alter(lake, identifier, edit)


class _ColumnRetyping:
    """A column that is to have another type."""

    def __init__(self, draft: Draft, ctx: Context, planned: Retyping) -> None:
        self._draft = draft
        self._ctx = ctx
        self._planned = planned
        self._position = planned.position
        self._field = planned.field
        self._old = draft.definition.columns.field(planned.position)
        self._stored: NestedField = draft.state.schema.fields[planned.position]
        self._new, self._type_tags = stored_field(
            planned.field, draft.state.metadata.last_column_id + 1
        )

    def stays_in_files(self) -> bool:
        """Whether the files already hold the new values. Raises: ConstraintViolation."""
        old, new = self._stored.field_type, self._new.field_type
        if not isinstance(new, PrimitiveType) or not (old == new or _promotes(old, new)):
            return False
        planned = self._planned
        if (
            planned.is_plain
            and not planned.required.checks
            and _widens(self._old.type, self._field.type)
        ):
            return True
        if self._draft.state.snapshot is None:
            return True
        return all(self._unchanged_values())

    def _unchanged_values(self) -> Iterator[bool]:
        """For each batch, whether its values are stored alike before and after."""
        draft, names = self._draft, self._draft.definition.columns.names
        kind = natural_type(self._new.field_type)
        required = self._planned.required
        needed = columns_of(required, names)
        checked = Constraints(not_null=required.not_null, checks=required.checks)
        for batch in existing_rows(draft.lake, self._ctx, draft.state, names):
            (values,) = computed_values(
                [batch.select(names)],
                self._planned.expression,
                self._field,
                draft.identifier.name,
                self._ctx.check,
            )
            before = encode(batch.column(self._old.name), self._old, self._stored.field_type)
            after = encode(values, self._field, self._new.field_type)
            same = bool(before.cast(kind).equals(after))
            if same and checked:
                rows = [
                    values if name == self._field.name else batch.column(name) for name in needed
                ]
                changed = pa.RecordBatch.from_arrays(rows, names=list(needed))
                enforce_rows(draft.identifier.name, checked, changed, self._ctx.check)
            yield same

    def stage_metadata(self) -> None:
        draft, field_id = self._draft, self._stored.field_id
        if self._stored.field_type != self._new.field_type:
            name = draft.name_of(field_id)
            draft.transaction.updateSchema().updateColumn(name, draft.new_type(self._new)).commit()
        type_tags = {
            each: type_tag for each, type_tag in draft.type_tags.items() if each != field_id
        }
        draft.describe(
            self._planned.columns,
            self._planned.constraints,
            type_tags
            | assigned([self._new], [draft.schema().fields[self._position]], self._type_tags),
        )

    def stage_rewriting(self) -> None:
        """Stage new files for the whole table.

        Raises: PreconditionFailed, ConstraintViolation, BadRequest, Unsupported.
        """
        draft, field = self._draft, self._field
        if (layout := layout_using(draft, self._stored.field_id)) is not None:
            raise PreconditionFailed(
                f"column {field.name} of table {draft.identifier} is used by its {layout}, "
                f"so it cannot become {field.type}: change that first"
            )
        self._stage_new_column()
        theirs = draft.schema().fields[self._position]
        type_tags = {
            each: type_tag
            for each, type_tag in draft.type_tags.items()
            if each not in set(inner_ids(theirs))
        }
        draft.describe(
            self._planned.columns,
            self._planned.constraints,
            type_tags | assigned([self._new], [theirs], self._type_tags),
        )
        if draft.state.snapshot is not None:
            table = draft.identifier.name
            rewrite(
                draft,
                self._ctx,
                self._planned.columns,
                field,
                lambda rows: computed_values(
                    rows, self._planned.expression, field, table, self._ctx.check
                ),
                self._planned.required,
            )

    def _stage_new_column(self) -> None:
        """Replace the column by one with another id, of which the old files have no values."""
        draft, name = self._draft, self._field.name
        update = draft.transaction.updateSchema().allowIncompatibleChanges()
        update.deleteColumn(draft.name_of(self._stored.field_id))
        kind, comment = draft.new_type(self._new), self._stored.doc
        if self._new.required:
            update.addRequiredColumn(None, name, kind, comment)
        else:
            update.addColumn(None, name, kind, comment)
        if self._position == 0:
            update.moveFirst(name)
        else:
            update.moveAfter(
                name, draft.name_of(draft.state.schema.fields[self._position - 1].field_id)
            )
        update.commit()


def _promotes(old: IcebergType, new: IcebergType) -> bool:
    """Whether Iceberg reads values of the old type in files as the new type."""
    match old, new:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return bool(new.scale == old.scale and new.precision >= old.precision)
        case _:
            return False


_WIDER: Sequence[tuple[pa.DataType, ...]] = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint16(), pa.uint32(), pa.int64()),
    (pa.uint8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)
"""In each row, a type holds all values of the types before it."""


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    if old.equals(new):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale == old.scale and new.precision >= old.precision)
    return any(
        old in chain and new in chain and chain.index(old) < chain.index(new) for chain in _WIDER
    )
