"""Every code block of the README and `docs/` does what its page says, on `make serve`."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import ROOT, Page, pages
from tests.docs.running import run_page

import sparkport
from sparkport.testing import DuckDBClient

MOST_NOT_RUN = 6
"""How many blocks cannot be run here, each with its reason beside it. Think before you raise it."""


def _id(page: Page) -> str:
    return page.name


@pytest.mark.parametrize("page", [each for each in pages() if not each.needs_lake], ids=_id)
def test_page(page, tmp_path, monkeypatch):
    run_page(page, tmp_path, None, monkeypatch, {})


@pytest.mark.spark
@pytest.mark.timeout(280)
@pytest.mark.parametrize("page", [each for each in pages() if each.needs_lake], ids=_id)
def test_page_about_the_lake(page, tmp_path, monkeypatch, documented_lake):
    run_page(page, tmp_path, documented_lake, monkeypatch, {})


def test_few_blocks_are_not_run():
    reasons = [block.reason_not_to_run for page in pages() for block in page.blocks()]
    assert len([each for each in reasons if each is not None]) <= MOST_NOT_RUN
    assert "" not in reasons


@pytest.mark.spark
@pytest.mark.timeout(280)
def test_all_functions_of_the_lake_are_in_the_reference(documented_lake):
    text = (ROOT / "docs/reference/functions.md").read_text("utf-8")
    described = set(re.findall(r"^\| `(\w+)\(", text, re.MULTILINE))
    with (
        sparkport.Server(documented_lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "lake") as client,
    ):
        assert {function.name for function in client.functions("demo")} == described
