"""ALTER TABLE on fields of structs, at any depth: in structs, and in lists and maps of structs.

A path begins with the column; as in DuckDB, `element` leads into a list, `key` and `value` into a
map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import AddFieldOptions, RemoveFieldOptions
from sparkport.catalog.names import folded
from sparkport.engine.columns import one_field
from sparkport.engine.databases import Check
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import AlreadyExists, BadRequest, NotFound, PreconditionFailed
from sparkport.memory.ddl import Altered, retyped
from sparkport.memory.definition import TableName
from sparkport.memory.versions import Version

__all__ = ["add_field", "remove_field", "rename_field"]


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change of a struct: its fields afterwards, each with where its values come from; None means
    NULL.
    """

    fields: tuple[tuple[pa.Field, int | None], ...]


_EditStruct = Callable[[pa.DataType], "_Edit | None"]


def add_field(
    version: Version,
    path: Sequence[str],
    column_schema: pa.Schema,
    options: AddFieldOptions,
    table: TableName,
    check: Check | None = None,
) -> Altered | None:
    """Add a field to the struct at `path`; it is NULL in the rows there are."""
    new = one_field(column_schema)
    if not new.name:
        raise BadRequest("a field needs a name")
    if not new.nullable:
        new = new.with_nullable(True)

    def edit(struct: pa.DataType) -> _Edit | None:
        if (known := _index(struct, new.name)) is not None:
            if options.if_field_not_exists:
                return None
            raise AlreadyExists(
                f"field {_shown([*path, struct.field(known).name])} exists already in table {table}"
            )
        return _Edit((*((field, index) for index, field in enumerate(struct)), (new, None)))

    return _alter(version, path, edit, table, check)


def remove_field(
    version: Version,
    path: Sequence[str],
    options: RemoveFieldOptions,
    table: TableName,
    check: Check | None = None,
) -> Altered | None:
    """Remove the field at `path`. Raises: PreconditionFailed for the last one."""
    _expect_field(path)

    def edit(struct: pa.DataType) -> _Edit | None:
        index = _index(struct, path[-1])
        if index is None:
            if options.if_field_exists:
                return None
            raise NotFound(f"field {_shown(path)} does not exist in table {table}")
        if struct.num_fields == 1:
            raise PreconditionFailed(
                f"field {_shown(path)} is the only one of its struct: remove the column instead"
            )
        return _Edit(tuple((field, i) for i, field in enumerate(struct) if i != index))

    return _alter(version, path[:-1], edit, table, check)


def rename_field(
    version: Version,
    path: Sequence[str],
    new_name: str,
    table: TableName,
    check: Check | None = None,
) -> Altered | None:
    """Give the field at `path` another name."""
    _expect_field(path)
    if not new_name:
        raise BadRequest("a field needs a name")

    def edit(struct: pa.DataType) -> _Edit:
        index = _index(struct, path[-1])
        if index is None:
            raise NotFound(f"field {_shown(path)} does not exist in table {table}")
        if struct.field(index).name == new_name or _index(struct, new_name) not in (None, index):
            raise AlreadyExists(
                f"field {_shown([*path[:-1], new_name])} exists already in table {table}"
            )
        return _Edit(
            tuple(
                (field.with_name(new_name) if i == index else field, i)
                for i, field in enumerate(struct)
            )
        )

    return _alter(version, path[:-1], edit, table, check)


def _expect_field(path: Sequence[str]) -> None:
    if len(path) < 2:
        raise BadRequest("the path of a field has at least two parts: the column and the field")


def _alter(
    version: Version, path: Sequence[str], edit: _EditStruct, table: TableName, check: Check | None
) -> Altered | None:
    if not path:
        raise BadRequest("the path of a field begins with a column")
    position = version.definition.expect(path[0], table)
    field = version.definition.columns.field(position)
    rebuild = _rebuilder(field.type, path[1:], edit, path[:1], table)
    if rebuild is None:
        return None
    data_type, values = rebuild
    new_field = field.with_type(data_type)
    refuse_unsupported(pa.schema([new_field]), f"table {table}")
    return retyped(version, position, new_field, lambda _, array: values(array), table, check)


