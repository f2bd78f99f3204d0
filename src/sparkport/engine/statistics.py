"""Which columns may have statistics, and how bounds of text are shortened."""

from __future__ import annotations

import pyarrow as pa

from sparkport.engine.type_table import Bounds, row_of

__all__ = ["shortened_maximum", "shortened_minimum", "takes_statistics"]


def takes_statistics(field: pa.Field) -> bool:
    """Whether a table with this column may offer statistics (airport §4.9, T29)."""
    if b"ARROW:extension:name" in (field.metadata or {}):
        return False  # a type that only the client sees in it, such as GEOMETRY
    row = row_of(field.type)
    return row is not None and row.bounds is not Bounds.REFUSED


_KEPT_CHARACTERS = 64


def shortened_minimum(text: str) -> str:
    """Shorten a lower bound without going above it."""
    return text[:_KEPT_CHARACTERS]


def shortened_maximum(text: str) -> str:
    """Shorten an upper bound without going below it. It stays long if that is impossible."""
    if len(text) <= _KEPT_CHARACTERS:
        return text
    for end in range(_KEPT_CHARACTERS - 1, -1, -1):
        code = ord(text[end])
        if code < 0x10FFFF:
            return text[:end] + chr(
                0xE000 if code == 0xD7FF else code + 1
            )  # the code points in between are surrogates, not characters
    return text
