"""Starting on a catalog in PostgreSQL: what is made, what is found, what is said to be wrong."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.parts.postgres import Database, PostgresServer
from tests.shared_catalog.contract import names, present
from tests.shared_catalog.text_metadata import TextMetadata

from sparkport.errors import BadRequest, CatalogFault, PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake import catalogs
from sparkport.spark.lake.catalogs import lacks_tables, native_catalog, prepared
from sparkport.spark.lake.postgres_catalog import PostgresCatalog
from sparkport.spark.lake.settings import LakeSettings

_FIRST_VERSION = """
CREATE TABLE iceberg_tables(catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE iceberg_namespace_properties(catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255), property_value VARCHAR(1000),
    PRIMARY KEY (catalog_name, namespace, property_key));
INSERT INTO iceberg_tables VALUES ('lake', 'n', 'old', 'somewhere', NULL);
"""
"""As Iceberg 1.4 made it."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("PG"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))


@pytest.fixture(scope="module")
def used(postgres: PostgresServer) -> Database:
    """A catalog that is there, and that no test changes."""
    database = postgres.new_database()
    prepared(_source(database), "prod", "lake")
    return database


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    """An empty database."""
    return postgres.new_database()


def _source(database: Database, **options: str) -> LakeSource:
    return LakeSource("jdbc", "/w", database.uri, {**database.options, **options})


def _opened(source: LakeSource) -> PostgresCatalog:
    catalog = native_catalog(source, "lake", LakeSettings(refresh_seconds=0.0))
    assert isinstance(catalog, PostgresCatalog)
    return catalog


@pytest.fixture
def opened() -> Iterator[Callable[[LakeSource], PostgresCatalog]]:
    made: list[PostgresCatalog] = []

    def open_it(source: LakeSource) -> PostgresCatalog:
        made.append(_opened(source))
        return made[-1]

    yield open_it
    for each in made:
        each.close()


# ------------------------------------------------------------------------------------- bad settings


def _at(source: LakeSource, uri: str) -> LakeSource:
    return replace(source, uri=uri)


_BAD = {
    "password": (
        lambda source: replace(source, options={**source.options, "jdbc.password": "wrong"}),
        "does not accept the password of user u\\d+: set jdbc.user and jdbc.password",
    ),
    "no password": (
        lambda source: replace(source, options={"jdbc.user": source.options["jdbc.user"]}),
        "wants a password of user u\\d+: set .* PGPASSWORD, or ~/.pgpass",
    ),
    "database": (
        lambda source: _at(source, source.uri.rpartition("/")[0] + "/nowhere"),
        "has no database nowhere at 127.0.0.1:\\d+: make it, or correct catalog_uri",
    ),
    "port": (
        lambda source: _at(source, "jdbc:postgresql://127.0.0.1:9/d"),
        "cannot be reached at 127.0.0.1:9: correct catalog_uri",
    ),
    "host": (
        lambda source: _at(source, "jdbc:postgresql://no-such-host.invalid/d"),
        "is at a host that is not known \\(no-such-host.invalid:5432\\): correct catalog_uri",
    ),
    "encryption": (
        lambda source: _at(source, f"{source.uri}?sslmode=require"),
        "does not agree with this machine on encryption: correct sslmode",
    ),
}


@pytest.mark.parametrize("what", _BAD)
def test_bad_settings_say_what_to_set(used: Database, what: str) -> None:
    spoil, said = _BAD[what]
    source = spoil(_source(used))
    for start in (prepared, _checked):
        with pytest.raises(PreconditionFailed) as caught:
            start(source, "prod", "lake")
        assert re.match(f"the catalog of lake prod {said}", caught.value.message)
        assert used.password not in caught.value.message
        assert "\n" not in caught.value.message


def _checked(source: LakeSource, lake: str, spark_catalog: str) -> bool:
    return lacks_tables(source, lake)


@pytest.mark.parametrize("what", ["password", "database", "port"])
def test_what_goes_bad_later_names_no_host(used: Database, what: str) -> None:
    catalog = _opened(_BAD[what][0](_source(used)))
    with pytest.raises(CatalogFault, match=r"^the catalog of lake lake ") as caught:
        catalog.listing()
    said = caught.value.message
    assert not [each for each in ("127.0.0.1", used.user, used.password, "nowhere") if each in said]