_Rebuild = tuple[pa.DataType, Callable[[pa.Array], pa.Array]]


def _rebuilder(
    data_type: pa.DataType,
    path: Sequence[str],
    edit: _EditStruct,
    done: Sequence[str],
    table: TableName,
) -> _Rebuild | None:
    """The new type, and what makes new arrays of old ones; None when there is nothing to do."""
    if not path:
        if not pa.types.is_struct(data_type):
            raise BadRequest(f"{_shown(done)} of table {table} is not a struct but {data_type}")
        edited = edit(data_type)
        return None if edited is None else _edited_struct(edited)
    step, rest, here = folded(path[0]), path[1:], [*done, path[0]]
    if pa.types.is_struct(data_type):
        index = _index(data_type, path[0])
        if index is not None:
            inner = _rebuilder(data_type.field(index).type, rest, edit, here, table)
            return None if inner is None else _inside_struct(data_type, index, inner)
    elif _is_list(data_type) and step == b"element":
        inner = _rebuilder(data_type.value_type, rest, edit, here, table)
        return None if inner is None else _inside_list(data_type, inner)
    elif pa.types.is_map(data_type) and step in (b"key", b"value"):
        child = data_type.key_type if step == b"key" else data_type.item_type
        inner = _rebuilder(child, rest, edit, here, table)
        return None if inner is None else _inside_map(data_type, step == b"key", inner)
    raise NotFound(f"field {_shown(here)} does not exist in table {table}")


def _edited_struct(edited: _Edit) -> _Rebuild:
    fields = [field for field, _ in edited.fields]

    def rebuild(array: pa.Array) -> pa.Array:
        children = [
            pa.nulls(len(array), field.type) if source is None else array.field(source)
            for field, source in edited.fields
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))

    return pa.struct(fields), rebuild


def _inside_struct(data_type: pa.DataType, index: int, inner: _Rebuild) -> _Rebuild:
    fields = list(data_type)
    fields[index] = fields[index].with_type(inner[0])

    def rebuild(array: pa.Array) -> pa.Array:
        children = [
            inner[1](array.field(i)) if i == index else array.field(i) for i in range(len(fields))
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))

    return pa.struct(fields), rebuild


def _inside_list(data_type: pa.DataType, inner: _Rebuild) -> _Rebuild:
    child = data_type.value_field.with_type(inner[0])
    if pa.types.is_fixed_size_list(data_type):
        size = data_type.list_size
        new = pa.list_(child, size)

        def rebuild_fixed(array: pa.Array) -> pa.Array:
            values = inner[1](array.values.slice(array.offset * size, len(array) * size))
            return pa.FixedSizeListArray.from_arrays(values, type=new, mask=_mask(array))

        return new, rebuild_fixed
    large = pa.types.is_large_list(data_type)
    new = pa.large_list(child) if large else pa.list_(child)
    form = pa.LargeListArray if large else pa.ListArray

    def rebuild(array: pa.Array) -> pa.Array:
        return form.from_arrays(
            _whole(array.offsets), inner[1](array.values), type=new, mask=_mask(array)
        )

    return new, rebuild


def _inside_map(data_type: pa.DataType, is_key: bool, inner: _Rebuild) -> _Rebuild:
    key, item = data_type.key_field, data_type.item_field
    key, item = (key.with_type(inner[0]), item) if is_key else (key, item.with_type(inner[0]))
    new = pa.map_(key, item)

    def rebuild(array: pa.Array) -> pa.Array:
        keys, items = (
            (inner[1](array.keys), array.items) if is_key else (array.keys, inner[1](array.items))
        )
        return pa.MapArray.from_arrays(
            _whole(array.offsets), keys, items, type=new, mask=_mask(array)
        )

    return new, rebuild


def _is_list(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def _index(struct: pa.DataType, name: str) -> int | None:
    wanted = folded(name)
    return next((index for index, field in enumerate(struct) if folded(field.name) == wanted), None)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _whole(offsets: pa.Array) -> pa.Array:
    """Arrow takes no null mask together with offsets that are a slice."""
    return pc.add(offsets, pa.scalar(0, offsets.type))


def _shown(path: Sequence[str]) -> str:
    return ".".join(path)
