"""Random tables, changes by Spark and queries: every route and Spark SQL return the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.spark.places import Place

from sparkport.catalog import Context
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.iceberg import part_reader
from sparkport.spark.scan.relation_scan import read_iceberg
from sparkport.testing import DuckDBClient

CTX = Context()

TYPES = {
    "i": ("INT", "cast(id % 50 AS INT)", "{c} < 25", "{c} = 7"),
    "l": ("BIGINT", "id * 1000003", "{c} > 500000", "{c} BETWEEN 1000003 AND 90000270"),
    "f": ("FLOAT", "cast(id AS FLOAT) / 3", "{c} >= 10", "{c} < 100.5"),
    "d": ("DOUBLE", "if(id % 17 = 0, double('NaN'), id / 7D)", "{c} <= 20", "{c} > 30"),
    "n": ("DECIMAL(12, 3)", "cast(id AS DECIMAL(12, 3)) / 8", "{c} < 12.5", "{c} = 1.125"),
    "s": (
        "STRING",
        "concat('text ', lpad(id, 6, '0'))",
        "{c} < 'text 000100'",
        "{c} LIKE 'text 0000%'",
    ),
    "b": ("BINARY", "cast(concat('b', id) AS BINARY)", "{c} = 'b17'::BLOB", "{c} IS NOT NULL"),
    "t": ("BOOLEAN", "id % 3 = 0", "{c}", "NOT {c}"),
    "y": (
        "DATE",
        "date_add(DATE '2020-01-01', cast(id % 400 AS INT))",
        "{c} < DATE '2020-03-01'",
        "{c} = DATE '2020-02-29'",
    ),
    "z": (
        "TIMESTAMP",
        "timestamp_micros(id * 3600000001)",
        "{c} < TIMESTAMPTZ '1970-02-01 00:00:00+00'",
        "{c} IS NULL",
    ),
    "w": (
        "TIMESTAMP_NTZ",
        "cast(timestamp_micros(id * 60000000) AS TIMESTAMP_NTZ)",
        "{c} > TIMESTAMP '1970-01-02'",
        "{c} IS NULL",
    ),
    "r": (
        "STRUCT<x: INT, y: STRING>",
        "struct(cast(id AS INT), concat('y', id))",
        "{c}.x < 40",
        "{c}.y = 'y17'",
    ),
    "a": ("ARRAY<INT>", "array(cast(id AS INT), NULL)", "{c} IS NOT NULL", "len({c}) = 2"),
    "m": ("MAP<STRING, BIGINT>", "map('k', id)", "{c} IS NOT NULL", "{c}['k'] < 60"),
}
PARTITIONED = (
    "",
    "PARTITIONED BY (i)",
    "PARTITIONED BY (bucket(4, l))",
    "PARTITIONED BY (months(y), truncate(6, s))",
)


class Route(NamedTuple):
    """A client of a server that uses a single route."""

    client: DuckDBClient
    catalog: LakeCatalog

    def look_again(self) -> None:
        """Show what others have changed, now rather than some seconds later."""
        self.catalog._lake.changed()
        self.client.detach()


@pytest.fixture(scope="module")
def routes(lake: LakeCatalog, place: Place) -> Iterator[dict[str, Route]]:
    """The routes by name."""
    settings = {
        "in place": LakeSettings(in_place_bytes=1 << 40, statistics=False),
        "tasks": LakeSettings(in_place_bytes=-1, endpoint_bytes=1, endpoints=2, statistics=False),
        "direct": LakeSettings(in_place_bytes=-1, direct=True, statistics=False),
    }
    if not place.is_read_directly:
        del settings["direct"]
    catalogs = {
        name: LakeCatalog(
            source=place.source("lake"),
            name=name.replace(" ", "_"),
            spark_catalog=lake.spark_catalog,
            settings=each,
        )
        for name, each in settings.items()
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        Server(list(catalogs.values()), "grpc://127.0.0.1:0") as server,
    ):
        # In place DuckDB reads even small tables with a filter. Spark's workers do not know of it.
        patch.setattr(part_reader, "_MANY_ROWS", 1)
        yield {
            name: Route(DuckDBClient(server.location, each.name, timeout=60), each)
            for name, each in catalogs.items()
        }
    for catalog in catalogs.values():
        catalog.close()


def _changed(chance: random.Random, lake: LakeCatalog, table: str, names: list[str]) -> list[str]:
    """Change a table at random with Spark, and return the names of its columns."""
    sql = lake.spark.sql
    columns = ", ".join(f"{name} {TYPES[name][0]}" for name in names)
    modes = "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'"
    sql(
        f"CREATE TABLE {table} ({columns}) USING iceberg {chance.choice(PARTITIONED)} "
        f"TBLPROPERTIES ('format-version' = '3', {modes}, 'write.parquet.row-group-size-bytes' = "
        "'4096')"
    )

    def insert(start: int, count: int, own: list[str]) -> None:
        values = ", ".join(
            "NULL"
            if name.startswith("new")
            else f"if(id % {chance.randint(5, 40)} = 0, NULL, {TYPES[name][1]})"
            for name in own
        )
        sql(
            f"INSERT INTO {table} SELECT {values} FROM range({start}, {start + count}, 1, "
            f"{chance.randint(1, 3)})"
        )

    own = list(names)
    insert(0, 300, own)
    for step in range(chance.randint(2, 4)):
        match chance.choice(["insert", "delete", "update", "drop", "add", "promote", "compact"]):
            case "insert":
                insert(1000 * (step + 1), 150, own)
            case "delete":
                sql(f"DELETE FROM {table} WHERE l % {chance.randint(3, 9)} = 0")
            case "update":
                sql(f"UPDATE {table} SET l = l + 1 WHERE l % {chance.randint(3, 9)} = 1")
            case "drop" if len(own) > 6 and (
                gone := [n for n in own if n not in "ilsy" and not n.startswith("new")]
            ):
                name = chance.choice(gone)
                sql(f"ALTER TABLE {table} DROP COLUMN {name}")
                own.remove(name)
            case "add":
                sql(f"ALTER TABLE {table} ADD COLUMN new{step} STRING")
                own.append(f"new{step}")
            case "promote" if "f" in own:
                sql(f"ALTER TABLE {table} ALTER COLUMN f TYPE DOUBLE")
            case "compact":
                _, namespace, name = table.split(".")
                sql(
                    f"CALL `{lake.spark_catalog}`.system.rewrite_data_files(table => "
                    f"'{namespace}.{name}', options => map('rewrite-all', 'true'))"
                )
            case _:
                insert(5000 * (step + 1), 50, own)
    if (
        "s" in own
        and chance.random() < 0.5
        and "truncate" not in str(sql(f"SHOW CREATE TABLE {table}").collect())
    ):
        sql(f"ALTER TABLE {table} RENAME COLUMN s TO `renamed s`")
        own[own.index("s")] = "renamed s"
    return own


def _rows(table: pa.Table) -> Counter[str]:
    columns = [
        [_plain(value) for value in table.column(index).to_pylist()]
        for index in range(table.num_columns)
    ]
    return Counter(map(repr, zip(*columns, strict=True)))


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_every_route_returns_what_spark_sql_returns(lake, namespace, routes, seed):
    chance = random.Random(seed)
    names = ["i", "l", "s", "y", *chance.sample([n for n in TYPES if n not in "ilsy"], 6)]
    table = f"`{lake.spark_catalog}`.{namespace}.t{seed}"
    own = _changed(chance, lake, table, names)
    for route in routes.values():
        route.look_again()
    everything = lake.spark.sql(f"SELECT *, _row_id AS rowid FROM {table}").toArrow()
    for number in range(6):
        wanted = chance.sample(own, chance.randint(1, len(own)))
        # DuckDB reads by itself only without row ids.
        shown = [*wanted, "rowid"] if number % 2 else wanted
        where = None
        if number:
            column = chance.choice([name for name in own if name in TYPES])
            where = chance.choice(TYPES[column][2:]).format(c=f'"{column}"')
        expected = None
        for name, route in routes.items():
            found = route.client.scan(namespace, f"t{seed}", shown, where=where)
            if expected is None:
                expected = _by_duckdb(everything, shown, where)
            assert _rows(found) == expected, f"seed {seed}, {name}: {shown} where {where}"
        state = lake.schema(CTX, namespace).table(CTX, f"t{seed}").state
        batches = list(read_iceberg(lake._lake, CTX, state, tuple(shown), None))
        by_spark = pa.Table.from_batches(
            batches, pa.schema([state.definition.arrow_schema.field(n) for n in shown])
        )
        assert _rows(by_spark) == _by_duckdb(everything, shown, None), (
            f"seed {seed}, by Spark: {shown}"
        )


def test_a_filter_of_many_rows_keeps_the_same_by_every_route(lake, namespace, routes):
    """There are so many rows that DuckDB reads them in Spark's workers too."""
    table = f"`{lake.spark_catalog}`.{namespace}.many"
    values = "id AS l, cast(id % 50 AS INT) AS i, concat('text ', id % 1000) AS s"
    modes = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    sql = lake.spark.sql
    sql(f"CREATE TABLE {table} (l BIGINT, i INT, s STRING) USING iceberg TBLPROPERTIES ({modes})")
    sql(f"INSERT INTO {table} SELECT {values} FROM range(0, 200000, 1, 2)")
    sql(f"DELETE FROM {table} WHERE l % 2 = 0 AND l < 150000")
    sql(f"ALTER TABLE {table} ALTER COLUMN i TYPE BIGINT")
    everything = sql(f"SELECT *, _row_id AS rowid FROM {table}").toArrow()
    for route in routes.values():
        route.look_again()
    for where in ("i = 7 AND s <> 'text 57'", "lower(s) = 'text 57' AND l < 190000"):
        expected = _by_duckdb(everything, ["s", "i", "rowid"], where)
        for name, route in routes.items():
            found = route.client.scan(namespace, "many", ["s", "i", "rowid"], where=where)
            assert _rows(found) == expected, f"{name}: {where}"


def _by_duckdb(rows: pa.Table, shown: list[str], where: str | None) -> Counter[str]:
    import duckdb

    columns = ", ".join(f'"{name}"' for name in shown)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = (
            connection.from_arrow(rows).filter(where or "true").project(columns).to_arrow_table()
        )
    return _rows(found)
