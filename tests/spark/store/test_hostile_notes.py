"""Notes in an object store that are not as they should be: nothing is removed because of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.lake_tables import create, drop, find, sql_name, values
from tests.spark.store.statements import Server, add, objects, sweep_now

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.lease import Holder
from sparkport.spark.lake.store_folder import table_digits


class _Planted:
    """The folder of a server that seems to have died, with a note about a table."""

    def __init__(self, source: LakeSource, lake: LakeCatalog, table: Any) -> None:
        self.server = secrets.token_hex(8)
        self.heading: dict[str, Any] = {
            "table": [table.identifier.catalog, list(table.identifier.namespace), table.name],
            "uuid": str(table.state.metadata.table_uuid),
            "metadata": table.state.metadata_location,
            "places": [table.state.metadata.location],
        }
        self._folder = f"{source.warehouse}/.sparkport/{self.server}"
        self._storage = storage_at(self._folder, source.options)
        root = lake._lake.staging.root
        root.mkdir(mode=0o700, exist_ok=True)
        holder = Holder.of(root / secrets.token_hex(16))  # a folder that is gone
        names = {each: getattr(holder, each) for each in Holder.__slots__}
        self._storage.write(f"{self._folder}/lease-00000001", json.dumps(names).encode())
        self.note = f"{self._folder}/tables/{self.heading['uuid']}"

    def name(self, table: Any, place: str | None = None) -> str:
        """Make a file that bears the ids of the server and of a table."""
        ids = f"{self.server}{table_digits(str(table.state.metadata.table_uuid))}"
        folder = place or f"{table.state.metadata.location}/data"
        location = f"{folder}/{ids}{'0' * 16}-{'0' * 16}.parquet"
        self._storage.write(location, b"x")
        return location

    def plant(self) -> None:
        self._storage.write(self.note, json.dumps(self.heading).encode())

    def remove(self) -> None:
        for each in self._storage.files_below(self._folder):
            self._storage.delete(each)


@pytest.fixture
def planted(source: LakeSource, store: LakeCatalog, table: Any) -> Iterator[_Planted]:
    planted = _Planted(source, store, table)
    yield planted
    planted.remove()


def test_what_a_note_leads_to_is_removed(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted
) -> None:
    planted.name(table)
    planted.plant()
    sweep_now(store)
    assert not objects(source, planted.server)


def test_a_note_that_names_another_tables_files_removes_nothing(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, planted: _Planted
) -> None:
    create(store, namespace, "other")
    other = find(store, namespace, "other")
    precious = [
        planted.name(other),
        planted.name(table, f"{source.warehouse}/elsewhere"),
        planted.name(other, f"{table.state.metadata.location}/data"),
    ]
    planted.heading["places"] = [source.warehouse, other.state.metadata.location]
    planted.plant()
    sweep_now(store)
    assert set(precious) <= set(objects(source))
    for each in precious:
        storage_at(each, source.options).delete(each)


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "00000000-0000-0000-0000-000000000000"},
        {"table": ["another", ["a"], "t"]},
        {"places": ["/"], "uuid": "x", "table": ["store", ["no"], "such"]},
        {"table": "x"},
        {"table": ["store", ["no"], "such"], "uuid": "of a table that was dropped"},
    ],
)
def test_a_note_that_does_not_fit_the_table_is_not_obeyed(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted, change: dict[str, Any]
) -> None:
    file = planted.name(table)
    planted.heading |= change
    if change.get("uuid"):
        ids = f"{planted.server}{table_digits(change['uuid'])}"
        wrong = f"{table.state.metadata.location}/data/{ids}{'0' * 16}-{'0' * 16}.parquet"
        storage_at(wrong, source.options).write(wrong, b"x")
    else:
        wrong = file
    planted.plant()
    sweep_now(store)
    assert {file, wrong, planted.note} <= set(objects(source))


def test_a_note_that_cannot_be_read_stays(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted
) -> None:
    storage_at(planted.note, source.options).write(planted.note, b"{")
    sweep_now(store)
    assert planted.note in objects(source)


def test_a_table_whose_files_others_may_use_keeps_them(
    store: LakeCatalog,
    namespace: str,
    source: LakeSource,
    table: Any,
    planted: _Planted,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = planted.name(table)
    planted.plant()
    name = sql_name(store, namespace, "t")
    store.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    store._lake.changed()
    sweep_now(store)
    assert file in objects(source)
    assert "gc.enabled" in caplog.text
    store.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'true')")


def test_files_of_a_table_that_was_registered_twice_stay(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    """The tables have the same uuid, and have gone different ways since."""
    store.spark.sql(
        f"CALL `{store.spark_catalog}`.system.register_table(table => '{namespace}.twin', "
        f"metadata_file => '{table.state.metadata_location}')"
    )
    store._lake.changed()
    area = store._lake.staging
    store._lake.staging = server.area
    try:
        add(store, namespace, 2)
    finally:
        store._lake.staging = area
    twin = find(store, namespace, "twin")
    made = server.write(twin)
    server.die()
    sweep_now(store)
    assert made not in objects(source)
    assert values(find(store, namespace, "t"), "id") == [1, 2]
    assert values(find(store, namespace, "twin"), "id") == [1]


def test_a_table_that_was_dropped_with_its_files_is_forgotten(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    server.write(table)
    server.die()
    drop(store, namespace, "t")
    sweep_now(store)
    assert not objects(source, server.id)
