"""The queries of TPC-H and TPC-DS over the lake have the answers that DuckDB gives by itself.

The client writes the tables. For each query it reads what DuckDB's plan scans, with the columns and
the conditions that DuckDB pushes down, and DuckDB computes the rest of the query on what has come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.spark import tpc

import sparkport as sp
from sparkport.testing import DuckDBClient

pytestmark = pytest.mark.long

_SCALE = 0.01


@pytest.fixture(scope="module")
def client(lake: sp.LakeCatalog) -> Iterator[DuckDBClient]:
    with (
        sp.Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize(("kind", "count"), [("tpch", 22), ("tpcds", 99)])
def test_all_answers_are_duckdbs_own(
    client: DuckDBClient, tmp_path: Path, kind: str, count: int
) -> None:
    tpc.make(kind, _SCALE, tmp_path)
    queries = tpc.queries(tmp_path)
    assert len(queries) == count
    client.create_schema(kind)
    with duckdb.connect() as local:
        own, fetched = local.cursor(), local.cursor()
        own.execute("CREATE SCHEMA own; USE own")
        fetched.execute("CREATE SCHEMA fetched; USE fetched")
        columns = {}
        for table, path in tpc.tables(tmp_path).items():
            own.execute(f"CREATE TABLE {table} AS FROM '{path}'")
            rows = own.table(table).to_arrow_table()
            client.create_table_as(kind, table, rows)
            columns[table] = rows.column_names
        wrong = [
            number
            for number, query in enumerate(queries, 1)
            if _answer(own, query) != _answer_by(client, kind, own, fetched, query, columns)
        ]
    assert not wrong, f"queries of {kind} with other answers"


def _answer_by(
    client: DuckDBClient,
    schema: str,
    own: duckdb.DuckDBPyConnection,
    fetched: duckdb.DuckDBPyConnection,
    query: str,
    columns: dict[str, list[str]],
) -> list[tuple[Any, ...]]:
    needed = tpc.scanned(own, query, columns)
    for table in columns:
        # With all columns, in the same order: those that nothing reads are empty.
        fetched.execute(f"CREATE OR REPLACE TABLE {table} AS FROM own.{table} LIMIT 0")
        if table in needed:
            each = needed[table]
            came = client.scan(  # noqa: F841 - DuckDB finds it by its name
                schema, table, each.columns, where=each.where, at=("VERSION", "latest")
            )
            fetched.execute(f"INSERT INTO {table} BY NAME FROM came")
    return _answer(fetched, query)


def _answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """The rows, in an order that does not depend on how the query was computed."""
    rows = connection.execute(query).fetchall()
    return sorted((tuple(map(_rounded, row)) for row in rows), key=repr)


def _rounded(value: Any) -> Any:
    """Sums of floating point numbers depend on the order in which they are added."""
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    return round(value, 9 - math.floor(math.log10(abs(value))))
