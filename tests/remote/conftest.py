"""Runs suites of the lake in other places: modules here import them from `tests/spark`."""

from __future__ import annotations

import os
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

from sparkport.spark import LakeCatalog, LakeSettings

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
                # Tests look at once for what they have Spark make.
                settings = LakeSettings(refresh_seconds=0)
                return stack.enter_context(LakeCatalog(source=source, settings=settings))

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


_EVERYTHING = "SPARKPORT_TEST_EVERYTHING"
_SHORT = {
    "jdbc": {
        *("test_contract", "test_direct", "test_dml_model", "test_faults", "test_killed_server"),
        *("test_independent_readers", "test_many_files", "test_many_writers", "test_permissions"),
        *("test_routes_agree", "test_secrets", "test_table_changes", "test_upsert"),
    },
    "rest": {
        *("test_contract", "test_dml_model", "test_permissions", "test_rest_away"),
        "test_routes_agree",
    },
}
"""Modules that are run in each kind of place. SPARKPORT_TEST_EVERYTHING=1 runs all, for an hour."""
_LONGEST = (
    *("jdbc-30", "rest-30", "100-40", "or_after[jdbc-insert", "or_after[jdbc-delete"),
    *(f"sql_returns[rest-{seed}]" for seed in range(6)),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long; mark the tests that use a lake, as in `tests/spark`."""
    if not os.environ.get(_EVERYTHING):
        left_out = [each for each in items if _is_left_out(each)]
        items[:] = [each for each in items if each not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if "lake" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(280))


def _is_left_out(item: pytest.Item) -> bool:
    if item.path.parent != Path(__file__).parent:
        return False
    kind = next((each for each in _SHORT if f"[{each}" in item.name), None)
    if kind is None:  # tests of suites that need no lake are run where they are at home
        return isinstance(item, pytest.Function) and ".remote." not in item.function.__module__
    return item.path.stem not in _SHORT[kind] or any(each in item.name for each in _LONGEST)
