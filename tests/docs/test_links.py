"""Links between pages, and to files, lead somewhere; each page can be reached from the map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Page, pages

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"|srcset=\"([^\"]+)\"")
_PAGES = [*pages(), *(Page(ROOT / name) for name in ("CONTRIBUTING.md", "CHANGELOG.md"))]


def links(page: Page) -> list[str]:
    return [next(filter(None, match.groups())) for match in _LINK.finditer(page.prose)]


def anchors(page: Page) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ +(.*)$", page.prose, re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        if not path.exists() or (anchor and anchor not in anchors(Page(path))):
            broken.append(link)
    assert not broken


def test_every_page_can_be_reached_from_the_map():
    start = Page(ROOT / "docs" / "index.md")
    seen, waiting = {start.path}, [start]
    while waiting:
        page = waiting.pop()
        for link in links(page):
            path: Path = (page.path.parent / link.partition("#")[0]).resolve()
            if (
                path.suffix == ".md"
                and path.exists()
                and path not in seen
                and path.is_relative_to(ROOT / "docs")
            ):
                seen.add(path)
                waiting.append(Page(path))
    assert {page.path for page in pages() if page.path.is_relative_to(ROOT / "docs")} <= seen
