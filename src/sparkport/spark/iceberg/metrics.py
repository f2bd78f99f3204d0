"""Metrics that Iceberg keeps of a new Parquet file: sizes, counts and bounds of its columns.

They are those that Iceberg's own Java finds in the file, except for bounds that are wrong there
(decision 0024). Java takes some ten milliseconds a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
)

from sparkport.spark.iceberg.bounds import decimal_bytes
from sparkport.spark.iceberg.types.nested import fields_inside

__all__ = ["columns_without_bounds", "described_columns", "has_usual_metrics"]

_PROPERTIES = "write.metadata.metrics."
_MOST_COLUMNS = 100
"""Without settings, Iceberg keeps no metrics of further columns."""
_LONGEST = 16
"""The length to which bounds are cut: code points of a text, or bytes."""


def has_usual_metrics(fields: Sequence[NestedField], properties: Mapping[str, str]) -> bool:
    """Whether a table keeps the metrics that are found here: no property asks for others."""
    return _count(fields) <= _MOST_COLUMNS and not any(
        name.startswith(_PROPERTIES) for name in properties
    )


def _count(fields: Sequence[NestedField]) -> int:
    """The number of columns, at every depth."""
    return sum(1 + _count(fields_inside(field.field_type)) for field in fields)


def described_columns(metadata: pq.FileMetaData, fields: Sequence[NestedField]) -> dict[str, Any]:
    """A file's columns and row group offsets, in the form of Iceberg's JSON of data files."""
    known = [
        column for column in _columns(metadata, fields) if not isinstance(column.kind, UnknownType)
    ]
    single = [column for column in known if not column.is_repeated]
    return {
        "column-sizes": _map((column.field_id, column.size) for column in known),
        "value-counts": _map((column.field_id, column.values) for column in single),
        "null-value-counts": _map((column.field_id, column.nulls) for column in single),
        "lower-bounds": _map((column.field_id, column.lower_bound()) for column in single),
        "upper-bounds": _map((column.field_id, column.upper_bound()) for column in single),
        "split-offsets": [
            _start(metadata.row_group(number).column(0))
            for number in range(metadata.num_row_groups)
        ],
    }


def columns_without_bounds(
    metadata: pq.FileMetaData, fields: Sequence[NestedField]
) -> tuple[int, ...]:
    """Ids of the columns whose bounds cannot be known from the file's footer.

    Arrow leaves out the bounds of a row group where values are longer than 4 KiB. Java then takes
    the bounds of the other row groups for those of the file, and rows are not found again.
    """
    return tuple(column.field_id for column in _columns(metadata, fields) if not column.has_bounds)


def _columns(metadata: pq.FileMetaData, fields: Sequence[NestedField]) -> list[_Column]:
    columns = [_Column(*leaf) for leaf in _leaves(fields, is_repeated=False)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for position, column in enumerate(columns):
            column.add(group.column(position))
    return columns


def _leaves(
    fields: Sequence[NestedField], *, is_repeated: bool
) -> Iterator[tuple[int, IcebergType, bool]]:
    """Parquet's columns, in its order: id, type, whether a row may have several values."""
    for field in fields:
        kind = field.field_type
        if isinstance(kind, StructType | ListType | MapType):
            yield from _leaves(
                fields_inside(kind), is_repeated=is_repeated or not isinstance(kind, StructType)
            )
        else:
            yield field.field_id, kind, is_repeated


def _start(column: pq.ColumnChunkMetaData) -> int:
    """The offset of a row group, by its first column."""
    if column.has_dictionary_page and column.dictionary_page_offset < column.data_page_offset:
        return int(column.dictionary_page_offset)
    return int(column.data_page_offset)


def _map(pairs: Iterable[tuple[int, Any]]) -> dict[str, list[Any]]:
    known = [(key, value) for key, value in pairs if value is not None]
    return {"keys": [key for key, _ in known], "values": [value for _, value in known]}


class _Column:
    """Collects the metrics of a column, row group by row group."""

    def __init__(self, field_id: int, kind: IcebergType, is_repeated: bool) -> None:
        self.field_id = field_id
        self.kind = kind
        self.is_repeated = is_repeated
        self.size = self.values = 0
        self.nulls: int | None = 0
        self._least: Any = None
        self._most: Any = None
        self.has_bounds = type(kind) in _SERIALISED
        self._may_be_nan = isinstance(kind, FloatType | DoubleType)
        """Bounds leave NaN out, so a row group of nothing but NaN needs none."""

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            self.nulls, self.has_bounds = None, False
            return
        if self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics.has_min_max and self.has_bounds:
            least, most = (
                _comparable(self.kind, each) for each in (statistics.min_raw, statistics.max_raw)
            )
            self._least = least if self._least is None else min(self._least, least)
            self._most = most if self._most is None else max(self._most, most)
        elif statistics.null_count < chunk.num_values and not self._may_be_nan:
            self.has_bounds = False  # its values are too long

    def lower_bound(self) -> str | None:
        return self._bound(self._least, _cut)

    def upper_bound(self) -> str | None:
        return self._bound(self._most, _cut_above)

    def _bound(self, value: Any, cut: Callable[[Any], Any]) -> str | None:
        if not self.has_bounds or value is None:
            return None
        if isinstance(self.kind, StringType | BinaryType):
            value = cut(value)
        content = None if value is None else _SERIALISED[type(self.kind)](value)
        return None if content is None else content.hex()


def _comparable(kind: IcebergType, raw: Any) -> Any:
    match kind:
        case DecimalType() if isinstance(raw, bytes):
            return int.from_bytes(raw, "big", signed=True)
        case StringType():
            return raw.decode(errors="replace")
        case _:
            return raw


def _cut(value: str | bytes) -> str | bytes:
    return value[:_LONGEST]


def _cut_above(value: str | bytes) -> str | bytes | None:
    """Shorten an upper bound without going below it; None if that is impossible."""
    if len(value) <= _LONGEST:
        return value
    for end in range(_LONGEST, 0, -1):
        last = value[end - 1]
        if isinstance(last, int):
            if last < 0xFF:
                return bytes(value[: end - 1]) + bytes([last + 1])  # type: ignore[arg-type]
        elif ord(last) < 0x10FFFF:
            return f"{value[: end - 1]!s}{chr(_after_surrogates(ord(last) + 1))}"
    return None


def _after_surrogates(code: int) -> int:
    """The next code point that is a character: half of a surrogate pair is not."""
    return 0xE000 if 0xD800 <= code <= 0xDFFF else code


def _packed(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(layout).pack


_SERIALISED: Mapping[type[IcebergType], Callable[[Any], bytes]] = {
    BooleanType: _packed("<?"),
    **dict.fromkeys((IntegerType, DateType), _packed("<i")),
    **dict.fromkeys((LongType, TimeType, TimestampType, TimestamptzType), _packed("<q")),
    **dict.fromkeys((TimestampNanoType, TimestamptzNanoType), _packed("<q")),
    FloatType: _packed("<f"),
    DoubleType: _packed("<d"),
    DecimalType: decimal_bytes,
    StringType: str.encode,
    **dict.fromkeys((BinaryType, FixedType), bytes),
}
"""Bounds as appendix D of Iceberg's specification has them.

UUIDs have none: engines do not agree on their order.
"""
