"""TPC-H by Flight SQL: Spark computes all, and the answers are DuckDB's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import OperationalError
from tests.spark import tpc

import sparkport as sp
from sparkport.catalog import Context, CreateSchemaOptions
from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.long, pytest.mark.timeout(280)]

_SCALE = 0.01
_SECONDS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "100" for each in ("fetch", "query", "update")
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    tpc.make("tpch", _SCALE, folder)
    return folder


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the same tables."""
    with duckdb.connect() as connection:
        for table, path in tpc.tables(folder).items():
            connection.execute(f"CREATE TABLE {table} AS FROM '{path}'")
        yield connection


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, lake: sp.LakeCatalog, own: duckdb.DuckDBPyConnection
) -> Iterator[sp.Server]:
    """A lake of its own in the shared JVM, whose only schema is meant where none is named."""
    with (
        sp.LakeCatalog(tmp_path_factory.mktemp("lake"), name="tpch") as catalog,
        sp.Server(catalog, "grpc://127.0.0.1:0") as server,
    ):
        catalog.create_schema(Context(), "h", CreateSchemaOptions())
        with _connected(server) as connection, connection.cursor() as cursor:
            for (table,) in own.execute("SHOW TABLES").fetchall():
                rows = own.table(table).to_arrow_table()
                assert cursor.adbc_ingest(table, rows, mode="create") == len(rows)
        yield server


def _connected(server: sp.Server) -> Any:
    return dbapi.connect(server.location, db_kwargs=_SECONDS, autocommit=True)


@pytest.mark.parametrize("number", range(1, 23))
def test_an_answer_is_duckdbs_own(
    server: sp.Server, own: duckdb.DuckDBPyConnection, folder: Path, number: int
) -> None:
    query = tpc.queries(folder)[number - 1].rstrip().removesuffix(";")
    with _connected(server) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found = _sorted(cursor.fetchall())
    expected = _sorted(own.execute(query).fetchall())
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert all(map(_alike, row, wanted)), (row, wanted)


SUMMARIES = [
    "CREATE TABLE revenue AS SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) AS revenue "
    "FROM lineitem GROUP BY l_suppkey",
    "CREATE TABLE nations AS SELECT n_nationkey, n_name, r_name FROM nation JOIN region "
    "ON n_regionkey = r_regionkey",
    "CREATE TABLE by_nation AS SELECT n_name, r_name, count(*) AS suppliers, sum(revenue) AS "
    "revenue FROM supplier JOIN revenue ON s_suppkey = l_suppkey JOIN nations "
    "ON s_nationkey = n_nationkey GROUP BY ALL",
    "INSERT INTO by_nation SELECT 'all', r_name, sum(suppliers), sum(revenue) FROM by_nation "
    "GROUP BY r_name",
    "CREATE VIEW regions AS SELECT r_name, suppliers, revenue FROM by_nation WHERE n_name = 'all'",
]


def test_a_pipeline_builds_all_summaries_or_none(
    server: sp.Server, own: duckdb.DuckDBPyConnection
) -> None:
    with (
        DuckDBClient(server.location, "tpch", timeout=100) as client,
        _connected(server) as connection,
        connection.cursor() as cursor,
    ):
        client.attach()
        broken = [*SUMMARIES[:-1], "INSERT INTO by_nation SELECT 'x', 1 / 0, 1, 1"]
        with pytest.raises(ServerError):
            client.table_function("h", "spark_run", broken)
        for table in ("revenue", "nations", "by_nation"):
            with pytest.raises((dbapi.ProgrammingError, OperationalError)):
                cursor.execute(f"SELECT count(*) FROM {table}")
        report = client.table_function("h", "spark_run", SUMMARIES)
        assert report.num_rows == len(SUMMARIES)
        for table in ("revenue", "nations", "by_nation", "regions"):
            cursor.execute(f"SELECT * FROM {table}")
            found = _sorted(cursor.fetchall())
            for statement in SUMMARIES:
                if table == "revenue":
                    own.execute(statement)
            expected = _sorted(own.execute(f"FROM {table}").fetchall())
            assert len(found) == len(expected)
            for row, wanted in zip(found, expected, strict=True):
                assert all(map(_alike, row, wanted)), (table, row, wanted)


def _sorted(rows: list[Any]) -> list[tuple[Any, ...]]:
    """The rows in an order in which small differences of sums make none."""
    return sorted(rows, key=lambda row: [_key(value) for value in row])


def _key(value: Any) -> tuple[int, Any]:
    if isinstance(value, float | Decimal | int):
        return 1, float(f"{float(value):.6g}")
    return (0, "") if value is None else (2, str(value))


def _alike(value: Any, wanted: Any) -> bool:
    """DuckDB averages decimals as floating point numbers, Spark as decimals of six more digits."""
    if isinstance(wanted, float | Decimal | int) and not isinstance(wanted, bool | date):
        return math.isclose(float(value), float(wanted), rel_tol=1e-6, abs_tol=1e-6)
    return bool(value == wanted)
