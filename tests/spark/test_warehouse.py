"""Warehouses that cannot be used are reported before Spark starts."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import closing
from pathlib import Path

import pytest

import sparkport.spark.jvm.session.warehouse
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.jvm.session.warehouse import DATABASE, open_warehouse

TABLES = """
CREATE TABLE iceberg_tables(
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000));
CREATE TABLE iceberg_namespace_properties(
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255),
    property_value VARCHAR(1000));
"""


def catalog_with(folder: Path, statements: str) -> Path:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript(statements)
    return folder


def test_a_new_folder_is_made(tmp_path):
    warehouse = open_warehouse(tmp_path / "a" / "b c")

    assert (tmp_path / "a" / "b c").is_dir()
    assert warehouse.location == f"file://{tmp_path}/a/b c"
    assert warehouse.catalog_name("shop") == "shop"


def test_what_is_stored_under_a_name_is_found_under_that_name(tmp_path):
    catalog_with(
        tmp_path,
        TABLES + "INSERT INTO iceberg_namespace_properties VALUES ('lake', 'n', 'exists', 'true')",
    )

    assert open_warehouse(tmp_path).catalog_name("shop") == "lake"


def test_a_catalog_without_anything_takes_any_name(tmp_path):
    assert open_warehouse(catalog_with(tmp_path, TABLES)).catalog_name("shop") == "shop"
    assert (
        open_warehouse(catalog_with(tmp_path, "CREATE TABLE other(i)")).catalog_name("shop")
        == "shop"
    )


@pytest.mark.parametrize("sign", ["?", "#", "%", "\n"])
def test_a_path_that_urls_cannot_hold_is_refused(tmp_path, sign):
    with pytest.raises(BadRequest, match="name another folder"):
        open_warehouse(tmp_path / f"a{sign}b")

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_warehouse(tmp_path):
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(BadRequest, match="is not a folder"):
            open_warehouse(path)


def test_a_folder_that_cannot_be_written_to_is_named():
    with pytest.raises(
        PreconditionFailed, match=r"/proc/sparkport cannot be written to .*name another folder"
    ):
        open_warehouse(Path("/proc/sparkport"))
    with pytest.raises(PreconditionFailed, match="/proc cannot be written to"):
        open_warehouse(Path("/proc"))


@pytest.mark.parametrize(
    "content", [b"this is not SQLite, but some text" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_damaged_catalog_is_named(tmp_path, content):
    (tmp_path / DATABASE).write_bytes(content)

    with pytest.raises(
        PreconditionFailed,
        match=r"catalog\.db is damaged, or no SQLite file .*restore it from a backup",
    ):
        open_warehouse(tmp_path)
    assert (tmp_path / DATABASE).read_bytes() == content


def test_a_catalog_with_damaged_pages_is_named(tmp_path):
    rows = """
        WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 2000)
        INSERT INTO iceberg_tables SELECT 'lake', 'n', 't' || n, 'x', 'y' FROM numbers
    """
    path = catalog_with(tmp_path, TABLES + rows) / DATABASE
    content = bytearray(path.read_bytes())
    content[8192:16384] = b"\x55" * 8192
    path.write_bytes(content)

    with pytest.raises(PreconditionFailed, match="is damaged"):
        open_warehouse(tmp_path)


def test_a_folder_in_place_of_the_catalog_is_named(tmp_path):
    (tmp_path / DATABASE).mkdir()

    with pytest.raises(PreconditionFailed, match="cannot be written to"):
        open_warehouse(tmp_path)


def test_a_locked_catalog_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sparkport.spark.jvm.session.warehouse, "_BUSY_SECONDS_AT_START", 0.1)
    catalog_with(tmp_path, TABLES)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(PreconditionFailed, match="is locked by another program"):
            open_warehouse(tmp_path)

    assert open_warehouse(tmp_path).stored_names == ()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ("PRAGMA user_version = 1", "was made by a newer Sparkport"),
        ("CREATE TABLE iceberg_tables(catalog_name, something)", "is not one of Iceberg"),
    ],
)
def test_a_catalog_of_another_layout_is_named(tmp_path, statements, said):
    with pytest.raises(PreconditionFailed, match=said):
        open_warehouse(catalog_with(tmp_path, statements))


def test_a_catalog_is_made_as_iceberg_makes_it(spark, tmp_path):
    open_warehouse(tmp_path).make_catalog()
    options = {
        "uri": f"jdbc:sqlite:{tmp_path / 'theirs.db'}",
        "warehouse": str(tmp_path),
        "jdbc.schema-version": "V1",
    }
    theirs = spark._jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    theirs.initialize("theirs", options)
    theirs.close()

    assert columns(tmp_path / DATABASE) == columns(tmp_path / "theirs.db")


def test_a_catalog_of_the_first_version_gets_what_views_need(tmp_path):
    catalog_with(tmp_path, TABLES + "INSERT INTO iceberg_tables VALUES ('a', 'b', 'c', 'd', 'e')")
    warehouse = open_warehouse(tmp_path)
    warehouse.make_catalog()
    warehouse.make_catalog()

    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        assert connection.execute("SELECT * FROM iceberg_tables").fetchall() == [
            ("a", "b", "c", "d", "e", None)
        ]


def test_of_two_that_make_a_catalog_the_second_waits_for_the_first(tmp_path):
    catalog_with(tmp_path, TABLES)
    warehouse = open_warehouse(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as first:
        first.execute("BEGIN IMMEDIATE")
        first.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
        with ThreadPoolExecutor() as threads:
            second = threads.submit(warehouse.make_catalog)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            first.execute("COMMIT")
            second.result(timeout=30)


def columns(catalog: Path) -> dict[str, list[tuple[object, ...]]]:
    """The tables of a catalog, with the columns of each as SQLite describes them."""
    tables = ("iceberg_tables", "iceberg_namespace_properties")
    with closing(sqlite3.connect(catalog)) as connection:
        return {
            table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in tables
        }
