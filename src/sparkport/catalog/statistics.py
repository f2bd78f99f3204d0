"""Column statistics, which DuckDB's optimiser trusts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import lib

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Table
from sparkport.catalog.types import opaque_name

__all__ = [
    "ColumnStatistics",
    "StatisticsTable",
    "shortened_maximum",
    "shortened_minimum",
    "takes_statistics",
]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is known for certain of a column's values. Every default says "not known", and is always
    true.

    A filter that these exclude makes the client skip the scan, and it packs values into as few bits
    as they allow: what is said too narrowly gives wrong results, without an error. So bounds may be
    too wide, never too narrow.
    """

    minimum: Any = None
    """No value is less than this: a Python value or an Arrow scalar of the column's type; None when
    it is not known.

    NaN counts as greater than all other numbers. Text is compared by its bytes in UTF-8; a UUID as
    it is printed."""
    maximum: Any = None
    """No value is greater. NaN where there may be one, since it is the greatest."""
    has_null: bool = True
    """False promises that there is no NULL."""
    has_not_null: bool = True
    """False promises that there is nothing but NULLs, or no row at all."""
    distinct_count: int = 0
    """Only for estimates, so it need not be exact; 0 when it is not known."""
    contains_unicode: bool = True
    """For text: False promises that all of it is ASCII."""
    max_string_length: int | None = None
    """For text: no value has more bytes than this; None when it is not known."""


class StatisticsTable(Table):
    """A table that knows sound bounds of its columns.

    The client asks while it plans a statement, several times for each column, and reads the rows
    only later. It keeps the plan of a prepared statement until the version of the catalog changes.
    So the statistics must hold for the rows that a scan with the same `Context.transaction_id` will
    read, and the catalog's version must rise with each change of rows. Without transactions only a
    table that does not change, or whose bounds no row will ever leave, can promise that.
    """

    @property
    def offers_statistics(self) -> bool:
        """False when this table had better not be asked; constant as long as it keeps its place in
        the catalog.
        """
        return True

    @abstractmethod
    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        """Statistics of the rows that the request's transaction sees; None when they are not known
        for certain.

        Called several times for every statement, so it should be quick. Never called for the row
        id, nor about a point in time (the client could not say which). Statistics that are not of
        the column's type, or that contradict themselves, are logged and not passed on.
        """


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
