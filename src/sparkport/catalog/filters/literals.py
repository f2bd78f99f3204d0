"""Types and constants as DuckDB SQL text that means exactly them.

Strategy: every constant is written with its type (`CAST(5 AS TINYINT)`), because a bare literal
binds to other overloads than the client's bound expression did. Nothing of the client's reaches the
text but through `quote_identifier`, `quote_text`, a number that went through `int` or `float`, or a
type id from the table below.
"""

from __future__ import annotations

import math
import uuid

from sparkport.catalog.filters.tree import Constant, DuckType, Interval

LARGEST_TEXT = 1 << 20
"""Longer SQL is refused: parsing it would cost more than the rows that the client then filters
itself.
"""


class Inexpressible(Exception):
    """No SQL text means exactly this expression."""


def quote_identifier(name: str) -> str:
    return '"' + _checked(name).replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + _checked(text).replace("'", "''") + "'"


def type_sql(kind: DuckType) -> str:
    """Raises: Inexpressible for types without a SQL name, and for aliases other than JSON, whose
    casts are unknown.
    """
    if kind.alias == "JSON" and kind.id == "VARCHAR":
        return "JSON"
    if kind.alias:
        raise Inexpressible(f"type alias {kind.alias}")
    if kind.id in _PLAIN_TYPES:
        return _PLAIN_TYPES[kind.id]
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
    """Raises: Inexpressible if the value is not one of its type."""
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
    match value:
        case bool() if kind.id == "BOOLEAN":
            return "true" if value else "false"
        case bool():
            raise Inexpressible(f"a boolean for {kind.id}")
        case int():
            return _integer_sql(kind, value)
        case float() if kind.id == "DOUBLE":
            return f"CAST('{_float_text(value)}' AS DOUBLE)"
        case float() if kind.id == "FLOAT":
            # The JSON number is the float widened to double, so narrowing it again is exact.
            return f"CAST(CAST('{_float_text(value)}' AS DOUBLE) AS FLOAT)"
        case str() if kind.id == "ENUM" and value in kind.values:
            return f"CAST({quote_text(value)} AS {type_sql(kind)})"
        case str() if kind.id in {"VARCHAR", "CHAR"}:
            return f"CAST({_text_sql(value)} AS {type_sql(kind)})"
        case bytes() if kind.id == "BLOB":
            return _blob_sql(value)
        case bytes() if kind.id == "BIT":
            return f"CAST('{_bits(value)}' AS BIT)"
        case bytes() if kind.id == "BIGNUM":
            return f"CAST('{_bignum(value)}' AS BIGNUM)"
        case uuid.UUID() if kind.id == "UUID":
            return f"CAST('{value}' AS UUID)"
        case Interval() if kind.id == "INTERVAL":
            _within(value.months, 32)
            _within(value.days, 32)
            _within(value.micros, 64)
            # Interval text has forms that versions read differently; sums of plain parts do not
            # normalise.
            return (
                f"(to_months(CAST({value.months} AS INTEGER)) + to_days(CAST({value.days} AS INTEGER))"
                f" + to_microseconds(CAST({value.micros} AS BIGINT)))"
            )
        case _:
            raise Inexpressible(f"a {type(value).__name__} for {kind.id}")


def _integer_sql(kind: DuckType, value: int) -> str:
    if kind.id in _INTEGER_BITS:
        _within(value, *_INTEGER_BITS[kind.id])
        return (
            f"CAST('{value}' AS {kind.id})"
            if kind.id in {"HUGEINT", "UHUGEINT"}
            else f"CAST({value} AS {kind.id})"
        )
    match kind.id:
        case "DECIMAL":
            if abs(value) >= 10**38:
                raise Inexpressible("a decimal out of range")
            digits = f"{abs(value):0{kind.scale + 1}d}"
            whole = digits[: len(digits) - kind.scale]
            fraction = digits[len(digits) - kind.scale :]
            return f"CAST('{'-' if value < 0 else ''}{whole}.{fraction}' AS {type_sql(kind)})"
        case "DATE":
            _within(value, 32)
            if abs(value) == 2**31 - 1:
                return f"CAST('{'-' if value < 0 else ''}infinity' AS DATE)"
            return f"(CAST('1970-01-01' AS DATE) + CAST({value} AS INTEGER))"
        case "TIME":
            return f"CAST('{_time_of_day(value, 6)}' AS TIME)"
        case "TIME_NS":
            return f"CAST('{_time_of_day(value, 9)}' AS TIME_NS)"
        case "TIME WITH TIME ZONE":
            return f"CAST('{_time_with_zone(value)}' AS TIME WITH TIME ZONE)"
        case _ if kind.id in _TIMESTAMP_MICROS:
            return _timestamp_sql(kind.id, value)
        case _:
            raise Inexpressible(f"an integer for {kind.id}")


