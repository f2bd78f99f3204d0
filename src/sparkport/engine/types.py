"""Which Arrow types and names DuckDB's client can take (airport §13.2).

A column that the client cannot take spoils the whole schema it is published in (T9). Such columns
are refused before they are published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.type_table import REMEDIES, TAKEN, extension_form, opaque_name, row_of
from sparkport.errors import BadRequest, Unsupported

__all__ = [
    "extension_metadata",
    "fields_of",
    "narrowed_schema",
    "publishable_schema",
    "refuse_unreadable",
    "refuse_unsupported",
    "type_name",
    "with_fields",
]


def refuse_unsupported(arrow_schema: pa.Schema, what: str) -> None:
    """Check all columns, at every depth; `what` names the table or function in messages.

    Raises: BadRequest for a name that no column can have; Unsupported for a type that DuckDB cannot
    take.
    """
    for index, field in enumerate(arrow_schema):
        name = _name(field, f"column number {index + 1} of {what}")
        if not name:
            raise BadRequest(f"column number {index + 1} of {what} has no name")
        _refuse_field(field, name, what)


def refuse_unreadable(arrow_schema: pa.Schema, what: str) -> None:
    """Check that all names in a client's Arrow schema are text: pyarrow fails only on access.

    Raises: BadRequest.
    """
    for field in arrow_schema:
        _refuse_unreadable_field(field, what)


def _refuse_unreadable_field(field: pa.Field, what: str) -> None:
    _name(field, f"a column or field of {what}")
    try:
        getattr(field.type, "tz", None)
    except UnicodeError as error:
        raise BadRequest(f"the time zone of a column of {what} is not text in UTF-8") from error
    for child, _ in _children(field.type):
        _refuse_unreadable_field(child, what)


def publishable_schema(arrow_schema: pa.Schema) -> pa.Schema:
    """Replace dictionary and run-end encoded types by the types of their values.

    The client shows the indices of a dictionary inside a nested type, or in a function's result, as
    if they were the values (T33).
    """
    fields = [field.with_type(_plain(field.type)) for field in arrow_schema]
    return pa.schema(fields, arrow_schema.metadata)


def narrowed_schema(arrow_schema: pa.Schema) -> pa.Schema:
    """Replace decimals, at every depth, by the narrowest that hold as many digits (decision 0041).

    The identical schema if nothing is replaced.
    """
    fields = [field.with_type(_narrowed(field.type)) for field in arrow_schema]
    narrowed = pa.schema(fields, arrow_schema.metadata)
    return arrow_schema if narrowed.equals(arrow_schema) else narrowed


def _narrowed(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(data_type):
        for most_digits, narrow in _NARROW_DECIMALS:
            if data_type.precision <= most_digits:
                return narrow(data_type.precision, data_type.scale)
        return data_type
    if isinstance(data_type, pa.BaseExtensionType):
        return data_type
    fields = fields_of(data_type)
    narrowed = [field.with_type(_narrowed(field.type)) for field in fields]
    return data_type if narrowed == fields else with_fields(data_type, narrowed)


_NARROW_DECIMALS = ((9, pa.decimal32), (18, pa.decimal64))


def extension_metadata(field: pa.Field) -> dict[bytes, bytes] | None:
    """The metadata of an extension type that pyarrow does not have, such as geoarrow.wkb.

    None if the field has no such metadata.
    """
    kept = {
        key: value
        for key, value in (field.metadata or {}).items()
        if key.startswith(b"ARROW:extension:")
    }
    return kept or None


def type_name(data_type: pa.DataType) -> str:
    """The type's name for messages: DuckDB's own types by their names, others as in Arrow."""
    if isinstance(data_type, pa.BaseExtensionType):
        name = opaque_name(data_type)
        if name is not None:
            return name.upper()
        row = row_of(data_type) if extension_form(data_type) else None
        return str(data_type) if row is None else row.name
    return str(data_type)


def _refuse_field(field: pa.Field, path: str, what: str) -> None:
    problem = _problem(field.type, nested="." in path or "[" in path) or _geometry_problem(field)
    if problem is not None:
        raise Unsupported(
            f"{what}: DuckDB cannot take the column {path} of type {type_name(field.type)}: "
            f"{problem}"
        )
    for child, step in _children(field.type):
        name = _name(child, f"a field inside the column {path} of {what}")
        _refuse_field(child, path + (step or f".{name}"), what)


def _problem(data_type: pa.DataType, nested: bool) -> str | None:
    """Why DuckDB cannot take the type, apart from what is inside, and a remedy; None if it can."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _storage_problem(data_type) or _problem(data_type.storage_type, nested)
    if data_type.id not in TAKEN:
        return REMEDIES.get(data_type.id, "use another type")
    if data_type.id == lib.Type_STRUCT and data_type.num_fields == 0:
        return "a struct needs at least one field"
    if data_type.id == lib.Type_SPARSE_UNION and data_type.num_fields == 0:
        return "a union needs at least one member"
    if data_type.id == lib.Type_FIXED_SIZE_LIST and data_type.list_size == 0:
        return "a list of fixed size needs at least one element"
    if pa.types.is_decimal(data_type) and not 0 <= data_type.scale <= data_type.precision:
        return "the scale must be between 0 and the precision"
    if data_type.id == lib.Type_DICTIONARY and nested:
        return "it would show the indices instead of the values; use the plain values"
    return None


