"""A REST catalog behind a door, started for the first test that wants it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.parts.rest import RestServer, rest_server
from tests.parts.rest_door import RestDoor, rest_door
from tests.shared_catalog.rest_handles import CREDENTIAL, RestHandles

from sparkport.spark import LakeCatalog
from sparkport.spark.jvm.session.jars import lake_jars
from sparkport.spark.jvm.session.source import LakeSource


@pytest.fixture(scope="session")
def server() -> Iterator[RestServer]:
    with rest_server() as running:
        yield running


@pytest.fixture(scope="session")
def _door(server: RestServer) -> Iterator[RestDoor]:
    with rest_door(server.uri) as opened:
        opened.credential = CREDENTIAL
        yield opened


@pytest.fixture
def door(_door: RestDoor) -> Iterator[RestDoor]:
    """As it was opened: it wants tokens and does nothing else."""
    _door.forget()
    yield _door
    _door.reset()


@pytest.fixture(scope="module")
def rest_lake(_door: RestDoor) -> Iterator[LakeCatalog]:
    source = LakeSource("rest", uri=_door.uri, options={"credential": CREDENTIAL})
    with LakeCatalog(source=source, spark_catalog="rest_catalog", jars=lake_jars()) as catalog:
        yield catalog


@pytest.fixture
def rest_handles(rest_lake: LakeCatalog, door: RestDoor) -> RestHandles:
    """On an empty catalog."""
    handles = RestHandles(rest_lake)
    handles.empty()
    door.forget()
    return handles
