"""Types and constants of the filter JSON (airport §6.6, §6.7) as values of the filter tree."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sparkport.catalog.filters import Constant, DuckType, Interval
from sparkport.catalog.filters.literals import CONSTANTS
from sparkport.catalog.filters.tree import Value

DEEPEST_TYPE = 32
"""A part of the filter has a shape that airport §6 does not define; never leaves the decoder."""


class NotUnderstood(Exception):
    """A part of the filter has a shape that airport §6 does not define; stays in the decoder."""


def decode_type(node: Any, depth: int = 0) -> DuckType:
    if depth > DEEPEST_TYPE:
        raise NotUnderstood("type nested too deeply")
    identifier = text_member(node, "id")
    info = node.get("type_info")
    if info is None:
        return DuckType(identifier)
    alias = text_member(info, "alias", "")
    if info.get("extension_info") is not None:
        raise NotUnderstood(f"type {identifier} of an extension")
    match identifier:
        case "DECIMAL":
            return DuckType(
                identifier, int_member(info, "width"), int_member(info, "scale", 0), alias=alias
            )
        case "LIST" | "MAP":
            return DuckType(
                identifier, child=decode_type(info.get("child_type"), depth + 1), alias=alias
            )
        case "ARRAY":
            child = decode_type(info.get("child_type"), depth + 1)
            return DuckType(identifier, size=int_member(info, "size"), child=child, alias=alias)
        case "STRUCT" | "TUPLE" | "UNION":
            fields = tuple(
                (text_member(field, "first", ""), decode_type(field.get("second"), depth + 1))
                for field in list_member(info, "child_types")
            )
            # A union begins with an unnamed member for its tag; DuckDB 2.0 calls an unnamed struct
            # a tuple.
            return DuckType(
                "UNION" if identifier == "UNION" else "STRUCT",
                fields=fields[1:] if identifier == "UNION" else fields,
                alias=alias,
            )
        case "ENUM":
            values = tuple(_text(value) for value in list_member(info, "values"))
            return DuckType(identifier, values=values, alias=alias)
        case _:
            return DuckType(identifier, alias=alias, collation=text_member(info, "collation", ""))


def decode_constant(node: Any, inherited: DuckType | None = None, depth: int = 0) -> Constant:
    """Decode a constant. `inherited` is its type from its parent; some versions omit its own."""
    if depth > DEEPEST_TYPE:
        raise NotUnderstood("constant nested too deeply")
    mapping = object_of(node)
    if mapping.get("type") is not None:
        kind = decode_type(mapping["type"])
    elif inherited is not None:
        kind = inherited
    else:
        raise NotUnderstood("constant without a type")
    if bool_member(mapping, "is_null", False) or kind.id == "NULL":
        return Constant(kind, None)
    if "value" not in mapping:
        raise NotUnderstood("constant without a value")
    value = mapping["value"]
    match kind.id:
        case "LIST" | "ARRAY" | "MAP":
            children = list_member(value, "children")
            return Constant(
                kind, tuple(decode_constant(child, kind.child, depth + 1) for child in children)
            )
        case "STRUCT":
            return Constant(kind, _members(list_member(value, "children"), kind, depth))
        case "UNION":
            tag, *children = list_member(value, "children") or [None]
            chosen = decode_constant(tag, DuckType("UTINYINT"), depth + 1).value
            members = _members(children, kind, depth)
            if not isinstance(chosen, int) or not 0 <= chosen < len(members):
                raise NotUnderstood("union with a tag it does not have")
            return Constant(kind, members, chosen)
        case _:
            return Constant(kind, _scalar(kind, value))


def object_of(node: Any) -> Mapping[str, Any]:
    if not isinstance(node, dict):
        raise NotUnderstood("something else where an object belongs")
    return node


def text_member(node: Any, name: str, default: str | None = None) -> str:
    value = object_of(node).get(name)
    return default if value is None and default is not None else _text(value)


def int_member(node: Any, name: str, default: int | None = None) -> int:
    value = object_of(node).get(name)
    return default if value is None and default is not None else _integer(value)


def bool_member(node: Any, name: str, default: bool) -> bool:
    value = object_of(node).get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise NotUnderstood(f"{name} is not a boolean")
    return value


def list_member(node: Any, name: str) -> list[Any]:
    """A missing list is an empty one (airport §6.8)."""
    value = object_of(node).get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise NotUnderstood(f"{name} is not a list")
    return value


def _members(children: list[Any], kind: DuckType, depth: int) -> tuple[Constant, ...]:
    if len(children) != len(kind.fields):
        raise NotUnderstood(f"{kind.id} with another number of members than its type")
    pairs = zip(children, kind.fields, strict=True)
    return tuple(decode_constant(child, field, depth + 1) for child, (_, field) in pairs)


def _scalar(kind: DuckType, value: Any) -> Value:
    if kind.id == "ENUM":
        index = _integer(value)
        if not 0 <= index < len(kind.values):
            raise NotUnderstood("an enum value its type does not have")
        return kind.values[index]
    form = CONSTANTS.get(kind.id)
    if form is None:
        raise NotUnderstood(f"constant of type {kind.id}")
    return _SHAPES[form.json](value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NotUnderstood("a boolean that is none")
    return value


def _integer(value: Any) -> int:
    # JSON true is a Python int too.
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotUnderstood("a number that is not an integer")
    return value


def _wide(value: Any, signed: bool = True) -> int:
    upper, lower = int_member(value, "upper"), int_member(value, "lower")
    smallest, largest = (-(2**63), 2**63) if signed else (0, 2**64)
    if not (smallest <= upper < largest and 0 <= lower < 2**64):
        raise NotUnderstood("half of a 128 bit integer out of range")
    return (upper << 64) + lower


def _unsigned_wide(value: Any) -> int:
    return _wide(value, signed=False)


def _decimal(value: Any) -> int:
    return _wide(value) if isinstance(value, dict) else _integer(value)


def _uuid(value: Any) -> uuid.UUID:
    # The top bit is flipped so that UUIDs sort as numbers.
    return uuid.UUID(int=(_wide(value) + 2**127) % 2**128)


def _interval(value: Any) -> Interval:
    return Interval(
        int_member(value, "months"), int_member(value, "days"), int_member(value, "micros")
    )


def _float(value: Any) -> float:
    if isinstance(value, float):
        return value
    integer = _integer(value)
    if abs(integer) > 2**53:
        raise NotUnderstood("a float written as a large integer")
    return float(integer)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotUnderstood("something else where text belongs")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise NotUnderstood("text with a lone surrogate") from None
    return value


def _blob(value: Any) -> bytes:
    text = _text(value)
    if _BLOB_TEXT.fullmatch(text) is None:
        raise NotUnderstood("malformed blob")
    return _BLOB_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text).encode("latin-1")


def _internal_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return _text(value).encode("utf-8")
    try:
        return base64.b64decode(text_member(value, "base64"), validate=True)
    except (binascii.Error, ValueError):
        raise NotUnderstood("malformed base64") from None


_BLOB_TEXT = re.compile(r"""(?:\\x[0-9A-Fa-f]{2}|[ !#-&(-\[\]-~])*""")
_BLOB_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")

_SHAPES: Mapping[str, Callable[[Any], Value]] = {
    "boolean": _boolean,
    "integer": _integer,
    "wide integer": _wide,
    "unsigned wide integer": _unsigned_wide,
    "decimal": _decimal,
    "float": _float,
    "text": _text,
    "blob": _blob,
    "internal bytes": _internal_bytes,
    "uuid": _uuid,
    "interval": _interval,
}
"""By the names that the table of constants has for them."""
