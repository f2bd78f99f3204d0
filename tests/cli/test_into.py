"""`sparkport serve functions.py:catalog --into lake`: what is refused before Spark starts."""

from __future__ import annotations

import pytest

FUNCTIONS = """
import pyarrow as pa
from sparkport import CatalogBuilder
catalog = CatalogBuilder("functions")
sales = catalog.schema("sales")
@sales.scalar_function
def twice(value: pa.int64()) -> pa.int64():
    return pa.compute.multiply(value, 2)
mixed = CatalogBuilder("mixed")
mixed.schema("sales").table("orders", pa.table({"id": [1]}))
built = catalog.build()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company.py").write_text(FUNCTIONS, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["company.py:catalog"], "there is no lake for --into: name its folder with --warehouse"),
        (["--warehouse", "x"], "--into lake needs functions of a CatalogBuilder: name it, for"),
        (["--warehouse", "x", "company.py:built"], "--into lake needs functions of a Catalog"),
        (
            ["--warehouse", "x", "--name", "other", "company.py:catalog"],
            "there is no lake 'lake' for --into; there is other",
        ),
        (
            ["--warehouse", "x", "company.py:mixed"],
            "catalog mixed has the table sales.orders: only functions can be added to a lake",
        ),
    ],
)
def test_what_cannot_be_added_is_refused_at_once(refusal, folder, arguments, said):
    flags = ("--into", "lake", "--listen", "127.0.0.1:0")
    assert refusal("serve", *flags, *arguments).startswith(said)
    assert not (folder / "x").exists()


def test_check_says_which_schemas_get_functions(run):
    ran = run("check", "--warehouse", "x", "company.py:catalog", "--into", "lake")

    assert "catalogs: functions adds functions to lake: sales\n" in ran.out
