"""A catalog in a real PostgreSQL, without a JVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.parts.postgres import Database, PostgresServer
from tests.shared_catalog.contract import names, present
from tests.shared_catalog.creations import CreatesTogetherContract
from tests.shared_catalog.postgres_handles import PostgresHandles

from sparkport.errors import (
    AlreadyExists,
    BadRequest,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.shared_catalog import Beaten


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.new_database()


@pytest.fixture
def handles(database: Database, tmp_path: Path) -> Iterator[PostgresHandles]:
    handles = PostgresHandles(database, tmp_path)
    database.run("TRUNCATE iceberg_tables, iceberg_namespace_properties")
    yield handles
    handles.close()


class TestPostgresCatalog(CreatesTogetherContract):
    def test_another_process_is_seen_and_sees(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        made = handles.table(catalog, "t")
        seen = catalog.listing().version
        program = f"""
from pathlib import Path
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from tests.shared_catalog.text_metadata import TextMetadata
address = PostgresAddress.of({handles.database.uri!r}, {handles.database.options!r})
catalog = PostgresCatalog(address, "lake")
entry = catalog.entry(("n",), "t")
catalog.swap(entry.identifier, TextMetadata(Path({str(handles.folder)!r}), entry.location))
catalog.create_namespace(("m",), {{}})
catalog.close()
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        assert names(catalog) == {"m": [], "n": ["t"]}
        assert present(catalog, made.identifier).location != made.location
        assert catalog.listing().version > seen

    def test_processes_that_race_lose_nothing(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        """Each makes its number of swaps, and those that were beaten leave no file."""
        made = handles.table(catalog, "t")
        program = f"""
from pathlib import Path
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.shared_catalog import Beaten
from tests.shared_catalog.text_metadata import TextMetadata
address = PostgresAddress.of({handles.database.uri!r}, {handles.database.options!r})
catalog = PostgresCatalog(address, "lake")
swapped = 0
while swapped < 10:
    entry = catalog.entry(("n",), "t")
    try:
        catalog.swap(entry.identifier, TextMetadata(Path({str(handles.folder)!r}), entry.location))
        swapped += 1
    except Beaten as error:
        assert error.is_certain
catalog.close()
"""
        racing = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
        assert [process.wait(100) for process in racing] == [0, 0]
        assert handles.files() == 1 + 2 * 10
        assert Path(present(catalog, made.identifier).location).exists()

    def test_catalogs_of_one_database_are_apart(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        handles.database.run(
            "INSERT INTO iceberg_tables VALUES ('theirs', 'n', 't', 'there', NULL, 'TABLE')"
        )
        handles.database.run(
            "INSERT INTO iceberg_namespace_properties VALUES ('theirs', 'm', 'exists', 'true')"
        )
        assert names(catalog) == {"n": []}
        assert catalog.entry(("n",), "t") is None

    def test_a_view_is_not_taken_for_a_table(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        handles.database.run(
            "INSERT INTO iceberg_tables VALUES ('lake', 'n', 'v', 'there', NULL, 'VIEW')"
        )
        view = present(catalog, Identifier("lake", ("n",), "v"))
        assert view.kind is Kind.VIEW
        assert not catalog.drop(CatalogEntry(view.identifier, Kind.ICEBERG, view.location))
        with pytest.raises(AlreadyExists):
            handles.table(catalog, "v")
        catalog.rename(view, Identifier("lake", ("n",), "w"))
        assert names(catalog) == {"n": ["w"]}
        assert catalog.drop(present(catalog, Identifier("lake", ("n",), "w")))

    def test_rows_are_those_of_iceberg(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        made = handles.table(catalog, "t")
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        now = present(catalog, made.identifier)
        assert handles.database.run("SELECT * FROM iceberg_tables") == [
            ("lake", "n", "t", now.location, made.location, "TABLE")
        ]
        assert handles.database.run("SELECT * FROM iceberg_namespace_properties") == [
            ("lake", "n", "exists", "true")
        ]

    def test_what_was_not_swapped_leaves_no_file(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        made = handles.table(catalog, "t")
        slow = handles.new(made.identifier, made)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, slow)
        assert caught.value.is_certain
        with pytest.raises(AlreadyExists):
            handles.table(catalog, "t")
        assert handles.files() == 2

    @pytest.mark.parametrize("name", ["nul\0", "half\ud800"])
    def test_what_cannot_be_a_name_is_not_there(self, catalog: PostgresCatalog, name: str) -> None:
        assert catalog.entry(("n",), name) is None
        assert catalog.entry((name,), "t") is None
        assert catalog.namespace(name) is None

    def test_a_name_that_is_too_long_says_so(self, catalog: PostgresCatalog) -> None:
        with pytest.raises(BadRequest, match="takes names of at most 255 characters"):
            catalog.create_namespace(("n" * 256,), {})
        assert names(catalog) == {"n": []}


class TestNoticing:
    """What other engines change, and what is asked for to notice it."""

    @pytest.fixture
    def catalog(self, handles: PostgresHandles) -> PostgresCatalog:
        catalog = handles.open()
        for name in ("a", "b", "c"):
            catalog.create_namespace((name,), {})
            handles.table(catalog, "t", name)
        catalog.listing()
        return catalog

    @pytest.fixture
    def asked(self, catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Parameters of what is asked of PostgreSQL, from now on."""
        asked: list[Any] = []
        real = catalog._fetched

        def noted(statement: str, parameters: Any) -> Any:
            asked.append(parameters)
            return real(statement, parameters)

        monkeypatch.setattr(catalog, "_fetched", noted)
        return asked

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE iceberg_tables SET metadata_location = 'x' WHERE table_namespace = 'b'",
            "UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE table_namespace = 'b'",
            "UPDATE iceberg_tables SET table_name = 'u' WHERE table_namespace = 'b'",
            "INSERT INTO iceberg_tables VALUES ('lake', 'b', 'u', 'x', NULL, 'TABLE')",
            "DELETE FROM iceberg_tables WHERE table_namespace = 'b'",
            "UPDATE iceberg_namespace_properties SET property_value = 'x' WHERE namespace = 'b'",
            "INSERT INTO iceberg_namespace_properties VALUES ('lake', 'b', 'comment', 'x')",
        ],
    )
    def test_only_what_differs_is_fetched(
        self, catalog: PostgresCatalog, handles: PostgresHandles, asked: list[Any], change: str
    ) -> None:
        before = catalog.listing()
        handles.database.run(change)
        assert catalog.listing() is before
        assert asked == []
        catalog._fresh_until = 0.0  # as if some seconds had passed
        after = catalog.listing()
        assert asked == [("lake", "lake"), ("lake", ["b"], "lake", ["b"])]
        assert after.version > before.version
        assert after.namespaces["b"] != before.namespaces["b"]
        assert after.namespaces["a"] is before.namespaces["a"]
        assert after == type(after)(after.version, _listed_anew(handles))

    def test_what_is_gone_costs_no_rows(
        self, catalog: PostgresCatalog, handles: PostgresHandles, asked: list[Any]
    ) -> None:
        handles.database.run("DELETE FROM iceberg_tables WHERE table_namespace = 'b'")
        handles.database.run("DELETE FROM iceberg_namespace_properties WHERE namespace = 'b'")
        catalog._fresh_until = 0.0
        assert list(catalog.listing().namespaces) == ["a", "c"]
        assert asked == [("lake", "lake")]

    def test_nothing_new_is_the_same_listing(
        self, catalog: PostgresCatalog, asked: list[Any]
    ) -> None:
        before = catalog.listing()
        catalog.changed()
        assert catalog.listing() is before
        assert asked == [("lake", "lake")]

    def test_a_table_that_was_found_changed_is_listed_so_at_once(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        before = catalog.listing()
        handles.database.run("UPDATE iceberg_tables SET metadata_location = 'x'")
        assert present(catalog, Identifier("lake", ("b",), "t")).location == "x"
        after = catalog.listing()
        assert after.version > before.version
        assert after.namespaces["b"].entries["t"].location == "x"

    def test_a_namespace_is_found_before_it_is_listed(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        handles.open().create_namespace(("young",), {"comment": "x"})
        found = catalog.namespace("young")
        assert found is not None
        assert found.properties["comment"] == "x"

    def test_own_changes_are_listed_at_once(
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        handles.table(catalog, "u", "b")
        assert list(catalog.listing().namespaces["b"].entries) == ["t", "u"]


def _listed_anew(handles: PostgresHandles) -> Any:
    return handles.open().listing().namespaces
