"""`sparkport check` names tables that have grown far beyond what care would leave."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparkport.spark.jvm.session.warehouse import open_warehouse

OWN = {"sparkport.folder": "f"}
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path) -> Add:
    """Add a table with so many versions and files to the catalog of a warehouse."""
    warehouse = open_warehouse(tmp_path / "lake")
    warehouse.make_catalog()

    def add(
        name: str,
        versions: int = 1,
        files: int = 1,
        size: int = 0,
        properties: Mapping[str, str] = OWN,
        text: str | None = None,
    ) -> None:
        totals = {"total-data-files": str(files), "total-files-size": str(size)}
        snapshots: list[dict[str, Any]] = [{"snapshot-id": each} for each in range(versions)]
        snapshots[-1]["summary"] = {"operation": "append", **totals}
        metadata = {"snapshots": snapshots, "properties": dict(properties)}
        file = warehouse.path / f"{name}.metadata.json"
        file.write_text(text or json.dumps({**metadata, "current-snapshot-id": versions - 1}))
        with closing(sqlite3.connect(warehouse.path / "catalog.db")) as database, database:
            row = ("lake", "s", name, file.as_uri(), "TABLE")
            database.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                "metadata_location, iceberg_type) VALUES (?, ?, ?, ?, ?)",
                row,
            )

    return add


@pytest.fixture
def doubts(run: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """What is doubtful about the warehouse; none of it makes the command fail."""

    def doubts(*arguments: str) -> list[str]:
        ran = run("check", "--warehouse", str(tmp_path / "lake"), *arguments)
        lines = [line for line in ran.out.splitlines() if " warehouse: " in line]
        assert lines[0].startswith("✓")
        assert all(line.startswith("! ") for line in lines[1:])
        return [line.partition(": ")[2] for line in lines[1:]]

    return doubts


def test_tables_that_need_care_are_named_with_what_they_have(add, doubts):
    add("well", versions=900, files=900, size=900)
    add("large", files=5_000, size=5_000 * 2**27)
    add("old", versions=1_500)
    add("scattered", files=4_500, size=4_500 * 2**14)

    assert doubts() == [
        "table s.old has 1,500 versions, and writes 33 KB of metadata with each change: "
        "care has not come to it yet",
        "table s.scattered has 4,500 files of 16 KB on average, and writes 0 KB of metadata "
        "with each change: care has not come to it yet",
    ]


def test_why_care_leaves_a_table_alone_is_said(add, doubts):
    add("foreign", versions=1_500, properties={})
    add("off", versions=1_500, properties={**OWN, "sparkport.care": '{"enabled": false}'})
    add("shared", versions=1_500, properties={**OWN, "gc.enabled": "false"})

    assert [each.partition("leaves it alone ")[2] for each in doubts()] == [
        "(made by another engine: set_care('s.foreign', enabled := true))",
        "(switched off)",
        "(it shares its files with others: gc.enabled is false)",
    ]
    assert {each.partition("leaves it alone ")[2] for each in doubts("--no-lake-care")} == {
        "(switched off for the whole lake: lake_care)"
    }


def test_what_is_too_much_follows_from_the_settings(add, doubts):
    add("t", versions=150)
    add("wanted", versions=150, properties={**OWN, "sparkport.care": '{"most_versions": 400}'})

    assert doubts() == []
    few = ("--lake-care-keep-versions", "10", "--lake-care-most-versions", "50")
    assert [each.split()[1] for each in doubts(*few)] == ["s.t"]


def test_what_cannot_be_read_is_passed_over(add, doubts):
    add("broken", text="{")
    add("odd", text='{"snapshots": [{"snapshot-id": 1, "summary": {"total-data-files": "x"}}], '
        '"current-snapshot-id": 1}')  # fmt: skip
    add("list", text="[]")
    add("old", versions=1_500)

    assert [each.split()[1] for each in doubts()] == ["s.old"]


def test_of_very_many_tables_only_some_are_looked_at(add, doubts, monkeypatch):
    monkeypatch.setattr("sparkport.cli.table_doubts._MOST_TABLES", 2)
    for name in ("a", "b", "c"):
        add(name, versions=1_500)

    assert [each.split(" has ")[0] for each in doubts()] == [
        "table s.a",
        "table s.b",
        "only 2 of 3 tables were looked at for too many versions and small files: "
        "care() tells of all",
    ]
