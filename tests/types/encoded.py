"""The values of a line as Arrow arrays: as a client sends them, as they are meant, and bit by bit
to compare them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import lib
from tests.types.matrix import Line, Setting


@functools.cache
def session(setting: Setting) -> duckdb.DuckDBPyConnection:
    """DuckDB itself, under that setting."""
    connection = duckdb.connect(":memory:")
    for each in (
        "threads = 1",
        "autoload_known_extensions = false",
        "TimeZone = 'Etc/UTC'",
        *setting.value,
    ):
        connection.execute(f"SET {each}")
    return connection


@functools.cache
def meant(line: Line, setting: Setting) -> pa.Array:
    """All values of the line in that encoding, as its type says."""
    array = _of_duckdb(line.declared, line.values, setting)
    return (
        _nested_booleans(array, _unpacked)
        if _packs_booleans() and setting is not Setting.DEFAULT
        else array
    )


@functools.cache
def sent(line: Line, setting: Setting, row: int | None = None) -> pa.Array:
    """The same as the recorded client sends it: BOOLEANs inside other types are packed into bits
    (airport §13.1, T31).

    From DuckDB 1.5.4 on they are whole bytes, as their type says: those are what `DuckDBClient`
    sends. One row is not cut out of the others, but encoded by itself, since bits cannot be cut.
    """
    if row is None:
        return _nested_booleans(meant(line, setting), _packed)
    array = _of_duckdb(line.declared, line.values[row : row + 1], setting)
    alone = _packs_booleans() and setting is not Setting.DEFAULT
    return array if alone else _nested_booleans(array, _packed)


@functools.cache
def stored(line: Line, setting: Setting) -> pa.Array:
    """What a column that can hold everything has got, when the values were sent under that
    setting.
    """
    if setting is not Setting.DEFAULT or not line.arrives:
        return meant(line, Setting.LOSSLESS)
    return _of_duckdb(line.declared, line.arrives, Setting.LOSSLESS)


def _of_duckdb(kind: str, values: tuple[str, ...], setting: Setting) -> pa.Array:
    rows = ", ".join(f"({number}, CAST({value} AS {kind}))" for number, value in enumerate(values))
    table = (
        session(setting)
        .sql(f"SELECT v FROM (VALUES {rows}) AS t(n, v) ORDER BY n")
        .to_arrow_table()
    )
    (array,) = table.column("v").chunks
    return array


def cast(line: Line, kind: str) -> tuple[list[int], list[Any]]:
    """Which of the values DuckDB can cast to another type, and their bits then, under default
    settings.
    """
    numbers: list[int] = []
    values: list[Any] = []
    for number, value in enumerate(line.values):
        try:
            array = _of_duckdb(kind, (f"CAST({value} AS {line.declared})",), Setting.DEFAULT)
        except duckdb.ConversionException:
            continue
        numbers.append(number)
        values += bits(array)
    return numbers, values


def pushed(line: Line, first: int, last: int) -> str:
    """The filter JSON of the line's condition and of a range of row numbers, in the form the client
    has (airport §6).
    """
    assert line.compared is not None
    comparison, value = line.compared
    number = {"id": "INTEGER", "type_info": None}
    filters = [
        _comparison(comparison, 0, _type(line), value),
        _comparison("GREATERTHANOREQUALTO", 1, number, first),
        _comparison("LESSTHANOREQUALTO", 1, number, last),
    ]
    return json.dumps({"filters": filters, "column_binding_names_by_index": ["v", "i"]})


def _type(line: Line) -> dict[str, Any]:
    if not pa.types.is_decimal(line.arrow):
        return {"id": line.reported or line.name, "type_info": None}
    width = {"width": line.arrow.precision, "scale": line.arrow.scale}
    return {
        "id": "DECIMAL",
        "type_info": {"type": "DECIMAL_TYPE_INFO", "alias": "", "extension_info": None, **width},
    }


def _comparison(how: str, column: int, kind: dict[str, Any], value: Any) -> dict[str, Any]:
    common = {"alias": "", "query_location": 2**64 - 1}
    reference = {
        "binding": {"table_index": 0, "column_index": column},
        "depth": 0,
        "return_type": kind,
    }
    constant = {"value": {"type": kind, "is_null": False, "value": value}}
    left = {
        "expression_class": "BOUND_COLUMN_REF",
        "type": "BOUND_COLUMN_REF",
        **common,
        **reference,
    }
    right = {"expression_class": "BOUND_CONSTANT", "type": "VALUE_CONSTANT", **common, **constant}
    compared = {"expression_class": "BOUND_COMPARISON", "type": f"COMPARE_{how}"}
    return {**compared, **common, "left": left, "right": right}


# --------------------------------------------------------------------------------- nested booleans


@functools.cache
def _packs_booleans() -> bool:
    """Whether the installed DuckDB has the defect of T31; it is mended in DuckDB 1.5.4."""
    array = _of_duckdb("BOOLEAN[]", ("[false, true]",), Setting.LOSSLESS)
    return bool(array.values.storage[1].as_py() != 1)


def _packed(storage: pa.Array) -> pa.Array:
    """As DuckDB 1.5.0 does it: all bits that nobody needs are set, and the bytes after them are
    whatever they were.
    """
    count = len(storage)
    flags = [flag != 0 for flag in storage.to_pylist()] + [True] * (-count % 8)
    octets = (pa.array(flags, pa.bool_()).buffers()[1].to_pybytes() if flags else b"")[
        : len(flags) // 8
    ]
    return pa.Array.from_buffers(
        pa.int8(), count, [storage.buffers()[0], pa.py_buffer(octets.ljust(count, b"\x5a"))]
    )


def _unpacked(storage: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(storage), storage.buffers()).cast(pa.int8())


_OWN_BUFFERS = {
    **dict.fromkeys((lib.Type_STRUCT, lib.Type_FIXED_SIZE_LIST), 1),
    **dict.fromkeys((lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_MAP, lib.Type_SPARSE_UNION), 2),
    **dict.fromkeys((lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW), 3),
}


def _nested_booleans(
    array: pa.Array, change: Callable[[pa.Array], pa.Array], nested: bool = False
) -> pa.Array:
    """The array with the bytes of the BOOLEANs inside it changed."""
    kind = array.type
    if kind == pa.bool8() and nested:
        return pa.ExtensionArray.from_storage(kind, change(array.storage))
    if kind.id not in _OWN_BUFFERS or "bool8" not in str(kind):
        return array
    assert array.offset == 0, "DuckDB's own arrays begin at the beginning"
    if kind.id == lib.Type_MAP:
        fields = [kind.key_field, kind.item_field]
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    elif kind.id in (lib.Type_STRUCT, lib.Type_SPARSE_UNION):
        children = [array.field(index) for index in range(kind.num_fields)]
    else:
        children = [array.values]
    changed = [_nested_booleans(child, change, nested=True) for child in children]
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[: _OWN_BUFFERS[kind.id]], children=changed
    )


# -------------------------------------------------------------------------------------------- bits


def bits(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values bit by bit: what stands below a NULL, widths of offsets and of decimals, and views
    make no difference.

    Unlike values in Python, they tell -0.0 from 0.0, one NaN from another and 30 days from a month.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in bits(chunk)]
    kind = array.type
    if kind == pa.bool8():
        return [None if flag is None else flag != 0 for flag in array.storage.to_pylist()]
    if isinstance(kind, pa.BaseExtensionType):
        return bits(array.storage)
    match kind.id:
        case lib.Type_NA | lib.Type_BOOL:
            return list(array.to_pylist())
        case lib.Type_DICTIONARY:
            return bits(array.dictionary_decode())
        case lib.Type_DECIMAL32 | lib.Type_DECIMAL64 | lib.Type_DECIMAL128:
            return [
                None if each is None else int.from_bytes(each, "little", signed=True)
                for each in _fixed(array)
            ]
        case lib.Type_STRUCT:
            fields = [bits(array.field(index)) for index in range(kind.num_fields)]
            return [
                each if ok else None
                for ok, *each in zip(array.is_valid().to_pylist(), *fields, strict=True)
            ]
        case lib.Type_SPARSE_UNION:
            members = [bits(array.field(index)) for index in range(kind.num_fields)]
            codes = array.buffers()[1].to_pybytes()[array.offset :][: len(array)]
            chosen = [kind.type_codes.index(code) for code in codes]
            return [
                (kind.field(index).name, members[index][row]) for row, index in enumerate(chosen)
            ]
        case _ if kind.id in _OWN_BUFFERS:
            return [bits(element.values) if element.is_valid else None for element in array]
        case _ if (
            pa.types.is_primitive(kind)
            or pa.types.is_fixed_size_binary(kind)
            or pa.types.is_interval(kind)
        ):
            return _fixed(array)
        case _:
            return list(array.cast(pa.large_binary()).to_pylist())


def _fixed(array: pa.Array) -> list[bytes | None]:
    width, octets = array.type.bit_width // 8, array.buffers()[1]
    if octets is None:
        return [None] * len(array)
    content, valid = octets.to_pybytes()[array.offset * width :], array.is_valid().to_pylist()
    return [
        content[row * width : (row + 1) * width] if ok else None for row, ok in enumerate(valid)
    ]
