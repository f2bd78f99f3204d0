"""Parquet's page index: where the pages of a column are, which rows they hold, and between which
bounds.

Writers may leave it out. Of a file on this machine the pages' headers tell the same, but for the
bounds.
"""

from __future__ import annotations

import bisect
import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg.data_file import ByteRange, DataFile
from sparkport.spark.iceberg.thrift import Struct, ThriftReader

__all__ = ["Chunk", "ColumnPages", "PageBounds", "pages_of"]

_log = logging.getLogger(__name__)

_MOST_CHUNKS = 4096
"""Columns times row groups of a file. To look through larger footers takes too long."""
_IN_MEMORY = 8
"""How many times larger a footer is in memory than in its file, about."""
_PAGE_BYTES = 500
_HEADER_BYTES = 64 * 1024
"""At most, of a page's header: it may hold bounds."""
_REPEATED = 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the footer says of a column in a row group, by the numbers of Parquet's fields."""

    element: bytes
    """Of the file's schema, as it was written."""
    metadata: Struct
    created_by: bytes
    offset_index: ByteRange | None
    column_index: ByteRange | None

    @property
    def start(self) -> int:
        """Where the dictionary begins, or the first page."""
        return int(self.metadata.get(11) or self.metadata[9])


@dataclass(frozen=True, slots=True)
class PageBounds:
    """What the index says of the values in a page. Values are written as Parquet does it."""

    lower: bytes
    upper: bytes
    nulls: int | None
    only_nulls: bool


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of a column in a row group."""

    chunk: Chunk
    rows: int
    """Of the row group."""
    starts: tuple[int, ...]
    """The first row of each page."""
    places: tuple[ByteRange, ...]
    bounds: tuple[PageBounds, ...] | None

    def page_of(self, row: int) -> int:
        return bisect.bisect_right(self.starts, row) - 1

    def end_of(self, page: int) -> int:
        """The row after the last of a page."""
        return self.starts[page + 1] if page + 1 < len(self.starts) else self.rows


def pages_of(file: DataFile, group: int, leaves: Sequence[int]) -> list[ColumnPages] | None:
    """The pages of some leaf columns in a row group; None where one of them has no usable index.

    Raises: OSError.
    """
    keys = [(file.location, file.size, group, leaf) for leaf in leaves]
    found = {key: known for key in keys if (known := _pages.find(key, None)) is not None}
    missing = [key for key in dict.fromkeys(keys) if key not in found]
    try:
        if missing:
            rows = file.metadata.row_group(group).num_rows
            chunks = [_chunk(file, group, leaf) for *_, leaf in missing]
            for key, pages in zip(missing, _read(file, rows, chunks), strict=True):
                found[key] = _pages.add(key, pages, len(pages.starts) * _PAGE_BYTES)
    except (LookupError, TypeError, ValueError):
        _log.debug("a file has no page index of use", exc_info=True)
        return None
    return [found[key] for key in keys]


def _read(file: DataFile, rows: int, chunks: Sequence[Chunk]) -> list[ColumnPages]:
    """The indexes of columns. Raises: OSError; ValueError, TypeError, LookupError: unusable."""
    ranges = [each for chunk in chunks for each in (chunk.offset_index, chunk.column_index) if each]
    content = dict(zip(ranges, map(bytes, file.read(ranges)), strict=True))
    columns = []
    for chunk in chunks:
        if chunk.offset_index is not None:
            located = ThriftReader(content[chunk.offset_index]).struct()[1]
            pages = [(each[3], each[1], each[2]) for each in located]
        elif file.is_local:
            pages = _pages_by_headers(file, chunk)
        else:
            raise ValueError("the column has no index")
        bounds = None if chunk.column_index is None else _bounds(content[chunk.column_index])
        columns.append(_column_pages(chunk, rows, pages, bounds))
    return columns


def _pages_by_headers(file: DataFile, chunk: Chunk) -> list[tuple[int, int, int]]:
    """The first row, place and size of each page, as their headers tell them."""
    start, length = chunk.start, chunk.metadata[7]
    (content,) = file.read([(start, length)])
    pages, at, row = [], 0, 0
    while at < length:
        reader = ThriftReader(bytes(content[at : at + _HEADER_BYTES]))
        header = reader.struct()
        size = reader.position + header[3]
        if values := header.get(5) or header.get(8):  # of version 1 or 2; or it is the dictionary
            pages.append((row, start + at, size))
            row += values[1]
        at += size
    return pages


def _column_pages(
    chunk: Chunk,
    rows: int,
    pages: Sequence[tuple[int, int, int]],
    bounds: tuple[PageBounds, ...] | None,
) -> ColumnPages:
    """Pages by first row, place and size. Raises: ValueError if they cannot be the column's."""
    starts = tuple(row for row, _, _ in pages)
    ends = (*starts[1:], rows)
    if not starts or starts[0] or any(map(operator.ge, starts, ends)):
        raise ValueError("the pages do not hold the rows one after the other")
    places = tuple((start, size) for _, start, size in pages)
    free = chunk.start
    for start, size in places:
        if start < free or size <= 0:
            raise ValueError("the pages are not where they can be")
        free = start + size
    if free > chunk.start + chunk.metadata[7] or (bounds and len(bounds) != len(starts)):
        raise ValueError("the pages are more or fewer than they can be")
    return ColumnPages(chunk, rows, starts, places, bounds)


