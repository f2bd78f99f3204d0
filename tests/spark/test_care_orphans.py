"""Files in a table's own folder that nothing leads to are removed, when they are old."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake_tables import create, find, insert, rows, sql_name
from tests.spark.places import path_of

from sparkport.spark.care import orphans
from sparkport.spark.care.expired_files import Removed, write_note
from sparkport.spark.care.orphans import remove_orphans
from sparkport.spark.care.reached_files import Files
from sparkport.spark.lake.care_settings import CareSettings, care_of

_DAY = 86_400


class _Table:
    """A table of two rows in two files."""

    def __init__(self, lake: Any, namespace: str) -> None:
        self.lake, self.namespace = lake, namespace
        create(lake, namespace, "t")
        insert(lake, namespace, "t", "(1, 1, 'a')")
        insert(lake, namespace, "t", "(2, 2, 'b')")
        lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')} WHERE id = 1")

    @property
    def state(self) -> Any:
        return find(self.lake, self.namespace, "t").state

    @property
    def folder(self) -> Path:
        return path_of(self.state.metadata.location)

    @property
    def settings(self) -> CareSettings:
        return care_of(self.lake._lake.settings, self.state.metadata.properties)

    def remove(self, **options: Any) -> Removed | None:
        lake, identifier = self.lake._lake, self.state.identifier
        return remove_orphans(lake, identifier, self.settings, lambda: None, **options)

    def files(self) -> set[Path]:
        return {each for each in self.folder.rglob("*") if each.is_file()}

    def put(self, name: str, days: float, content: str = "lost") -> Path:
        """A file that nothing leads to, written so many days ago."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        os.utime(file, (0, time.time() - days * _DAY))
        return file

    def age_all(self, days: float) -> None:
        for each in self.files():
            os.utime(each, (0, time.time() - days * _DAY))


@pytest.fixture
def table(lake, namespace) -> _Table:
    return _Table(lake, namespace)


def test_old_files_that_nothing_leads_to_are_removed(table):
    table.age_all(days=10)
    known = table.files()
    lost = [
        table.put("data/lost.parquet", days=4),
        table.put("data/deep/er/lost.puffin", days=4),
        table.put("metadata/lost-m0.avro", days=4),
        table.put("metadata/.lost-m0.avro.crc", days=4),
    ]
    young = table.put("data/young.parquet", days=2)
    assert table.remove() == Removed(files=2, bytes=12, manifests=1)
    assert not any(each.exists() for each in lost)
    assert young.exists()
    assert table.files() == known | {young}
    assert [row["id"] for row in rows(find(table.lake, table.namespace, "t"))] == [2]
    assert table.remove() == Removed()


def test_metadata_that_are_in_no_log_go_after_an_hour(table):
    table.age_all(days=1)
    known = table.files()
    old = table.put("metadata/00000-lost.metadata.json", days=0.1)
    packed = table.put("metadata/00000-lost.gz.metadata.json", days=0.1)
    young = table.put("metadata/00001-lost.metadata.json", days=0.01)
    assert table.remove() == Removed(files=2, bytes=8)
    assert not old.exists()
    assert not packed.exists()
    assert table.files() == known | {young}


def test_metadata_stay_while_only_they_tell_the_numbers_of_versions(table, monkeypatch):
    monkeypatch.setattr(orphans, "_is_told", lambda state: False)
    kept = table.put("metadata/00000-lost.metadata.json", days=9)
    gone = table.put("data/lost.parquet", days=9)
    assert table.remove() == Removed(files=1, bytes=4)
    assert kept.exists()
    assert not gone.exists()


def test_the_log_tells_whether_numbers_are_known(table, lake, namespace):
    assert orphans._is_told(table.state), "it goes back to the creation"
    sql = sql_name(lake, namespace, "foreign")
    cut = "TBLPROPERTIES ('write.metadata.previous-versions-max' = '1', 'format-version' = '3')"
    lake.spark.sql(f"CREATE TABLE {sql} (id BIGINT) USING iceberg {cut}")
    for number in range(3):
        lake.spark.sql(f"INSERT INTO {sql} VALUES ({number})")
    assert not orphans._is_told(find(lake, namespace, "foreign").state)


def test_what_a_note_names_waits_for_the_note(table):
    named = table.put("data/forgotten.parquet", days=9)
    write_note(table.state, {1}, Files([], {str(named): 4}))
    table.age_all(days=9)
    assert table.remove() == Removed()
    assert named.exists()


def test_files_of_other_engines_stay(table):
    kept = [table.put(f"metadata/{name}", days=99) for name in ("version-hint.text", "_SUCCESS")]
    assert table.remove() == Removed()
    assert all(each.exists() for each in kept)


def test_links_are_not_followed(table, tmp_path):
    outside = tmp_path / "outside.parquet"
    outside.write_text("mine")
    os.utime(outside, (0, 0))
    (table.folder / "data" / "link").symlink_to(tmp_path)
    assert table.remove() == Removed()
    assert outside.exists()


def test_one_pass_removes_only_so_many(table, monkeypatch):
    monkeypatch.setattr(orphans, "_MOST_FILES", 3)
    for number in range(5):
        table.put(f"data/lost-{number}.parquet", days=9)
    assert table.remove().files == 3
    assert table.remove().files == 2


@pytest.mark.parametrize("change", ["'gc.enabled' = 'false'", "'sparkport.folder' = '/other'"])
def test_a_folder_that_is_not_the_tables_own_is_left_alone(table, change):
    name = sql_name(table.lake, table.namespace, "t")
    table.lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({change})")
    table.lake._lake.changed()
    lost = table.put("data/lost.parquet", days=9)
    assert table.remove() is None
    assert lost.exists()


def test_a_table_of_another_engine_is_left_alone(lake, namespace):
    sql = sql_name(lake, namespace, "foreign")
    lake.spark.sql(f"CREATE TABLE {sql} (id BIGINT) USING iceberg")
    state = find(lake, namespace, "foreign").state
    settings = care_of(lake._lake.settings, {})
    assert remove_orphans(lake._lake, state.identifier, settings, lambda: None) is None


def test_a_folder_with_the_metadata_of_a_second_table_is_left_alone(table, lake, namespace):
    register = f"CALL `{lake.spark_catalog}`.system.register_table"
    place = table.state.metadata_location
    lake.spark.sql(f"{register}(table => '{namespace}.twin', metadata_file => '{place}')")
    lake._lake.changed()
    table.put("data/lost.parquet", days=9)
    assert table.remove() is None
