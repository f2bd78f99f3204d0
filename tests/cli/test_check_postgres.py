"""`sparkport check` with a catalog in PostgreSQL: it says what it finds, and makes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parts.postgres import Database, PostgresServer

from sparkport.cli import main
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.catalogs import prepared


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def database(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    database = postgres.new_database()
    monkeypatch.setenv("PGUSER", database.user)
    monkeypatch.setenv("PGPASSWORD", database.password)
    return database


def _check(database: Database, folder: Path) -> int:
    place = ["--catalog", "jdbc", "--catalog-uri", database.uri, "--warehouse", str(folder)]
    return main(["check", *place])


def test_what_is_in_it_is_told(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _check(database, tmp_path) == 0
    assert "lacks Iceberg's tables, which will be made" in capfd.readouterr().out
    assert database.run("SELECT to_regclass('iceberg_tables')") == [(None,)]
    prepared(LakeSource("jdbc", "/w", database.uri, database.options), "lake", "lake")
    database.run("INSERT INTO iceberg_namespace_properties VALUES ('lake', 'n', 'exists', 'true')")
    assert _check(database, tmp_path) == 0
    assert "the jdbc catalog lists 1 schemas and 0 tables" in capfd.readouterr().out


def test_what_is_wrong_is_told_in_a_line(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PGPASSWORD", "wr0ng")
    assert _check(database, tmp_path) != 0
    said = "".join(capfd.readouterr())
    assert f"does not accept the password of user {database.user}: set jdbc.user and" in said
    assert "wr0ng" not in said
    assert "Traceback" not in said
