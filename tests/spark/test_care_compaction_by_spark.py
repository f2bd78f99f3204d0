"""Tables that only Spark can rewrite, and manifests that it joins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.compacting import partitioned, with_settings
from tests.spark.lake_tables import find, sql_name
from tests.spark.places import Place

from sparkport.catalog import Context
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care import joined_manifests
from sparkport.spark.care.compaction import compaction_need
from sparkport.spark.care.joined_manifests import join_manifests, manifests_need
from sparkport.spark.care.spark_compaction import compact_with_spark, spark_compaction_need
from sparkport.spark.jvm.relay.pools import BACKGROUND

_SETTINGS = with_settings(small_files=3)


@pytest.fixture(scope="module")
def lake(place: Place) -> Iterator[LakeCatalog]:
    """A lake of its own, of which nobody else takes care."""
    settings = LakeSettings(statistics_rows=0, care=False)
    with LakeCatalog(source=place.source("compaction_spark"), settings=settings) as lake:
        yield lake


def _old(lake: LakeCatalog, namespace: str, count: int = 3) -> str:
    """A table of format version 2, with a delete file."""
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, day INT) USING iceberg TBLPROPERTIES "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    for number in range(count):
        values = f"VALUES ({number}, 1), ({number}, 2)"
        lake.spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM {values}")
    lake.spark.sql(f"DELETE FROM {name} WHERE id = 0 AND day = 1")
    lake._lake.changed()
    return name


@pytest.mark.parametrize("sort", ["", '"ID" DESC'])
def test_spark_joins_files_that_this_process_cannot(lake, namespace, sort):
    name = _old(lake, namespace)
    state = find(lake, namespace, "t").state
    settings = with_settings(small_files=3, sort=sort)
    assert compaction_need(state, settings) is None
    assert spark_compaction_need(state, settings) == "3 small files"
    before = sorted(map(tuple, lake.spark.sql(f"SELECT * FROM {name}").collect()))

    found = compact_with_spark(lake._lake, state.identifier, settings, Context())

    assert (found.files_before, found.files_after) == (3, 1)
    assert 0 < found.bytes_after < found.bytes_before
    after = find(lake, namespace, "t").state
    assert spark_compaction_need(after, settings) is None
    assert sorted(map(tuple, lake.spark.sql(f"SELECT * FROM {name}").collect())) == before
    assert len(before) == 5
    pool = lake.spark.sparkContext._jsc.sc().getPoolForName(BACKGROUND)
    assert pool.isEmpty() or pool.get().weight() == 0


def test_few_files_are_not_for_spark(lake, namespace):
    _old(lake, namespace, 2)
    assert spark_compaction_need(find(lake, namespace, "t").state, _SETTINGS) is None


def test_a_table_for_this_process_is_not_for_spark(lake, namespace):
    name = partitioned(lake, namespace, "id BIGINT", "bucket(1, id)")
    for number in range(3):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({number})")
    lake._lake.changed()
    state = find(lake, namespace, "t").state
    assert spark_compaction_need(state, _SETTINGS) is None
    assert compaction_need(state, _SETTINGS) is not None


def test_a_sorted_table_is_for_spark(lake, namespace):
    name = partitioned(lake, namespace, "id BIGINT", "bucket(1, id)")
    lake.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY id")
    for number in range(3):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({number})")
    lake._lake.changed()
    state = find(lake, namespace, "t").state
    assert compaction_need(state, _SETTINGS) is None
    assert spark_compaction_need(state, _SETTINGS) == "3 small files"


def test_where_only_spark_reads_manifests_the_summaries_tell(lake, namespace):
    from dataclasses import replace

    _old(lake, namespace)
    state = replace(find(lake, namespace, "t").state, io=None)
    assert spark_compaction_need(state, _SETTINGS) == "4 small files"
    compact_with_spark(lake._lake, state.identifier, _SETTINGS, Context())
    after = replace(find(lake, namespace, "t").state, io=None)
    assert spark_compaction_need(after, _SETTINGS) is None


def test_many_manifests_are_joined(lake, namespace, monkeypatch):
    name = _old(lake, namespace)
    state = find(lake, namespace, "t").state
    assert manifests_need(state) is None
    monkeypatch.setattr(joined_manifests, "_MANY", 2)
    monkeypatch.setattr(joined_manifests, "_TIMES", 2)
    assert manifests_need(state) == "3 manifests"
    before = sorted(map(tuple, lake.spark.sql(f"SELECT * FROM {name}").collect()))

    assert join_manifests(lake._lake, state.identifier, Context()) == (3, 1)

    assert manifests_need(find(lake, namespace, "t").state) is None
    assert sorted(map(tuple, lake.spark.sql(f"SELECT * FROM {name}").collect())) == before
