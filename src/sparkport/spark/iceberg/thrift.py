"""Thrift's compact protocol, as far as Parquet's footers and page indexes use it.

Fields have numbers there, and no names: a structure is a dictionary by these numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = [
    "Struct",
    "ThriftReader",
    "binary",
    "i32",
    "i64",
    "list_of",
    "struct_field",
    "thrift_struct",
]

Struct: TypeAlias = "dict[int, Any]"
Written: TypeAlias = "tuple[int, bytes]"
"""The kind of a value, and its bytes."""

_DEEPEST = 16
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class ThriftReader:
    """Reads values one after the other. All methods raise ValueError where there is none."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def struct(self, depth: int = 0) -> Struct:
        """The next structure."""
        return {number: self.value(kind, depth + 1) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """The numbers and kinds of a structure's fields. The caller reads each value at once."""
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            yield number, header & 15

    def structs_as_written(self) -> list[tuple[Struct, bytes]]:
        """The structures of the next list, each with its bytes."""
        length, kind = self._list_header()
        if kind != _STRUCT:
            raise ValueError("the list is not one of structures")
        found = []
        for _ in range(length):
            start = self.position
            found.append((self.struct(), self._content[start : self.position]))
        return found

    def value(self, kind: int, depth: int = 0) -> Any:
        """The next value, of a kind that `fields` told."""
        if depth > _DEEPEST:
            raise ValueError("values are nested too deeply")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _BINARY:
            return self._bytes(self._natural())
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == _MAP:
            return self._map(depth)
        raise ValueError("there is no such kind of value")

    def _list(self, depth: int) -> list[Any]:
        length, kind = self._list_header()
        if kind in (_TRUE, _FALSE):
            return [self._byte() == _TRUE for _ in range(length)]
        return [self.value(kind, depth + 1) for _ in range(length)]

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        length = self._natural() if header >> 4 == 15 else header >> 4
        return self._bounded(length), header & 15

    def _map(self, depth: int) -> dict[Any, Any]:
        length = self._bounded(self._natural())
        kinds = self._byte() if length else 0
        return {
            self.value(kinds >> 4, depth + 1): self.value(kinds & 15, depth + 1)
            for _ in range(length)
        }

    def _integer(self) -> int:
        number = self._natural()
        return (number >> 1) ^ -(number & 1)

    def _natural(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")
        return number | byte << shift

    def _byte(self) -> int:
        self.position += self._bounded(1)
        return self._content[self.position - 1]

    def _bytes(self, length: int) -> bytes:
        self.position += self._bounded(length)
        return self._content[self.position - length : self.position]

    def _bounded(self, length: int) -> int:
        """A length, if so many bytes are left. Every value has at least one."""
        if length > len(self._content) - self.position:
            raise ValueError("the content ends too early")
        return length


# ----------------------------------------------------------------------------------------- writing


def thrift_struct(fields: Mapping[int, Written]) -> bytes:
    """A structure, of values that the functions below have written."""
    content, last = b"", 0
    for number, (kind, written) in sorted(fields.items()):
        content += bytes([number - last << 4 | kind]) + written
        last = number
    return content + b"\0"


def i32(number: int) -> Written:
    return _I32, _natural_bytes(number << 1 ^ number >> 31)


def i64(number: int) -> Written:
    return _I64, _natural_bytes(number << 1 ^ number >> 63)


def binary(content: bytes) -> Written:
    return _BINARY, _natural_bytes(len(content)) + content


def struct_field(content: bytes) -> Written:
    return _STRUCT, content


def list_of(values: Sequence[Written]) -> Written:
    """A list of one value or more, all of one kind."""
    header = bytes([0xF0 | values[0][0]]) + _natural_bytes(len(values))
    return _LIST, header + b"".join(content for _, content in values)


def _natural_bytes(number: int) -> bytes:
    content = b""
    while number > 127:
        content += bytes([number & 127 | 128])
        number >>= 7
    return content + bytes([number])
