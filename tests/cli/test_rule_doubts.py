"""Row filters and masks that protect less than they seem to: `check` and `serve` warn of them."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import sparkport as sp
from sparkport.cli.rule_doubts import doubts, tables_of
from sparkport.config import Config

CATALOG = """
import pyarrow as pa
from sparkport import CatalogBuilder
catalog = CatalogBuilder("shop")
for name in ("sales", "sales.eu"):
    catalog.schema(name).table("customers", pa.table({"id": [1], "email": ["a@x"]}))
"""
CONFIG = """
[[masks]]
on = "{mask}"
column = "email"

[[row_filters]]
on = "{row_filter}"
rows = "id > 1"
"""


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company.py").write_text(CATALOG)

    def check(mask: str, row_filter: str = "shop.**.customers") -> tuple[int, list[str]]:
        (tmp_path / "sparkport.toml").write_text(CONFIG.format(mask=mask, row_filter=row_filter))
        ran = run("check", "--config", "sparkport.toml", "company.py:catalog")
        marked = [line for line in ran.out.splitlines() if line.startswith("!")]
        return ran.code, [line.removeprefix("! permissions: ") for line in marked]

    return check


def test_rules_that_mean_what_they_seem_to_are_good(check):
    assert check("shop.**.customers") == (0, [])
    assert check("shop.sales.customers") == (0, [])
    assert check("shop") == (0, [])
    assert check("shop.sales.*") == (0, [])


@pytest.mark.parametrize(
    ("on", "better"),
    [
        ("shop.*.customers", "shop.**.customers"),
        ("*.*.customers", "*.**.customers"),
        ("shop.s*.customers", "shop.s*.**.customers"),
        ("shop.*.cust*", "shop.**.cust*"),
    ],
)
def test_a_pattern_that_leaves_nested_schemas_out_is_warned_of(check, on, better):
    (said,) = check(on)[1]

    assert said == (
        f"masks 1: {on} does not cover schemas within schemas, whose tables are then shown as "
        f"they are: write {better}"
    )
    assert check(on)[0] == 0
    assert "row_filters 1: " in check("shop", on)[1][0]


@pytest.mark.parametrize(
    "on", ["shop.*", "shop.*.*", "shop.sales.c*", "*.sales.customers", "shop.*.**.customers"]
)
def test_a_pattern_that_covers_them_is_not(check, on):
    assert check(on) == (0, [])


@pytest.mark.parametrize(
    "on", ["shop.sale.customers", "shop.**.clients", "shop.sales.customers.more"]
)
def test_a_rule_that_is_about_no_table_is_warned_of(check, on):
    code, (said,) = check(on)

    assert code == 0
    assert said == f"masks 1: there is no table that {on} means, so it protects nothing"


def test_the_start_says_the_same(caplog):
    catalog = sp.CatalogBuilder("shop")
    catalog.schema("sales").table("t", pa.table({"id": [1]}))
    config = Config(
        masks=(sp.Mask("shop.*.t", "id"),), row_filters=(sp.RowFilter("shop.sales.u", "true"),)
    )

    said = list(doubts(config, tables_of([catalog.build()])))

    assert [each.partition(":")[0] for each in said] == ["masks 1", "row_filters 1"]


def test_a_catalog_that_cannot_be_asked_leaves_it_open(caplog):
    class Broken(sp.Catalog):
        name = "shop"

        def schemas(self, ctx):
            raise RuntimeError("boom")

        def schema(self, ctx, name):
            return None

    config = Config(masks=(sp.Mask("shop.sales.t", "id"),))

    with caplog.at_level(logging.DEBUG):
        assert list(doubts(config, tables_of([Broken()]))) == []
