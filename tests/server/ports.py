"""Ports that were a server's own a moment ago, and that any process may have been given since."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sparkport.server import Server

__all__ = ["start_again"]


def start_again(stopped: Callable[[], Server]) -> Server:
    """Start a stopped server, or, up to twice, another server if its port is in use.

    Raises: OSError.
    """
    for _ in range(2):
        with suppress(OSError):
            return stopped().start()
    return stopped().start()
