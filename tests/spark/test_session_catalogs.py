"""Catalogs by Spark's settings: tables of all formats side by side in a Hive metastore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.session_catalogs import SessionCatalogs, session_catalogs

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(280)]

_COLUMNS = "(id BIGINT, name STRING, price DECIMAL(9, 2), at TIMESTAMP, p STRING)"
_TABLES = {
    "parquet": f"{_COLUMNS} USING parquet PARTITIONED BY (p)",
    "orc": f"{_COLUMNS} USING orc",
    "csv": f"{_COLUMNS} USING csv",
    "delta": f"{_COLUMNS} USING delta PARTITIONED BY (p)",
    "hive_text": f"{_COLUMNS.replace(', p STRING', '')} PARTITIONED BY (p STRING) "
    "STORED AS TEXTFILE",
    "hive_parquet": f"{_COLUMNS.replace(', p STRING', '')} PARTITIONED BY (p STRING) "
    "STORED AS PARQUET",
}
_ROWS = pa.Table.from_pylist(
    [
        {"id": 10, "name": "ä", "price": None, "at": None, "p": "z"},
        {"id": 11, "name": None, "price": None, "at": None, "p": "x"},
    ],
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("p", pa.string()),
        ]
    ),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionCatalogs]:
    with session_catalogs(tmp_path_factory.mktemp("session")) as served:
        served.sql("delta", "CREATE DATABASE d")
        for name, definition in _TABLES.items():
            served.sql("delta", f"CREATE TABLE d.{name} {definition}")
            served.sql(
                "delta",
                "INSERT INTO d.parquet VALUES (1, 'a', 1.25, timestamp'2026-01-01 10:00:00', 'x'), "
                "(2, NULL, NULL, NULL, 'x'), (3, 'c', 3.5, timestamp'2026-01-03 00:00:00', 'y')"
                if name == "parquet"
                else f"INSERT INTO d.{name} PARTITION (p = 'x') "
                "SELECT id, name, price, at FROM d.parquet"
                if name == "hive_text"
                else f"INSERT INTO d.{name} SELECT * FROM d.parquet",
            )
        served.sql("iceberg", f"CREATE TABLE d.iceberg {_COLUMNS} USING iceberg")
        served.sql("iceberg", "INSERT INTO d.iceberg SELECT * FROM d.parquet")
        yield served


@pytest.fixture(scope="module")
def clients(served: SessionCatalogs) -> Iterator[dict[str, DuckDBClient]]:
    clients = {
        name: DuckDBClient(served.location, name, timeout=100)
        for name in ("delta", "iceberg", "hadoop")
    }
    for client in clients.values():
        client.__enter__()
    yield clients
    for client in clients.values():
        client.__exit__(None, None, None)


def _attached(clients: dict[str, DuckDBClient], name: str) -> DuckDBClient:
    client = clients[name]
    client.detach()
    client.attach()
    return client


def _expect_same(served: SessionCatalogs, client: DuckDBClient, catalog: str, table: str) -> int:
    """How many rows there are, after a check that Spark finds the same, by some conditions."""
    served.sql(catalog, f"REFRESH TABLE d.{table}")  # Spark remembers files for each session
    everything = served.sql(catalog, f"SELECT id, name, price, p FROM d.{table}")
    assert client.count("d", table) == len(everything)
    for condition in ("true", "p = 'x' AND id > 1", "name IS NULL OR price >= 1.25"):
        found = client.scan("d", table, ["id", "name", "price", "p"], where=condition).to_pylist()
        wanted = served.sql(catalog, f"SELECT id, name, price, p FROM d.{table} WHERE {condition}")
        assert sorted(map(_text, (tuple(row.values()) for row in found))) == sorted(
            map(_text, wanted)
        ), condition
    return len(everything)


def _text(row: tuple[Any, ...]) -> str:
    return repr([None if each is None else str(each) for each in row])


@pytest.mark.parametrize("table", _TABLES)
def test_tables_of_every_format_are_read_and_added_to(
    served: SessionCatalogs, clients: dict[str, DuckDBClient], table: str
) -> None:
    client = _attached(clients, "delta")
    before = _expect_same(served, client, "delta", table)
    assert before == 3
    kinds = {field.name: field.type for field in client.table("d", table).arrow_schema}
    assert kinds["price"] == pa.decimal32(9, 2)
    assert kinds["at"] == pa.timestamp("us", "UTC")
    assert client.insert("d", table, _ROWS).total == 2
    assert _expect_same(served, client, "delta", table) == 5


@pytest.mark.parametrize("table", ["parquet", "delta", "hive_text"])
def test_what_other_formats_cannot_is_refused_with_the_reason(
    clients: dict[str, DuckDBClient], table: str
) -> None:
    client = _attached(clients, "delta")
    its_format = f"its format is {table.removesuffix('_text')}, and not Iceberg"
    for change in (
        lambda: client.update("d", table, {"name": "'new'"}, where="id = 1"),
        lambda: client.delete("d", table, "id = 1"),
    ):
        with pytest.raises(ServerError, match=f"{its_format}, so they have no row ids"):
            change()
    for alteration in (
        lambda: client.add_column("d", table, "n", pa.int32()),
        lambda: client.add_constraint("d", table, "UNIQUE (id)"),
        lambda: client.set_not_null("d", table, "id"),
        lambda: client.rename_column("d", table, "name", "title"),
    ):
        with pytest.raises(ServerError, match=f"DDL operations: {its_format}; alter it with Spark"):
            alteration()


def test_a_commit_of_delta_bears_the_statement(
    served: SessionCatalogs, clients: dict[str, DuckDBClient]
) -> None:
    """So that it is found again when Spark fails after it."""
    served.sql("delta", "CREATE TABLE d.marked (id BIGINT) USING delta")
    client = _attached(clients, "delta")
    assert client.insert("d", "marked", pa.table({"id": pa.array([1, 2], pa.int64())})).total == 2
    newest = served.sql("delta", "DESCRIBE HISTORY d.marked LIMIT 1")[0]
    assert "'numOutputRows': '2'" in newest[12]
    assert newest[13], "the id of the statement"


def test_rules_of_delta_are_kept(served: SessionCatalogs, clients: dict[str, DuckDBClient]) -> None:
    served.sql("delta", "CREATE TABLE d.ruled (id BIGINT NOT NULL, v STRING) USING delta")
    served.sql("delta", "ALTER TABLE d.ruled ADD CONSTRAINT positive CHECK (id > 0)")
    served.sql(
        "delta", "ALTER TABLE d.ruled SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    )
    client = _attached(clients, "delta")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    for bad in (-1, None):
        with pytest.raises(ServerError, match=r"(?i)(check|not null) constraint|NULL value"):
            client.insert("d", "ruled", pa.Table.from_pylist([{"id": bad, "v": "x"}], columns))
    assert client.count("d", "ruled") == 0
    good = pa.Table.from_pylist([{"id": each, "v": "x"} for each in range(1, 9)], columns)
    assert client.insert("d", "ruled", good).total == 8
    served.sql("delta", "DELETE FROM d.ruled WHERE id % 2 = 0")
    assert sorted(client.scan("d", "ruled", ["id"]).column(0).to_pylist()) == [1, 3, 5, 7]


def test_iceberg_parquet_and_delta_side_by_side(
    served: SessionCatalogs, clients: dict[str, DuckDBClient]
) -> None:
    client = _attached(clients, "iceberg")
    assert {"iceberg", "parquet", "delta", "hive_text"} <= set(client.tables("d"))
    for table in ("iceberg", "parquet", "hive_parquet", "delta"):
        before = _expect_same(served, client, "iceberg", table)
        if table != "delta":
            assert client.insert("d", table, _ROWS).total == 2
            assert _expect_same(served, client, "iceberg", table) == before + 2


def test_iceberg_tables_of_a_hive_metastore_are_changed(
    served: SessionCatalogs, clients: dict[str, DuckDBClient]
) -> None:
    client = _attached(clients, "iceberg")
    client.create_table("d", "made", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "v": ["x"] * 100})
    assert client.insert("d", "made", rows).total == 100
    assert client.update("d", "made", {"v": "'y'"}, where="id < 10").total == 10
    assert client.delete("d", "made", "id >= 50").total == 50
    assert served.sql("iceberg", "SELECT v, count(*) FROM d.made GROUP BY v ORDER BY v") == [
        ("x", 40),
        ("y", 10),
    ]
    client.add_column("d", "made", "n", pa.int32())
    client.add_constraint("d", "made", "UNIQUE (id)")
    client.rename_table("d", "made", "renamed")
    with pytest.raises(ServerError, match="Duplicate key"):
        client.insert("d", "renamed", rows.slice(5, 1).append_column("n", pa.array([1], "int32")))
    client.drop_table("d", "renamed")
    assert "renamed" not in client.tables("d")


def test_a_hadoop_catalog(served: SessionCatalogs, clients: dict[str, DuckDBClient]) -> None:
    client = _attached(clients, "hadoop")
    client.create_schema("s")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    client.create_table("s", "t", columns, unique=[["id"]])
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "v": ["x"] * 100})
    assert client.insert("s", "t", rows).total == 100
    with pytest.raises(ServerError, match="Duplicate key"):
        client.insert("s", "t", rows.slice(5, 1))
    assert client.update("s", "t", {"v": "'y'"}, where="id < 10").total == 10
    assert client.delete("s", "t", "id >= 50").total == 50
    client.add_column("s", "t", "n", pa.int32())
    assert served.sql(
        "hadoop", "SELECT v, count(n), count(*) FROM hadoop.s.t GROUP BY v ORDER BY v"
    ) == [
        ("x", 0, 40),
        ("y", 0, 10),
    ]
    client.drop_table("s", "t")
    assert client.tables("s") == {} or "t" not in client.tables("s")


def test_tables_are_made_from_queries_where_the_catalog_is_icebergs(
    served: SessionCatalogs, clients: dict[str, DuckDBClient]
) -> None:
    client = _attached(clients, "hadoop")
    client.create_schema("made")

    def run(statement: Any) -> list[Any]:
        return client.table_function("made", "spark_run", statement).to_pylist()

    run("CREATE TABLE made.t AS SELECT id, 'x' AS name FROM range(3)")
    run(
        [
            "CREATE TABLE made.u AS SELECT id + 10 AS id FROM made.t",
            "INSERT INTO made.u SELECT id FROM made.t WHERE id = 1",
            "CREATE OR REPLACE TABLE made.t AS SELECT id FROM made.u",
        ]
    )
    client = _attached(clients, "hadoop")
    for name in "tu":
        assert sorted(client.scan("made", name, ["id"])["id"].to_pylist()) == [1, 10, 11, 12]
    with pytest.raises(ServerError, match="stop here"):
        run(
            [
                "CREATE TABLE made.w AS SELECT 1 AS x",
                "CREATE TABLE made.z AS SELECT CAST(raise_error('stop here') AS INT) AS x",
            ]
        )
    client = _attached(clients, "hadoop")
    assert set(client.tables("made")) == {"t", "u"}


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_tables_are_made_from_queries_or_refused_with_the_reason(
    served: SessionCatalogs, clients: dict[str, DuckDBClient], name: str
) -> None:
    client = _attached(clients, name)
    # Other tests insert into the table.
    statement = f"CREATE TABLE d.made_{name} AS SELECT id FROM d.parquet WHERE id < 10"
    if name == "delta":
        with pytest.raises(ServerError, match="not Iceberg's: make them in Spark"):
            client.table_function("d", "spark_run", statement)
        assert "made_delta" not in _attached(clients, name).tables("d")
    else:
        client.table_function("d", "spark_run", statement)
        found = _attached(clients, name).scan("d", "made_iceberg", ["id"])["id"].to_pylist()
        assert sorted(found) == [1, 2, 3]
