"""Readers, and other iterables, that catalogs hand over: whoever has received one closes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["closing_reader"]

_T = TypeVar("_T")


@contextmanager
def closing_reader(reader: Iterable[_T]) -> Iterator[Iterator[_T]]:
    """Close what can be closed, also when the client has cancelled: generators then see GeneratorExit."""
    iterator = iter(reader)
    try:
        yield iterator
    finally:
        for each in (iterator, reader):
            close = getattr(each, "close", None)
            if close is not None:
                close()
