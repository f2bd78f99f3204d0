"""A REST catalog that is overloaded or away: clear errors, no state, and it works again after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.rest_door import RestDoor, rest_door
from tests.remote.places import RestPlace
from tests.remote.served import COLUMNS, Model, expect_clear, served
from tests.spark.leftovers import expect_nothing_left, staged_files

from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_ROWS = pa.table({"id": [1 << 40], "v": [1]}, schema=COLUMNS)
_ALWAYS = 1 << 30
_METHODS = ("GET", "POST", "HEAD", "DELETE")


@pytest.fixture(scope="module", params=["rest"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test has a lake of its own, beside the shared one, which keeps Spark running."""
    return str(request.param)


@contextmanager
def _behind_a_door(
    place: RestPlace, name: str, temporary: Path
) -> Iterator[tuple[DuckDBClient, RestDoor, FaultProxy]]:
    """A client of a lake whose catalog is behind a door. When it has ended, nothing is left.

    The proxy is in front of the door, and can go away.
    """
    with (
        rest_door(place.uri(name)) as door,
        fault_proxy(("127.0.0.1", urlsplit(door.uri).port or 0)) as proxy,
        served(place.source(name, proxy.endpoint()), temporary) as client,
    ):
        client.create_schema("s")
        client.create_table("s", "t", COLUMNS, primary_key=["id"])
        yield client, door, proxy
    with served(place.source(name), temporary):  # the next start
        expect_nothing_left(place, name, temporary)


def _statements(client: DuckDBClient) -> Mapping[str, Callable[[], object]]:
    return {
        "read": lambda: client.scan("s", "t"),
        "insert": lambda: client.insert("s", "t", _ROWS),
        "update": lambda: client.update("s", "t", {"v": "v + 1"}, where="id = 1"),
        "delete": lambda: client.delete("s", "t", "id = 1"),
        "alter": lambda: client.add_column("s", "t", "c", "INTEGER"),
        "create": lambda: client.create_table("s", "new", COLUMNS),
        "create as": lambda: client.create_table_as("s", "new", _ROWS),
        "rename": lambda: client.rename_table("s", "t", "u"),
        "drop": lambda: client.drop_table("s", "t"),
        "create schema": lambda: client.create_schema("new"),
    }


def _expect_as_before(client: DuckDBClient, model: Model) -> None:
    """Expect that nothing was changed, and that changes are possible."""
    client.detach()
    client.attach()
    assert {name: list(client.tables(name)) for name in client.schemas()} == {"s": ["t"]}
    assert [each.name for each in client.table("s", "t").columns] == ["id", "v"]
    assert model.found() == model.rows
    model.change()
    assert model.refused == []
    assert model.found() == model.rows


@pytest.mark.parametrize("trouble", ["503", "away"])
def test_a_catalog_in_trouble_costs_errors_and_no_state(
    lake: LakeCatalog, place: RestPlace, tmp_path: Path, trouble: str
) -> None:
    name = f"trouble_{trouble}"
    with _behind_a_door(place, name, tmp_path) as (client, door, proxy):
        model = Model(client, 1)
        model.change()
        if trouble == "away":
            proxy.go_away()
        else:
            for method in _METHODS:
                door.fail(method, "/", 503, times=_ALWAYS)
        for statement in (*_statements(client).values(), client.schemas):
            if statement == client.schemas:  # listed anew
                client.detach()
                client.attach()
            with pytest.raises(ServerError, match="the REST catalog of lake lake ") as said:
                statement()
            expect_clear(str(said.value))
        if trouble == "away":
            proxy.come_back()
        else:
            door.heal()
        _expect_as_before(client, model)
        assert staged_files(place, name, tmp_path) == []


def test_trouble_in_the_midst_of_a_statement_leaves_nothing(
    lake: LakeCatalog, place: RestPlace, tmp_path: Path
) -> None:
    """The catalog answers until it is to load, commit, make, rename or drop something."""
    parts = {
        "read": ("GET", "/tables/t$"),
        **dict.fromkeys(("insert", "update", "delete", "alter"), ("POST", "/tables/t$")),
        **dict.fromkeys(("create", "create as"), ("POST", "/tables$")),
        "rename": ("POST", "/tables/rename$"),
        "drop": ("DELETE", "/tables/t$"),
        "create schema": ("POST", "/namespaces$"),
    }
    with _behind_a_door(place, "midst", tmp_path) as (client, door, _):
        model = Model(client, 1)
        model.change()
        assert 1 in model.rows
        for name, statement in _statements(client).items():
            door.fail(*parts[name], 503, times=_ALWAYS)
            with pytest.raises(ServerError, match=r"503|try again") as said:
                statement()
            expect_clear(str(said.value))
            door.heal()
            assert staged_files(place, "midst", tmp_path) == [], name
            assert model.found() == model.rows, name
        _expect_as_before(client, model)
