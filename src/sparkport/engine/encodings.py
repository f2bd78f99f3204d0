"""Conversion from what a client sends to the types of a table (airport §13.3).

DuckDB encodes a column in different ways, depending on the settings of its session (T30). Strategy:
each pair of types is examined once, when the stream's schema is known, and gives a chain of
functions over arrays. A column that needs no conversion is passed on without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

from sparkport.engine.client_booleans import known_booleans, plain_booleans
from sparkport.engine.leaf_encodings import LEAF_CONVERSIONS, LeafConversion, first_refused
from sparkport.engine.nested_arrays import (
    list_array,
    null_mask,
    struct_children,
    union_tags,
    used_elements,
)
from sparkport.engine.type_table import form, row_of, storage_type
from sparkport.engine.types import fields_of, type_name
from sparkport.errors import BadRequest

__all__ = ["Converter", "convert_array", "convert_batch"]

_Step: TypeAlias = Callable[[pa.Array], pa.Array]


class Converter:
    """Converts batches of one Arrow schema to another, by column name. Immutable and thread-safe.

    Both must have the same columns, in any order. Values that the target cannot hold are refused,
    never rounded or cut. Whether a column may hold NULLs is left to the table's constraints.

    `from_duckdb` says that the batches come from DuckDB's client. Its BOOLEANs of type arrow.bool8
    may be packed into bits, or be garbage (client_booleans.py), and its UHUGEINTs may be labelled
    as decimals (airport §13.1).

    Raises: BadRequest, beginning with "schema mismatch", when there is no conversion.
    """

    __slots__ = ("_columns", "_target", "_unchanged")

    def __init__(self, source: pa.Schema, target: pa.Schema, *, from_duckdb: bool = True) -> None:
        names = _match(source.names, target.names, "column", "the table")
        self._target = target
        self._columns: list[tuple[int, _Step | None]] = [
            (
                index,
                _plan(source.field(index).type, field.type, field.name, from_duckdb, nested=False),
            )
            for index, field in zip(names, target, strict=True)
        ]
        self._unchanged = all(step is None for _, step in self._columns) and source.equals(
            target, check_metadata=True
        )

    @property
    def keeps_columns(self) -> bool:
        """Whether columns and their order stay the same, so that at most the metadata differs."""
        return all(
            step is None and index == position
            for position, (index, step) in enumerate(self._columns)
        )

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the target's schema.

        Raises: BadRequest, naming the column and the value.
        """
        if self._unchanged:
            return batch
        arrays = [
            batch.column(index) if step is None else step(batch.column(index))
            for index, step in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def convert_batch(
    batch: pa.RecordBatch, arrow_schema: pa.Schema, *, from_duckdb: bool = True
) -> pa.RecordBatch:
    """Convert a single batch. Raises: BadRequest."""
    return Converter(batch.schema, arrow_schema, from_duckdb=from_duckdb).convert(batch)


def convert_array(
    array: pa.Array, target: pa.DataType, column: str, *, from_duckdb: bool = True
) -> pa.Array:
    """Convert a single column, called `column` in messages. Raises: BadRequest."""
    step = _plan(array.type, target, column, from_duckdb, nested=False)
    return array if step is None else step(array)


def _match(source: Sequence[str], target: Sequence[str], kind: str, owner: str) -> list[int]:
    """The position in the source of each name of the target.

    A name matches exactly, or else but for the case of ASCII letters. Raises: BadRequest.
    """
    exact = {name: index for index, name in enumerate(source)}
    folded = {name.encode().lower(): index for index, name in enumerate(source)}
    if len(exact) != len(source):
        raise BadRequest(f"schema mismatch: a {kind} was sent twice")
    found = [exact.get(name, folded.get(name.encode().lower(), -1)) for name in target]
    for name, index in zip(target, found, strict=True):
        if index < 0:
            raise BadRequest(f"schema mismatch: {owner} has a {kind} {name}, which was not sent")
    for index, name in enumerate(source):
        if index not in found:
            raise BadRequest(f"schema mismatch: {owner} has no {kind} {name}")
    if len(set(found)) != len(found):
        raise BadRequest(f"schema mismatch: {owner} has two {kind}s that differ only in case")
    return found


# ---------------------------------------------------------------------------------------- planning


def _plan(
    source: pa.DataType, target: pa.DataType, path: str, packed: bool, nested: bool
) -> _Step | None:
    """The conversion from one type to the other; None when there is nothing to do."""
    if packed and form(source) == "bool8":
        decoded, decode = (pa.bool_(), plain_booleans) if nested else (source, known_booleans)
        return _chain(
            lambda array: decode(array, path), _plan(decoded, target, path, False, nested)
        )
    source_form, target_form = form(source), form(target)
    if source_form == "null" and target_form != "null":
        return lambda array: pa.nulls(len(array), target)
    if source_form == target_form and source_form in _NESTED:
        plain = _NESTED[source_form](storage_type(source), storage_type(target), path, packed)
        if plain is None and source.equals(target, check_metadata=True):
            return None
        return _through_storage(source, target, plain)
    if source.equals(target):
        return None
    if source_form in _DECODERS:
        return _chain(
            _DECODERS[source_form], _plan(source.value_type, target, path, packed, nested)
        )
    if target_form in _DECODERS:
        return _chain(_plan(source, target.value_type, path, packed, nested), _encoder(target))
    if source_form == target_form and storage_type(source).equals(storage_type(target)):
        return _through_storage(source, target, None)
    conversion = LEAF_CONVERSIONS.get((source_form, target_form))
    if packed and target_form == "uhugeint" and source.equals(_LABELLED_DECIMAL):
        conversion = _relabelled
    if conversion is None:
        raise BadRequest(
            f"schema mismatch: column {path} is {type_name(target)}, "
            f"and {type_name(source)} cannot be converted to it"
        )
    return _through_storage(source, target, _leaf(conversion, source, target, path))


_LABELLED_DECIMAL = pa.decimal128(38, 0)
"""DuckDB's default label of a UHUGEINT: its upper half looks negative (airport §13.1)."""


def _relabelled(array: pa.Array, storage: pa.DataType) -> pa.Array:
    return array.view(storage)


def _chain(first: _Step | None, second: _Step | None) -> _Step | None:
    if first is None or second is None:
        return first or second
    return lambda array: second(first(array))


def _through_storage(source: pa.DataType, target: pa.DataType, plain: _Step | None) -> _Step:
    """A step that takes the extension type off, applies `plain`, and puts the new one on."""
    unwrap = isinstance(source, pa.BaseExtensionType)
    wrap = isinstance(target, pa.BaseExtensionType)

    def step(array: pa.Array) -> pa.Array:
        if unwrap:
            array = array.storage
        if plain is not None:
            array = plain(array)
        return pa.ExtensionArray.from_storage(target, array) if wrap else array

    return step


def _leaf(conversion: LeafConversion, source: pa.DataType, target: pa.DataType, path: str) -> _Step:
    storage = storage_type(target)

    def step(array: pa.Array) -> pa.Array:
        try:
            return conversion(array, storage)
        except (ValueError, pa.ArrowException) as error:
            message = f"column {path} is {type_name(target)}, which cannot hold"
            refused = first_refused(lambda part: conversion(part, storage), array)
            shown = "that was sent" if refused is None else _shown(refused, source)
            raise BadRequest(
                f"{message} the value {shown}",
                without_values=f"{message} one of the values",
            ) from error

    return step


def _shown(value: pa.Scalar, source: pa.DataType) -> str:
    """A value of the storage of `source` as text."""
    try:
        python = value.as_py()
    except (ValueError, OverflowError):  # nanoseconds, or years, that Python's own types lack
        return str(value.cast(pa.string()).as_py())
    row = row_of(source)
    if row is not None and row.python is not None:
        return str(row.python.read(python))
    return (repr(python) if isinstance(python, str | bytes) else str(python))[:100]


_DECODERS: dict[str, _Step] = {
    "dictionary": lambda array: array.dictionary_decode(),
    "run-end encoded": pc.run_end_decode,
}


def _encoder(target: pa.DataType) -> _Step:
    if target.id == lib.Type_DICTIONARY:
        return lambda array: array.cast(target)
    return lambda array: pc.run_end_encode(array, run_end_type=target.run_end_type)


# ------------------------------------------------------------------------------------ nested types


def _plan_list(source: pa.DataType, target: pa.DataType, path: str, packed: bool) -> _Step | None:
    values = _plan(source.value_type, target.value_type, f"{path}[]", packed, nested=True)
    if _is_fixed(source) and _is_fixed(target) and source.list_size != target.list_size:
        raise BadRequest(
            f"schema mismatch: column {path} has {target.list_size} elements, "
            f"not {source.list_size}"
        )
    if values is None and source.equals(target, check_metadata=True):
        return None

    def step(array: pa.Array) -> pa.Array:
        try:
            return list_array(array, values, target)
        except (ValueError, pa.ArrowException) as error:
            raise BadRequest(
                f"column {path} is {type_name(target)}, and a list of another size was sent"
            ) from error

    return step


def _is_fixed(data_type: pa.DataType) -> bool:
    return bool(data_type.id == lib.Type_FIXED_SIZE_LIST)


def _plan_map(source: pa.DataType, target: pa.DataType, path: str, packed: bool) -> _Step | None:
    keys = _plan(source.key_type, target.key_type, f"{path}.key", packed, nested=True)
    items = _plan(source.item_type, target.item_type, f"{path}.value", packed, nested=True)
    if keys is None and items is None and source.equals(target, check_metadata=True):
        return None

    def step(array: pa.Array) -> pa.Array:
        offsets, entry_keys = used_elements(array.offsets, array.keys)
        _, entry_items = used_elements(array.offsets, array.items)
        if entry_keys.null_count:
            raise BadRequest(f"column {path} is {type_name(target)}, whose keys must not be NULL")
        return pa.MapArray.from_arrays(
            offsets.cast(pa.int32()),
            _apply(keys, entry_keys),
            _apply(items, entry_items),
            type=target,
            mask=null_mask(array),
        )

    return step


def _plan_struct(source: pa.DataType, target: pa.DataType, path: str, packed: bool) -> _Step | None:
    members = _plan_members(source, target, path, packed)
    if members is None:
        return None
    fields = fields_of(target)

    def step(array: pa.Array) -> pa.Array:
        children = struct_children(array)
        converted = [_apply(child, children[index]) for index, child in members]
        return pa.StructArray.from_arrays(converted, fields=fields, mask=null_mask(array))

    return step


def _plan_union(source: pa.DataType, target: pa.DataType, path: str, packed: bool) -> _Step | None:
    members = _plan_members(source, target, path, packed)
    if members is None:
        return None
    names = [field.name for field in fields_of(target)]
    codes = {
        source.type_codes[index]: code
        for (index, _), code in zip(members, target.type_codes, strict=True)
    }

    def step(array: pa.Array) -> pa.Array:
        children = [_apply(child, array.field(index)) for index, child in members]
        tags = pa.array([codes[code] for code in union_tags(array).to_pylist()], pa.int8())
        return pa.UnionArray.from_sparse(tags, children, names, list(target.type_codes))

    return step


def _plan_members(
    source: pa.DataType, target: pa.DataType, path: str, packed: bool
) -> list[tuple[int, _Step | None]] | None:
    """The source position and the conversion of each field; None when there is nothing to do."""
    fields = fields_of(target)
    indices = _match_fields(source, target, path)
    steps = [
        _plan(source.field(index).type, field.type, f"{path}.{field.name}", packed, nested=True)
        for index, field in zip(indices, fields, strict=True)
    ]
    if all(step is None for step in steps) and source.equals(target, check_metadata=True):
        return None
    return list(zip(indices, steps, strict=True))


def _match_fields(source: pa.DataType, target: pa.DataType, path: str) -> list[int]:
    """The source position of each field, by name.

    Equal lists of names match by position: the fields of DuckDB's `row(…)` have none.
    """
    sent = [field.name for field in fields_of(source)]
    wanted = [field.name for field in fields_of(target)]
    if sent == wanted:
        return list(range(len(sent)))
    return _match(sent, wanted, "field", f"column {path}")


_NESTED: dict[str, Callable[[pa.DataType, pa.DataType, str, bool], _Step | None]] = {
    "list": _plan_list,
    "map": _plan_map,
    "struct": _plan_struct,
    "union": _plan_union,
}


def _apply(step: _Step | None, array: pa.Array) -> pa.Array:
    return array if step is None else step(array)
