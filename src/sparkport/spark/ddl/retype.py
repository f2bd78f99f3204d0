"""ALTER TABLE … TYPE: by Iceberg's own promotion where no value changes, else by writing the files
anew.

Strategy: what was declared and what is stored are two things. Where the column can stay in its
files, because its values are stored alike before and after (an INTEGER and a SMALLINT are both
Iceberg's int), only metadata change; that they are alike is either clear from the types or seen by
looking at every value. Otherwise the column gets new values under a new field id.
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
from sparkport.engine.columns import DEFAULT, default_of, one_field
from sparkport.engine.constraints.compute import computed_values, is_plain_cast
from sparkport.engine.constraints.enforce import columns_of, concerning, enforce_rows
from sparkport.engine.constraints.expressions import expect_computable
from sparkport.engine.constraints.sandbox import quoted
from sparkport.engine.constraints.validate import validate_constraints
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.ddl.alter import layout_using
from sparkport.spark.ddl.existing_rows import existing_rows
from sparkport.spark.ddl.rewrite import rewrite
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import encode, natural_type, stored_field
from sparkport.spark.lake.iceberg_commit import Draft, alter, assigned, inner_ids
from sparkport.spark.lake.lake import Lake

__all__ = ["change_column_type"]


def change_column_type(
    lake: Lake, ctx: Context, identifier: Identifier, column_schema: pa.Schema, expression: str
) -> None:
    """Raises: BadRequest when DuckDB cannot compute the values; ConstraintViolation when they break
    a constraint.
    """
    wanted = one_field(column_schema)

    def edit(draft: Draft) -> bool:
        definition = draft.definition
        position = definition.expect(wanted.name, identifier)
        old = definition.columns.field(position)
        field = _declared(old, wanted)
        refuse_unsupported(pa.schema([field]), f"table {identifier}")
        text = expression.strip() or quoted(old.name)
        what = f"the expression {text[:200]} for column {field.name}"
        expect_computable(text, definition.columns, what, identifier.name)
        change = _Change(draft, ctx, position, field, text)
        if change.is_nothing:
            return False
        constraints = change.constraints()
        if change.stays_in_files(concerning(constraints, [field.name])):
            change.stage_metadata(constraints)
        else:
            change.stage_rewriting(constraints)
        return True

    alter(lake, identifier, edit)


def _declared(old: pa.Field, wanted: pa.Field) -> pa.Field:
    """The field as it will be: whether it may be NULL and its default stay, what else the metadata
    say is the type's.
    """
    default = default_of(old)
    metadata = {**({DEFAULT: default.encode()} if default else {}), **(wanted.metadata or {})}
    return wanted.with_name(old.name).with_nullable(old.nullable).with_metadata(metadata or None)


class _Change:
    """One column that is to have another type."""

    def __init__(
        self, draft: Draft, ctx: Context, position: int, field: pa.Field, expression: str
    ) -> None:
        self._draft = draft
        self._ctx = ctx
        self._position = position
        self._field = field
        self._expression = expression
        self._old = draft.definition.columns.field(position)
        self._stored: NestedField = draft.state.schema.fields[position]
        self._new, self._tokens = stored_field(field, draft.state.metadata.last_column_id + 1)
        self._is_plain = is_plain_cast(expression, field)

    @property
    def is_nothing(self) -> bool:
        return self._is_plain and bool(self._field.equals(self._old, check_metadata=True))

    def constraints(self) -> Constraints:
        """Raises: PreconditionFailed when one makes no sense for the new type."""
        try:
            return validate_constraints(self._columns, self._draft.definition.constraints)
        except BadRequest as error:
            raise PreconditionFailed(
                f"column {self._field.name} of table {self._draft.identifier} cannot become {self._field.type}: "
                f"{error.message}"
            ) from error

    def stays_in_files(self, constraints: Constraints) -> bool:
        """Whether the files hold what the column will hold. Raises: ConstraintViolation."""
        old, new = self._stored.field_type, self._new.field_type
        if not isinstance(new, PrimitiveType) or not (old == new or _promotes(old, new)):
            return False
        if self._is_plain and not constraints.checks and _widens(self._old.type, self._field.type):
            return True
        if self._draft.state.snapshot is None:
            return True
        return all(self._unchanged_values(constraints))

    def _unchanged_values(self, constraints: Constraints) -> Iterator[bool]:
        """For each batch, whether its values are stored alike before and after."""
        draft, names = self._draft, self._draft.definition.columns.names
        kind = natural_type(self._new.field_type)
        needed = columns_of(constraints, names)
        checked = Constraints(not_null=constraints.not_null, checks=constraints.checks)
        for batch in existing_rows(draft.lake, self._ctx, draft.state, names):
            (values,) = computed_values(
                [batch.select(names)],
                self._expression,
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

    def stage_metadata(self, constraints: Constraints) -> None:
        draft, field_id = self._draft, self._stored.field_id
        if self._stored.field_type != self._new.field_type:
            name = draft.name_of(field_id)
            draft.transaction.updateSchema().updateColumn(name, draft.new_type(self._new)).commit()
        tokens = {each: token for each, token in draft.tokens.items() if each != field_id}
        draft.describe(
            self._columns,
            constraints,
            tokens | assigned([self._new], [draft.schema().fields[self._position]], self._tokens),
        )

    def stage_rewriting(self, constraints: Constraints) -> None:
        """Raises: PreconditionFailed, ConstraintViolation, BadRequest, Unsupported."""
        draft, field = self._draft, self._field
        if (layout := layout_using(draft, self._stored.field_id)) is not None:
            raise PreconditionFailed(
                f"column {field.name} of table {draft.identifier} is used by its {layout}, "
                f"so it cannot become {field.type}: change that first"
            )
        self._stage_new_column()
        theirs = draft.schema().fields[self._position]
        tokens = {
            each: token
            for each, token in draft.tokens.items()
            if each not in set(inner_ids(theirs))
        }
        draft.describe(
            self._columns, constraints, tokens | assigned([self._new], [theirs], self._tokens)
        )
        if draft.state.snapshot is not None:
            table = draft.identifier.name
            rewrite(
                draft,
                self._ctx,
                self._columns,
                field,
                lambda rows: computed_values(rows, self._expression, field, table, self._ctx.check),
                concerning(constraints, [field.name]),
            )

    def _stage_new_column(self) -> None:
        """In the place of the old one, and with another id: files that have the old one have none
        of the new.
        """
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

    @property
    def _columns(self) -> pa.Schema:
        return self._draft.definition.columns.set(self._position, self._field)


def _promotes(old: IcebergType, new: IcebergType) -> bool:
    """Whether Iceberg reads files with the old type as the new one."""
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
"""Each holds all values of those before it."""


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    if old.equals(new):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale == old.scale and new.precision >= old.precision)
    return any(
        old in chain and new in chain and chain.index(old) < chain.index(new) for chain in _WIDER
    )
