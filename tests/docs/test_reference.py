"""The reference says what the code says."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import ROOT, Page
from tests.docs.tables import GENERATED, with_tables

import sparkport
from sparkport import catalog, errors


@pytest.mark.parametrize("name", GENERATED)
def test_generated_tables_are_up_to_date(name):
    page, make = GENERATED[name]
    text = (ROOT / page).read_text("utf-8")

    assert with_tables(text, name, make()) == text, "run `.venv/bin/python -m tests.docs.tables`"


def test_all_errors_are_explained_with_their_status_and_what_duckdb_shows():
    page = Page(ROOT / "docs/reference/errors.md").prose
    rows = {
        row[1]: (row[2], row[3])
        for row in re.finditer(r"^\| `(\w+)` \| `(\w+)` \| ([\w ]+) \|", page, re.MULTILINE)
    }
    shown = {
        "InvalidInputException": "Invalid Input Error",
        "ConstraintException": "Constraint Error",
        "PermissionException": "Permission Error",
        None: "IO Error",
    }

    assert rows == {
        name: (getattr(errors, name).code, shown[getattr(errors, name).duckdb_exception])
        for name in errors.__all__
    }


def test_all_public_names_are_mentioned():
    pages = [Page(ROOT / "docs/reference" / name).text for name in ("python-api.md", "errors.md")]
    mentioned = set(re.findall(r"`(\w+)[`(]", "".join(pages)))

    assert {*sparkport.__all__, *catalog.__all__} <= mentioned
