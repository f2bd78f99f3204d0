"""Columns with a DEFAULT in statements of `spark_run`: Spark gets the values that the lake has."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, field, find, insert, values
from tests.spark.running import Runner

from sparkport.catalog import Constraints, Context
from sparkport.errors import BadRequest, ConstraintViolation
from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient

_COLUMNS = pa.schema([("id", pa.int64()), *field("name", pa.string(), "'none'"), ("n", pa.int32())])


@pytest.fixture
def run(lake: LakeCatalog, namespace: str) -> Runner:
    """Runs statements on `d`, which has a row and a default, and `s`, which has two rows."""
    create(lake, namespace, "d", _COLUMNS)
    insert(lake, namespace, "d", "(2, 'x', 0)")
    create(lake, namespace, "s", pa.schema([("id", pa.int64())]))
    insert(lake, namespace, "s", "(2), (3)")
    return Runner(lake, namespace)


def _rows(run: Runner) -> list[Any]:
    return sorted(values(find(run.lake, run.namespace, "d"), "id", "name", "n"), key=repr)


_OLD = (2, "x", 0)
FILLED = {
    "INSERT INTO d (id) SELECT 1": [(1, "none", None), _OLD],
    "INSERT INTO d (N, ID) VALUES (5, 1), (6, 3)": [(1, "none", 5), _OLD, (3, "none", 6)],
    "INSERT INTO d (id, name) SELECT 1, NULL": [(1, None, None), _OLD],
    "INSERT INTO d (id) WITH x AS (SELECT 1 AS i) SELECT i FROM x": [(1, "none", None), _OLD],
    "WITH x AS (SELECT 1 AS i) INSERT INTO d (id) SELECT i FROM x": [(1, "none", None), _OLD],
    "INSERT INTO d (id) SELECT a.id FROM s AS a JOIN s AS b ON a.id = b.id "
    "ORDER BY 1 DESC LIMIT 1": [_OLD, (3, "none", None)],
    "INSERT OVERWRITE d (id) SELECT id FROM s": [(2, "none", None), (3, "none", None)],
    "UPDATE d SET name = DEFAULT": [(2, "none", 0)],
    "UPDATE d AS x SET x.name = default, n = DEFAULT WHERE x.id = 2": [(2, "none", None)],
    "MERGE INTO d USING s ON d.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)": [
        _OLD,
        (3, "none", None),
    ],
    "MERGE INTO d USING s ON d.id = s.id WHEN MATCHED THEN UPDATE SET name = DEFAULT "
    "WHEN NOT MATCHED AND s.id = 3 THEN INSERT (n, id, name) VALUES ((7), s.id, DEFAULT) "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (0)": [(2, "none", 0), (3, "none", 7)],
    "WITH x AS (SELECT 1 AS id) MERGE INTO d USING x ON d.id = x.id "
    "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (x.id, 4) "
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = DEFAULT": [(1, "none", 4), (2, "none", 0)],
    "INSERT INTO d VALUES (3, 'DEFAULT', 1)": [_OLD, (3, "DEFAULT", 1)],
}


@pytest.mark.parametrize("statement", FILLED)
def test_a_default_is_filled_in(run: Runner, statement: str) -> None:
    run(statement)
    assert _rows(run) == FILLED[statement]


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("INSERT INTO d VALUES (1, DEFAULT, 2)", "leave the column out"),
        ("INSERT INTO d SELECT 1, default, 2", "leave the column out"),
        ("INSERT INTO d (name, id) VALUES (DEFAULT, 2)", "leave the column out"),
        ("INSERT OVERWRITE d VALUES (1, DEFAULT, 2)", "leave the column out"),
        ("INSERT INTO d BY NAME SELECT 1 AS id", "list the columns"),
        ("UPDATE d SET name = concat(DEFAULT, 'x')", "DEFAULT by itself"),
        ("UPDATE d SET n = 1 WHERE name = DEFAULT", "DEFAULT by itself"),
    ],
)
def test_a_default_is_not_left_to_spark(run: Runner, statement: str, remedy: str) -> None:
    """Spark would store NULL."""
    with pytest.raises(BadRequest, match=f"does not know the default of column name.*{remedy}"):
        run(statement)
    assert _rows(run) == [_OLD]


def test_a_value_of_the_partition_is_no_default(run: Runner) -> None:
    run(
        "CREATE TABLE parts PARTITIONED BY (name) AS SELECT 1L AS id, 'a' AS name, 1 AS n "
        "WHERE false"
    )
    parts = find(run.lake, run.namespace, "parts")
    parts.set_default(Context(), "name", "'none'")
    parts.set_default(Context(), "n", "7")
    run("INSERT INTO parts PARTITION (name = 'x') (id) SELECT 1")
    run("INSERT INTO parts PARTITION (NAME = 'y') (id, n) SELECT 2, 2")
    run("INSERT INTO parts PARTITION (name) (id) SELECT 3")
    found = values(find(run.lake, run.namespace, "parts"), "id", "name", "n")
    assert sorted(found) == [(1, "x", 7), (2, "y", 2), (3, "none", 7)]


def test_a_default_for_each_row_is_refused_where_it_is_needed(run: Runner) -> None:
    find(run.lake, run.namespace, "d").set_default(Context(), "name", "CAST(uuid() AS VARCHAR)")
    with pytest.raises(BadRequest, match=r"name.*another for each row"):
        run("INSERT INTO d (id) SELECT 1")
    run("INSERT INTO d (id, name) SELECT 1, 'given'")
    assert _rows(run) == [(1, "given", None), _OLD]


def test_defaults_of_all_types_are_those_of_an_insert_by_a_client(
    lake: LakeCatalog, namespace: str
) -> None:
    defaults = {
        "small": (pa.uint8(), "255"),
        "big": (pa.uint64(), "18446744073709551615"),
        "price": (pa.decimal128(12, 2), "1.5"),
        "day": (pa.date32(), "DATE '0987-06-05'"),
        "at": (pa.timestamp("us"), "TIMESTAMP '2024-02-29 12:34:56.789'"),
        "zoned": (pa.timestamp("us", "UTC"), "TIMESTAMPTZ '2024-02-29 12:34:56+02'"),
        "raw": (pa.binary(), r"'\x00\xFF'::BLOB"),
        "truth": (pa.bool_(), "1 = 1"),
        "half": (pa.float64(), "-0.5"),
        "list": (pa.list_(pa.int32()), "[1, NULL, -3]"),
        "quoted": (pa.string(), "'it''s ; -- ? :x'"),
        "none": (pa.string(), "NULL"),
    }
    columns = pa.schema(
        [("id", pa.int64())]
        + [field(name, kind, default).field(0) for name, (kind, default) in defaults.items()]
    )
    create(lake, namespace, "typed", columns)
    run = Runner(lake, namespace)
    run("INSERT INTO typed (id) SELECT 1")
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        client.attach().insert(namespace, "typed", pa.table({"id": pa.array([2], pa.int64())}))
    first, second = sorted(values(find(lake, namespace, "typed"), "id", *defaults))
    assert first[1:] == second[1:]
    assert first[1:4] == (255, 2**64 - 1, pa.scalar("1.50").cast(pa.decimal128(12, 2)).as_py())


def test_the_time_is_that_of_the_statement(lake: LakeCatalog, namespace: str) -> None:
    columns = pa.schema(
        [("id", pa.int64()), *field("made", pa.timestamp("us", "UTC"), "current_timestamp")]
    )
    create(lake, namespace, "timed", columns)
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    Runner(lake, namespace)("INSERT INTO timed (id) SELECT id FROM range(3)")
    (made,) = set(values(find(lake, namespace, "timed"), "made"))
    assert before <= made <= datetime.now(timezone.utc) + timedelta(seconds=1)


def test_defaults_keep_to_constraints(lake: LakeCatalog, namespace: str) -> None:
    rules = Constraints(not_null=("name",), checks=("(name <> 'bad')",))
    columns = pa.schema([("id", pa.int64()), *field("name", pa.string(), "'bad'")])
    create(lake, namespace, "strict", columns, constraints=rules)
    with pytest.raises(ConstraintViolation, match="CHECK"):
        Runner(lake, namespace)("INSERT INTO strict (id) SELECT 1")
    assert values(find(lake, namespace, "strict"), "id") == []
