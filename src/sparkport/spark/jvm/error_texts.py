"""Messages of Spark and Java, cut to what the person who typed the SQL may and should read."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["first_sentence", "scrubbed"]

_LONGEST = 600


def first_sentence(message: str) -> str:
    """A message without plans, stack traces and the query; the position in the query is kept."""
    text = re.split(
        r"\n\s+at |\n?\s*Driver stacktrace|\nTraceback|\n\s*JVM stacktrace|\nCaused by",
        message.strip(),
    )[0]
    where = _where(text)
    text = re.split(r"\n== SQL|;\s*\n|\n\n", text)[0].strip()
    head, _, rest = text.partition("\n")
    if head.rstrip().endswith(":") and rest:
        head = f"{head.rstrip()} {' '.join(rest.split())}"
    for pattern in _SUPERFLUOUS:
        head = pattern.sub("", head)
    head = scrubbed(head.strip().rstrip(";").strip())
    if len(head) > _LONGEST:
        head = f"{head[:_LONGEST]}…"
    return f"{head} {where}" if head and where else head


def scrubbed(text: str) -> str:
    """The text without private details: files, addresses, hosts, passwords and the like."""
    for pattern, stand_in in _SECRETS:
        text = pattern.sub(stand_in, text)
    return text


_SECRETS = (
    (
        re.compile(
            r"(?i)\b(password|passwd|secret|token|access[-_.]?key|credential)(s?\s*[=:]\s*)\S+"
        ),
        r"\1\2<hidden>",
    ),
    (re.compile(r"\bjdbc:[^\s'\"`,;)\]]+"), "<address>"),
    (re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`,;)\]]*[^\s'\"`,;)\].]"), "<address>"),
    (re.compile(r"\bfile:/[^\s'\"`,;)\]]*[^\s'\"`,;)\].]"), "<file>"),
    # At least two names: a division is not a path.
    (
        re.compile(
            r"(?<![\w/.)\]])/(?:[^\s/'\"`,;:()\[\]]+/)+[^\s/'\"`,;:()\[\]]*[^\s/'\"`,;:.()\[\]]"
        ),
        "<file>",
    ),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\"`,;)\]]+"), "<file>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b(?:localhost|[A-Za-z][\w-]*(?:\.[\w-]+)+):\d{2,5}\b"), "<host>"),
)


def _where(text: str) -> str:
    for pattern, first in _POSITIONS:
        found = pattern.search(text)
        if found is not None:
            return f"(line {found[1]}, position {int(found[2]) + first})"
    return ""


_POSITIONS = (
    (re.compile(r"== SQL \(line (\d+), position (\d+)\) =="), 0),
    (re.compile(r"\(line (\d+), pos (\d+)\)"), 1),
    (re.compile(r"; line (\d+) pos (\d+)"), 1),
)
"""Spark counts from 0 in some messages; the result always counts from 1."""

_SUPERFLUOUS: Sequence[re.Pattern[str]] = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*\(line \d+, pos \d+\)",
        r"\s*;?\s*line \d+ pos \d+;?",
        r"\s*SQLSTATE: \w{5}",
        r"\s*If necessary set \S+ to \S+ to bypass this error\.",
        r"^Job aborted due to stage failure: .*?\): (?=\S)",
        r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ",
    )
)