def _storage_problem(data_type: pa.DataType) -> str | None:
    """Why the storage of one of DuckDB's own types is wrong; None if it is right.

    Bytes may have other layouts.
    """
    name, row = opaque_name(data_type), row_of(data_type)
    if name is None or row is None or extension_form(data_type) is None:
        return None
    storage, expected = data_type.storage_type, row.arrow[0].storage_type
    if storage == expected or (storage.id in _BINARY and expected == pa.binary()):
        return None
    size = expected.byte_width if expected.id == lib.Type_FIXED_SIZE_BINARY else None
    return f"the storage of {name} must be {expected if size is None else f'{size} bytes'}"


def _geometry_problem(field: pa.Field) -> str | None:
    """What is wrong with a field of geoarrow.wkb, by its metadata; None if nothing is."""
    metadata = field.metadata or {}
    if metadata.get(b"ARROW:extension:name") != b"geoarrow.wkb":
        return None
    if field.type.id not in _BINARY:
        return "geoarrow.wkb must be stored as binary"
    try:
        description = json.loads(metadata.get(b"ARROW:extension:metadata") or b"{}")
    except ValueError:
        return "the metadata of geoarrow.wkb must be JSON"
    if not isinstance(description, dict):
        return "the metadata of geoarrow.wkb must be a JSON object"
    if description.get("edges", "planar") != "planar":
        return "the edges of geoarrow.wkb must be planar"
    if not isinstance(description.get("crs"), str | dict | None):
        return "the crs of geoarrow.wkb must be text or a PROJJSON object"
    return None


_BINARY = frozenset({lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW})


def _children(data_type: pa.DataType) -> Iterator[tuple[pa.Field, str]]:
    """The fields inside a type, and their suffixes in a path; "" stands for the field's name."""
    if isinstance(data_type, pa.BaseExtensionType):
        yield from _children(data_type.storage_type)
    elif _is_list(data_type):
        yield data_type.value_field, "[]"
    elif data_type.id == lib.Type_MAP:
        yield data_type.key_field, ".key"
        yield data_type.item_field, ".value"
    elif data_type.id in (lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED):
        yield pa.field("", data_type.value_type), "[]"
    elif data_type.num_fields:
        for index in range(data_type.num_fields):
            yield data_type.field(index), ""


def _name(field: pa.Field, where: str) -> str:
    try:
        name: str = field.name
        name.encode("utf-8")
    except UnicodeError as error:
        raise BadRequest(f"the name of {where} is not text in UTF-8") from error
    if "\0" in name:
        raise BadRequest(f"the name of {where} contains a NUL character")
    return name


def _plain(data_type: pa.DataType) -> pa.DataType:
    if data_type.id in (lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED):
        return _plain(data_type.value_type)
    return with_fields(
        data_type, [field.with_type(_plain(field.type)) for field in fields_of(data_type)]
    )


def fields_of(data_type: pa.DataType) -> list[pa.Field]:
    """The fields inside a nested type; none for other types, including extension types."""
    if isinstance(data_type, pa.BaseExtensionType):
        return []
    if data_type.id == lib.Type_MAP:
        return [data_type.key_field, data_type.item_field]
    if _is_list(data_type):
        return [data_type.value_field]
    if data_type.id in (lib.Type_STRUCT, lib.Type_SPARSE_UNION):
        return [data_type.field(index) for index in range(data_type.num_fields)]
    return []


def _is_list(data_type: pa.DataType) -> bool:
    return data_type.id in _LIST_MAKERS or data_type.id == lib.Type_FIXED_SIZE_LIST


def with_fields(data_type: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Put other fields into a nested type. A type without fields is returned as it is."""
    if not fields:
        return data_type
    match data_type.id:
        case lib.Type_STRUCT:
            return pa.struct(fields)
        case lib.Type_MAP:
            return pa.map_(*fields)
        case lib.Type_SPARSE_UNION:
            return pa.sparse_union(fields, data_type.type_codes)
        case lib.Type_FIXED_SIZE_LIST:
            return pa.list_(fields[0], data_type.list_size)
        case _:
            return _LIST_MAKERS[data_type.id](fields[0])


_LIST_MAKERS: Mapping[int, Callable[[pa.Field], pa.DataType]] = {
    lib.Type_LIST: pa.list_,
    lib.Type_LARGE_LIST: pa.large_list,
    lib.Type_LIST_VIEW: pa.list_view,
    lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
}
