"""A catalog in PostgreSQL: lost connections, other writers, missing rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from tests.parts.cutting_proxy import Cut, CuttingProxy, cutting_proxy
from tests.parts.postgres import Database, PostgresServer
from tests.shared_catalog.contract import names, present
from tests.shared_catalog.postgres_handles import PostgresHandles

from sparkport.errors import (
    CatalogFault,
    Conflict,
    PermissionDenied,
    SparkportError,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake import postgres_catalog, postgres_pool
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.postgres_address import PostgresAddress
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.postgres_schema import prepared
from sparkport.spark.lake.shared_catalog import Refused
from sparkport.spark.lake.sql_catalog import Unanswered


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.new_database()


@pytest.fixture
def handles(database: Database, tmp_path: Path) -> Iterator[PostgresHandles]:
    handles = PostgresHandles(database, tmp_path)
    database.run("TRUNCATE iceberg_tables, iceberg_namespace_properties")
    yield handles
    handles.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def far(handles: PostgresHandles, proxy: CuttingProxy) -> PostgresCatalog:
    """A handle by way of the proxy."""
    return handles.open(handles.database.uri_at(proxy.port))


class TestLostConnections:
    @pytest.fixture
    def made(self, handles: PostgresHandles) -> CatalogEntry:
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        return handles.table(catalog, "t")

    def test_a_swap_whose_answer_is_lost_is_not_certain(
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: PostgresHandles,
        made: CatalogEntry,
    ) -> None:
        proxy.cut(b"COMMIT\0", Cut.AFTER)
        with pytest.raises(Unanswered, match="did not say whether the change was made"):
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert proxy.was_cut
        assert present(far, made.identifier).location != made.location
        assert handles.files() == 2

    def test_a_swap_whose_commit_was_not_heard_is_refused(
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: PostgresHandles,
        made: CatalogEntry,
    ) -> None:
        """PostgreSQL tells later what has become of it."""
        proxy.cut(b"COMMIT\0", Cut.BEFORE)
        with pytest.raises(Refused) as caught:
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert "cannot be reached" in str(caught.value.__cause__)
        assert present(far, made.identifier) == made
        assert handles.files() == 1
        far.swap(made.identifier, handles.new(made.identifier, made))

    def test_a_swap_that_postgres_still_waits_for_is_not_certain(
        self,
        proxy: CuttingProxy,
        handles: PostgresHandles,
        made: CatalogEntry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(postgres_catalog, "_PAUSES", (0.0, 0.0))
        far = handles.open(handles.database.uri_at(proxy.port), **{"jdbc.socketTimeout": "1"})
        proxy.cut(b"COMMIT\0", Cut.NEVER)
        with pytest.raises(Unanswered):
            far.swap(made.identifier, handles.new(made.identifier, made))
        assert handles.files() == 2

    @pytest.mark.parametrize("how", [Cut.BEFORE, Cut.AFTER])
    def test_a_swap_that_was_not_to_be_committed_yet_is_refused(
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: PostgresHandles,
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
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: PostgresHandles,
        made: CatalogEntry,
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
        handles: PostgresHandles,
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
        self,
        far: PostgresCatalog,
        proxy: CuttingProxy,
        handles: PostgresHandles,
        made: CatalogEntry,
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
        self, proxy: CuttingProxy, handles: PostgresHandles, made: CatalogEntry
    ) -> None:
        far = handles.open(handles.database.uri_at(proxy.port), **{"jdbc.socketTimeout": "1"})
        assert present(far, made.identifier) == made
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
        handles: PostgresHandles,
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
    def handles(self, postgres: PostgresServer, tmp_path: Path) -> Iterator[PostgresHandles]:
        handles = PostgresHandles(postgres.new_database(), tmp_path)
        yield handles
        handles.close()


class TestOtherWriters(_WithDatabase):
    @pytest.fixture
    def catalog(self, handles: PostgresHandles) -> PostgresCatalog:
        catalog = handles.open(**{"jdbc.socketTimeout": "1"})
        catalog.create_namespace(("n",), {})
        return catalog

    def test_a_swap_that_another_writer_holds_up_is_refused(
        self, catalog: PostgresCatalog, handles: PostgresHandles
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
        self, catalog: PostgresCatalog, handles: PostgresHandles
    ) -> None:
        made = handles.table(catalog, "t")
        handles.database.run(_QUARRELSOME)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        assert handles.database.run("SELECT last_value FROM quarrels") == [(3,)]

    def test_a_transaction_that_postgres_never_takes_is_refused(
        self, catalog: PostgresCatalog, handles: PostgresHandles
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
    def test_who_may_only_read_reads(
        self, handles: PostgresHandles, postgres: PostgresServer
    ) -> None:
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

    def test_messages_tell_nothing_private(self, handles: PostgresHandles) -> None:
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
