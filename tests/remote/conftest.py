"""Runs suites of the lake in other places: modules here import them from `tests/spark`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from tests.parts.postgres import PostgresServer, postgres_server
from tests.parts.rest import RestServer, rest_server
from tests.parts.s3 import S3Server, s3_server
from tests.remote.places import JdbcPlace, RestPlace
from tests.remote.served import temporary_files_in
from tests.spark.conftest import namespace, spark, staging
from tests.spark.places import Place, need_every_jar

from sparkport.spark import LakeCatalog

__all__ = ["namespace", "spark", "staging"]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def rest(s3: S3Server) -> Iterator[RestServer]:
    with rest_server(f"s3://{s3.bucket}/rest/root", s3.options()) as server:
        yield server


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, s3: S3Server) -> Callable[[str], Place]:
    """The place of a kind. Its servers start when somebody asks for it."""

    @cache
    def place(kind: str) -> Place:
        server = request.getfixturevalue({"jdbc": "postgres", "rest": "rest"}[kind])
        return JdbcPlace(server, s3) if kind == "jdbc" else RestPlace(server, s3)

    return place


@pytest.fixture(scope="session")
def lakes_of(
    places: Callable[[str], Place], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], LakeCatalog]]:
    """The lake of a kind of place that tests share, once for the whole run.

    Their staging on this machine is not that of other processes.
    """
    with ExitStack() as stack:

        @cache
        def lake(kind: str) -> LakeCatalog:
            need_every_jar()
            source = places(kind).source("lake")
            with temporary_files_in(tmp_path_factory.mktemp("temporary")):
                return stack.enter_context(LakeCatalog(source=source))

        yield lake


@pytest.fixture(scope="module", params=["jdbc", "rest"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of place."""
    return str(request.param)


@pytest.fixture(scope="module")
def place(kind: str, places: Callable[[str], Place]) -> Place:
    return places(kind)


@pytest.fixture(scope="module")
def lake(kind: str, lakes_of: Callable[[str], LakeCatalog]) -> LakeCatalog:
    return lakes_of(kind)


@pytest.fixture(scope="module")
def warehouse(place: Place) -> Path:
    return place.folder("lake")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a lake, as in `tests/spark`."""
    for item in items:
        if "lake" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(280))
