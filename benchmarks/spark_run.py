"""Statements that Spark runs for a client, against Spark in the driver; and upserts, against
PyIceberg.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.lake import Running, start_lake
from benchmarks.lake_write import compared_seconds, in_turns
from benchmarks.measure import Line, seconds
from benchmarks.rivals import Rival, start_rival
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_TURNS = 3
_PEOPLE = 1_000_000
_JOIN = """AS SELECT b.*, p.name FROM bench.s.big AS b
    JOIN bench.s.people AS p ON b.customer % {people} = p.number"""
_MATCHED = "WHEN MATCHED THEN UPDATE SET t.amount = s.amount, t.code = s.code"
_MERGE = f"USING {{source}} AS s ON t.id = s.id {_MATCHED} WHEN NOT MATCHED THEN INSERT *"
_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("quantity", pa.int32()),
        ("amount", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("code", pa.string()),
    ]
)


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of what Spark does for a client."""
    with tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder, ExitStack() as running:
        source = LakeSource(warehouse=str(Path(folder) / "lake"))
        print(f"spark_run: making tables of {rows:,} rows …", file=sys.stderr)
        server = running.enter_context(start_lake(source, rows))
        with start_rival("spark", source) as spark:
            _make_tables(server, spark, rows)
            yield _create(server, spark, rows)
            yield _merge(server, spark, rows)
        with start_rival("pyiceberg_upsert", source) as pyiceberg:
            yield _upsert(server, pyiceberg, rows)


def _make_tables(server: Running, spark: Rival, rows: int) -> None:
    """Two equal tables, one of them with a key; the other side of the join; sources of MERGE."""
    with _client(server) as client:
        client.attach()
        for name, key in (("keyed", ("id",)), ("plain", ())):
            client.create_table("s", name, _TYPES, primary_key=key)
            spark.run("collect", f"INSERT INTO bench.s.{name} SELECT * FROM bench.s.big")
    people = f"SELECT id AS number, concat('name ', id) AS name FROM range({_people(rows)})"
    _make(spark, "people", f"AS {people}")
    changed = _changed(rows)
    for turn in range(_TURNS + 1):
        # Half of the rows are there, spread over the table; the others are new.
        numbers = f"""SELECT if(id % 2 = 0, id * {rows // changed} + {turn},
            {rows} + {turn * changed} + id) AS number FROM range({changed})"""
        select = f"""SELECT number AS id, number AS customer, 7 AS quantity, number / 3D AS amount,
            DATE '2026-11-01' AS day, timestamp_micros(number)::TIMESTAMP_NTZ AS at,
            concat('changed ', number % 100) AS code FROM ({numbers})"""
        _make(spark, f"changes_{turn}", f"AS {select}")


def _people(rows: int) -> int:
    return min(_PEOPLE, rows // 20)


def _changed(rows: int) -> int:
    return min(1_000_000, rows // 20)


def _create(server: Running, spark: Rival, rows: int) -> Line:
    join = _JOIN.format(people=_people(rows))
    with _client(server) as client:

        def ours() -> float:
            took = seconds(
                lambda: _run(client, f"CREATE TABLE bench.s.ours {join}", rows_inserted=rows)
            )
            spark.run("collect", "DROP TABLE bench.s.ours PURGE")
            return took

        def theirs() -> float:
            took = _make(spark, "theirs", join)
            spark.run("collect", "DROP TABLE bench.s.theirs PURGE")
            return took

        took = in_turns(ours, theirs, _TURNS)
    return compared_seconds(
        f"spark_run: CREATE TABLE AS a join of {_short(rows)} rows, against spark.sql in the "
        "driver",
        took,
        1.15,
    )


def _make(spark: Rival, name: str, query: str) -> float:
    """Have Spark make a table of the format that the server's tables have."""
    layout = "USING iceberg TBLPROPERTIES ('format-version' = '3')"
    return spark.run("collect", f"CREATE TABLE bench.s.{name} {layout} {query}")[0]


def _merge(server: Running, spark: Rival, rows: int) -> Line:
    changed, turns = _changed(rows), iter(range(_TURNS + 1))
    statement = "MERGE INTO bench.s.{table} AS t " + _MERGE
    with _client(server) as client:

        def both() -> tuple[float, float]:
            source = f"bench.s.changes_{next(turns)}"
            ours = statement.format(table="keyed", source=source)
            theirs = statement.format(table="plain", source=source)
            half = changed // 2
            return (
                seconds(lambda: _run(client, ours, rows_inserted=half, rows_updated=half)),
                spark.run("collect", theirs)[0],
            )

        took = [both() for _ in range(_TURNS + 1)][1:]
    return compared_seconds(
        f"spark_run: MERGE of {_short(changed)} rows into {_short(rows)} with a PRIMARY KEY, "
        "checked, against Spark's MERGE unchecked",
        took,
        1.5,
    )


def _run(client: DuckDBClient, statement: str, **expected: int) -> None:
    (report,) = client.table_function("s", "spark_run", statement).to_pylist()
    found = {name: report[name] for name in expected}
    if found != expected:
        raise RuntimeError(f"the statement reports {found} instead of {expected}")


def _upsert(server: Running, pyiceberg: Rival, rows: int) -> Line:
    changed, few = _changed(rows), _changed(rows) // 10
    pyiceberg.run("make", str(rows // 10))
    with _client(server) as client:

        def ours(turn: int) -> float:
            # Beside what the MERGEs before have changed.
            given = _upserted(rows + 10 * changed, changed, rows // changed, turn)
            return seconds(lambda: client.in_out("s", "upsert", "keyed", "id", rows=given))

        def theirs(turn: int) -> float:
            return pyiceberg.run("upsert", f"{rows // 10} {few} {turn}")[0]

        took = [(ours(turn) / changed, theirs(turn) / few) for turn in range(2)]
    ratio = statistics.median(mine / other for mine, other in took)
    mine, other = (statistics.median(each[index] for each in took) * 1e6 for index in (0, 1))
    return Line(
        f"upsert of {_short(changed)} rows into {_short(rows)} by a client, against PyIceberg's "
        f"upsert of {_short(few)} into {_short(rows // 10)}, per row",
        f"{ratio:.3f} ({mine:.1f} : {other:.1f} µs a row)",
        "≤ 0.1",
        ratio <= 0.1,
    )


def _upserted(beyond: int, count: int, step: int, turn: int) -> pa.Table:
    """Half of the rows are there, spread over the table; the others are new."""
    places = pa.array(range(count), pa.int64())
    there = pc.add(pc.multiply(places, step), step - 1 - turn)
    new = pc.add(places, beyond + turn * count)
    is_there = pc.equal(pc.bit_wise_and(places, 1), 0)
    ids = pc.if_else(is_there, there, new)
    columns = [
        ids,
        ids,
        pa.array([7] * count, pa.int32()),
        pc.divide(pc.cast(ids, pa.float64()), 3.0),
        pa.array([20_000] * count, pa.int32()).cast(pa.date32()),
        ids.cast(pa.timestamp("us")),
        pa.array(["upserted"] * count),
    ]
    return pa.Table.from_arrays(columns, schema=_TYPES)


def _client(server: Running) -> DuckDBClient:
    return DuckDBClient(server.location, "bench", timeout=1800)


def _short(rows: int) -> str:
    return f"{rows / 1e6:g} M" if rows >= 1_000_000 else f"{rows:,}"
