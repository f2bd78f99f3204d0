"""MessagePack replies, decoded as strictly as the client does (airport §1.3)."""

from __future__ import annotations

from typing import Any

import msgpack

from sparkport.testing.failures import ProtocolViolation

__all__ = ["Fields", "as_bytes", "as_text", "unpack"]

UINT64_MAX = 2**64 - 1


def unpack(body: bytes, where: str, trap: str = "§1.3") -> Any:
    """Decode the first MessagePack object of `body`; what follows is ignored, as by the client.

    `bin` becomes bytes. `str` becomes str, with surrogates where it is not UTF-8; `as_bytes` and
    `as_text` tell these apart.
    """
    try:
        return msgpack.unpackb(
            body, raw=False, unicode_errors="surrogateescape", strict_map_key=False
        )
    except msgpack.ExtraData as extra:
        return extra.unpacked
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ProtocolViolation(
            trap, f"{where}: not MessagePack: {error or type(error).__name__}"
        ) from error


def as_bytes(value: Any, where: str, trap: str = "§1.3") -> bytes:
    """Return a binary value; `str` and `bin` are interchangeable."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    raise ProtocolViolation(trap, f"{where}: a string is due, not {_named(value)}")


def as_text(value: Any, where: str, trap: str = "§1.3") -> str:
    """Return a text value; `str` and `bin` are interchangeable, but it must be UTF-8."""
    try:
        return as_bytes(value, where, trap).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolViolation(trap, f"{where}: the text is not UTF-8: {value!r}") from error


class Fields:
    """Reads a map from the server field by field; every method raises ProtocolViolation."""

    def __init__(self, value: Any, where: str, trap: str = "§1.3") -> None:
        self.where = where
        self.trap = trap
        if not isinstance(value, dict):
            raise ProtocolViolation(trap, f"{where}: a map is due, not {_named(value)}")
        self._values = _with_text_keys(value, where)

    @classmethod
    def unpack(cls, body: bytes, where: str, trap: str = "§1.3") -> Fields:
        return cls(unpack(body, where, trap), where, trap)

    def text(self, key: str, trap: str | None = None) -> str:
        return as_text(self._required(key, trap), self._at(key), trap or self.trap)

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else as_text(value, self._at(key), self.trap)

    def optional_bytes(self, key: str) -> bytes | None:
        value = self._values.get(key)
        return None if value is None else as_bytes(value, self._at(key), self.trap)

    def bytes_(self, key: str) -> bytes:
        return as_bytes(self._required(key), self._at(key), self.trap)

    def unsigned(self, key: str) -> int:
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ProtocolViolation(
                self.trap, f"{self._at(key)}: an unsigned integer is due, not {_named(value)}"
            )
        if not 0 <= value <= UINT64_MAX:
            raise ProtocolViolation(
                self.trap, f"{self._at(key)}: {value} is no unsigned integer of 64 bits"
            )
        return value

    def boolean(self, key: str) -> bool:
        value = self._required(key)
        if not isinstance(value, bool):
            raise ProtocolViolation(
                self.trap, f"{self._at(key)}: a boolean is due, not {_named(value)}"
            )
        return value

    def optional_boolean(self, key: str) -> bool | None:
        return None if self._values.get(key) is None else self.boolean(key)

    def number(self, key: str) -> float:
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ProtocolViolation(
                self.trap, f"{self._at(key)}: a number is due, not {_named(value)}"
            )
        return float(value)

    def array(self, key: str) -> list[Any]:
        value = self._required(key)
        if not isinstance(value, list):
            raise ProtocolViolation(
                self.trap, f"{self._at(key)}: an array is due, not {_named(value)}"
            )
        return value

    def map(self, key: str, trap: str | None = None) -> Fields:
        return Fields(self._required(key, trap), self._at(key), trap or self.trap)

    def texts(self, key: str, trap: str | None = None) -> dict[str, str]:
        """A map of text to text."""
        fields = self.map(key, trap)
        return {name: fields.text(name) for name in fields._values}

    def _required(self, key: str, trap: str | None = None) -> Any:
        if key not in self._values:
            raise ProtocolViolation(
                trap or self.trap,
                f"{self._at(key)} is missing: the client would go on with uninitialised memory",
            )
        value = self._values[key]
        if value is None:
            raise ProtocolViolation(trap or self.trap, f"{self._at(key)} is nil, but not optional")
        return value

    def _at(self, key: str) -> str:
        return f"{self.where}: {key}"


def _with_text_keys(values: dict[Any, Any], where: str) -> dict[str, Any]:
    for key in values:
        if not isinstance(key, str):
            raise ProtocolViolation(
                "§1.3", f"{where}: the map key {key!r} is not a MessagePack str"
            )
    return values


def _named(value: Any) -> str:
    names = {dict: "a map", list: "an array", bytes: "bin", str: "str", type(None): "nil"}
    return names.get(type(value), f"{type(value).__name__} {value!r}")
