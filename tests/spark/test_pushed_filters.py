"""Conditions on tables of other formats reach the readers of Spark, and the routes agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.tables import where

from sparkport.catalog import Context, ScanOptions
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.scan.relation_scan import _relation_rows

CTX = Context()
_DATABASE = "pushed_filters"


@pytest.fixture(scope="module")
def session(lake: LakeCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    """Spark's session catalog, with a table of each format."""
    lake.spark.sql(f"CREATE DATABASE spark_catalog.{_DATABASE}")
    for kind in ("parquet", "orc", "csv", "json"):
        name = f"spark_catalog.{_DATABASE}.{kind}"
        lake.spark.sql(
            f"CREATE TABLE {name} (id BIGINT, v STRING, p INT) USING {kind} PARTITIONED BY (p)"
        )
        lake.spark.sql(f"INSERT INTO {name} SELECT id, concat('v', id), id % 2 FROM range(10)")
    settings = LakeSettings(staging=str(tmp_path_factory.mktemp("staging")))
    with LakeCatalog(
        spark=lake.spark, spark_catalog="spark_catalog", name="pushed", settings=settings
    ) as catalog:
        yield catalog
    lake.spark.sql(f"DROP DATABASE spark_catalog.{_DATABASE} CASCADE")


def _table(session: LakeCatalog, name: str) -> Any:
    schema: Any = session.schema(CTX, _DATABASE)
    return schema.table(CTX, name)


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv", "json"])
def test_a_condition_reaches_the_reader(session: LakeCatalog, kind: str) -> None:
    table = _table(session, kind)
    condition = where("id", ">", 6)
    rows = _relation_rows(session._lake, CTX, table.entry.identifier, table.arrow_schema, condition)
    plan = rows._jdf.queryExecution().executedPlan().toString()

    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,6)]" in plan
    options = ScanOptions(columns=("id",), filter=condition)
    found = [row["id"] for batch in table.scan(CTX, options) for row in batch.to_pylist()]
    assert sorted(found) == [7, 8, 9]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_that_nobody_wants_are_not_read(session: LakeCatalog, kind: str) -> None:
    table = _table(session, kind)
    batches = list(table.scan(CTX, ScanOptions(columns=())))

    assert sum(batch.num_rows for batch in batches) == 10
    assert {name for batch in batches for name in batch.schema.names} == {"rowid"}


def test_rows_of_other_formats_have_no_ids(session: LakeCatalog) -> None:
    table = _table(session, "parquet")
    rows = [
        row
        for batch in table.scan(CTX, ScanOptions(columns=("id", "rowid")))
        for row in batch.to_pylist()
    ]

    assert {row["rowid"] for row in rows} == {-1}
    assert len(rows) == 10
