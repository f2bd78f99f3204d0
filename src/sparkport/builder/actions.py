"""Python functions as actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sparkport.catalog import Context

__all__ = ["action_body"]


def action_body(function: Callable[..., Any]) -> Callable[[Context, bytes], Iterable[bytes]]:
    """Wrap a function so that its results are bytes: text is encoded, and None is no row."""

    def run(ctx: Context, parameter: bytes) -> Iterator[bytes]:
        result = function(ctx, parameter)
        if result is None:
            return
        # A value that is no row at all is passed on too: the service says what is wrong with it.
        several = isinstance(result, Iterable) and not isinstance(result, str | bytes)
        for row in result if several else (result,):
            yield row.encode() if isinstance(row, str) else row

    return run
