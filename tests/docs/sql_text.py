"""Just enough SQL grammar to find names, calls and clauses in statements that DuckDB has parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "NAME",
    "PATH",
    "Call",
    "calls",
    "closing",
    "parts_of",
    "split_at_commas",
    "split_clauses",
    "without_comments",
]

NAME = r'(?:"(?:[^"]|"")*"|[A-Za-z_]\w*)'
PATH = rf"{NAME}(?:\.{NAME}){{0,2}}"

_TOKEN = re.compile(
    r"""\$\$.*?\$\$|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\w+|\s+|.""", re.DOTALL
)


def _tokens(sql: str) -> Iterator[tuple[int, str]]:
    for match in _TOKEN.finditer(sql):
        yield match.start(), match[0]


def without_comments(sql: str) -> str:
    return "".join(
        " " if token.startswith(("--", "/*")) else token for _, token in _tokens(sql)
    ).strip()


def closing(sql: str, opening: int) -> int:
    """The position of the bracket that closes the one at this position."""
    depth = 0
    for start, token in _tokens(sql[opening:]):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0:
            return opening + start
    raise ValueError(f"a bracket stays open in {sql!r}")


def split_at_commas(sql: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for _, token in _tokens(sql):
        depth += (token in "([{") - (token in ")]}")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def split_clauses(sql: str, *words: str) -> dict[str, str]:
    """The text before the first of these words, under "", and what follows each of them.

    Words in brackets do not count.
    """
    found, depth, clause = {"": ""}, 0, ""
    wanted = {word.upper() for word in words}
    for _, token in _tokens(sql):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and token.upper() in wanted:
            clause = token.upper()
            found[clause] = ""
        else:
            found[clause] += token
    return {word: text.strip() for word, text in found.items()}


def parts_of(path: str) -> list[str]:
    """The names of a qualified name."""
    return [part.strip('"') for part in re.findall(NAME, path)]


@dataclass(frozen=True, slots=True)
class Call:
    """A name that is followed by an argument list: its position in the text, and its parts."""

    start: int
    end: int
    path: tuple[str, ...]
    arguments: list[str]


_CALL = re.compile(rf"(?<![\w.\"])({NAME}(?:\.{NAME})*)\s*\(")


def calls(sql: str) -> Iterator[Call]:
    """All calls, the outer before the inner; strings are skipped."""
    texts = [(start, start + len(token)) for start, token in _tokens(sql) if token[0] in "'$"]
    for match in _CALL.finditer(sql):
        if any(start <= match.start() < end for start, end in texts):
            continue
        end = closing(sql, match.end() - 1)
        path = tuple(parts_of(match[1]))
        yield Call(match.start(), end + 1, path, split_at_commas(sql[match.end() : end]))
