"""What every shared catalog must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkport.errors import AlreadyExists, NotFound, SchemaNotEmpty, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, SharedCatalog

STRANGE = ("with space", "quo'te", 'dou"ble', "back`tick", "ünï", "semi;--", "per%cent_", "a/b\\c")


class Handles(ABC):
    """One catalog, and as many handles on it as a test needs."""

    @abstractmethod
    def open(self) -> SharedCatalog:
        """A handle that shares nothing with others but the catalog."""

    @abstractmethod
    def new(self, identifier: Identifier, before: CatalogEntry | None = None) -> NewMetadata:
        """Metadata of a new table, or for a table as it is now."""

    def table(self, catalog: SharedCatalog, name: str, namespace: str = "n") -> CatalogEntry:
        """A table that was just made."""
        identifier = Identifier(catalog.name, tuple(namespace.split(".")), name)
        catalog.create(identifier, self.new(identifier))
        return present(catalog, identifier)


class SharedCatalogContract:
    """Needs a fixture `handles`, on an empty catalog."""

    @pytest.fixture
    def catalog(self, handles: Handles) -> SharedCatalog:
        """With an empty namespace `n`."""
        catalog = handles.open()
        catalog.create_namespace(("n",), {})
        catalog.changed()
        return catalog

    @pytest.fixture
    def other(self, handles: Handles, catalog: SharedCatalog) -> SharedCatalog:
        """Another handle."""
        return handles.open()

    # ----------------------------------------------------------------------------------- namespaces

    def test_a_namespace_has_its_properties(self, catalog: SharedCatalog) -> None:
        catalog.create_namespace(("p",), {"comment": "of äll", "owner_team": "x = 'y'"})
        catalog.changed()
        found = catalog.namespace("p")
        assert found is not None
        assert found.parts == ("p",)
        assert {"comment": "of äll", "owner_team": "x = 'y'"}.items() <= found.properties.items()
        assert found.entries == {}

    def test_a_namespace_is_made_once(self, catalog: SharedCatalog) -> None:
        with pytest.raises(AlreadyExists, match="schema n exists already"):
            catalog.create_namespace(("n",), {"a": "b"})
        found = catalog.namespace("n")
        assert found is not None
        assert "a" not in found.properties

    def test_a_namespace_with_tables_is_not_dropped(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        handles.table(catalog, "t")
        with pytest.raises(SchemaNotEmpty, match="schema n is not empty"):
            catalog.drop_namespace(("n",))
        assert names(catalog) == {"n": ["t"]}

    def test_a_namespace_is_dropped(self, catalog: SharedCatalog) -> None:
        catalog.drop_namespace(("n",))
        assert names(catalog) == {}
        assert catalog.namespace("n") is None

    def test_dropping_a_namespace_that_is_not_there_changes_nothing(
        self, catalog: SharedCatalog
    ) -> None:
        catalog.drop_namespace(("missing",))
        assert names(catalog) == {"n": []}

    def test_nested_namespaces_are_apart(self, catalog: SharedCatalog, handles: Handles) -> None:
        catalog.create_namespace(("n", "inner"), {})
        catalog.create_namespace(("n", "inner", "most"), {})
        handles.table(catalog, "t", "n.inner")
        assert names(catalog) == {"n": [], "n.inner": ["t"], "n.inner.most": []}
        catalog.drop_namespace(("n", "inner", "most"))
        assert names(catalog) == {"n": [], "n.inner": ["t"]}

    @pytest.mark.parametrize("name", STRANGE)
    def test_names_are_only_names(
        self, catalog: SharedCatalog, handles: Handles, name: str
    ) -> None:
        catalog.create_namespace((name,), {})
        identifier = Identifier(catalog.name, (name,), name)
        catalog.create(identifier, handles.new(identifier))
        found = present(catalog, identifier)
        assert (found.identifier, found.kind) == (identifier, Kind.ICEBERG)
        assert names(catalog) == {"n": [], name: [name]}
        assert catalog.drop(found)
        catalog.drop_namespace((name,))
        assert names(catalog) == {"n": []}

    # --------------------------------------------------------------------------------------- tables

    def test_a_table_that_is_made_can_be_loaded(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        assert (made.kind, str(made.identifier)) == (Kind.ICEBERG, "n.t")
        assert made.location.endswith(".metadata.json")
        assert catalog.listing().namespaces["n"].entries == {"t": made}

    def test_what_is_not_there_is_not_loaded(self, catalog: SharedCatalog) -> None:
        assert catalog.entry(("n",), "missing") is None
        assert catalog.entry(("missing",), "t") is None
        assert catalog.namespace("missing") is None

    def test_a_table_is_made_once(self, catalog: SharedCatalog, handles: Handles) -> None:
        identifier = Identifier(catalog.name, ("n",), "t")
        late = handles.new(identifier)
        made = handles.table(catalog, "t")
        with pytest.raises(AlreadyExists, match=r"table n\.t exists already"):
            catalog.create(identifier, late)
        assert present(catalog, identifier) == made

    def test_of_several_that_make_a_table_one_does(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        identifier = Identifier(catalog.name, ("n",), "t")
        proposals = [handles.new(identifier) for _ in range(4)]

        def made(metadata: NewMetadata) -> bool:
            try:
                handles.open().create(identifier, metadata)
            except AlreadyExists:
                return False
            return True

        assert in_parallel(made, proposals) == 1
        present(catalog, identifier)

    def test_a_table_is_dropped_once(self, catalog: SharedCatalog, handles: Handles) -> None:
        made = handles.table(catalog, "t")
        assert catalog.drop(made)
        assert names(catalog) == {"n": []}
        assert catalog.entry(("n",), "t") is None
        assert not catalog.drop(made)

    def test_a_purge_removes_files_of_what_was_there(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        removed: list[str] = []
        assert catalog.purge(made, lambda: removed.append("once"))
        assert not catalog.purge(made, lambda: removed.append("twice"))
        assert "twice" not in removed
        assert names(catalog) == {"n": []}

    def test_a_table_is_renamed(self, catalog: SharedCatalog, handles: Handles) -> None:
        made = handles.table(catalog, "t")
        renamed = Identifier(catalog.name, ("n",), "u")
        catalog.rename(made, renamed)
        assert names(catalog) == {"n": ["u"]}
        assert present(catalog, renamed).location == made.location

    def test_a_table_is_not_renamed_onto_another(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        one, two = handles.table(catalog, "one"), handles.table(catalog, "two")
        with pytest.raises(AlreadyExists, match=r"table n\.two exists already"):
            catalog.rename(one, two.identifier)
        assert names(catalog) == {"n": ["one", "two"]}
        assert present(catalog, two.identifier).location == two.location

    def test_what_is_gone_is_not_renamed(self, catalog: SharedCatalog, handles: Handles) -> None:
        made = handles.table(catalog, "t")
        catalog.drop(made)
        with pytest.raises(NotFound):
            catalog.rename(made, Identifier(catalog.name, ("n",), "u"))
        assert names(catalog) == {"n": []}

    def test_a_table_takes_the_place_of_another(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        old, new = handles.table(catalog, "old"), handles.table(catalog, "new")
        try:
            catalog.replace(old, new)
        except Unsupported:
            assert names(catalog) == {"n": ["new", "old"]}
            return
        assert names(catalog) == {"n": ["old"]}
        assert present(catalog, old.identifier).location == new.location

    def test_what_is_gone_takes_no_place(self, catalog: SharedCatalog, handles: Handles) -> None:
        made, gone = handles.table(catalog, "t"), handles.table(catalog, "gone")
        catalog.drop(gone)
        for pair in ((made, gone), (gone, made)):
            with pytest.raises((NotFound, Unsupported)):
                catalog.replace(*pair)
            assert names(catalog) == {"n": ["t"]}

    # ----------------------------------------------------------------------------- compare-and-swap

    def test_a_swap_replaces_the_metadata(self, catalog: SharedCatalog, handles: Handles) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        assert metadata.before == made.location
        catalog.swap(made.identifier, metadata)
        after = present(catalog, made.identifier)
        assert after.location not in ("", made.location)

    def test_a_swap_on_what_others_have_changed_is_beaten(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        slow, fast = (handles.new(made.identifier, made) for _ in range(2))
        catalog.swap(made.identifier, fast)
        won = present(catalog, made.identifier)
        with pytest.raises(Beaten, match=r"table n\.t was changed by somebody else"):
            catalog.swap(made.identifier, slow)
        assert present(catalog, made.identifier) == won

    def test_of_several_that_swap_one_wins(self, catalog: SharedCatalog, handles: Handles) -> None:
        made = handles.table(catalog, "t")
        proposals = [handles.new(made.identifier, made) for _ in range(4)]

        def swapped(metadata: NewMetadata) -> bool:
            try:
                handles.open().swap(made.identifier, metadata)
            except Beaten:
                return False
            return True

        assert in_parallel(swapped, proposals) == 1
        assert present(catalog, made.identifier).location != made.location

    def test_a_swap_does_not_bring_a_dropped_table_back(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        metadata = handles.new(made.identifier, made)
        catalog.drop(made)
        with pytest.raises(Beaten):
            catalog.swap(made.identifier, metadata)
        assert names(catalog) == {"n": []}

    def test_what_cannot_swap_together_says_so(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        changes = [(made.identifier, handles.new(made.identifier, made))]
        if catalog.swaps_together:
            catalog.swap_all(changes)
        else:
            with pytest.raises(Unsupported, match="cannot change several tables at once"):
                catalog.swap_all(changes)
        assert (present(catalog, made.identifier) != made) == catalog.swaps_together

    # -------------------------------------------------------------------------------------- version

    def test_the_version_rises_with_each_change(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        versions = [catalog.listing().version]

        def look() -> None:
            catalog.changed()
            versions.append(catalog.listing().version)

        catalog.create_namespace(("m",), {})
        look()
        made = handles.table(catalog, "t")
        look()
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        now = present(catalog, made.identifier)
        look()
        catalog.rename(now, Identifier(catalog.name, ("n",), "u"))
        look()
        catalog.drop(present(catalog, Identifier(catalog.name, ("n",), "u")))
        look()
        catalog.drop_namespace(("m",))
        look()
        assert versions == sorted(set(versions))

    def test_the_version_stays_while_nothing_changes(
        self, catalog: SharedCatalog, handles: Handles
    ) -> None:
        made = handles.table(catalog, "t")
        catalog.changed()
        before = catalog.listing()
        with pytest.raises(AlreadyExists):
            catalog.create_namespace(("n",), {})
        catalog.entry(("n",), "t")
        assert not catalog.drop(CatalogEntry(Identifier(catalog.name, ("n",), "no"), made.kind))
        catalog.changed()
        assert catalog.listing() == before

    # -------------------------------------------------------------------------------------- sharing

    def test_handles_see_what_each_other_does(
        self, catalog: SharedCatalog, other: SharedCatalog, handles: Handles
    ) -> None:
        assert names(other) == {"n": []}
        other.create_namespace(("m",), {"comment": "x"})
        made = handles.table(other, "t", "m")
        assert names(catalog) == {"m": ["t"], "n": []}
        assert catalog.entry(("m",), "t") == made
        catalog.swap(made.identifier, handles.new(made.identifier, made))
        swapped = present(catalog, made.identifier)
        assert present(other, made.identifier) == swapped != made
        catalog.drop(swapped)
        assert other.entry(("m",), "t") is None
        catalog.drop_namespace(("m",))
        assert names(other) == {"n": []}


class SwapsTogetherContract(SharedCatalogContract):
    """Of a catalog that can change several tables at once."""

    @pytest.fixture
    def together(self, catalog: SharedCatalog, handles: Handles) -> list[CatalogEntry]:
        """Tables to be swapped together."""
        assert catalog.swaps_together
        return [handles.table(catalog, name) for name in ("b", "a", "c")]

    def test_several_tables_are_swapped_together(
        self, catalog: SharedCatalog, handles: Handles, together: list[CatalogEntry]
    ) -> None:
        catalog.swap_all(
            [(each.identifier, handles.new(each.identifier, each)) for each in together]
        )
        after = [present(catalog, each.identifier).location for each in together]
        assert len({*after, *(each.location for each in together)}) == 6

    @pytest.mark.parametrize("late", [0, 1, 2])
    def test_of_tables_together_all_are_swapped_or_none(
        self, catalog: SharedCatalog, handles: Handles, together: list[CatalogEntry], late: int
    ) -> None:
        changes = [(each.identifier, handles.new(each.identifier, each)) for each in together]
        changed = together[late].identifier
        catalog.swap(changed, handles.new(changed, together[late]))
        before = [present(catalog, each.identifier) for each in together]
        with pytest.raises(Beaten, match=f"table {changed} was changed") as caught:
            catalog.swap_all(changes)
        assert caught.value.identifier == changed
        assert [present(catalog, each.identifier) for each in together] == before

    def test_of_several_that_swap_together_one_wins(
        self, catalog: SharedCatalog, handles: Handles, together: list[CatalogEntry]
    ) -> None:
        """Whatever order each of them has."""
        proposals = [
            [(each.identifier, handles.new(each.identifier, each)) for each in order]
            for order in (together, together[::-1], together[1:], together[:2][::-1])
        ]

        def swapped(changes: list[tuple[Identifier, NewMetadata]]) -> bool:
            try:
                handles.open().swap_all(changes)
            except Beaten:
                return False
            return True

        assert in_parallel(swapped, proposals) == 1


def names(catalog: SharedCatalog) -> dict[str, list[str]]:
    """All that a catalog lists."""
    catalog.changed()
    return {name: list(each.entries) for name, each in catalog.listing().namespaces.items()}


def present(catalog: SharedCatalog, identifier: Identifier) -> CatalogEntry:
    """What is there under a name."""
    found = catalog.entry(identifier.namespace, identifier.name)
    assert found is not None
    return found


def in_parallel(ask: object, proposals: Iterable[object]) -> int:
    """How many have succeeded."""
    assert callable(ask)
    with ThreadPoolExecutor() as threads:
        return sum(threads.map(ask, proposals))
