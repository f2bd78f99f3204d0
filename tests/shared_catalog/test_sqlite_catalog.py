"""The catalog of an embedded lake, without a JVM."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.shared_catalog.contract import Handles, names, present
from tests.shared_catalog.creations import CreatesTogetherContract
from tests.shared_catalog.text_metadata import TextMetadata

from sparkport.errors import AlreadyExists, CatalogFault, Conflict
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.warehouse import DATABASE, open_warehouse
from sparkport.spark.lake import sqlite_catalog
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.shared_catalog import Refused
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog


class _Handles(Handles):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        open_warehouse(folder).make_catalog()

    @property
    def database(self) -> Path:
        return self.folder / DATABASE

    def open(self) -> SqliteCatalog:
        return SqliteCatalog(self.database, "lake")

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> TextMetadata:
        return TextMetadata(self.folder, "" if before is None else before.location)

    def files(self) -> int:
        return len(list(self.folder.glob("*.metadata.json")))


@pytest.fixture
def handles(tmp_path: Path) -> _Handles:
    return _Handles(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another writer gives up soon."""
    monkeypatch.setattr(sqlite_catalog, "BUSY_SECONDS", 0.1)


@pytest.fixture
def writer(handles: _Handles, impatient: None) -> Iterator[sqlite3.Connection]:
    """Another program, in the middle of its own change."""
    with closing(sqlite3.connect(handles.database, isolation_level=None)) as connection:
        yield connection


class TestSqliteCatalog(CreatesTogetherContract):
    def test_another_process_is_seen_and_sees(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        seen = catalog.listing().version
        program = f"""
from pathlib import Path
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog
from tests.shared_catalog.text_metadata import TextMetadata
catalog = SqliteCatalog(Path({str(handles.database)!r}), "lake")
entry = catalog.entry(("n",), "t")
catalog.swap(entry.identifier, TextMetadata(Path({str(handles.folder)!r}), entry.location))
catalog.create_namespace(("m",), {{}})
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        assert names(catalog) == {"m": [], "n": ["t"]}
        assert present(catalog, made.identifier).location != made.location
        assert catalog.listing().version > seen

    def test_catalogs_of_one_database_are_apart(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        theirs = SqliteCatalog(handles.database, "theirs")
        assert names(theirs) == {}
        theirs.create_namespace(("n",), {})
        made = handles.table(catalog, "t")
        mine = CatalogEntry(Identifier("theirs", ("n",), "t"), made.kind, made.location)
        assert not theirs.drop(mine)
        assert names(catalog) == {"n": ["t"]}

    def test_what_differs_only_in_case_is_found_with_one_question(
        self, catalog: SqliteCatalog, handles: _Handles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = handles.table(catalog, "t")
        with closing(sqlite3.connect(handles.database, isolation_level=None)) as elsewhere:
            elsewhere.execute(
                "INSERT INTO iceberg_tables VALUES ('lake', 'n', 'T', 'there', NULL, 'TABLE')"
            )
        catalog.create_namespace(("N",), {})
        listing = Mock(side_effect=catalog.listing)
        monkeypatch.setattr(catalog, "listing", listing)
        namespace, alike = catalog.namespace_and_alike("n")
        assert namespace is not None
        assert sorted(alike) == ["N", "n"]
        entry, names_alike = catalog.entry_and_alike(namespace, "t")
        assert entry == made
        assert sorted(names_alike) == ["T", "t"]
        assert listing.call_count == 2
        assert catalog.namespace_and_alike("m") == (None, [])
        catalog.drop(made)
        entry, names_alike = catalog.entry_and_alike(namespace, "t")
        assert (entry, names_alike) == (None, ["T"])

    def test_a_view_is_not_taken_for_a_table(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        with closing(sqlite3.connect(handles.database, isolation_level=None)) as elsewhere:
            elsewhere.execute(
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

    def test_a_table_of_an_older_catalog_has_no_type(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        with closing(sqlite3.connect(handles.database, isolation_level=None)) as elsewhere:
            elsewhere.execute("UPDATE iceberg_tables SET iceberg_type = NULL")
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert catalog.drop(present(catalog, made.identifier))

    def test_what_was_not_swapped_leaves_no_file(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        slow = handles.new(made.identifier, made)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        with pytest.raises(Conflict):
            catalog.swap(made.identifier, slow)
        with pytest.raises(AlreadyExists):
            handles.table(catalog, "t")
        assert handles.files() == 2

    def test_a_swap_that_another_writer_holds_up_is_refused(
        self, catalog: SqliteCatalog, handles: _Handles, writer: sqlite3.Connection
    ) -> None:
        made = handles.table(catalog, "t")
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused) as caught:
            catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert "locked" in str(caught.value.__cause__)
        assert present(catalog, made.identifier) == made
        assert handles.files() == 1
        writer.execute("ROLLBACK")
        catalog.swap(made.identifier, handles.new(made.identifier, made))

    def test_other_changes_that_another_writer_holds_up_say_so(
        self, catalog: SqliteCatalog, handles: _Handles, writer: sqlite3.Connection
    ) -> None:
        made = handles.table(catalog, "t")
        writer.execute("BEGIN IMMEDIATE")
        for change in (
            lambda: catalog.create_namespace(("m",), {}),
            lambda: catalog.drop_namespace(("m",)),
            lambda: handles.table(catalog, "u"),
            lambda: catalog.rename(made, Identifier("lake", ("n",), "u")),
            lambda: catalog.drop(made),
        ):
            with pytest.raises(Conflict, match="locked by another process: try again"):
                change()

    def test_a_database_that_is_gone_is_not_made_anew(
        self, catalog: SqliteCatalog, handles: _Handles
    ) -> None:
        handles.database.unlink()
        with pytest.raises(CatalogFault, match="cannot be read"):
            catalog.create_namespace(("m",), {})
        with pytest.raises(CatalogFault, match="the catalog of lake lake cannot be read"):
            handles.open().listing()
        assert not handles.database.exists()
