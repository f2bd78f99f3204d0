"""A store and a catalog that are slow, fail now and then, or are away for a while.

No row is wrong, nothing is lost, and a statement succeeds or says that it did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.postgres import postgres_server
from tests.parts.s3 import S3Server
from tests.remote.places import JdbcPlace
from tests.remote.served import COLUMNS, Model, expect_clear, served
from tests.spark.leftovers import expect_nothing_left

from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test has a lake of its own, beside the shared one, which keeps Spark running."""
    return str(request.param)


@pytest.fixture
def trouble(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3.address) as proxy:
        yield proxy


@contextmanager
def _troubled(
    place: JdbcPlace, name: str, trouble: FaultProxy, temporary: Path
) -> Iterator[DuckDBClient]:
    """A client of a lake whose store is behind the proxy. When it has ended, nothing is left."""
    with served(place.source(name, trouble.endpoint()), temporary) as client:
        client.create_schema("s")
        client.create_table("s", "t", COLUMNS, primary_key=["id"])
        yield client
    with served(place.source(name), temporary):  # the next start
        expect_nothing_left(place, name, temporary)


def test_a_slow_store_costs_time_and_nothing_else(
    lake: LakeCatalog, place: JdbcPlace, trouble: FaultProxy, tmp_path: Path
) -> None:
    with _troubled(place, "slow", trouble, tmp_path) as client:
        trouble.delay(0.1)
        model = Model(client, 1)
        for _ in range(6):
            model.change()
        assert model.refused == []
        assert model.found() == model.rows


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))])
def test_a_store_that_fails_now_and_then_is_asked_again(
    lake: LakeCatalog, place: JdbcPlace, trouble: FaultProxy, tmp_path: Path, seed: int
) -> None:
    with _troubled(place, f"failing{seed}", trouble, tmp_path) as client:
        trouble.fail(0.05, seed)
        model = Model(client, seed)
        for _ in range(20):
            model.change()
        assert any(each.status in (500, 503) for each in trouble.requests())
        assert model.done >= 18, [str(error) for error in model.refused]
        trouble.heal()
        assert model.found() == model.rows


def test_a_store_that_is_away_costs_statements_and_no_rows(
    lake: LakeCatalog, place: JdbcPlace, trouble: FaultProxy, s3: S3Server, tmp_path: Path
) -> None:
    with _troubled(place, "away", trouble, tmp_path) as client:
        model = Model(client, 1)
        model.change()
        trouble.go_away()
        model.change()
        errors = []
        try:
            assert model.found() == model.rows  # what this server has in memory needs no store
        except ServerError as error:
            errors.append(error)
        trouble.come_back()
        assert len(model.refused) == 1
        for each in (*errors, *model.refused):
            expect_clear(str(each), s3.access_key, s3.secret_key)
        assert model.found() == model.rows
        model.change()
        assert len(model.refused) == 1
        assert model.found() == model.rows


def test_a_catalog_that_is_away_costs_an_error_and_no_state(
    lake: LakeCatalog, s3: S3Server, trouble: FaultProxy, tmp_path: Path
) -> None:
    with postgres_server() as database:
        place = JdbcPlace(database, s3, "away_catalog")
        with _troubled(place, "lake", trouble, tmp_path) as client:
            model = Model(client, 1)
            model.change()
            database.stop()
            model.change()
            database.start()
            (refused,) = model.refused
            assert "cannot be reached: try again later" in str(refused)
            expect_clear(str(refused), place.database("lake").password)
            assert model.found() == model.rows
            model.change()
            assert len(model.refused) == 1
            assert model.found() == model.rows
