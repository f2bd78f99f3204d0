"""ALTER TABLE on fields of structs at any depth: in structs, and in lists and maps of structs.

engine/field_alterations.py checks what a statement may ask for. Iceberg changes fields by their
ids, without rewriting files. It cannot change the keys of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyiceberg.types import MapType, NestedField

from sparkport.catalog import AddFieldOptions, RemoveFieldOptions
from sparkport.engine import field_alterations
from sparkport.engine.field_alterations import FieldAlteration
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.definition import Definition
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import stored_field
from sparkport.spark.iceberg.types.nested import fields_inside
from sparkport.spark.lake.drafted_columns import assigned
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.lake import Lake

__all__ = ["add_field", "remove_field", "rename_field"]

_Stage = Callable[[Draft, FieldAlteration, NestedField], None]
"""Puts a change into a draft. Its last argument is the field that has the changed struct."""


def add_field(
    lake: Lake,
    identifier: Identifier,
    path: Sequence[str],
    column_schema: pa.Schema,
    options: AddFieldOptions,
) -> None:
    """Add a field to the struct at `path`. It is NULL in existing rows."""

    def stage(draft: Draft, change: FieldAlteration, parent: NestedField) -> None:
        new = change.struct.field(change.index)
        stored, type_tags = stored_field(new, draft.state.metadata.last_column_id + 1)
        update = draft.transaction.updateSchema()
        update.addColumn(draft.name_of(parent.field_id), new.name, draft.new_type(stored)).commit()
        column = draft.schema().fields[change.position]
        added = fields_inside(_followed(column, change.steps).field_type)[change.index]
        draft.describe(type_tags=draft.type_tags | assigned([stored], [added], type_tags))

    _alter(
        lake,
        identifier,
        lambda now: field_alterations.add_field(now, identifier, path, column_schema, options),
        stage,
    )


def remove_field(
    lake: Lake, identifier: Identifier, path: Sequence[str], options: RemoveFieldOptions
) -> None:
    """Remove the field at `path`."""

    def stage(draft: Draft, change: FieldAlteration, parent: NestedField) -> None:
        removed = fields_inside(parent.field_type)[change.index]
        draft.transaction.updateSchema().deleteColumn(draft.name_of(removed.field_id)).commit()

    _alter(
        lake,
        identifier,
        lambda now: field_alterations.remove_field(now, identifier, path, options),
        stage,
    )


def rename_field(lake: Lake, identifier: Identifier, path: Sequence[str], new_name: str) -> None:
    """Give the field at `path` another name."""

    def stage(draft: Draft, change: FieldAlteration, parent: NestedField) -> None:
        name = draft.name_of(fields_inside(parent.field_type)[change.index].field_id)
        draft.transaction.updateSchema().renameColumn(name, new_name).commit()

    _alter(
        lake,
        identifier,
        lambda now: field_alterations.rename_field(now, identifier, path, new_name),
        stage,
    )


def _alter(
    lake: Lake,
    identifier: Identifier,
    validate: Callable[[Definition], FieldAlteration | None],
    stage: _Stage,
) -> None:
    def edit(draft: Draft) -> bool:
        change = validate(draft.definition)
        if change is None:
            return False
        column = draft.state.schema.fields[change.position]
        _refuse_map_keys(column, change.steps, identifier)
        stage(draft, change, _followed(column, change.steps))
        return True

    alter(lake, identifier, edit)


def _followed(column: NestedField, steps: Sequence[int]) -> NestedField:
    """The field that has the changed struct as its type.

    The steps go through declared types; stored types have the same fields inside, in the same
    order.
    """
    for step in steps:
        column = fields_inside(column.field_type)[step]
    return column


def _refuse_map_keys(column: NestedField, steps: Sequence[int], table: Identifier) -> None:
    names = [column.name]
    for step in steps:
        is_map = isinstance(column.field_type, MapType)
        column = fields_inside(column.field_type)[step]
        names.append(column.name)
        if is_map and step == 0:
            raise Unsupported(
                f"{'.'.join(names)} of table {table} is the key of a map, "
                "of which Iceberg cannot change fields"
            )
