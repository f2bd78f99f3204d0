"""Patterns of paths such as `lake.sales.orders`, in which rules name their objects.

`*` stands for any characters but dots. `**` between two dots stands for any number of parts of the
path, including none. A rule on a path applies to everything inside it.
"""

from __future__ import annotations

import re

from sparkport.catalog.names import folded

__all__ = ["PathPattern", "covering_nested"]

_ANY = "*"
_ANY_PARTS = "**"


class PathPattern:
    """A pattern of paths. It ignores case, as DuckDB does in names. Thread-safe."""

    def __init__(self, text: str) -> None:
        steps = [_step(part) for part in text.split(".")]
        self._covers = re.compile("".join(steps))
        reaches = ""
        for step in reversed(steps):
            reaches = rf"{step}(?:\Z|{reaches})"
        self._reaches = re.compile(reaches)

    def covers(self, path: str) -> bool:
        """Whether the pattern matches the object of that path, or a container of it."""
        return self._covers.match(_plain(path) + ".") is not None

    def may_reach(self, path: str) -> bool:
        """Whether the pattern matches that object, a container, or perhaps an object in it."""
        return self._reaches.match(_plain(path) + ".") is not None


def covering_nested(text: str) -> str | None:
    """Suggest a pattern that also covers nested schemas.

    Returns None for a pattern that covers them already.
    """
    parts, rest = text.split("."), []
    while parts and parts[-1] == _ANY:  # it covers everything, however deep
        rest.append(parts.pop())
    better: list[str] = []
    for index, part in enumerate(parts):
        if part == _ANY_PARTS:
            return None
        within = 0 < index < len(parts) - 1
        better += (
            [_ANY_PARTS]
            if within and part == _ANY
            else [part, _ANY_PARTS]
            if within and _ANY in part
            else [part]
        )
    return ".".join([*better, *rest]) if _ANY_PARTS in better else None


def _step(part: str) -> str:
    """Translate a part of the pattern to a regular expression; parts of a path end with a dot."""
    if part == _ANY_PARTS:
        return r"(?:[^.]*\.)*"
    return "[^.]*".join(re.escape(_plain(piece)) for piece in part.split(_ANY)) + r"\."


def _plain(name: str) -> str:
    return folded(name).decode(errors="surrogateescape")
