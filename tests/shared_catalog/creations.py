"""What a shared catalog must do that publishes new tables and views with all else, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.shared_catalog.contract import (
    Handles,
    SwapsTogetherContract,
    in_parallel,
    names,
    present,
)
from tests.shared_catalog.text_metadata import NoViewMetadata, TextMetadata, TextViewMetadata

from sparkport.errors import AlreadyExists
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, SharedCatalog

Changes = list[tuple[Identifier, NewMetadata]]


class CreatesTogetherContract(SwapsTogetherContract):
    """Of a catalog that `creates_together`, whose metadata are files in `tmp_path`."""

    def _identifier(self, catalog: SharedCatalog, name: str) -> Identifier:
        return Identifier(catalog.name, ("n",), name)

    @pytest.fixture
    def all_kinds(self, catalog: SharedCatalog, handles: Handles, tmp_path: Path) -> Changes:
        """A new table and a new view, a changed table, a replaced view and a dropped one."""
        assert catalog.creates_together
        old_views = [self._identifier(catalog, name) for name in ("m_view", "z_view")]
        catalog.swap_all([(each, TextViewMetadata(tmp_path)) for each in old_views])
        changed = handles.table(catalog, "k")
        replaced, dropped = (present(catalog, each) for each in old_views)
        return [
            (self._identifier(catalog, "t"), TextMetadata(tmp_path)),
            (self._identifier(catalog, "a_view"), TextViewMetadata(tmp_path)),
            (changed.identifier, handles.new(changed.identifier, changed)),
            (replaced.identifier, TextViewMetadata(tmp_path, replaced.location)),
            (dropped.identifier, NoViewMetadata(tmp_path, dropped.location)),
        ]

    def test_objects_of_all_kinds_are_published_together(
        self, catalog: SharedCatalog, other: SharedCatalog, all_kinds: Changes
    ) -> None:
        before = other.listing().version
        catalog.swap_all(all_kinds)
        for each in (catalog, other):
            assert names(each) == {"n": ["a_view", "k", "m_view", "t"]}
        kinds = {name: present(other, self._identifier(other, name)).kind for name in "kt"}
        assert set(kinds.values()) == {Kind.ICEBERG}
        for name in ("a_view", "m_view"):
            assert present(other, self._identifier(other, name)).kind is Kind.VIEW
        for identifier, metadata in all_kinds[2:4]:
            assert present(catalog, identifier).location != metadata.before
        assert other.listing().version > before

    @pytest.mark.parametrize("taken", ["t", "a_view"])
    def test_of_objects_together_none_is_made_when_a_name_is_taken(
        self,
        catalog: SharedCatalog,
        other: SharedCatalog,
        handles: Handles,
        all_kinds: Changes,
        tmp_path: Path,
        taken: str,
    ) -> None:
        handles.table(other, taken)
        before, files = _all(catalog), set(tmp_path.glob("*.metadata.json"))
        with pytest.raises(AlreadyExists, match=rf"n\.{taken} exists already"):
            catalog.swap_all(all_kinds)
        assert _all(catalog) == before
        assert set(tmp_path.glob("*.metadata.json")) == files

    @pytest.mark.parametrize("late", [2, 3, 4])
    def test_of_objects_together_none_is_made_when_one_was_changed(
        self,
        catalog: SharedCatalog,
        other: SharedCatalog,
        all_kinds: Changes,
        tmp_path: Path,
        late: int,
    ) -> None:
        identifier, metadata = all_kinds[late]
        kind = TextMetadata if metadata.kind is Kind.ICEBERG else TextViewMetadata
        other.swap_all([(identifier, kind(tmp_path, metadata.before))])
        before = _all(catalog)
        with pytest.raises(Beaten) as caught:
            catalog.swap_all(all_kinds)
        assert (caught.value.identifier, caught.value.is_certain) == (identifier, True)
        assert _all(catalog) == before

    def test_a_table_is_not_changed_or_dropped_as_a_view(
        self, catalog: SharedCatalog, handles: Handles, tmp_path: Path
    ) -> None:
        made = handles.table(catalog, "t")
        for metadata in (
            TextViewMetadata(tmp_path, made.location),
            NoViewMetadata(tmp_path, made.location),
        ):
            with pytest.raises(Beaten):
                catalog.swap_all([(made.identifier, metadata)])
        assert present(catalog, made.identifier) == made

    def test_of_several_that_make_the_same_objects_one_does(
        self, catalog: SharedCatalog, handles: Handles, tmp_path: Path
    ) -> None:
        pair = [self._identifier(catalog, name) for name in ("one", "two")]
        proposals = [
            [(each, TextMetadata(tmp_path)) for each in order] for order in (pair, pair[::-1])
        ]

        def made(changes: Changes) -> bool:
            try:
                handles.open().swap_all(changes)
            except AlreadyExists:
                return False
            return True

        assert in_parallel(made, proposals * 2) == 1
        assert names(catalog) == {"n": ["one", "two"]}


def _all(catalog: SharedCatalog) -> object:
    catalog.changed()
    return catalog.listing().namespaces
