"""Which catalog a name means, and its version."""

from __future__ import annotations

import threading

import pytest
from tests.server.catalogs import ListedCatalog

from sparkport.catalog import Context
from sparkport.errors import AlreadyExists, BadRequest, NotFound
from sparkport.service.registry import CatalogRegistry, RegisteredCatalog


@pytest.fixture
def registry():
    return CatalogRegistry([("a", ListedCatalog("a")), ("b", ListedCatalog("b"))])


@pytest.mark.parametrize(("name", "found"), [("a", "a"), ("b", "b"), ("", "a"), (None, "a")])
def test_a_name_means_its_catalog_and_no_name_the_first(registry, name, found):
    assert registry.resolve(name).name == found


@pytest.mark.parametrize("name", ["A", "a ", "c"])
def test_names_are_compared_letter_by_letter(registry, name):
    with pytest.raises(NotFound):
        registry.resolve(name)


def test_a_handle_needs_exactly_its_own_catalog(registry):
    assert registry.named("b").name == "b"
    with pytest.raises(NotFound, match="no longer"):
        registry.named("")


def test_a_removed_catalog_can_be_added_again(registry):
    removed = registry.remove("a")

    registry.add(removed.catalog)

    assert [each.name for each in registry.all()] == ["b", "a"]
    assert registry.resolve("").name == "b"


def test_names_are_checked_when_they_are_added(registry):
    with pytest.raises(AlreadyExists):
        registry.add(ListedCatalog("a"))
    with pytest.raises(BadRequest):
        registry.add(ListedCatalog("\n"))
    registry.add(ListedCatalog("with space / and 'quotes'"))


def test_each_change_raises_the_version():
    registered = RegisteredCatalog("a", ListedCatalog("a"))
    seen = [registered.version(Context())]
    for _ in range(3):
        registered.changed()
        seen.append(registered.version(Context()))

    assert [version.number for version in seen] == [1, 2, 3, 4]
    assert not any(version.fixed for version in seen)


def test_the_version_never_falls_behind_when_many_change_at_once():
    registered = RegisteredCatalog("a", ListedCatalog("a"))

    def change():
        for _ in range(500):
            registered.changed()

    threads = [threading.Thread(target=change) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert registered.version(Context()).number == 4001
