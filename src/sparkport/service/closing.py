"""Closing the readers and other iterables that catalogs return; the receiver closes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["closing_reader"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@contextmanager
def closing_reader(
    reader: Iterable[_T], run: Callable[[Callable[[], object]], object] = lambda close: close()
) -> Iterator[Iterator[_T]]:
    """Close a reader after use, also when the client has cancelled: generators see GeneratorExit.

    `run` calls `close`. For a function this is a guarded step like every other.
    """
    iterator = iter(reader)
    try:
        yield iterator
    except BaseException:
        try:
            _close(iterator, reader, run)
        except Exception:  # noqa: BLE001 - what went wrong first is what matters
            _log.exception("a reader could not be closed")
        raise
    _close(iterator, reader, run)


def _close(iterator: object, reader: object, run: Callable[[Callable[[], object]], object]) -> None:
    for each in (iterator, reader):
        close = getattr(each, "close", None)
        if close is not None:
            run(close)
