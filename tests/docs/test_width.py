"""Lines of the README and of `docs/` are at most 100 characters wide."""

from __future__ import annotations

import pytest
from tests.docs.blocks import ROOT, Page

WIDTH = 100
_PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def can_be_wrapped(line: str) -> bool:
    """Whether a line can be wrapped: table rows and single words, such as long links, cannot."""
    return not line.startswith("|") and len(line.split()) > 1


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_lines_are_at_most_100_wide(page):
    lines = enumerate(page.text.splitlines(), 1)
    wide = [number for number, line in lines if len(line) > WIDTH and can_be_wrapped(line)]

    assert not wide, f"wrap these lines of {page.name}"
