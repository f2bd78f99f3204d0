"""Every filter of the corpus on the lake, by every route: no row is lost, nearly all are exact."""

from __future__ import annotations

import functools
import json
from typing import Any

import pyarrow as pa
import pytest
from tests.filters.test_corpus import UNKNOWABLE, VERSIONS, batch, cases
from tests.spark.loading import load

from sparkport.catalog import Context, ScanOptions
from sparkport.catalog.filters import Filter
from sparkport.errors import SparkportError
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.scan.spark_filters import spark_condition
from sparkport.testing import DuckDBClient
from sparkport.wire.filters import decode_filter

CTX = Context()


@pytest.fixture(scope="module")
def corpus(lake: LakeCatalog, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The namespace of a table `data` that has the rows of the corpus."""
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.corpus")
    load(
        lake, "corpus", "data", pa.Table.from_batches([batch()]), tmp_path_factory.mktemp("corpus")
    )
    return "corpus"


@functools.cache
def _filters(version: str) -> tuple[tuple[dict[str, Any], Filter], ...]:
    return tuple(
        (case, decode_filter(json.dumps(case["json_filters"])) or Filter(()))
        for case in cases(version)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_in_place_keeps_what_the_client_keeps(lake, corpus, version):
    table = lake.schema(CTX, corpus).table(CTX, "data")
    lost, inexact = {}, set()
    for case, row_filter in _filters(version):
        batches = table.scan(CTX, ScanOptions(columns=("id",), filter=row_filter))
        kept = sorted(value for each in batches for value in each.column("id").to_pylist())
        if missing := set(case["keep"]) - set(kept):
            lost[case["sql"]] = missing
        if kept != sorted(case["keep"]) and not case["volatile"]:
            inexact.add(case["sql"])
    assert lost == {}
    assert inexact <= UNKNOWABLE


@pytest.mark.parametrize("version", VERSIONS)
def test_what_spark_is_asked_for_keeps_what_the_client_keeps(lake, corpus, version):
    rows = lake.spark.table(f"`{lake.spark_catalog}`.{corpus}.data")
    conditions = [
        (case, spark_condition(row_filter, rows.schema)) for case, row_filter in _filters(version)
    ]
    asked = [(case, condition) for case, condition in conditions if condition is not None]
    assert len(asked) >= 20  # most of the corpus is about functions, which Spark computes otherwise
    answers = rows.selectExpr(
        "id", *(f"({condition}) AS c{n}" for n, (_, condition) in enumerate(asked))
    ).collect()
    lost = {}
    for number, (case, _) in enumerate(asked):
        kept = {row["id"] for row in answers if row[f"c{number}"]}
        if missing := set(case["keep"]) - kept:
            lost[case["sql"]] = missing
    assert lost == {}


def test_spark_tasks_keep_what_the_client_keeps(lake, warehouse, corpus):
    settings = LakeSettings(in_place_bytes=0)
    with (
        LakeCatalog(
            warehouse, name="tasks", spark_catalog=lake.spark_catalog, settings=settings
        ) as tasks,
        Server(tasks, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "tasks", timeout=60) as client,
    ):
        for case in cases("1.5")[::8]:
            try:
                found = client.scan(corpus, "data", ["id"], filter=json.dumps(case["json_filters"]))
            except SparkportError as error:
                pytest.fail(f"{case['sql']}: {error}")
            assert set(case["keep"]) <= set(found["id"].to_pylist()), case["sql"]
