"""The status page's part about the care of tables: who sees it, and what catalogs may tell."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.catalogs import ListedCatalog, catalog_of
from tests.server.test_http import ask, status

import sparkport as sp

EVIL = "t\n\x1b[31m<b>"


def run(table: str, began: float, **more: Any) -> dict[str, Any]:
    told = {"step": "join files", "why": "40 small files", "done": "40 files became 1"}
    rest = {"seconds": 1.5, "problem": "", "progress": 1.0}
    return {"table": table, "began": began, **told, **rest, **more}


class CaredFor(ListedCatalog):
    """A catalog that tells what it is told to."""

    def __init__(self, name: str, *runs: dict[str, Any]) -> None:
        super().__init__(name)
        self.runs = list(runs)

    def care_runs(self) -> list[dict[str, Any]]:
        return self.runs

    def gauges(self) -> dict[str, float]:
        return {"care_steps": float(len(self.runs)), "care_running": 1.0}


@pytest.fixture
def http() -> sp.ServerSettings:
    return sp.ServerSettings(http="127.0.0.1:0")


def test_the_steps_of_all_catalogs_are_shown_and_the_one_that_runs_first(start, http):
    one = CaredFor("one", run("s.young", 30.0), run("s.old", 10.0, problem="it is full", done=""))
    other = CaredFor("other", run("s.now", 5.0, seconds=None, done="", progress=0.25))

    shown = status(start([one, other], http).status_page)["care"]

    assert [each["object"] for each in shown] == ["other.s.now", "one.s.young", "one.s.old"]
    assert (shown[0]["seconds"], shown[0]["progress"]) == (None, 0.25)
    assert shown[1] == {
        "object": "one.s.young",
        "step": "join files",
        "why": "40 small files",
        "done": "40 files became 1",
        "problem": "",
        "began": 30.0,
        "seconds": 1.5,
        "progress": 1.0,
    }
    assert shown[2]["problem"] == "it is full"


def test_where_no_catalog_tells_of_care_there_is_nothing_to_show(start, http):
    assert status(start(catalog_of(name="cat"), http).status_page)["care"] is None
    assert status(start(CaredFor("cat"), http).status_page)["care"] == []


def test_names_of_tables_cannot_garble_the_page_and_are_not_in_the_metrics(start, http):
    page = start(CaredFor("cat", run(EVIL, 1.0)), http).status_page

    assert status(page)["care"][0]["object"] == "cat.t\\n\\x1b[31m<b>"
    metrics = ask(page, "/metrics")[2]
    assert 'sparkport_catalog_care_steps{catalog="cat"} 1.0' in metrics
    assert "[31m" not in metrics


def test_only_administrators_see_it(start):
    authenticate = sp.TokenAuthenticator({"token-a": "ada", "token-b": "bob"})
    grants = [sp.Grant(("ada", "bob"), "cat", (sp.Privilege.READ,))]
    settings = sp.ServerSettings(
        authenticate=authenticate, policy=sp.Policy(grants, admins=["ada"]), http="127.0.0.1:0"
    )
    page = start(CaredFor("cat", run("s.t", 1.0)), settings).status_page

    assert [each["object"] for each in status(page, "token-a")["care"]] == ["cat.s.t"]
    assert status(page, "token-b")["care"] is None


def test_a_catalog_that_cannot_tell_does_not_hide_the_others(start, http):
    broken = CaredFor("broken", {"table": "s.t"})

    shown = status(start([broken, CaredFor("good", run("s.t", 1.0))], http).status_page)

    assert [each["object"] for each in shown["care"]] == ["good.s.t"]
    assert sorted(shown["catalogs"]) == ["broken", "good"]


def test_much_care_is_shown_in_part(start, http):
    runs = [run(f"s.t{number}", float(-number)) for number in range(200)]

    shown = status(start(CaredFor("cat", *runs), http).status_page)["care"]

    assert [each["object"] for each in shown] == [f"cat.s.t{number}" for number in range(50)]
