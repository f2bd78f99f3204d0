"""`sparkport bench`: that it measures, and leaves nothing behind; not how fast anything is."""

from __future__ import annotations

import re

from sparkport.builder import CatalogBuilder
from sparkport.server import Server
from sparkport.testing import DuckDBClient

FIGURES = ("insert of 1,000 rows", "scan of 1,000 rows", "scan for one row", "insert of one row")


def test_it_measures_a_server_of_its_own(run):
    ran = run("bench", "--rows", "1000")

    assert ran.code == 0, ran.err
    assert ran.err == ""  # no terminal, no progress
    lines = ran.out.splitlines()
    assert [
        each
        for each, line in zip(FIGURES, lines, strict=True)
        if not re.match(rf"{each} +[\d.,]+ ", line)
    ] == []


def test_it_measures_a_server_that_runs_and_leaves_nothing_there(run):
    builder = CatalogBuilder("cat")
    builder.schema("s")
    with Server(builder, "grpc://127.0.0.1:0") as server:
        assert run("bench", server.location, "--schema", "cat.s", "--rows", "100").code == 0
        with DuckDBClient(server.location, "cat", timeout=60) as client:
            assert client.tables("s") == {}


def test_it_says_what_it_needs(refusal):
    assert "--schema" in refusal("bench", "grpc://127.0.0.1:1")
    assert "--rows" in refusal("bench", "--rows", "0")
    assert "no server answers" in refusal("bench", "grpc://127.0.0.1:1", "--schema", "a.b")