def _bounds(column_index: bytes) -> tuple[PageBounds, ...]:
    found = ThriftReader(column_index).struct()
    nulls = found.get(5) or [None] * len(found[1])
    return tuple(
        PageBounds(lower, upper, count, only_nulls)
        for only_nulls, lower, upper, count in zip(found[1], found[2], found[3], nulls, strict=True)
    )


# ------------------------------------------------------------------------------------------ footer


def _chunk(file: DataFile, group: int, leaf: int) -> Chunk:
    """Raises: ValueError where pages of the column cannot be read."""
    key = file.location, file.size
    chunks = _footers.find(key, None)
    if chunks is None:
        metadata = file.metadata
        if metadata.num_row_groups * metadata.num_columns > _MOST_CHUNKS:
            raise ValueError("the footer is too long")
        sink = pa.BufferOutputStream()
        metadata.write_metadata_file(sink)
        content = sink.getvalue().to_pybytes()
        chunks = _footers.add(key, _chunks(content[4:-8]), len(content) * _IN_MEMORY)
    chunk = chunks[group][leaf]
    if chunk is None:
        raise ValueError("pages of the column cannot be read by themselves")
    return chunk


def _chunks(footer: bytes) -> list[list[Chunk | None]]:
    """The chunks by row group and leaf column. Raises: ValueError, TypeError, LookupError."""
    elements: list[bytes | None] = []
    found: Struct = {}
    reader = ThriftReader(footer)
    for number, kind in reader.fields():
        if number == 2:
            elements = _leaves(reader.structs_as_written())
        else:
            found[number] = reader.value(kind)
    created_by = found.get(6, b"")
    return [
        [
            _chunk_of(each, element, created_by)
            for each, element in zip(group[1], elements, strict=True)
        ]
        for group in found[4]
    ]


def _leaves(schema: Sequence[tuple[Struct, bytes]]) -> list[bytes | None]:
    """The elements of a schema that are leaves; None for those that are in others, or repeated."""
    leaves: list[bytes | None] = []
    open_groups = [schema[0][0].get(5, 0)]
    for element, content in schema[1:]:
        open_groups[-1] -= 1
        if 1 in element:
            is_flat = len(open_groups) == 1 and element.get(3, 0) != _REPEATED
            leaves.append(content if is_flat else None)
        else:
            open_groups.append(element.get(5, 0))
        while len(open_groups) > 1 and not open_groups[-1]:
            open_groups.pop()
    return leaves


def _chunk_of(chunk: Struct, element: bytes | None, created_by: bytes) -> Chunk | None:
    is_elsewhere_or_encrypted = 1 in chunk or 8 in chunk or 3 not in chunk
    if element is None or is_elsewhere_or_encrypted:
        return None
    offset_index = (chunk[4], chunk[5]) if chunk.get(5) else None
    column_index = (chunk[6], chunk[7]) if offset_index and chunk.get(7) else None
    return Chunk(element, chunk[3], created_by, offset_index, column_index)


_footers: Cache[tuple[str, int], list[list[Chunk | None]]] = Cache(32 * 1024 * 1024)
_pages: Cache[tuple[str, int, int, int], ColumnPages] = Cache(32 * 1024 * 1024)
"""What was read, by location, size, row group and leaf column. Data files never change."""
