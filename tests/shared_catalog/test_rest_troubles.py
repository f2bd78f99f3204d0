"""A REST catalog in trouble: what it leaves open is said, and nothing wrong is remembered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.parts.rest_door import RestDoor
from tests.shared_catalog.contract import names, present
from tests.shared_catalog.rest_handles import RestHandles

from sparkport.errors import CatalogFault
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.rest_catalog import RestCatalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_ALWAYS = 1 << 30


@pytest.fixture
def catalog(rest_handles: RestHandles) -> RestCatalog:
    catalog = rest_handles.open()
    catalog.create_namespace(("n",), {"comment": "about n"})
    catalog.changed()
    return catalog


@pytest.fixture
def made(catalog: RestCatalog, rest_handles: RestHandles) -> CatalogEntry:
    return rest_handles.table(catalog, "t")


@pytest.mark.parametrize("status", [0, 500])
def test_changes_say_when_they_are_not_certain(
    catalog: RestCatalog, made: CatalogEntry, door: RestDoor, status: int
) -> None:
    renamed = Identifier(catalog.name, ("n",), "renamed")
    changes: list[tuple[str, str, Callable[[], object]]] = [
        ("POST", "/rename$", lambda: catalog.rename(made, renamed)),
        ("DELETE", "/tables/renamed$", lambda: catalog.drop(present(catalog, renamed))),
        ("POST", "/namespaces$", lambda: catalog.create_namespace(("m",), {})),
        ("DELETE", "/namespaces/m$", lambda: catalog.drop_namespace(("m",))),
    ]
    for method, part, change in changes:
        door.fail(method, part, status, is_late=True)
        with pytest.raises(CatalogFault, match="look whether the change was made"):
            change()
    assert names(catalog) == {"n": []}


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.parametrize("part", ["/namespaces/n$", "/n/tables$", "/n/tables/t$", "/n/views$"])
def test_a_catalog_is_not_listed_without_what_it_does_not_give_now(
    rest_handles: RestHandles, made: CatalogEntry, door: RestDoor, part: str, status: int
) -> None:
    """Not without a namespace, its properties, a table or a view."""
    other = rest_handles.open()
    door.fail("GET", part, status, times=_ALWAYS)
    with pytest.raises(CatalogFault):
        other.listing()
    with pytest.raises(CatalogFault):
        other.namespace("n")
    door.heal()
    (namespace,) = other.listing().namespaces.values()
    assert namespace.properties["comment"] == "about n"
    assert namespace.entries == {"t": made}


def test_a_catalog_is_listed_without_what_it_never_gives(
    rest_handles: RestHandles, made: CatalogEntry, door: RestDoor
) -> None:
    """One broken table does not hide the others."""
    other = rest_handles.open()
    door.fail("GET", "/n/tables/t$", 500, times=_ALWAYS)
    assert other.listing().namespaces["n"].entries["t"].kind is Kind.OTHER
    door.heal()
    other.changed(made.identifier)
    assert other.listing().namespaces["n"].entries == {"t": made}


def test_what_is_known_is_listed_while_a_namespace_is_not_given(
    catalog: RestCatalog, made: CatalogEntry, door: RestDoor
) -> None:
    catalog.changed()
    before = catalog.listing()
    door.fail("GET", "/n/tables$", 503, times=_ALWAYS)
    catalog.changed()
    assert catalog.listing().namespaces == before.namespaces
