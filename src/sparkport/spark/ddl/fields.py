"""ALTER TABLE on fields of structs, at any depth: in structs, and in lists and maps of structs.

A path begins with the column; as in DuckDB, `element` leads into a list, `key` and `value` into a
map. Iceberg changes fields by their ids and never touches a file for it; only the keys of maps it
does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import ListType, MapType, NestedField, StructType

from sparkport.catalog import AddFieldOptions, RemoveFieldOptions
from sparkport.catalog.names import folded
from sparkport.engine.columns import one_field
from sparkport.engine.constraints.validate import validate_constraints
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import AlreadyExists, BadRequest, NotFound, PreconditionFailed, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import (
    TYPES_PROPERTY,
    declared_fields,
    stored_field,
    written_tokens,
)
from sparkport.spark.lake.iceberg_commit import Draft, alter, assigned, fields_inside
from sparkport.spark.lake.lake import Lake

__all__ = ["add_field", "remove_field", "rename_field"]


@dataclass(frozen=True, slots=True)
class _Struct:
    """A struct inside a column: as users see it, as Iceberg has it, and the id of the field that it
    is the type of.
    """

    declared: pa.DataType
    stored: StructType
    field_id: int

    def index(self, name: str) -> int | None:
        wanted = folded(name)
        return next(
            (index for index, field in enumerate(self.declared) if folded(field.name) == wanted),
            None,
        )


def add_field(
    lake: Lake,
    identifier: Identifier,
    path: Sequence[str],
    column_schema: pa.Schema,
    options: AddFieldOptions,
) -> None:
    """Add a field to the struct at `path`; it is NULL in the rows there are."""
    new = one_field(column_schema).with_nullable(True)
    if not new.name:
        raise BadRequest("a field needs a name")

    def edit(draft: Draft, struct: _Struct) -> bool:
        if (known := struct.index(new.name)) is not None:
            if options.if_field_not_exists:
                return False
            name = struct.declared.field(known).name
            raise AlreadyExists(
                f"field {_shown([*path, name])} exists already in table {identifier}"
            )
        stored, tokens = stored_field(new, draft.state.metadata.last_column_id + 1)
        update = draft.transaction.updateSchema()
        update.addColumn(draft.name_of(struct.field_id), new.name, draft.new_type(stored)).commit()
        added = _found(draft.schema().fields, struct.field_id, new.name)
        _keep(draft, path[0], draft.tokens | assigned([stored], [added], tokens))
        return True

    _alter(lake, identifier, path, edit)


def remove_field(
    lake: Lake, identifier: Identifier, path: Sequence[str], options: RemoveFieldOptions
) -> None:
    """Remove the field at `path`. Raises: PreconditionFailed for the last one."""
    _expect_field(path)

    def edit(draft: Draft, struct: _Struct) -> bool:
        index = struct.index(path[-1])
        if index is None:
            if options.if_field_exists:
                return False
            raise NotFound(f"field {_shown(path)} does not exist in table {identifier}")
        if struct.declared.num_fields == 1:
            raise PreconditionFailed(
                f"field {_shown(path)} is the only one of its struct: remove the column instead"
            )
        _refuse_keys(draft, path[0])
        draft.transaction.updateSchema().deleteColumn(
            draft.name_of(struct.stored.fields[index].field_id)
        ).commit()
        _keep(draft, path[0], draft.tokens)
        return True

    _alter(lake, identifier, path[:-1], edit)


def rename_field(lake: Lake, identifier: Identifier, path: Sequence[str], new_name: str) -> None:
    """Give the field at `path` another name."""
    _expect_field(path)
    if not new_name:
        raise BadRequest("a field needs a name")

    def edit(draft: Draft, struct: _Struct) -> bool:
        index = struct.index(path[-1])
        if index is None:
            raise NotFound(f"field {_shown(path)} does not exist in table {identifier}")
        if struct.declared.field(index).name == new_name or struct.index(new_name) not in (
            None,
            index,
        ):
            raise AlreadyExists(
                f"field {_shown([*path[:-1], new_name])} exists already in table {identifier}"
            )
        name = draft.name_of(struct.stored.fields[index].field_id)
        draft.transaction.updateSchema().renameColumn(name, new_name).commit()
        _keep(draft, path[0], draft.tokens)
        return True

    _alter(lake, identifier, path[:-1], edit)


def _expect_field(path: Sequence[str]) -> None:
    if len(path) < 2:
        raise BadRequest("the path of a field has at least two parts: the column and the field")


def _alter(
    lake: Lake, identifier: Identifier, path: Sequence[str], edit: Callable[[Draft, _Struct], bool]
) -> None:
    if not path:
        raise BadRequest("the path of a field begins with a column")

    def edit_struct(draft: Draft) -> bool:
        position = draft.definition.expect(path[0], identifier)
        stored = draft.state.schema.fields[position]
        return edit(
            draft,
            _at(
                draft.definition.columns.field(position).type,
                stored,
                path[1:],
                path[:1],
                identifier,
            ),
        )

    alter(lake, identifier, edit_struct)


def _at(
    declared: pa.DataType,
    stored: NestedField,
    path: Sequence[str],
    done: Sequence[str],
    table: Identifier,
) -> _Struct:
    """The struct that a path leads to. Both types are followed: a union, too, is stored as a
    struct.
    """
    kind = stored.field_type
    if not path:
        if not pa.types.is_struct(declared) or not isinstance(kind, StructType):
            raise BadRequest(f"{_shown(done)} of table {table} is not a struct but {declared}")
        return _Struct(declared, kind, stored.field_id)
    step, here = folded(path[0]), [*done, path[0]]
    if pa.types.is_struct(declared) and isinstance(kind, StructType):
        index = _Struct(declared, kind, stored.field_id).index(path[0])
        if index is not None:
            return _at(declared.field(index).type, kind.fields[index], path[1:], here, table)
    elif _is_list(declared) and isinstance(kind, ListType) and step == b"element":
        return _at(declared.value_type, kind.element_field, path[1:], here, table)
    elif pa.types.is_map(declared) and isinstance(kind, MapType) and step == b"value":
        return _at(declared.item_type, kind.value_field, path[1:], here, table)
    elif pa.types.is_map(declared) and step == b"key":
        raise Unsupported(
            f"{_shown(here)} of table {table} is the key of a map, of which Iceberg cannot change fields"
        )
    raise NotFound(f"field {_shown(here)} does not exist in table {table}")


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_fixed_size_list(data_type))


def _refuse_keys(draft: Draft, column: str) -> None:
    """What is left of the column might not be unique any more."""
    constraints = draft.definition.constraints
    for key in (constraints.primary_key, *constraints.unique):
        if any(folded(name) == folded(column) for name in key):
            raise PreconditionFailed(
                f"column {column} of table {draft.identifier} is in a key ({', '.join(key)}), so it keeps all its fields"
            )


def _keep(draft: Draft, column: str, tokens: dict[int, str]) -> None:
    """Keep the declared types. Raises: PreconditionFailed for a constraint that makes no sense of
    the new struct.
    """
    definition = draft.definition
    columns = pa.schema(declared_fields(draft.schema(), {TYPES_PROPERTY: written_tokens(tokens)}))
    refuse_unsupported(columns, f"table {draft.identifier}")
    try:
        validate_constraints(columns, definition.constraints)
    except BadRequest as error:
        new_type = columns.field(definition.expect(column, draft.identifier)).type
        raise PreconditionFailed(
            f"column {column} of table {draft.identifier} cannot become {new_type}: {error.message}"
        ) from error
    draft.describe(tokens=tokens)


def _found(fields: Sequence[NestedField], struct_id: int, name: str) -> NestedField:
    """The field of that name in the struct that is the type of the field of that id."""
    pending = list(fields)
    while pending:
        field = pending.pop()
        inside = fields_inside(field.field_type)
        if field.field_id == struct_id:
            return next(each for each in inside if each.name == name)
        pending += inside
    raise AssertionError(f"Iceberg has lost field {struct_id}")


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)
