"""The fenced code blocks of a page, and what comments in the page say about how they are run.

A comment before a block, `<!-- test: … -->`, may say:

    lake                  the page is about a lake: its SQL needs Spark (anywhere in the page)
    not run: <reason>     the next block cannot be run here
    python <statements>   run these first, in the namespace of the page's Python blocks
    file <name>           the next block is a file of that name, in the folder of the page's run
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "Page", "pages"]

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!-- test: (?P<text>.*?) -->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its language, text and first line, and the comments since the block before."""

    language: str
    text: str
    line: int
    said: tuple[str, ...]

    @property
    def reason_not_to_run(self) -> str | None:
        return self._said("not run:")

    @property
    def file(self) -> str | None:
        return self._said("file ")

    @property
    def preparations(self) -> list[str]:
        return [each.removeprefix("python ") for each in self.said if each.startswith("python ")]

    def _said(self, word: str) -> str | None:
        return next(
            (each.removeprefix(word).strip() for each in self.said if each.startswith(word)), None
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def needs_lake(self) -> bool:
        return "<!-- test: lake -->" in self.text

    @property
    def prose(self) -> str:
        """The text without its blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self) -> list[Block]:
        text, found, end = self.text, [], 0
        for match in _FENCE.finditer(text):
            said = tuple(
                each["text"].strip() for each in _COMMENT.finditer(text, end, match.start())
            )
            indent = len(match["indent"])
            lines = [line[indent:] for line in match["text"].splitlines()]
            number = text.count("\n", 0, match.start()) + 1
            found.append(Block(match["language"], "\n".join(lines) + "\n", number, said))
            end = match.end()
        return found


def pages() -> list[Page]:
    """The README and all pages of `docs/` but the decisions, which are history."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path) for path in found if ROOT / "docs" / "decisions" not in path.parents]
