"""Types and constants as DuckDB SQL text that means exactly them.

Strategy: every constant is written with its type (`CAST(5 AS TINYINT)`), because a bare literal
binds to other overloads than the client's bound expression did. Nothing of the client's reaches the
text but through `quote_identifier`, `quote_text`, a number that went through `int` or `float`, or a
type id from the table at the end.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkport.catalog.filters.tree import Constant, DuckType, Interval

LARGEST_TEXT = 1 << 20
"""Longer SQL is refused: parsing it would cost more than the filter saves."""


class Inexpressible(Exception):
    """No SQL text means exactly this expression."""


def quote_identifier(name: str) -> str:
    return '"' + _checked(name).replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + _checked(text).replace("'", "''") + "'"


def type_sql(kind: DuckType) -> str:
    """Write a type as SQL.

    Raises: Inexpressible for types without a SQL name, and for aliases other than JSON, whose casts
    are unknown.
    """
    if kind.alias == "JSON" and kind.id == "VARCHAR":
        return "JSON"
    if kind.alias:
        raise Inexpressible(f"type alias {kind.alias}")
    if kind.id in _TYPE_NAMES:
        return _TYPE_NAMES[kind.id]
    match kind.id:
        case "DECIMAL" if 1 <= kind.width <= 38 and 0 <= kind.scale <= kind.width:
            return f"DECIMAL({int(kind.width)}, {int(kind.scale)})"
        case "ENUM" if kind.values:
            return f"ENUM({', '.join(quote_text(value) for value in kind.values)})"
        case "LIST" if kind.child is not None:
            return f"{type_sql(kind.child)}[]"
        case "ARRAY" if kind.child is not None and 1 <= kind.size <= 100_000:
            return f"{type_sql(kind.child)}[{int(kind.size)}]"
        case "MAP" if kind.child is not None and len(kind.child.fields) == 2:
            (_, key), (_, value) = kind.child.fields
            return f"MAP({type_sql(key)}, {type_sql(value)})"
        case "STRUCT" | "UNION" if kind.fields and all(name for name, _ in kind.fields):
            members = ", ".join(
                f"{quote_identifier(name)} {type_sql(field)}" for name, field in kind.fields
            )
            return f"{kind.id}({members})"
        case _:
            raise Inexpressible(f"type {kind.id}")


def constant_sql(constant: Constant) -> str:
    """The SQL of a constant. Raises: Inexpressible if its type has no such value."""
    kind = constant.type
    if kind.id == "NULL":
        return "NULL"
    if constant.value is None:
        return f"CAST(NULL AS {type_sql(kind)})"
    if kind.id in _NESTED:
        text = _nested_sql(constant)
    else:
        text = _scalar_sql(kind, constant.value)
    if len(text) > LARGEST_TEXT:
        raise Inexpressible("a constant of more than a megabyte")
    return text


def _scalar_sql(kind: DuckType, value: object) -> str:
    if kind.id == "ENUM":
        return _enum(value, kind)
    form = CONSTANTS.get(kind.id)
    # Exactly this class: Python's True is an integer too, but not of a column of integers.
    if form is None or type(value) is not form.python:
        raise Inexpressible(f"a {type(value).__name__} for {kind.id}")
    return form.write(value, kind)


def _nested_sql(constant: Constant) -> str:
    kind, children = constant.type, constant.value
    if not isinstance(children, tuple):
        raise Inexpressible(f"a scalar for {kind.id}")
    texts = [constant_sql(child) for child in children]
    if sum(map(len, texts)) > LARGEST_TEXT:
        raise Inexpressible("a constant of more than a megabyte")
    match kind.id:
        case "LIST" | "ARRAY":
            return _cast(f"[{', '.join(texts)}]", kind)
        case "STRUCT" if len(texts) != len(kind.fields):
            raise Inexpressible("a struct with other fields than its type")
        case "STRUCT" if not any(name for name, _ in kind.fields):
            return f"row({', '.join(texts)})"
        case "STRUCT":
            pairs = zip(kind.fields, texts, strict=True)
            members = (f"{quote_identifier(name)} := {text}" for (name, _), text in pairs)
            return f"struct_pack({', '.join(members)})"
        case "MAP":
            entries = [child.value for child in children]
            if not all(isinstance(entry, tuple) and len(entry) == 2 for entry in entries):
                raise Inexpressible("a map entry without key and value")
            keys, values = (
                ", ".join(
                    constant_sql(entry[side]) for entry in entries if isinstance(entry, tuple)
                )
                for side in (0, 1)
            )
            return _cast(f"map([{keys}], [{values}])", kind)
        case "UNION" if len(texts) == len(kind.fields) and 0 <= constant.tag < len(texts):
            name = quote_identifier(kind.fields[constant.tag][0])
            return _cast(f"union_value({name} := {texts[constant.tag]})", kind)
        case _:
            raise Inexpressible(f"a value of {kind.id}")


def _cast(text: str, kind: DuckType) -> str:
    try:
        return f"CAST({text} AS {type_sql(kind)})"
    except Inexpressible:
        # Lists of unnamed structs have no type name; unless empty, they need none.
        if (
            kind.id == "LIST"
            and kind.child is not None
            and kind.child.id == "STRUCT"
            and text != "[]"
        ):
            return text
        raise


def _checked(text: str) -> str:
    if len(text) > LARGEST_TEXT or "\0" in text:
        raise Inexpressible("text with a NUL or of more than a megabyte")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Inexpressible("text with a lone surrogate") from None
    return text


def _text_sql(text: str) -> str:
    if "\0" not in text:
        return quote_text(text)
    # SQL text ends at a NUL, so such strings are spelt as bytes.
    try:
        return f"decode({_blob_sql(text.encode('utf-8'))})"
    except UnicodeEncodeError:
        raise Inexpressible("text with a lone surrogate") from None


def _blob_sql(value: bytes) -> str:
    return "CAST('" + "".join(f"\\x{byte:02X}" for byte in value) + "' AS BLOB)"


# ------------------------------------------------------------------------- constants without parts


@dataclass(frozen=True, slots=True)
class ConstantForm:
    """How constants of a type are sent in the filter JSON, held in the tree, and written in SQL."""

    json: str
    """The shape of the value in JSON (airport §6.7), by the name that `wire.filter_values` reads it
    by.
    """
    python: type
    """The type of the value in the tree."""
    write: Callable[[Any, DuckType], str]
    """The SQL of a value. Raises: Inexpressible if the type has no such value."""


def _enum(value: object, kind: DuckType) -> str:
    if not isinstance(value, str) or value not in kind.values:
        raise Inexpressible("a value that the enum does not have")
    return f"CAST({quote_text(value)} AS {type_sql(kind)})"


def _boolean(value: bool, _: DuckType) -> str:
    return "true" if value else "false"


def _integer(bits: int, *, signed: bool = True) -> ConstantForm:
    def write(value: int, kind: DuckType) -> str:
        _within(value, bits, signed)
        # A bare number of more than 64 bits would be a DOUBLE.
        return f"CAST('{value}' AS {kind.id})" if bits > 64 else f"CAST({value} AS {kind.id})"

    if bits <= 64:
        return ConstantForm("integer", int, write)
    return ConstantForm("wide integer" if signed else "unsigned wide integer", int, write)


def _decimal(value: int, kind: DuckType) -> str:
    if abs(value) >= 10**38:
        raise Inexpressible("a decimal out of range")
    digits = f"{abs(value):0{kind.scale + 1}d}"
    whole = digits[: len(digits) - kind.scale]
    fraction = digits[len(digits) - kind.scale :]
    return f"CAST('{'-' if value < 0 else ''}{whole}.{fraction}' AS {type_sql(kind)})"


def _double(value: float, _: DuckType) -> str:
    return f"CAST('{'nan' if math.isnan(value) else repr(value)}' AS DOUBLE)"


def _float(value: float, kind: DuckType) -> str:
    # The JSON number is the float widened to double, so narrowing it again is exact.
    return f"CAST({_double(value, kind)} AS FLOAT)"


def _text(value: str, kind: DuckType) -> str:
    return f"CAST({_text_sql(value)} AS {type_sql(kind)})"


def _blob(value: bytes, _: DuckType) -> str:
    return _blob_sql(value)


def _uuid(value: uuid.UUID, _: DuckType) -> str:
    return f"CAST('{value}' AS UUID)"


def _bits(internal: bytes, _: DuckType) -> str:
    """Airport §13.1: the number of padding bits, then the bits behind that many ones."""
    if len(internal) < 2 or internal[0] > 7:
        raise Inexpressible("malformed BIT")
    bits = "".join(f"{byte:08b}" for byte in internal[1:])[internal[0] :]
    return f"CAST('{bits}' AS BIT)"


def _bignum(internal: bytes, _: DuckType) -> str:
    """Airport §13.1: a three byte header and the magnitude, all complemented if negative."""
    if not 4 <= len(internal) <= 1024:
        raise Inexpressible("malformed or enormous BIGNUM")
    negative = not internal[0] & 0x80
    plain = bytes(byte ^ 0xFF for byte in internal) if negative else internal
    if int.from_bytes(plain[:3], "big") & 0x7FFFFF != len(internal) - 3:
        raise Inexpressible("malformed BIGNUM")
    magnitude = int.from_bytes(plain[3:], "big")
    return f"CAST('{-magnitude if negative else magnitude}' AS BIGNUM)"


def _interval(value: Interval, _: DuckType) -> str:
    _within(value.months, 32)
    _within(value.days, 32)
    _within(value.micros, 64)
    # Interval text has forms that versions read differently; sums of plain parts do not normalise.
    return (
        f"(to_months(CAST({value.months} AS INTEGER)) + to_days(CAST({value.days} AS INTEGER))"
        f" + to_microseconds(CAST({value.micros} AS BIGINT)))"
    )


def _date(value: int, _: DuckType) -> str:
    _within(value, 32)
    if abs(value) == 2**31 - 1:
        return f"CAST('{'-' if value < 0 else ''}infinity' AS DATE)"
    return f"(CAST('1970-01-01' AS DATE) + CAST({value} AS INTEGER))"


def _time(digits: int) -> ConstantForm:
    """A time of day, with so many digits after the seconds."""
    return ConstantForm(
        "integer", int, lambda value, kind: f"CAST('{_time_of_day(value, digits)}' AS {kind.id})"
    )


def _time_with_zone(packed: int, kind: DuckType) -> str:
    """Airport §13.1: microseconds above 24 bits of `57599 - offset`."""
    offset = 57599 - (packed & 0xFFFFFF)
    if packed < 0 or abs(offset) > 57599:
        raise Inexpressible("a time zone offset out of range")
    hours, rest = divmod(abs(offset), 3600)
    zone = f"{'-' if offset < 0 else '+'}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"CAST('{_time_of_day(packed >> 24, 6)}{zone}' AS {kind.id})"


def _time_of_day(value: int, digits: int) -> str:
    unit: int = 10**digits
    if not 0 <= value <= 86400 * unit:
        raise Inexpressible("a time out of range")
    seconds, fraction = divmod(value, unit)
    return (
        f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"
    )


def _timestamp(write: Callable[[int, DuckType], str]) -> ConstantForm:
    """An instant, which `write` writes when it is finite."""

    def write_any(value: int, kind: DuckType) -> str:
        _within(value, 64)
        if abs(value) == 2**63 - 1:
            return f"CAST('{'-' if value < 0 else ''}infinity' AS {kind.id})"
        return write(value, kind)

    return ConstantForm("integer", int, write_any)


def _timestamp_of(micros: int) -> ConstantForm:
    """A TIMESTAMP of a unit of so many microseconds."""

    def write(value: int, kind: DuckType) -> str:
        _within(value * micros, 64)
        return f"CAST(make_timestamp(CAST({value * micros} AS BIGINT)) AS {kind.id})"

    return _timestamp(write)


def _within(value: int, bits: int, signed: bool = True) -> None:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    if not low <= value < high:
        raise Inexpressible("a number out of range")


CONSTANTS: Mapping[str, ConstantForm] = {
    "BOOLEAN": ConstantForm("boolean", bool, _boolean),
    "TINYINT": _integer(8),
    "SMALLINT": _integer(16),
    "INTEGER": _integer(32),
    "BIGINT": _integer(64),
    "HUGEINT": _integer(128),
    "UTINYINT": _integer(8, signed=False),
    "USMALLINT": _integer(16, signed=False),
    "UINTEGER": _integer(32, signed=False),
    "UBIGINT": _integer(64, signed=False),
    "UHUGEINT": _integer(128, signed=False),
    "FLOAT": ConstantForm("float", float, _float),
    "DOUBLE": ConstantForm("float", float, _double),
    "DECIMAL": ConstantForm("decimal", int, _decimal),
    "VARCHAR": ConstantForm("text", str, _text),
    "CHAR": ConstantForm("text", str, _text),
    "BLOB": ConstantForm("blob", bytes, _blob),
    "BIT": ConstantForm("internal bytes", bytes, _bits),
    "BIGNUM": ConstantForm("internal bytes", bytes, _bignum),
    "UUID": ConstantForm("uuid", uuid.UUID, _uuid),
    "INTERVAL": ConstantForm("interval", Interval, _interval),
    "DATE": ConstantForm("integer", int, _date),
    "TIME": _time(6),
    "TIME_NS": _time(9),
    "TIME WITH TIME ZONE": ConstantForm("integer", int, _time_with_zone),
    "TIMESTAMP": _timestamp_of(1),
    "TIMESTAMP_S": _timestamp_of(1_000_000),
    "TIMESTAMP_MS": _timestamp_of(1_000),
    "TIMESTAMP_NS": _timestamp(lambda value, _: f"make_timestamp_ns(CAST({value} AS BIGINT))"),
    # Not a cast from TIMESTAMP, which would ask the session for its time zone.
    "TIMESTAMP WITH TIME ZONE": _timestamp(
        lambda value, _: f"make_timestamptz(CAST({value} AS BIGINT))"
    ),
}
"""By type id, for all types without parts but ENUM. A constant of a type that is not here is left
to the client.
"""

_TYPE_NAMES: Mapping[str, str] = {
    **{identifier: identifier for identifier in CONSTANTS if identifier != "DECIMAL"},
    "CHAR": "VARCHAR",
    "NULL": '"NULL"',
}
"""Types whose names take no parameters."""

_NESTED = frozenset({"LIST", "ARRAY", "STRUCT", "MAP", "UNION"})
