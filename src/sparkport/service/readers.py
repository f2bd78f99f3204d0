"""Readers that catalogs hand over: whoever has received one closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.catalog import RecordReader

__all__ = ["closing_reader"]


@contextmanager
def closing_reader(reader: RecordReader) -> Iterator[RecordReader]:
    """Close what can be closed, also when the client has cancelled: generators then see GeneratorExit."""
    iterator = iter(reader)
    try:
        yield iterator
    finally:
        for each in (iterator, reader):
            close = getattr(each, "close", None)
            if close is not None:
                close()
