"""Patterns of paths such as `lake.sales.orders`, by which rules say what they are about.

`*` stands for any characters but dots, and `**`, where it is all that is between two dots, for any
number of parts of the path, none included. What is said of a path holds for all that is in it.
"""

from __future__ import annotations

import re

from sparkport.catalog.names import folded

__all__ = ["PathPattern", "covering_nested"]

_ANY = "*"
_ANY_PARTS = "**"


class PathPattern:
    """One pattern. Names are compared as DuckDB does: the case of letters makes no difference.
    Thread-safe.
    """

    def __init__(self, text: str) -> None:
        steps = [_step(part) for part in text.split(".")]
        self._covers = re.compile("".join(steps))
        reaches = ""
        for step in reversed(steps):
            reaches = rf"{step}(?:\Z|{reaches})"
        self._reaches = re.compile(reaches)

    def covers(self, path: str) -> bool:
        """Whether it means the object of that path, or something that the object is in."""
        return self._covers.match(_plain(path) + ".") is not None

    def may_reach(self, path: str) -> bool:
        """Whether it means that object, something that it is in, or something that might be in
        it.
        """
        return self._reaches.match(_plain(path) + ".") is not None


def covering_nested(text: str) -> str | None:
    """The pattern to write in place of one that means an object in any schema, but not in schemas
    within those; None for one that needs no other.
    """
    parts, rest = text.split("."), []
    while parts and parts[-1] == _ANY:  # it covers whatever there is, however deep
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
    """What a part of the pattern matches of a path, in which each part ends with a dot."""
    if part == _ANY_PARTS:
        return r"(?:[^.]*\.)*"
    return "[^.]*".join(re.escape(_plain(piece)) for piece in part.split(_ANY)) + r"\."


def _plain(name: str) -> str:
    return folded(name).decode(errors="surrogateescape")
