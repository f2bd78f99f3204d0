"""Credentials that a catalog gives out with a table, and gives out anew before they expire."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.parts.rest_door import CREDENTIALS, RestDoor
from tests.shared_catalog.rest_handles import RestHandles

from sparkport.errors import CatalogFault
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake import vended
from sparkport.spark.lake.directory import CatalogEntry

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


class _Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


class TestVended:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> _Clock:
        clock = _Clock()
        monkeypatch.setattr(vended, "time", clock)
        return clock

    @pytest.fixture
    def made(self, rest_handles: RestHandles, door: RestDoor) -> CatalogEntry:
        catalog = rest_handles.open()
        catalog.create_namespace(("n",), {})
        made = rest_handles.table(catalog, "t")
        door.vended = {"s3.access-key-id": "key", "s3.session-token": "session"}
        return made

    def test_properties_are_those_of_the_longest_prefix(
        self, rest_handles: RestHandles, made: CatalogEntry
    ) -> None:
        found = rest_handles.open().vended(made.identifier)
        assert found["s3.access-key-id"] == "key"
        assert found["s3.session-token"] == "session"
        assert found["client.region"] == "somewhere"
        assert not {"uri", "credential"} & found.keys()

    @pytest.mark.parametrize("has_endpoint", [False, True])
    def test_credentials_are_renewed_before_they_expire(
        self,
        rest_handles: RestHandles,
        made: CatalogEntry,
        door: RestDoor,
        clock: _Clock,
        has_endpoint: bool,
    ) -> None:
        if has_endpoint:
            door.offered.add(CREDENTIALS)
        catalog = rest_handles.open()
        catalog.vended(made.identifier)
        door.forget()
        clock.now += 3000
        assert catalog.vended(made.identifier)["s3.session-token"] == "session"
        assert not door.seen
        clock.now += 400
        door.vended = {"s3.session-token": "another"}
        found = catalog.vended(made.identifier)
        assert (found["s3.session-token"], found["client.region"]) == ("another", "somewhere")
        assert door.count("GET", "/credentials") == has_endpoint
        assert len(door.seen) == 1

    def test_credentials_that_are_still_valid_do_for_a_while(
        self, rest_handles: RestHandles, made: CatalogEntry, door: RestDoor, clock: _Clock
    ) -> None:
        catalog = rest_handles.open()
        catalog.vended(made.identifier)
        door.fail("GET", "/tables/t", 403, times=2)
        clock.now += 3400
        assert catalog.vended(made.identifier)["s3.session-token"] == "session"
        clock.now += 300
        with pytest.raises(CatalogFault, match="does not allow this"):
            catalog.vended(made.identifier)
        assert catalog.vended(made.identifier)["s3.session-token"] == "session"

    def test_one_thread_renews_and_others_go_on(self, clock: _Clock) -> None:
        identifier = Identifier("c", ("n",), "t")
        renews, may_end = threading.Event(), threading.Event()

        def renew(_: Identifier) -> None:
            renews.set()
            assert may_end.wait(20)
            properties.learn(identifier, "s3://b", {"s3.session-token": "new"}, ())

        properties = vended.VendedProperties(renew)
        properties.learn(identifier, "s3://b", {"s3.session-token": "old"}, ())
        clock.now += 400
        with ThreadPoolExecutor() as threads:
            first = threads.submit(properties.current, identifier)
            assert renews.wait(20)
            assert properties.current(identifier) == {"s3.session-token": "old"}
            may_end.set()
            assert first.result(20) == {"s3.session-token": "new"}
