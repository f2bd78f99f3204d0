"""Reads single pages of a data file.

Arrow reads a column of a row group from end to end. Where the file has an index of its pages, those
that are wanted are put into a small Parquet file in memory, which Arrow reads: its decoders, and no
second set of them, see the bytes.

Only columns without nested ones are read so. In doubt there is no answer, and Arrow reads the file
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set

import pyarrow as pa
import pyarrow.parquet as pq

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg.data_file import ByteRange, DataFile
from sparkport.spark.iceberg.page_index import Chunk, ColumnPages, pages_of
from sparkport.spark.iceberg.thrift import binary, i32, i64, list_of, struct_field, thrift_struct

__all__ = ["MOST_ROWS", "Span", "read_pages", "windows"]

_log = logging.getLogger(__name__)

Span = tuple[int, int]
"""Rows of a row group: the first, and the one after the last."""

_MAGIC = b"PAR1"
MOST_ROWS = 64
"""With more single rows than this, most pages hold one of them."""


def read_pages(
    file: DataFile, group: int, leaves: Sequence[int], spans: Sequence[Span]
) -> pa.RecordBatch | None:
    """Columns of the rows in spans, which ascend, as Arrow would read them from the file.

    None where Arrow must read them. Raises: OSError.
    """
    columns = pages_of(file, group, leaves)
    if columns is None:
        return None
    chosen = [_pages_in(pages, spans) for pages in columns]
    wanted = [_ranges(*each) for each in zip(columns, chosen, strict=True)]
    try:
        content = _contents(file, wanted, {_dictionary_of(pages) for pages in columns})
        arrays = [
            _rows(pages, numbers, [content[each] for each in own], spans)
            for pages, numbers, own in zip(columns, chosen, wanted, strict=True)
        ]
        fields = [file.schema_arrow.field(_name(pages.chunk)) for pages in columns]
        return pa.RecordBatch.from_arrays(
            [
                array if array.type.equals(field.type) else array.cast(field.type)
                for array, field in zip(arrays, fields, strict=True)
            ],
            schema=pa.schema(fields),
        )
    except (ValueError, LookupError, pa.ArrowException):
        _log.debug("pages of a file cannot be read by themselves", exc_info=True)
        return None


def _contents(
    file: DataFile, wanted: Sequence[Sequence[ByteRange]], dictionaries: Set[ByteRange | None]
) -> dict[ByteRange, bytes | memoryview]:
    """Ranges of a file. Dictionaries in a store are remembered: all rows of a row group need them.

    Raises: OSError, ValueError.
    """
    ranges = dict.fromkeys(each for ranges in wanted for each in ranges)
    known: dict[ByteRange, bytes | memoryview] = {
        each: found
        for each in ranges
        if each in dictionaries
        and (found := _dictionaries.find((file.location, file.size, each), None)) is not None
    }
    missing = [each for each in ranges if each not in known]
    contents = known | dict(zip(missing, file.read(missing), strict=True))
    for each in missing:
        if each in dictionaries and not file.is_local:
            place = file.location, file.size, each
            contents[each] = _dictionaries.add(place, bytes(contents[each]), each[1])
    return contents


def windows(spans: Sequence[Span], most: int) -> Iterator[list[Span]]:
    """Split spans into lists of at most so many rows."""
    window: list[Span] = []
    room = most
    for first, end in spans:
        while first < end:
            if not room:
                yield window
                window, room = [], most
            taken = min(end - first, room)
            window.append((first, first + taken))
            first, room = first + taken, room - taken
    if window:
        yield window


def _name(chunk: Chunk) -> str:
    return str(chunk.metadata[3][0], "utf-8")


def _pages_in(pages: ColumnPages, spans: Sequence[Span]) -> list[int]:
    """The numbers of the pages that hold a row of the spans, in order."""
    numbers: dict[int, None] = {}
    for first, end in spans:
        numbers.update(dict.fromkeys(range(pages.page_of(first), pages.page_of(end - 1) + 1)))
    return list(numbers)


def _ranges(pages: ColumnPages, numbers: Sequence[int]) -> list[ByteRange]:
    """Where the dictionary is, if there is one, and the pages."""
    dictionary = _dictionary_of(pages)
    places = (pages.places[number] for number in numbers)
    return [*places] if dictionary is None else [dictionary, *places]


def _dictionary_of(pages: ColumnPages) -> ByteRange | None:
    start, first = pages.chunk.start, pages.places[0][0]
    return (start, first - start) if start < first else None


def _rows(
    pages: ColumnPages,
    numbers: Sequence[int],
    contents: Sequence[bytes | memoryview],
    spans: Sequence[Span],
) -> pa.Array:
    """The values of a column in the spans. Raises: ValueError, ArrowException."""
    places, rows = {}, 0
    for number in numbers:
        places[number] = rows - pages.starts[number]
        rows += pages.end_of(number) - pages.starts[number]
    has_dictionary = len(contents) > len(numbers)
    small = _parquet_file(pages.chunk, rows, contents, has_dictionary)
    reader = pq.ParquetFile(pa.BufferReader(small), coerce_int96_timestamp_unit="us")
    values = reader.read(use_threads=False).column(0).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        (values,) = values.chunks
    if len(values) != rows:
        raise ValueError("the pages hold another number of rows than their index says")
    slices = [(first + places[pages.page_of(first)], end - first) for first, end in spans]
    if len(slices) == 1:
        return values.slice(*slices[0])
    if all(length == 1 for _, length in slices):
        return values.take(pa.array([start for start, _ in slices], pa.int64()))
    return pa.concat_arrays([values.slice(*each) for each in slices])


def _parquet_file(
    chunk: Chunk, rows: int, contents: Sequence[bytes | memoryview], has_dictionary: bool
) -> bytes:
    """A file of one column and one row group. The numbers are those of Parquet's fields."""
    size = sum(map(len, contents))
    known = chunk.metadata
    column = {
        1: i32(known[1]),
        2: list_of([i32(each) for each in known[2]]),
        3: list_of([binary(each) for each in known[3]]),
        4: i32(known[4]),
        5: i64(rows),
        6: i64(known[6]),
        7: i64(size),
        9: i64(len(_MAGIC) + (len(contents[0]) if has_dictionary else 0)),
    }
    if has_dictionary:
        column[11] = i64(len(_MAGIC))
    group = {
        1: list_of(
            [struct_field(thrift_struct({2: i64(0), 3: struct_field(thrift_struct(column))}))]
        ),
        2: i64(known[6]),
        3: i64(rows),
    }
    root = thrift_struct({4: binary(b"schema"), 5: i32(1)})
    footer = thrift_struct(
        {
            1: i32(2),
            2: list_of([struct_field(root), struct_field(chunk.element)]),
            3: i64(rows),
            4: list_of([struct_field(thrift_struct(group))]),
            6: binary(chunk.created_by),
        }
    )
    return b"".join([_MAGIC, *contents, footer, len(footer).to_bytes(4, "little"), _MAGIC])


_dictionaries: Cache[tuple[str, int, ByteRange], bytes] = Cache(32 * 1024 * 1024)
"""By location, size and place in the file. Data files never change."""
