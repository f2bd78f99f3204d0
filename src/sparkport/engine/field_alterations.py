"""ALTER TABLE on fields of structs for every backend: in structs, and in lists and maps of structs.

A path begins with the column. As in DuckDB, `element` leads into a list, `key` and `value` into a
map. The functions change nothing, as those of alterations.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import lib

from sparkport.catalog import AddFieldOptions, RemoveFieldOptions
from sparkport.catalog.names import folded
from sparkport.engine.alterations import (
    Alteration,
    Definition,
    NamedTable,
    constraints_of_new_type,
)
from sparkport.engine.columns import expect_column, one_field
from sparkport.engine.constraints.enforce import concerning
from sparkport.engine.types import fields_of, refuse_unsupported, with_fields
from sparkport.errors import AlreadyExists, BadRequest, NotFound, PreconditionFailed

__all__ = ["FieldAlteration", "add_field", "remove_field", "rename_field"]


@dataclass(frozen=True, slots=True)
class FieldAlteration(Alteration):
    """A struct inside a column gets other fields."""

    steps: tuple[int, ...] = ()
    """The way from the column to the struct: for each type on it, an index into `fields_of`."""
    index: int = 0
    """Index of the field that is renamed or removed; for an added field, the index after the last.
    """
    sources: tuple[int | None, ...] = ()
    """For each field of the new struct, its index in the old struct; None for a new field."""

    @property
    def struct(self) -> pa.DataType:
        """The struct as it will be."""
        data_type = self.field.type
        for step in self.steps:
            data_type = fields_of(data_type)[step].type
        return data_type


_Edit = tuple[list[pa.Field], tuple[int | None, ...], int]
"""The new fields of a struct, with `sources` and `index` of a FieldAlteration."""


def add_field(
    definition: Definition,
    table: NamedTable,
    path: Sequence[str],
    column_schema: pa.Schema,
    options: AddFieldOptions,
) -> FieldAlteration | None:
    """Add a field to the struct at `path`; None when it exists and the options allow that.

    The field is NULL in existing rows. Raises: NotFound; AlreadyExists; BadRequest where there is
    no struct; Unsupported for a type.
    """
    new = one_field(column_schema).with_nullable(True)
    _expect_name(new.name)

    def edit(struct: list[pa.Field]) -> _Edit | None:
        known = _index(struct, new.name)
        if known is None:
            return [*struct, new], (*range(len(struct)), None), len(struct)
        if options.if_field_not_exists:
            return None
        raise AlreadyExists(
            f"field {_shown([*path, struct[known].name])} exists already in table {table}"
        )

    return _altered(definition, table, path, edit)


def remove_field(
    definition: Definition, table: NamedTable, path: Sequence[str], options: RemoveFieldOptions
) -> FieldAlteration | None:
    """Remove the field at `path`; None when it does not exist and the options allow that.

    Raises: NotFound; BadRequest where there is no struct; PreconditionFailed for the last field of
    a struct, for a column of a key, and for a field that a CHECK uses.
    """
    _expect_field(path)

    def edit(struct: list[pa.Field]) -> _Edit | None:
        index = _index(struct, path[-1])
        if index is None:
            if options.if_field_exists:
                return None
            raise NotFound(f"field {_shown(path)} does not exist in table {table}")
        if len(struct) == 1:
            raise PreconditionFailed(
                f"field {_shown(path)} is the only one of its struct: remove the column instead"
            )
        _refuse_key(definition, table, path[0])
        left = [each for each in range(len(struct)) if each != index]
        return [struct[each] for each in left], tuple(left), index

    return _altered(definition, table, path[:-1], edit)


def rename_field(
    definition: Definition, table: NamedTable, path: Sequence[str], new_name: str
) -> FieldAlteration | None:
    """Rename the field at `path`.

    Raises: NotFound; AlreadyExists; BadRequest where there is no struct; PreconditionFailed for a
    field that a CHECK uses.
    """
    _expect_field(path)
    _expect_name(new_name)

    def edit(struct: list[pa.Field]) -> _Edit:
        index = _index(struct, path[-1])
        if index is None:
            raise NotFound(f"field {_shown(path)} does not exist in table {table}")
        if struct[index].name == new_name or _index(struct, new_name) not in (None, index):
            raise AlreadyExists(
                f"field {_shown([*path[:-1], new_name])} exists already in table {table}"
            )
        fields = [*struct[:index], struct[index].with_name(new_name), *struct[index + 1 :]]
        return fields, tuple(range(len(struct))), index

    return _altered(definition, table, path[:-1], edit)


def _expect_field(path: Sequence[str]) -> None:
    if len(path) < 2:
        raise BadRequest("the path of a field has at least two parts: the column and the field")


def _expect_name(name: str) -> None:
    if not name:
        raise BadRequest("a field needs a name")


def _refuse_key(definition: Definition, table: NamedTable, column: str) -> None:
    """Refuse a column of a key: without the field its values might not be unique any more."""
    constraints = definition.constraints
    for key in (constraints.primary_key, *constraints.unique):
        if any(folded(name) == folded(column) for name in key):
            raise PreconditionFailed(
                f"column {column} of table {table} is in a key ({', '.join(key)}), "
                "so it keeps all its fields"
            )


def _altered(
    definition: Definition,
    table: NamedTable,
    path: Sequence[str],
    edit: Callable[[list[pa.Field]], _Edit | None],
) -> FieldAlteration | None:
    if not path:
        raise BadRequest("the path of a field begins with a column")
    position = expect_column(definition.columns, path[0], table)
    field = definition.columns.field(position)
    steps, struct = _followed(field.type, path, table)
    edited = edit(fields_of(struct))
    if edited is None:
        return None
    fields, sources, index = edited
    new_field = field.with_type(_replaced(field.type, steps, pa.struct(fields)))
    columns = definition.columns.set(position, new_field)
    refuse_unsupported(pa.schema([new_field]), f"table {table}")
    constraints = constraints_of_new_type(definition, table, columns, position)
    required = concerning(constraints, [field.name])
    return FieldAlteration(columns, constraints, position, required, steps, index, sources)


def _followed(
    data_type: pa.DataType, path: Sequence[str], table: NamedTable
) -> tuple[tuple[int, ...], pa.DataType]:
    """Follow a path: the steps, as in `FieldAlteration.steps`, and the struct they lead to."""
    steps: list[int] = []
    for done, name in enumerate(path[1:], start=2):
        step = _step(data_type, name)
        if step is None:
            raise NotFound(f"field {_shown(path[:done])} does not exist in table {table}")
        steps.append(step)
        data_type = fields_of(data_type)[step].type
    if not pa.types.is_struct(data_type):
        raise BadRequest(f"{_shown(path)} of table {table} is not a struct but {data_type}")
    return tuple(steps), data_type


def _step(data_type: pa.DataType, name: str) -> int | None:
    match data_type.id:
        case lib.Type_STRUCT:
            return _index(fields_of(data_type), name)
        case lib.Type_MAP:
            return {b"key": 0, b"value": 1}.get(folded(name))
        case lib.Type_LIST | lib.Type_LARGE_LIST | lib.Type_FIXED_SIZE_LIST:
            return 0 if folded(name) == b"element" else None
        case _:
            return None


def _replaced(data_type: pa.DataType, steps: Sequence[int], struct: pa.DataType) -> pa.DataType:
    """The type with another struct at the end of the steps."""
    if not steps:
        return struct
    fields = fields_of(data_type)
    inner = fields[steps[0]]
    fields[steps[0]] = inner.with_type(_replaced(inner.type, steps[1:], struct))
    return with_fields(data_type, fields)


def _index(fields: Sequence[pa.Field], name: str) -> int | None:
    wanted = folded(name)
    return next((index for index, field in enumerate(fields) if folded(field.name) == wanted), None)


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)