@pytest.mark.parametrize(
    ("uri", "options", "said"),
    [
        ("jdbc:postgresql://host:port/d", {}, "is written jdbc:postgresql://HOST:5432/DATABASE"),
        ("jdbc:postgresql://h:0/d", {}, "is written"),
        ("jdbc:postgresql://h/d#x", {}, "is written"),
        ("jdbc:postgresql://h/d?socketTimeout=soon", {}, "a number of seconds"),
        ("jdbc:postgresql://h/d", {"jdbc.connectTimeout": "-1"}, "a number of seconds"),
    ],
)
def test_what_can_never_work_is_refused(uri: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        prepared(LakeSource("jdbc", "/w", uri, options), "prod", "lake")


def test_without_psycopg_it_says_what_to_install(
    used: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for ask in (prepared, _checked, _opened_like):
        with pytest.raises(PreconditionFailed, match=r"install sparkport\[postgres\]$"):
            ask(_source(used), "prod", "lake")


def _opened_like(source: LakeSource, lake: str, spark_catalog: str) -> object:
    return catalogs.native_catalog(source, spark_catalog, LakeSettings())


# ------------------------------------------------------------------------------- the usual settings


def test_a_password_is_found_in_the_usual_places(
    used: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And Java, which looks in fewer, is told."""
    bare = replace(_source(used), options={"jdbc.user": used.user})
    place = f"127.0.0.1:{used.server.port}:{used.name}:{used.user}:{used.password}"
    (tmp_path / "pass").write_text(f"{place}\n")
    (tmp_path / "pass").chmod(0o600)
    (tmp_path / "service").write_text(
        f"[lake]\nhost=127.0.0.1\nport={used.server.port}\ndbname={used.name}\n"
        f"user={used.user}\npassword={used.password}\n"
    )
    for variables, source in (
        ({"PGPASSWORD": used.password}, bare),
        ({"PGPASSFILE": str(tmp_path / "pass")}, bare),
        ({"PGUSER": used.user, "PGPASSWORD": used.password}, replace(bare, options={})),
        (
            {"PGSERVICEFILE": str(tmp_path / "service"), "PGSERVICE": "lake"},
            replace(bare, uri="jdbc:postgresql:///", options={}),
        ),
    ):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            completed = prepared(source, "prod", "lake")
        assert completed.options["jdbc.user"] == used.user
        assert completed.options["jdbc.password"] == used.password
        assert completed.uri == used.uri
        assert used.password not in repr(completed)


def test_what_the_user_has_set_stays(used: Database) -> None:
    completed = prepared(_source(used, **{"jdbc.socketTimeout": "7"}), "prod", "lake")
    assert completed.options["jdbc.socketTimeout"] == "7"
    assert completed.options["jdbc.password"] == used.password


# --------------------------------------------------------------------------------------- its tables


def test_tables_are_made_once(database: Database) -> None:
    assert lacks_tables(_source(database), "prod")
    assert lacks_tables(_source(database), "prod"), "looking makes nothing"
    with ThreadPoolExecutor() as servers:
        list(servers.map(lambda _: prepared(_source(database), "prod", "lake"), range(4)))
    assert not lacks_tables(_source(database), "prod")
    assert _columns(database) == [
        "catalog_name",
        "table_namespace",
        "table_name",
        "metadata_location",
        "previous_metadata_location",
        "iceberg_type",
    ]


def test_tables_of_the_first_version_are_brought_up_to_date(
    database: Database, opened: Callable[[LakeSource], PostgresCatalog], tmp_path: Path
) -> None:
    _run_as_owner(database, _FIRST_VERSION)
    assert lacks_tables(_source(database), "prod")
    catalog = opened(_source(database))  # as for a session that the user has made
    with pytest.raises(CatalogFault, match="is of Iceberg's first version"):
        catalog.listing()
    prepared(_source(database), "prod", "lake")
    old = present(catalog, Identifier("lake", ("n",), "old"))
    assert (old.location, names(catalog)) == ("somewhere", {"n": ["old"]})
    catalog.swap(old.identifier, TextMetadata(tmp_path, old.location))
    assert database.run("SELECT iceberg_type FROM iceberg_tables") == [(None,)]


def test_another_schema_holds_another_catalog(
    database: Database, opened: Callable[[LakeSource], PostgresCatalog]
) -> None:
    prepared(_source(database), "prod", "lake")
    _run_as_owner(database, 'CREATE SCHEMA "of us"')
    there = replace(_source(database), uri=f"{database.uri}?currentSchema=%22of%20us%22")
    assert lacks_tables(there, "prod")
    prepared(there, "prod", "lake")
    opened(there).create_namespace(("n",), {})
    assert names(opened(there)) == {"n": []}
    assert names(opened(_source(database))) == {}


@pytest.mark.parametrize("start", [prepared, _checked])
def test_who_may_not_make_tables_is_told(
    database: Database, postgres: PostgresServer, start: Callable[..., object]
) -> None:
    stranger = postgres.new_user(database)
    with pytest.raises(
        PreconditionFailed, match=f"user {stranger.user} may not make them: GRANT CREATE"
    ):
        start(_source(stranger), "prod", "lake")


def test_who_may_not_alter_tables_is_told(database: Database, postgres: PostgresServer) -> None:
    _run_as_owner(database, _FIRST_VERSION)
    stranger = postgres.new_user(database)
    with pytest.raises(PreconditionFailed, match=r"have the owner .* run ALTER TABLE"):
        prepared(_source(stranger), "prod", "lake")


def test_who_may_not_read_tables_is_told(used: Database, postgres: PostgresServer) -> None:
    stranger = postgres.new_user(used)
    with pytest.raises(PreconditionFailed, match=f"GRANT USAGE .* TO {stranger.user}"):
        prepared(_source(stranger), "prod", "lake")


@pytest.mark.parametrize(
    "options", [{"jdbc.init-catalog-tables": "false"}, {"jdbc.schema-version": "V0"}]
)
def test_tables_that_nobody_wants_are_not_made(database: Database, options: dict[str, str]) -> None:
    with pytest.raises(PreconditionFailed, match=f"{next(iter(options))} forbids to make them"):
        prepared(_source(database, **options), "prod", "lake")
    assert _columns(database) == []


def test_tables_of_others_are_left_alone(database: Database) -> None:
    _run_as_owner(database, "CREATE TABLE iceberg_tables (melting_point INT)")
    with pytest.raises(PreconditionFailed, match="a table iceberg_tables that is not Iceberg's"):
        prepared(_source(database), "prod", "lake")


def test_tables_under_another_name_are_mentioned(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    _run_as_owner(database, _FIRST_VERSION)
    with caplog.at_level(logging.WARNING):
        prepared(_source(database), "prod", "lake")
        assert caplog.messages == []
        prepared(_source(database), "prod", "mine")
    assert "tables of lake, and none of mine; set spark_catalog" in caplog.messages[0]


# ------------------------------------------------------------------------------------------- others


def test_pyiceberg_and_we_see_what_each_other_does(
    database: Database, opened: Callable[[LakeSource], PostgresCatalog], tmp_path: Path
) -> None:
    theirs = SqlCatalog("lake", uri=database.sqlalchemy_uri, warehouse=f"file://{tmp_path}")
    try:
        theirs.create_namespace("theirs", {"comment": "x"})
        table = theirs.create_table("theirs.t", pa.schema([("a", pa.int64())]))
        assert not lacks_tables(_source(database), "prod")
        catalog = opened(_source(database))
        found = present(catalog, Identifier("lake", ("theirs",), "t"))
        assert found.location == table.metadata_location
        with table.transaction() as change:
            change.set_properties({"note": "x"})
        moved = present(catalog, found.identifier)
        assert moved.location == table.metadata_location != found.location
        namespace = catalog.namespace("theirs")
        assert namespace is not None
        assert namespace.properties["comment"] == "x"
        catalog.create_namespace(("ours",), {"comment": "y"})
        catalog.rename(moved, Identifier("lake", ("ours",), "t"))
        assert sorted(theirs.list_namespaces()) == [("ours",), ("theirs",)]
        assert theirs.load_namespace_properties("ours")["comment"] == "y"
        assert theirs.load_table("ours.t").properties["note"] == "x"
    finally:
        theirs.close()


def test_a_server_that_was_away_is_not_missed(
    used: Database, postgres: PostgresServer, opened: Callable[[LakeSource], PostgresCatalog]
) -> None:
    catalog = opened(_source(used))
    before = catalog.listing()
    postgres.stop()
    try:
        for _ in range(2):
            for ask in (
                lambda: catalog.entry(("n",), "t"),
                catalog.listing,
                lambda: catalog.create_namespace(("m",), {}),
            ):
                with pytest.raises(CatalogFault, match="cannot be reached: try again later"):
                    ask()
    finally:
        postgres.start()
    assert catalog.listing() == before
    assert catalog.entry(("n",), "t") is None


def test_a_server_that_restarts_is_not_even_noticed(
    used: Database, postgres: PostgresServer, opened: Callable[[LakeSource], PostgresCatalog]
) -> None:
    catalog = opened(_source(used))
    catalog.listing()
    postgres.stop()
    postgres.start()
    assert catalog.entry(("n",), "t") is None
    postgres.stop()
    postgres.start()
    catalog.create_namespace(("m",), {})
    catalog.drop_namespace(("m",))


def _columns(database: Database) -> list[str]:
    found = database.run(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'iceberg_tables'"
        " ORDER BY ordinal_position"
    )
    return [name for (name,) in found]


def _run_as_owner(database: Database, statements: str) -> None:
    database.run(f"SET ROLE {database.user}; {statements}")
