"""The status page, looked at in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.server.browser import Browser, chromium
from tests.server.catalogs import NUMBERS, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, path, ticket_message
from tests.server.test_http_care import CaredFor, run

import sparkport as sp

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PROGRAM = chromium()
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        PROGRAM is None, reason="there is no Chromium; Debian's package is called chromium"
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


def half_done(ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
    ctx.report_progress(0.42)
    ctx.report_route("in_place")
    yield numbers(1000).to_batches()[0]
    while True:
        ctx.wait(0.05)


def failing(_ctx: sp.Context, _options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
    yield numbers(1).to_batches()[0]
    raise sp.ConstraintViolation(f"no: {EVIL}")


def catalog():
    tables = [ScriptedTable(name, NUMBERS, half_done) for name in ("orders", EVIL)]
    return catalog_of(
        *tables, ScriptedTable("bad", NUMBERS, failing), ListedTable("t", numbers()), name="shop"
    )


def open_scan(client: RawClient, table: str, token: str | None = None) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    (endpoint,) = client.endpoints(path("s", table), headers=headers)
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers, timeout=50)
    next(call)
    next(call)
    return call


def click(page: Any, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def test_a_running_scan_is_shown_with_its_progress_and_can_be_cancelled(browser, start, connect):
    server = start(catalog(), sp.ServerSettings(http="127.0.0.1:0"))
    client = connect(server)
    page = browser.open(server.status_page)
    page.wait_for("document.body.innerText.includes('Nothing is running')")
    call = open_scan(client, "orders")

    page.wait_for("document.querySelector('#running tbody tr')?.innerText.includes('42 %')")
    row = page.run("document.querySelector('#running tbody tr').innerText")

    assert "shop.s.orders" in row
    assert "42 %" in row
    assert "1.0 k" in row
    assert "in_place" in row
    assert page.run("document.querySelector('progress').value") == 0.42
    assert page.run("document.getElementById('state').textContent") == "serving"
    assert page.run("document.getElementById('location').textContent") == server.location
    assert "shop" in page.run("document.getElementById('catalogs').innerText")
    # Refreshing must not make it anew.
    page.run("window.kept = document.querySelector('#running tbody tr')")
    before = page.run("kept.cells[6].innerText")
    page.wait_for(f"kept.cells[6].innerText !== {before!r}")
    assert page.run("kept === document.querySelector('#running tbody tr')")

    page.run("setInterval(refresh, 100)")  # we are in a hurry
    button = "const button = document.querySelector('#running button'); button.click();"
    assert page.run(f"(() => {{ {button} return button.textContent; }})()") == "Really?"
    assert server._watching.activity.running()
    page.run(f"(() => {{ {button} button.click(); }})()")  # twice: if that took long, it asks again

    page.wait_for("!document.querySelector('#running tbody tr')")
    with pytest.raises(Exception, match="CANCELLED"):
        list(call)
    page.wait_for("document.getElementById('errors').innerText.includes('cancelled by somebody')")
    assert page.complaints == []


def test_names_and_errors_are_text_and_never_executed(browser, start, connect):
    server = start(catalog(), sp.ServerSettings(http="127.0.0.1:0"))
    client = connect(server)
    call = open_scan(client, EVIL)
    client.scan_failure(path("s", "bad"))
    client.action_failure(
        "x" + EVIL, b"", {"airport-trace-id": EVIL, "airport-client-session-id": EVIL}
    )
    page = browser.open(server.status_page)

    page.wait_for(
        "document.querySelector('#running tbody tr') && document.querySelectorAll('#errors "
        "li').length === 2"
    )

    assert EVIL in page.run("document.querySelector('#running tbody').innerText")
    assert EVIL in page.run("document.getElementById('errors').innerText")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.complaints == []
    call.cancel()


@pytest.mark.parametrize("width", [320, 1200])
def test_the_care_of_tables_is_shown_with_the_progress_of_the_step_that_runs(browser, start, width):
    cared = CaredFor(
        "shop",
        run("s.now", 2.0, seconds=None, done="", progress=0.25),
        run(EVIL, 1.0, problem=f"no: {EVIL}", done=""),
    )
    page = browser.open(
        start(cared, sp.ServerSettings(http="127.0.0.1:0")).status_page, width=width, height=844
    )
    page.wait_for("document.querySelectorAll('#care tbody tr').length === 2")

    first, second = (
        page.run(f"document.querySelectorAll('#care tbody tr')[{each}].innerText")
        for each in (0, 1)
    )
    assert "shop.s.now" in first
    assert "25 %" in first
    assert page.run("document.querySelector('#care progress').value") == 0.25
    assert f"no: {EVIL}" in second
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("document.documentElement.scrollWidth") <= width
    cared.runs[0] = run("s.now", 2.0)
    page.wait_for("document.querySelector('#care tbody').innerText.includes('became 1')")
    assert page.complaints == []


_NAMELESS = "each => !(each.ariaLabel || each.labels?.length || each.textContent)"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (320, True), (1200, True)])
def test_it_fits_a_phone_and_a_desk(browser, start, connect, width, dark):
    server = start(catalog(), sp.ServerSettings(http="127.0.0.1:0"))
    client = connect(server)
    calls = [open_scan(client, "orders"), open_scan(client, EVIL)]
    client.scan_failure(path("s", "bad"))
    client.action_failure("y" * 200, b"")
    server._watching.activity.sample()
    page = browser.open(server.status_page, width=width, height=844, dark=dark)
    page.wait_for("document.querySelectorAll('#running tbody tr').length === 2")
    page.wait_for("document.querySelector('#chart text')")
    page.run("document.querySelector('details').open = true")

    assert page.run("document.documentElement.scrollWidth") <= width
    ends = (
        "[...document.querySelectorAll('main *')].map(each => each.getBoundingClientRect().right)"
    )
    assert page.run(f"Math.max(...{ends})") <= width
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(22, 21, 20)" if dark else "rgb(246, 246, 244)")
    assert (
        page.run(f"[...document.querySelectorAll('button, input, svg')].filter({_NAMELESS}).length")
        == 0
    )
    for call in calls:
        call.cancel()


def test_signing_in_and_out(browser, start, connect):
    authenticate = sp.TokenAuthenticator({"token-a": "ada", "token-b": "bob"})
    settings = sp.ServerSettings(
        authenticate=authenticate, policy=sp.Policy(admins=["ada"]), http="127.0.0.1:0"
    )
    server = start(catalog(), settings)
    client = connect(server)
    calls = [open_scan(client, "orders", token) for token in ("token-a", "token-b")]
    page = browser.open(server.status_page)

    def sign_in(token: str) -> None:
        page.wait_for("!document.getElementById('sign-in').hidden")
        page.run(f"document.getElementById('token').value = {token!r}")
        click(page, "#sign-in button")

    page.wait_for("!document.getElementById('sign-in').hidden")
    assert "shop" not in page.text
    sign_in("wrong")
    page.wait_for(
        "document.getElementById('sign-in-problem').textContent.includes('not known here')"
    )
    assert page.run("sessionStorage.length") == 0
    sign_in("tök en")
    page.wait_for(
        "document.getElementById('sign-in-problem').textContent.includes('plain letters')"
    )
    sign_in("token-b")
    page.wait_for("document.querySelectorAll('#running tbody tr').length === 1")
    assert "bob" in page.run("document.getElementById('viewer').innerText")
    assert "ada" not in page.text
    assert page.run("document.getElementById('chart').checkVisibility()") is False
    click(page, "#sign-out")
    sign_in("token-a")
    page.wait_for("document.querySelectorAll('#running tbody tr').length === 2")
    assert page.run("document.getElementById('chart').checkVisibility()") is True
    # A token never gets into an address.
    assert page.run("location.href") == server.status_page + "/"
    assert page.run("document.cookie + localStorage.length") == "0"
    # The browser itself says so, and only that.
    assert all("401" in complaint for complaint in page.complaints)
    for call in calls:
        call.cancel()


def test_a_server_that_stops_says_so_and_one_that_is_gone_is_noticed(browser, start):
    server = start(catalog(), sp.ServerSettings(http="127.0.0.1:0"))
    page = browser.open(server.status_page)
    page.wait_for("document.getElementById('state').textContent === 'serving'")
    page.run("setInterval(refresh, 100)")  # we are in a hurry
    server._watching.draining = True
    page.wait_for("document.getElementById('state').textContent === 'stopping'")

    server.stop(grace=0)

    page.wait_for("document.getElementById('state').textContent === 'no connection'")
