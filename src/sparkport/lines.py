"""Text that others have chosen, in lines that people read."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(text: str) -> str:
    """The text with everything that is not printed as itself written out: `\\n`, `\\x1b`,
    `\\u2028`.

    That is what ends a line, drives a terminal, or changes the order in which a line is read. Tabs
    and backslashes stay as they are.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode("ascii")
