"""Names, messages and owners that clients choose never make a log line of their own."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from tests.server.catalogs import NUMBERS, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import path
from tests.server.test_http import ask
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.lines import one_line
from sparkport.server.logs import configure_logging

FORGED = "2026-11-16 12:00:00,000 ERROR sparkport.server: the audit log cannot be written"
BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
TERMINAL = [
    "\x1b[2K",
    "\x1b]0;title\x07",
    "\x9b2K",
    "\b\b",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\x00",
]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The log of the process as text, once the test has configured it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("strange", BREAKS + TERMINAL, ids=repr)
def test_a_message_is_one_line_whatever_is_in_it(logged, strange):
    configure_logging(logging.INFO, stream=logged)

    logging.getLogger("some.where").info("table %s not found", f"t{strange}{FORGED}")

    text = logged.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert text[:-1].isprintable()
    assert FORGED in text
    assert strange not in text[:-1]


def test_what_is_printable_stays_as_it_is():
    assert one_line("größer als 3 €, \\n 数 'a' 🙂") == "größer als 3 €, \\n 数 'a' 🙂"
    assert one_line("a\tb\nc\x1b[m\u2028d") == "a\tb\\nc\\x1b[m\\u2028d"
    assert one_line("\ud800 \U000e0001") == "\\ud800 \\U000e0001"


def test_an_exception_is_set_off_from_the_lines_of_the_log(logged):
    configure_logging(logging.INFO, stream=logged)

    try:
        raise ValueError(f"boom\n{FORGED}\r\x1b[2Kgone")
    except ValueError:
        logging.getLogger("some.where").exception("it failed", stack_info=True)

    first, *rest = logged.getvalue()[:-1].split("\n")
    assert first.endswith("ERROR some.where: it failed")
    assert rest
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)
    assert any(FORGED in line for line in rest)


def test_json_is_one_line_too(logged):
    configure_logging(logging.INFO, "json", logged)

    logging.getLogger("some.where").info("%s", "".join(BREAKS + TERMINAL))

    assert len(logged.getvalue().splitlines()) == 1
    assert json.loads(logged.getvalue())["message"] == "".join(BREAKS + TERMINAL)


def test_a_client_cannot_forge_a_line(start, connect, logged):
    """The names of a table, a schema, and a user as a provider has let them be chosen."""
    name = f"t\n{FORGED}\u2028{FORGED}"
    authenticate = sp.TokenAuthenticator({"token": f"eve\n{FORGED}"})
    configure_logging(logging.DEBUG, stream=logged)
    server = start(
        catalog_of(ScriptedTable("t", NUMBERS, lambda *_: numbers().to_batches())),
        sp.ServerSettings(authenticate=authenticate, http="127.0.0.1:0"),
    )
    headers = {"authorization": "Bearer token"}
    for each in (path("s", name), path(name, "t")):
        assert (
            connect(server).failure("GetFlightInfo", each.serialize(), headers).code == "NOT_FOUND"
        )

    assert eventually(lambda: logged.getvalue().count("NOT_FOUND") >= 2)
    assert FORGED in logged.getvalue()
    assert not [line for line in logged.getvalue().splitlines() if line.startswith(FORGED)]


def test_the_status_page_shows_names_in_one_line(start, connect):
    server = start(
        catalog_of(ScriptedTable("t", NUMBERS, lambda *_: numbers().to_batches())),
        sp.ServerSettings(http="127.0.0.1:0"),
    )
    failure = connect(server).failure("GetFlightInfo", path("s", "t\u202e\n").serialize())
    assert failure.code == "NOT_FOUND"

    assert server.status_page is not None
    (error,) = json.loads(ask(server.status_page, "/status.json")[2])["errors"]

    assert "t\\u202e\\n" in error["message"]
    assert all(value.isprintable() for value in error.values() if isinstance(value, str))
