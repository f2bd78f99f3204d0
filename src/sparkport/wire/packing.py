"""MessagePack and JSON bodies: maps of untrusted values, read field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from sparkport.errors import BadRequest

__all__ = ["Fields", "pack", "read_fields", "unpack_json", "unpack_map", "unpack_text"]

_LONGEST_ARRAY = 1 << 16
"""msgpack allocates an array as soon as it has read the header, and headers can be nested.

A limit below the length of the body keeps a small request from reserving gigabytes.
"""

_UNSIGNED_MAXIMUM = (1 << 64) - 1


def pack(value: Any) -> bytes:
    """Encode as MessagePack, with `bin` for bytes and `str` for text."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack_map(body: bytes, what: str = "the request") -> dict[str, Any]:
    """Decode a map with text keys and bytes as values.

    The client sends binary data as `str`, so values are not decoded as text (airport §1.3). Of a
    key that occurs twice the last value counts (T37). Bytes after the map are ignored.

    Raises: BadRequest for anything that is not a MessagePack map with text keys.
    """
    return _text_keys(_unpack(body, what, raw=True), what)


def unpack_text(body: bytes, what: str = "the request") -> dict[str, Any]:
    """Decode a map of plain Python values: `str` is text, `bin` is bytes. Raises: BadRequest."""
    return _text_keys(_unpack(body, what, raw=False), what)


def unpack_json(body: bytes, what: str = "the request") -> dict[str, Any]:
    """Decode a JSON object. Raises: BadRequest."""
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{what}: the body is not valid JSON") from error
    if not isinstance(value, dict):
        raise BadRequest(f"{what}: the body must be a JSON object, not {_kind(value)}")
    return value


def read_fields(body: bytes, what: str) -> Fields:
    """Decode the fields of a MessagePack request. Raises: BadRequest."""
    return Fields(unpack_map(body, what), what)


class Fields:
    """Reads the fields of a map as the types they must have; BadRequest names a wrong field.

    Text may be `str` or `bin`, in UTF-8. Several keys are spellings of the same field, and the
    first that is present counts (airport §15.1). nil counts as missing.
    """

    __slots__ = ("_values", "_what")

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        self._values = values
        self._what = what

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def text(self, *keys: str) -> str:
        """A required text, which may be empty."""
        key, value = self._required(keys)
        return self._as_text(key, value)

    def optional_text(self, *keys: str) -> str | None:
        key, value = self._find(keys)
        return None if value is None else self._as_text(key, value)

    def name(self, *keys: str) -> str:
        """A required name: not empty, and without NUL, where DuckDB's C strings would end."""
        key, value = self._required(keys)
        name = self._as_text(key, value)
        if not name:
            raise self._wrong(key, "must not be empty")
        if "\0" in name:
            raise self._wrong(key, "must not contain a NUL character")
        return name

    def blob(self, *keys: str) -> bytes:
        """Required bytes, which may be empty."""
        key, value = self._required(keys)
        return self._as_bytes(key, value)

    def optional_blob(self, *keys: str) -> bytes | None:
        """Bytes, or None where they are missing or empty: the client sends nothing as empty."""
        key, value = self._find(keys)
        return None if value is None else self._as_bytes(key, value) or None

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, f"must be true or false, not {_kind(value)}")
        return value

    def texts(self, *keys: str) -> tuple[str, ...]:
        key, items = self._items(keys)
        return tuple(self._as_text(key, item) for item in items)

    def unsigned_integers(self, *keys: str) -> tuple[int, ...]:
        key, items = self._items(keys)
        for item in items:
            if type(item) is not int or not 0 <= item <= _UNSIGNED_MAXIMUM:
                self._as_integer(key, item, 0, _UNSIGNED_MAXIMUM)
        return tuple(items)

    def integers(self, *keys: str) -> tuple[int, ...]:
        """Integers of 64 bits."""
        key, items = self._items(keys)
        return tuple(self._as_integer(key, item, -(1 << 63), (1 << 63) - 1) for item in items)

    def text_map(self, key: str) -> dict[str, str]:
        """A map of texts; empty where it is missing."""
        nested = self.optional_fields(key)
        return {} if nested is None else {name: nested.text(name) for name in nested._values}

    def fields(self, key: str) -> Fields:
        """A required map inside this one."""
        nested = self.optional_fields(key)
        if nested is None:
            raise self._missing(key)
        return nested

    def optional_fields(self, key: str) -> Fields | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, f"must be a map, not {_kind(value)}")
        return Fields(_text_keys(value, self._what), self._what)

    def _find(self, keys: Sequence[str]) -> tuple[str, Any]:
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return key, value
        return keys[0], None

    def _required(self, keys: Sequence[str]) -> tuple[str, Any]:
        key, value = self._find(keys)
        if value is None:
            raise self._missing(key)
        return key, value

    def _items(self, keys: Sequence[str]) -> tuple[str, Sequence[Any]]:
        key, value = self._find(keys)
        if value is None:
            return key, ()
        if not isinstance(value, list):
            raise self._wrong(key, f"must be a list, not {_kind(value)}")
        return key, value

    def _as_bytes(self, key: str, value: Any) -> bytes:
        if isinstance(value, str):
            return self._as_text(key, value).encode()
        if not isinstance(value, bytes):
            raise self._wrong(key, f"must be bytes, not {_kind(value)}")
        return value

    def _as_text(self, key: str, value: Any) -> str:
        try:
            if isinstance(value, bytes):
                return value.decode("utf-8")
            if isinstance(value, str):
                value.encode("utf-8")  # JSON can spell half of a surrogate pair, which is not text
                return value
        except UnicodeError as error:
            raise self._wrong(key, "must be text in UTF-8") from error
        raise self._wrong(key, f"must be text, not {_kind(value)}")

    def _as_integer(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, f"must hold integers, not {_kind(value)}")
        if not low <= value <= high:
            raise self._wrong(key, f"holds {value:.3e}, which is not between {low} and {high}")
        return value

    def _missing(self, key: str) -> BadRequest:
        return BadRequest(f"{self._what}: the field '{key}' is missing")

    def _wrong(self, key: str, problem: str) -> BadRequest:
        return BadRequest(f"{self._what}: the field '{key}' {problem}")


def _unpack(body: bytes, what: str, *, raw: bool) -> Any:
    try:
        return msgpack.unpackb(body, raw=raw, strict_map_key=False, max_array_len=_LONGEST_ARRAY)
    except msgpack.ExtraData as error:
        return error.unpacked
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        # TypeError: an array or a map as the key of a map.
        raise BadRequest(f"{what}: the body is not valid MessagePack") from error


def _text_keys(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what}: the body must be a MessagePack map, not {_kind(value)}")
    try:
        return {
            key if isinstance(key, str) else key.decode("utf-8"): item
            for key, item in value.items()
        }
    except (AttributeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{what}: the keys of a map must be text in UTF-8") from error


_KINDS: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a floating-point number",
    str: "text",
    bytes: "text",
    list: "a list",
    dict: "a map",
    type(None): "nothing",
}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an extension value")
