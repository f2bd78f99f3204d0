"""The function `views`: the SQL of local views over which DuckDB plans with the tables' sizes."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from tests.spark.calling import Caller

import sparkport as sp
from sparkport.errors import BadRequest
from sparkport.testing import DuckDBClient

_ODD = 'odd "name"'


@pytest.fixture
def tables(lake, namespace) -> str:
    name = f"`{lake.spark_catalog}`.{namespace}"
    for statement in (
        f"CREATE TABLE {name}.orders (id BIGINT) USING iceberg",
        f"INSERT INTO {name}.orders VALUES (1), (2)",
        f"CREATE TABLE {name}.`{_ODD}` (id BIGINT) USING iceberg",
        f"CREATE VIEW {name}.totals AS SELECT count(*) AS n FROM {name}.orders",
    ):
        lake.spark.sql(statement)
    return namespace


def test_each_table_and_view_has_a_line_that_duckdb_understands(lake, tables):
    with (
        sp.Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        found = client.table_function(tables, "views")
        named = client.table_function(tables, "views", named={"schema": "s x", "catalog": "l"})
        rows = {
            name: client.scan(tables, name, at=("VERSION", "latest"))
            for name in found["table_name"].to_pylist()
        }
    assert found["table_name"].to_pylist() == [_ODD, "orders", "totals"]
    assert found["sql"][1].as_py() == (
        f'CREATE OR REPLACE VIEW "{tables}"."orders" AS SELECT * FROM '
        f'"{lake.name}"."{tables}"."orders" AT (VERSION => \'latest\');'
    )
    assert named["sql"][1].as_py().startswith('CREATE OR REPLACE VIEW "s x"."orders" AS')
    assert f'FROM "l"."{tables}"."orders" AT' in named["sql"][1].as_py()
    with duckdb.connect() as local:
        local.execute(f"ATTACH ':memory:' AS \"{lake.name}\"")
        local.execute(f"CREATE SCHEMA {tables}")
        local.execute(f'CREATE SCHEMA "{lake.name}".{tables}')
        for name, statement in map(dict.values, found.to_pylist()):
            local.register("fetched", rows[name])
            path = f'{tables}."{name.replace(chr(34), chr(34) * 2)}"'
            local.execute(f'CREATE TABLE "{lake.name}".{path} AS FROM fetched')
            # A table of DuckDB's own takes no AT; the parser does.
            local.execute(statement.replace(" AT (VERSION => 'latest')", ""))
            assert len(local.extract_statements(statement)) == 1
            assert local.execute(f"SELECT count(*) FROM {path}").fetchall() == [
                (rows[name].num_rows,)
            ]


def test_only_what_the_caller_may_read_is_listed(lake, tables):
    read, see = sp.Privilege.READ, sp.Privilege.LIST
    policy = sp.Policy(
        [
            sp.Grant(("all",), "*", (read,)),
            sp.Grant(("one",), f"*.{tables}.orders", (read,)),
            sp.Grant(("one",), f"*.{tables}.views", (read,)),
            sp.Grant(("one",), f"*.{tables}.totals", (see,)),
        ]
    )
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        for who, expected in (("all", [_ODD, "orders", "totals"]), ("one", ["orders"])):
            with DuckDBClient(server.location, lake.name, token=who, timeout=60) as client:
                found = client.table_function(tables, "views")
                assert found["table_name"].to_pylist() == expected
                assert client.tables(tables)["orders"].total_records == 2


def test_a_name_that_sql_cannot_write_is_refused(lake, tables):
    with pytest.raises(BadRequest, match="no way to write"):
        Caller(lake, tables).call("views", "a\0b", pa.array([None], pa.string()))
