"""Which columns may have statistics, and how bounds of text are shortened."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.types import opaque_name

__all__ = ["shortened_maximum", "shortened_minimum", "takes_statistics"]

_TAKEN = frozenset(
    {
        *(lib.Type_BOOL, lib.Type_FLOAT, lib.Type_DOUBLE),
        *(lib.Type_INT8, lib.Type_INT16, lib.Type_INT32, lib.Type_INT64),
        *(lib.Type_UINT8, lib.Type_UINT16, lib.Type_UINT32, lib.Type_UINT64),
        *(lib.Type_DECIMAL32, lib.Type_DECIMAL64, lib.Type_DECIMAL128),
        *(lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW),
        *(lib.Type_DATE32, lib.Type_DATE64, lib.Type_TIME32, lib.Type_TIME64, lib.Type_TIMESTAMP),
        # The client asks about these too, and ignores the answer.
        *(lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW),
        *(lib.Type_FIXED_SIZE_LIST, lib.Type_STRUCT, lib.Type_MAP),
    }
)
"""Not among them: NULL, INTERVAL and UNION, of which the client has no statistics and fails (T29);
BLOB, whose bounds it takes for text with escapes, so that a column with a byte above 0x7E could
have no upper bound."""

_TAKEN_OPAQUE = frozenset({"hugeint", "uhugeint", "time_tz"})
"""BIT makes the client fail, BIGNUM makes the whole DuckDB instance unusable."""


def takes_statistics(field: pa.Field) -> bool:
    """Whether a table with this column may offer statistics (airport §4.9, T29)."""
    if b"ARROW:extension:name" in (field.metadata or {}):
        return False  # a type that only the client sees in it, such as GEOMETRY
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        name = opaque_name(data_type)
        if name is not None and name in _TAKEN_OPAQUE:
            return True
        if data_type.extension_name == "arrow.uuid":
            return True
        data_type = (
            data_type.storage_type
        )  # all else is what it is stored as, for the client and here
    return data_type.id in _TAKEN


_KEPT_CHARACTERS = 64


def shortened_minimum(text: str) -> str:
    """The same or a shorter text that is not greater."""
    return text[:_KEPT_CHARACTERS]


def shortened_maximum(text: str) -> str:
    """The same or, nearly always, a shorter text that is not less."""
    if len(text) <= _KEPT_CHARACTERS:
        return text
    for end in range(_KEPT_CHARACTERS - 1, -1, -1):
        code = ord(text[end])
        if code < 0x10FFFF:
            return text[:end] + chr(
                0xE000 if code == 0xD7FF else code + 1
            )  # there are no characters in between
    return text
