"""`sparkport ls`: what a client would see."""

from __future__ import annotations

import json

import pyarrow as pa

from sparkport.builder import CatalogBuilder
from sparkport.server import Server


def test_everything_is_shown_as_a_tree(run, server, monkeypatch):
    monkeypatch.setenv("SPARKPORT_TOKEN", "open sesame")

    shown = run("ls", server)

    assert shown.code == 0, shown.err
    assert (
        shown.out
        == """\
shop
└─ sales   -- What we sold
   ├─ orders   -- One by one
   │  ├─ id BIGINT
   │  └─ amount DOUBLE
   ├─ empty
   │  └─ id BIGINT NOT NULL
   └─ gross(net DOUBLE) → DOUBLE   -- With tax.
other
└─ s
   └─ t
      └─ a BIGINT
"""
    )


def test_part_of_it_is_shown_as_json(run, server):
    shown = run("ls", "--token", "open sesame", server, "shop.SALES.Orders", "--json")

    assert shown.code == 0, shown.err
    table = {
        "comment": "One by one",
        "columns": [
            {"name": name, "type": kind, "nullable": True, "default": None, "comment": None}
            for name, kind in (("id", "BIGINT"), ("amount", "DOUBLE"))
        ],
        "checks": [],
    }
    sales = {"comment": "What we sold", "tables": {"orders": table}, "functions": []}
    assert json.loads(shown.out) == {"shop": {"sales": sales}}


def test_what_is_not_there_is_said_in_one_sentence(refusal, server, monkeypatch):
    assert "--token" in refusal("ls", server)
    monkeypatch.setenv("SPARKPORT_TOKEN", "open sesame")
    assert "catalog 'nothing' not found" in refusal("ls", server, "nothing")
    assert "no schema 'nothing'" in refusal("ls", server, "shop.nothing")
    assert "no 'nothing' in shop.sales" in refusal("ls", server, "shop.sales.nothing")
    assert "no server answers" in refusal("ls", "grpc://127.0.0.1:1")
    assert "grpc://host:port" in refusal("ls", "http://127.0.0.1:1")
    assert "one location" in refusal("ls", "a", "b")


def test_names_and_comments_cannot_drive_the_terminal(run):
    catalog = CatalogBuilder("cat")
    catalog.schema("s").table(
        "t\x1b[2J", pa.table({"a\u202e": [1]}), comment="one\n└─ another\u2028"
    )
    with Server(catalog, "grpc://127.0.0.1:0") as server:
        shown = run("ls", server.location).out

    assert shown.splitlines() == [
        "cat",
        "└─ s",
        "   └─ t\\x1b[2J   -- one\\n└─ another\\u2028",
        "      └─ a\\u202e BIGINT",
    ]
