"""A REST catalog: Iceberg's own servlet, behind a door that fails as others do."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import requests
from tests.parts.rest import RestServer
from tests.parts.rest_door import RestDoor
from tests.shared_catalog.contract import SwapsTogetherContract, names, present
from tests.shared_catalog.rest_handles import RestHandles

from sparkport.catalog import Context
from sparkport.engine.cache import Cache
from sparkport.errors import CatalogFault
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.rest_catalog import RestCatalog
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, Refused

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

# As for the other tests of Spark: no JVM here lives long enough for its second compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


class TestRestCatalog(SwapsTogetherContract):
    """Behind tokens."""

    @pytest.fixture
    def handles(self, rest_handles: RestHandles) -> RestHandles:
        return rest_handles

    @pytest.fixture
    def catalog(self, handles: RestHandles) -> RestCatalog:
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        catalog.changed()
        return catalog

    def test_a_request_that_reads_is_sent_again(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        for status in (0, 429, 500, 502, 503, 504):
            door.fail("GET", "/tables/t", status, times=2)
            assert present(catalog, made.identifier) == made

    def test_a_catalog_that_stays_away_is_a_clear_error(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        handles.table(catalog, "t")
        catalog.listing()
        door.fail("GET", "/v1/", 503, times=1000)
        catalog.changed()
        with pytest.raises(CatalogFault, match="catalog of lake rest_catalog answered 503"):
            catalog.listing()
        with pytest.raises(CatalogFault, match="answered 503: by the tests"):
            catalog.entry(("n",), "t")
        door.heal()
        assert names(catalog) == {"n": ["t"]}

    # -------------------------------------------------------------------------------------- commits

    @pytest.mark.parametrize("status", [400, 401, 403, 405, 422, 429, 501, 503])
    def test_what_the_server_does_not_take_is_refused(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor, status: int
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        door.fail("POST", "/tables/t", status, times=10)
        with pytest.raises(Refused) as caught:
            catalog.swap(made.identifier, metadata)
        assert "the REST catalog of lake rest_catalog" in str(caught.value.__cause__)
        assert present(catalog, made.identifier) == made

    @pytest.mark.parametrize("status", [0, 500, 502, 504])
    @pytest.mark.parametrize("is_late", [False, True])
    def test_what_is_not_answered_is_left_open(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor, status: int, is_late: bool
    ) -> None:
        """And is asked only once."""
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        door.forget()
        door.fail("POST", "/tables/t", status, is_late=is_late)
        with pytest.raises(CatalogFault):
            catalog.swap(made.identifier, metadata)
        assert door.count("POST", "/tables/t") == 1
        assert (present(catalog, made.identifier) != made) == is_late

    def test_beaten_is_certain_unless_the_swap_was_sent_twice(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        slow, slower = (handles.new(made.identifier, made) for _ in range(2))
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, slow)
        assert caught.value.is_certain
        door.fail("POST", "/tables/t", 503)
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, slower)
        assert not caught.value.is_certain

    def test_a_server_that_says_503_after_a_commit_leaves_it_open(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        door.fail("POST", "/tables/t", 503, is_late=True)
        with pytest.raises(Beaten) as caught:
            catalog.swap(made.identifier, metadata)
        assert not caught.value.is_certain
        assert present(catalog, made.identifier) != made

    @pytest.mark.parametrize("is_constraint_first", [False, True])
    def test_constraints_and_rows_do_not_pass_each_other(
        self, catalog: RestCatalog, handles: RestHandles, is_constraint_first: bool
    ) -> None:
        """A constraint is a property, of which a REST catalog has no requirement."""
        made = handles.table(catalog, "t")
        proposals = [handles.appended(made.identifier), handles.changed(made.identifier)]
        if is_constraint_first:
            proposals.reverse()
        first, second = proposals
        catalog.swap(made.identifier, first)
        with pytest.raises(Beaten):
            handles.open().swap(made.identifier, second)

    def test_a_change_of_properties_leaves_nothing_else(
        self, catalog: RestCatalog, handles: RestHandles
    ) -> None:
        made = handles.table(catalog, "t")
        before = handles.metadata(catalog, made)
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        after = handles.metadata(catalog, present(catalog, made.identifier))
        assert after["last-column-id"] == before["last-column-id"] + 1
        differences = {key for key in after if after[key] != before.get(key)}
        assert differences == {"last-column-id", "last-updated-ms", "metadata-log", "properties"}

    def test_others_can_change_properties_meanwhile(
        self, catalog: RestCatalog, handles: RestHandles
    ) -> None:
        made = handles.table(catalog, "t")
        rows = handles.appended(made.identifier)
        handle = handles.gateway.iceberg(made.identifier)
        assert handle is not None
        handle.table.updateProperties().set("theirs", "1").commit()
        catalog.swap(made.identifier, rows)
        after = handles.metadata(catalog, present(catalog, made.identifier))
        assert after["properties"]["theirs"] == "1"
        assert len(after["snapshots"]) == 1

    def test_a_server_without_the_endpoint_does_not_swap_together(
        self, handles: RestHandles, door: RestDoor
    ) -> None:
        door.hidden.add("POST /v1/{prefix}/transactions/commit")
        assert not handles.open().swaps_together

    # -------------------------------------------------------------------------------------- reading

    def test_metadata_come_with_the_table(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        text = catalog.metadata_text(made.identifier, made.location)
        assert text is not None
        assert json.loads(text)["location"] == made.location.partition("/metadata/")[0]
        door.forget()
        for _ in range(3):
            assert catalog.metadata_text(made.identifier, made.location) == text
        assert not door.seen
        assert catalog.metadata_text(made.identifier, "file:/elsewhere") is None

    def test_metadata_that_were_forgotten_are_asked_for(
        self, catalog: RestCatalog, handles: RestHandles
    ) -> None:
        made = handles.table(catalog, "t")
        catalog._texts = Cache(1)
        assert catalog.metadata_text(made.identifier, made.location) is not None

    def test_a_listing_does_not_load_every_table(
        self, catalog: RestCatalog, server: RestServer, door: RestDoor
    ) -> None:
        schema: dict[str, Any] = {"type": "struct", "fields": []}
        for number in range(200):
            body: Any = {"name": f"t{number}", "schema": schema}
            made = requests.post(f"{server.uri}/v1/namespaces/n/tables", json=body, timeout=60)
            assert made.ok
        assert len(names(catalog)["n"]) == 200
        door.forget()
        assert len(names(catalog)["n"]) == 200
        assert 0 < door.count("GET", "/tables/") <= 20
        assert len(door.seen) < 30

    def test_a_change_of_this_server_does_not_list_everything(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        catalog._settings = LakeSettings(refresh_seconds=600)
        made = handles.table(catalog, "t")
        names(catalog)
        before = catalog.listing()
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        door.forget()
        catalog.changed(made.identifier)
        after = catalog.listing()
        assert after.version > before.version
        assert after.namespaces["n"].entries["t"] != made
        assert [path for _, path in door.seen] == ["/v1/namespaces/n/tables/t"]
        catalog.drop(after.namespaces["n"].entries["t"])
        catalog.changed(made.identifier)
        assert catalog.listing().namespaces["n"].entries == {}

    def test_views_are_listed_with_their_columns(
        self, catalog: RestCatalog, handles: RestHandles, rest_lake: LakeCatalog
    ) -> None:
        handles.table(catalog, "t")
        rest_lake.spark.sql(f"CREATE VIEW {catalog.name}.n.v AS SELECT 1 AS b")
        catalog.changed()
        found = catalog.listing().namespaces["n"].entries
        assert [found[name].kind for name in ("t", "v")] == [Kind.ICEBERG, Kind.VIEW]
        schema: Any = rest_lake.schema(Context(), "n")
        assert schema.table(Context(), "v").arrow_schema.names == ["b", "rowid"]
        renamed = Identifier(catalog.name, ("n",), "w")
        catalog.rename(found["v"], renamed)
        assert names(catalog) == {"n": ["t", "w"]}
        assert catalog.drop(present(catalog, renamed))
        assert names(catalog) == {"n": ["t"]}

    def test_lists_come_in_pages(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        for number in range(5):
            handles.table(catalog, f"t{number}")
        door.defaults["rest-page-size"] = "2"
        other = handles.open()
        door.forget()
        assert names(other) == {"n": [f"t{number}" for number in range(5)]}
        assert sum(path.endswith("/n/tables") for _, path in door.seen) == 3

    def test_a_server_may_want_a_prefix(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        door.overrides["prefix"] = "of/us"
        other = handles.open()
        door.forget()
        assert present(other, made.identifier) == made
        assert door.count("GET", "/v1/of/us/namespaces/n/tables/t") >= 1

    # ------------------------------------------------------------------------------- authentication

    def test_a_token_that_is_revoked_is_renewed_once(
        self, catalog: RestCatalog, handles: RestHandles, door: RestDoor
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        door.revoke()
        door.forget()
        catalog.swap(made.identifier, metadata)
        assert door.count("POST", "/oauth/tokens") == 1
        assert door.count("POST", "/tables/t") == 2
        present(catalog, made.identifier)
        assert door.count("POST", "/oauth/tokens") == 1

    def test_a_token_is_renewed_before_it_expires(
        self, handles: RestHandles, door: RestDoor
    ) -> None:
        door.token_seconds = 0
        catalog = handles.open()
        door.forget()
        catalog.listing()
        assert door.count("POST", "/oauth/tokens") == door.count("GET", "/v1/")

    def test_client_credentials_are_sent_as_oauth2_wants_them(
        self, handles: RestHandles, door: RestDoor
    ) -> None:
        handles.open().listing()
        assert door.forms[-1] == {
            "grant_type": "client_credentials",
            "client_id": "sparkport",
            "client_secret": "a:secret",
            "scope": "catalog",
        }
