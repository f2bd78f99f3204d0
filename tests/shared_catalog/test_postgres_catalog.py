"""A catalog in a real PostgreSQL, without a JVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.parts.cutting_proxy import Cut, CuttingProxy, cutting_proxy
from tests.parts.postgres import Database, PostgresServer
from tests.shared_catalog.contract import Handles, SwapsTogetherContract, names, present
from tests.shared_catalog.text_metadata import TextMetadata

from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    CatalogFault,
    Conflict,
    PermissionDenied,
    SparkportError,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake import postgres_pool
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.postgres_schema import prepared
from sparkport.spark.lake.shared_catalog import Beaten, Refused
from sparkport.spark.lake.sql_catalog import Unanswered


class _Handles(Handles):
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self._opened: list[PostgresCatalog] = []
        prepared(LakeSource("jdbc", "/w", database.uri, database.options), "lake", "lake")

    def open(self, uri: str | None = None, **options: str) -> PostgresCatalog:
        address = PostgresAddress.of(uri or self.database.uri, {**self.database.options, **options})
        catalog = PostgresCatalog(address, "lake", refresh_seconds=3600.0)
        self._opened.append(catalog)
        return catalog

    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> TextMetadata:
        return TextMetadata(self.folder, "" if before is None else before.location)

    def files(self) -> int:
        return len(list(self.folder.glob("*.metadata.json")))

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.new_database()


@pytest.fixture
def handles(database: Database, tmp_path: Path) -> Iterator[_Handles]:
    handles = _Handles(database, tmp_path)
    database.run("TRUNCATE iceberg_tables, iceberg_namespace_properties")
    yield handles
    handles.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def far(handles: _Handles, proxy: CuttingProxy) -> PostgresCatalog:
    """A handle by way of the proxy."""
    return handles.open(handles.database.uri_at(proxy.port))


class TestPostgresCatalog(SwapsTogetherContract):
    def test_another_process_is_seen_and_sees(
        self, catalog: PostgresCatalog, handles: _Handles
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

    def test_catalogs_of_one_database_are_apart(
        self, catalog: PostgresCatalog, handles: _Handles
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
        self, catalog: PostgresCatalog, handles: _Handles
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

    def test_rows_are_those_of_iceberg(self, catalog: PostgresCatalog, handles: _Handles) -> None:
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
        self, catalog: PostgresCatalog, handles: _Handles
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
    def catalog(self, handles: _Handles) -> PostgresCatalog:
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
        self, catalog: PostgresCatalog, handles: _Handles, asked: list[Any], change: str
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
        self, catalog: PostgresCatalog, handles: _Handles, asked: list[Any]
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
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        before = catalog.listing()
        handles.database.run("UPDATE iceberg_tables SET metadata_location = 'x'")
        assert present(catalog, Identifier("lake", ("b",), "t")).location == "x"
        after = catalog.listing()
        assert after.version > before.version
        assert after.namespaces["b"].entries["t"].location == "x"

    def test_a_namespace_is_found_before_it_is_listed(
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        handles.open().create_namespace(("young",), {"comment": "x"})
        found = catalog.namespace("young")
        assert found is not None
        assert found.properties["comment"] == "x"

    def test_own_changes_are_listed_at_once(
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        handles.table(catalog, "u", "b")
        assert list(catalog.listing().namespaces["b"].entries) == ["t", "u"]


def _listed_anew(handles: _Handles) -> Any:
    return handles.open().listing().namespaces


class TestLostConnections:
    @pytest.fixture
    def made(self, handles: _Handles) -> CatalogEntry:
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        return handles.table(catalog, "t")

    def test_a_swap_whose_answer_is_lost_is_not_certain(
        self, far: PostgresCatalog, proxy: CuttingProxy, handles: _Handles, made: CatalogEntry
    ) -> None:
        proxy.cut(b"COMMIT\0", Cut.AFTER)
        with pytest.raises(Unanswered, match="did not say whether the change was made"):
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert proxy.was_cut
        assert present(far, made.identifier).location != made.location
        assert handles.files() == 2

    def test_a_swap_whose_commit_was_not_heard_is_not_certain_either(
        self, far: PostgresCatalog, proxy: CuttingProxy, handles: _Handles, made: CatalogEntry
    ) -> None:
        proxy.cut(b"COMMIT\0", Cut.BEFORE)
        with pytest.raises(Unanswered):
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert present(far, made.identifier) == made
        assert handles.files() == 2  # nobody here knows that it is not needed
        far.swap(made.identifier, handles.new(made.identifier, made))

    @pytest.mark.parametrize("how", [Cut.BEFORE, Cut.AFTER])
    def test_a_swap_that_was_not_to_be_committed_yet_is_refused(
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: _Handles,
        made: CatalogEntry,
        how: Cut,
    ) -> None:
        proxy.cut(b"UPDATE", how)
        with pytest.raises(Refused) as caught:
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert str(caught.value.__cause__) == (
            "the catalog of lake lake cannot be reached: try again later"
        )
        assert present(far, made.identifier) == made
        assert handles.files() == 1
        far.swap(made.identifier, handles.new(made.identifier, made))

    def test_of_several_tables_none_is_swapped_when_the_connection_is_cut(
        self, far: PostgresCatalog, proxy: CuttingProxy, handles: _Handles, made: CatalogEntry
    ) -> None:
        other = handles.table(far, "u")
        proxy.cut(b"UPDATE", Cut.BEFORE, skip=1)
        with pytest.raises(Refused):
            far.swap_all(
                [(each.identifier, handles.new(each.identifier, each)) for each in (made, other)]
            )
        assert [present(far, each.identifier) for each in (made, other)] == [made, other]
        assert handles.files() == 2

    @pytest.mark.parametrize("word", [b"BEGIN", b"SELECT"])
    def test_a_connection_that_was_lost_meanwhile_is_replaced(
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: _Handles,
        made: CatalogEntry,
        word: bytes,
    ) -> None:
        assert present(far, made.identifier) == made
        proxy.cut(word, Cut.BEFORE)
        far.swap(made.identifier, handles.new(made.identifier, made))
        assert present(far, made.identifier) != made
        assert proxy.was_cut
        assert proxy.connections == 2

    def test_other_changes_say_when_they_are_not_certain(
        self, far: PostgresCatalog, proxy: CuttingProxy, handles: _Handles, made: CatalogEntry
    ) -> None:
        new = Identifier("lake", ("n",), "new")
        for change in (
            lambda: far.create(new, handles.new(new)),
            lambda: far.rename(made, Identifier("lake", ("n",), "renamed")),
            lambda: far.drop(present(far, Identifier("lake", ("n",), "renamed"))),
            lambda: far.create_namespace(("m",), {}),
            lambda: far.drop_namespace(("m",)),
        ):
            proxy.cut(b"COMMIT\0", Cut.AFTER)
            with pytest.raises(CatalogFault, match="look before you try again"):
                change()
        assert names(far) == {"n": ["new"]}

    def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(
        self, proxy: CuttingProxy, handles: _Handles, made: CatalogEntry
    ) -> None:
        far = handles.open(handles.database.uri_at(proxy.port), **{"jdbc.socketTimeout": "1"})
        assert present(far, made.identifier) == made
        proxy.cut(b"COMMIT\0", Cut.NEVER)
        with pytest.raises(Unanswered):
            far.swap(made.identifier, handles.new(made.identifier, made))
        proxy.cut(b"UPDATE", Cut.NEVER)
        with pytest.raises(Refused):
            far.swap(made.identifier, handles.new(made.identifier, made))
        # One attempt on the connection that is there, another on a new one.
        assert present(far, made.identifier) == made
        proxy.cut(b"SELECT", Cut.NEVER)
        assert present(far, made.identifier) == made

    def test_few_connections_are_enough(
        self,
        proxy: CuttingProxy,
        handles: _Handles,
        made: CatalogEntry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(postgres_pool, "_MOST", 2)
        far = handles.open(handles.database.uri_at(proxy.port), **{"jdbc.socketTimeout": "1"})
        for _ in range(10):
            present(far, made.identifier)
        assert proxy.connections == 1
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(far._pool.asked("SELECT 1"))
            with pytest.raises(CatalogFault, match="takes no more connections now"):
                far.entry(("n",), "t")
        assert present(far, made.identifier) == made


class _WithDatabase:
    """Tests that change the tables themselves."""

    @pytest.fixture
    def handles(self, postgres: PostgresServer, tmp_path: Path) -> Iterator[_Handles]:
        handles = _Handles(postgres.new_database(), tmp_path)
        yield handles
        handles.close()


class TestOtherWriters(_WithDatabase):
    @pytest.fixture
    def catalog(self, handles: _Handles) -> PostgresCatalog:
        catalog = handles.open(**{"jdbc.socketTimeout": "1"})
        catalog.create_namespace(("n",), {})
        return catalog

    def test_a_swap_that_another_writer_holds_up_is_refused(
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        with handles.database.server.connected(handles.database.name) as writer:
            writer.execute("BEGIN")
            writer.execute("UPDATE iceberg_tables SET metadata_location = metadata_location")
            with pytest.raises(Refused):
                catalog.swap(made.identifier, handles.new(made.identifier, made))
            writer.execute("ROLLBACK")
        assert present(catalog, made.identifier) == made
        catalog.swap(made.identifier, handles.new(made.identifier, made))

    def test_a_transaction_that_postgres_wants_again_is_tried_again(
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        handles.database.run(_QUARRELSOME)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert handles.database.run("SELECT last_value FROM quarrels") == [(3,)]

    def test_a_transaction_that_postgres_never_takes_is_refused(
        self, catalog: PostgresCatalog, handles: _Handles
    ) -> None:
        made = handles.table(catalog, "t")
        handles.database.run(_QUARRELSOME.replace("< 3", "< 300"))
        with pytest.raises(Refused) as caught:
            catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert isinstance(caught.value.__cause__, Conflict)
        assert handles.files() == 1
        with pytest.raises(Conflict, match="busy with other changes; nothing was changed"):
            catalog.rename(made, Identifier("lake", ("n",), "u"))


_QUARRELSOME = """
CREATE SEQUENCE quarrels;
GRANT ALL ON quarrels TO PUBLIC;
CREATE FUNCTION quarrel() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('quarrels') < 3 THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER quarrel BEFORE UPDATE ON iceberg_tables FOR EACH ROW EXECUTE FUNCTION quarrel();
"""


class TestRights(_WithDatabase):
    def test_who_may_only_read_reads(self, handles: _Handles, postgres: PostgresServer) -> None:
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        made = handles.table(catalog, "t")
        reader = postgres.new_user(handles.database)
        handles.database.run(
            f"GRANT SELECT ON iceberg_tables, iceberg_namespace_properties TO {reader.user}"
        )
        prepared(LakeSource("jdbc", "/w", reader.uri, reader.options), "lake", "lake")
        theirs = handles.open(**reader.options)
        assert present(theirs, made.identifier) == made
        with pytest.raises(Refused) as caught:
            theirs.swap(made.identifier, handles.new(made.identifier, made))
        assert isinstance(caught.value.__cause__, PermissionDenied)
        with pytest.raises(PermissionDenied, match="ask the administrator for permission"):
            theirs.drop(made)
        assert names(theirs) == {"n": ["t"]}

    def test_messages_tell_nothing_private(self, handles: _Handles) -> None:
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        secrets = (handles.database.password, handles.database.user, "127.0.0.1", "iceberg_")
        handles.database.run("ALTER TABLE iceberg_tables RENAME TO moved")
        texts = []
        for ask in (lambda: catalog.entry(("n",), "t"), lambda: catalog.drop_namespace(("n",))):
            with pytest.raises(SparkportError) as caught:
                ask()
            texts.append(caught.value.message)
        assert not [text for text in texts for secret in secrets if secret in text]
        assert handles.database.password not in repr(
            PostgresAddress.of(handles.database.uri, handles.database.options)
        )


def test_psycopg_waits_no_longer_than_it_is_told(postgres: PostgresServer) -> None:
    """It is the only method of psycopg that is replaced."""
    database = postgres.new_database()
    address = PostgresAddress.of(database.uri, {**database.options, "jdbc.socketTimeout": "1"})
    pool = postgres_pool.ConnectionPool(address)
    with (
        pytest.raises(psycopg.OperationalError),
        pool.asked("SELECT 1") as (connection, _),
    ):
        connection.ask("SELECT pg_sleep(60)")
    pool.close()