def _timestamp_sql(identifier: str, value: int) -> str:
    _within(value, 64)
    if abs(value) == 2**63 - 1:
        return f"CAST('{'-' if value < 0 else ''}infinity' AS {identifier})"
    if identifier == "TIMESTAMP_NS":
        return f"make_timestamp_ns(CAST({value} AS BIGINT))"
    micros = value * _TIMESTAMP_MICROS[identifier]
    _within(micros, 64)
    if identifier == "TIMESTAMP WITH TIME ZONE":
        # Not a cast from TIMESTAMP, which would ask the session for its time zone.
        return f"make_timestamptz(CAST({micros} AS BIGINT))"
    return f"CAST(make_timestamp(CAST({micros} AS BIGINT)) AS {identifier})"


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
            return f"struct_pack({', '.join(f'{quote_identifier(name)} := {text}' for (name, _), text in pairs)})"
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
        # Lists of unnamed structs have no type name, but say by themselves what they are unless
        # empty.
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


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(value)


def _within(value: int, bits: int, signed: bool = True) -> None:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    if isinstance(value, bool) or not low <= value < high:
        raise Inexpressible("a number out of range")


def _time_of_day(value: int, digits: int) -> str:
    unit: int = 10**digits
    if not 0 <= value <= 86400 * unit:
        raise Inexpressible("a time out of range")
    seconds, fraction = divmod(value, unit)
    return (
        f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"
    )


def _time_with_zone(packed: int) -> str:
    """Airport §13.1: microseconds above 24 bits of `57599 - offset`."""
    offset = 57599 - (packed & 0xFFFFFF)
    if packed < 0 or abs(offset) > 57599:
        raise Inexpressible("a time zone offset out of range")
    hours, rest = divmod(abs(offset), 3600)
    sign = "-" if offset < 0 else "+"
    return f"{_time_of_day(packed >> 24, 6)}{sign}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _bits(internal: bytes) -> str:
    """Airport §13.1: the number of padding bits, then the bits behind that many ones."""
    if len(internal) < 2 or internal[0] > 7:
        raise Inexpressible("malformed BIT")
    return "".join(f"{byte:08b}" for byte in internal[1:])[internal[0] :]


def _bignum(internal: bytes) -> str:
    """Airport §13.1: a three byte header and the magnitude, all complemented if negative."""
    if not 4 <= len(internal) <= 1024:
        raise Inexpressible("malformed or enormous BIGNUM")
    negative = not internal[0] & 0x80
    plain = bytes(byte ^ 0xFF for byte in internal) if negative else internal
    if int.from_bytes(plain[:3], "big") & 0x7FFFFF != len(internal) - 3:
        raise Inexpressible("malformed BIGNUM")
    magnitude = int.from_bytes(plain[3:], "big")
    return str(-magnitude if negative else magnitude)


_PLAIN_TYPES = {
    identifier: identifier
    for identifier in (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE"),
        *(
            "VARCHAR",
            "BLOB",
            "BIT",
            "BIGNUM",
            "UUID",
            "INTERVAL",
            "DATE",
            "TIME",
            "TIME_NS",
            "TIME WITH TIME ZONE",
        ),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
    )
} | {"CHAR": "VARCHAR", "NULL": '"NULL"'}

_INTEGER_BITS: dict[str, tuple[int, bool]] = {
    "TINYINT": (8, True),
    "SMALLINT": (16, True),
    "INTEGER": (32, True),
    "BIGINT": (64, True),
    "HUGEINT": (128, True),
    "UTINYINT": (8, False),
    "USMALLINT": (16, False),
    "UINTEGER": (32, False),
    "UBIGINT": (64, False),
    "UHUGEINT": (128, False),
}

_TIMESTAMP_MICROS = {
    "TIMESTAMP": 1,
    "TIMESTAMP_MS": 1000,
    "TIMESTAMP_S": 1_000_000,
    "TIMESTAMP_NS": 0,
    "TIMESTAMP WITH TIME ZONE": 1,
}

_NESTED = frozenset({"LIST", "ARRAY", "STRUCT", "MAP", "UNION"})
