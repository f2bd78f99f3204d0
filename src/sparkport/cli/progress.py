"""A moving line while a person waits: on stderr, and only if that is a terminal."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from sparkport.lines import one_line

__all__ = ["spinner"]

_CLEAR = "\r\x1b[K"
_EVERY = 0.1
_FIRST = 0.5
"""Seconds before the first line: what is quicker needs none."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


class spinner:  # noqa: N801 - a context manager, named as those of contextlib are
    """A line that says what is being done, and for how long. A function says it anew each time."""

    def __init__(self, what: str | Callable[[], str]) -> None:
        self._what = what
        self._terminal = sys.stderr.isatty()
        self._plain = not _can_show(_FRAMES + "…")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="sparkport-progress", daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> None:
        if self._terminal:
            for handler in _on_this_terminal():
                handler.setFormatter(_Clearing(handler.formatter))
            self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._terminal:
            self._stopped.set()
            self._thread.join()
            for handler in _on_this_terminal():
                if isinstance(handler.formatter, _Clearing):
                    handler.setFormatter(handler.formatter.usual)
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _draw(self) -> None:
        if self._stopped.wait(_FIRST):
            return
        frames, dots = (_PLAIN_FRAMES, "...") if self._plain else (_FRAMES, "…")
        for frame in itertools.cycle(frames):
            seconds = int(time.monotonic() - self._started)
            what = self._what if isinstance(self._what, str) else self._what()
            sys.stderr.write(f"{_CLEAR}{frame} {one_line(what)} {dots} {seconds} s")
            sys.stderr.flush()
            if self._stopped.wait(_EVERY):
                return


class _Clearing(logging.Formatter):
    """Clears the line in the same write as what is logged; the line is drawn again below."""

    def __init__(self, usual: logging.Formatter | None) -> None:
        super().__init__()
        self.usual = usual

    def format(self, record: logging.LogRecord) -> str:
        return _CLEAR + (
            super().format(record) if self.usual is None else self.usual.format(record)
        )


def _on_this_terminal() -> Iterator[logging.Handler]:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            yield handler


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stderr.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
