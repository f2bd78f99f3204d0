"""What the lake reports to observers: the routes of scans, and what its functions have changed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

import sparkport as sp
from sparkport.testing import DuckDBClient


def test_routes_are_counted_and_functions_that_change_something_are_audited(
    lake, namespace, tmp_path
):
    table = f"{lake.spark_catalog}.{namespace}.t"
    lake.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' "
        "= '3')"
    )
    lake.spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    lake.spark.sql(f"CREATE VIEW {lake.spark_catalog}.{namespace}.w AS SELECT id FROM {table}")
    file = tmp_path / "audit.jsonl"
    with (
        sp.Server(lake, "grpc://127.0.0.1:0", sp.ServerSettings(audit_file=file)) as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        assert client.count(namespace, "t") == 2
        assert client.count(namespace, "w") == 2
        rows = pa.table({"id": pa.array([2, 3], pa.int64()), "v": ["secret", "secret"]})
        client.in_out(namespace, "upsert", "t", "id", rows=rows)
        client.table_function(namespace, "tag", "t", "before")
        client.insert(namespace, "t", {"id": [4], "v": ["secret"]})
        watching: Any = server._watching
        metrics = watching.metrics.exposition().decode()

    written = [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    assert 'sparkport_scans_total{route="in_place"} 1.0' in metrics
    assert 'sparkport_scans_total{route="relation"} 1.0' in metrics
    assert [(each["what"], each["object"], each["rows"], each["outcome"]) for each in written] == [
        ("upsert", table, 2, "ok"),
        ("tag", table, None, "ok"),
        ("insert", f"lake.{namespace}.t", 1, "ok"),
    ]
    assert "secret" not in file.read_text("utf-8")
