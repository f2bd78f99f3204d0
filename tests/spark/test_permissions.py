"""Who may do what in the lake: every route, Spark SQL, functions about tables, and views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.places import Place

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

SCHEMA = "permitted"
READ, WRITE, ALTER, LIST, SPARK = (
    Privilege.READ,
    Privilege.WRITE,
    Privilege.ALTER,
    Privilege.LIST,
    Privilege.SPARK_SQL,
)
ROUTES = {
    "in_place": LakeSettings(in_place_bytes=1 << 40),
    "tasks": LakeSettings(in_place_bytes=-1, endpoint_bytes=1, endpoints=2),
    "direct": LakeSettings(in_place_bytes=-1, direct=True),
}
GRANTS = [
    sp.Grant(("admin",), "*", (READ, WRITE, ALTER, SPARK)),
    sp.Grant(("part",), f"*.{SCHEMA}", (READ, WRITE, ALTER, SPARK)),
    sp.Grant(("asker",), f"*.{SCHEMA}.orders", (READ,)),
    sp.Grant(("asker",), f"*.{SCHEMA}.totals", (READ,)),
    sp.Grant(("asker",), f"*.{SCHEMA}.revealing", (READ,)),
    sp.Grant(("asker",), f"*.{SCHEMA}.spark_sql", (SPARK,)),
    sp.Grant(("reader",), f"*.{SCHEMA}", (READ,)),
    sp.Grant(("writer",), f"*.{SCHEMA}", (READ, WRITE)),
    sp.Grant(("lister",), f"*.{SCHEMA}", (LIST,)),
]
POLICY = sp.Policy(
    GRANTS,
    [sp.RowFilter(f"*.{SCHEMA}.orders", "region = $region", ("part",))],
    [sp.Mask(f"*.{SCHEMA}.orders", "email", "'***'", ("part",))],
)


@pytest.fixture(scope="module")
def attach(lake: LakeCatalog, place: Place) -> Iterator[Callable[..., DuckDBClient]]:
    """Attaches a lake that uses a single route, as a given user."""
    name = f"`{lake.spark_catalog}`.{SCHEMA}"
    for statement in (
        f"CREATE NAMESPACE {name}",
        f"CREATE TABLE {name}.orders (id BIGINT, region STRING, email STRING) USING iceberg "
        "PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '3')",
        f"INSERT INTO {name}.orders SELECT id, if(id % 2 = 0, 'north', 'south'), concat('e', id) "
        "FROM range(10)",
        f"CREATE TABLE {name}.secrets (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = "
        "'3')",
        f"INSERT INTO {name}.secrets VALUES (987654321)",
        f"CREATE VIEW {name}.totals AS SELECT region, count(*) AS n FROM {name}.orders GROUP BY "
        "region",
        f"CREATE VIEW {name}.revealing AS SELECT id FROM {name}.secrets",
        f"CREATE VIEW {name}.unseen AS SELECT id FROM {name}.orders",
    ):
        lake.spark.sql(statement)

    def authenticate(token: str) -> sp.Identity:
        return sp.Identity(token, attributes={"region": "north"})

    with ExitStack() as stack:
        catalogs = [
            stack.enter_context(
                LakeCatalog(
                    source=place.source("lake"),
                    name=name,
                    spark_catalog=lake.spark_catalog,
                    settings=settings,
                )
            )
            for name, settings in ROUTES.items()
        ]
        settings = sp.ServerSettings(authenticate=authenticate, policy=POLICY)
        server = stack.enter_context(sp.Server(catalogs, "grpc://127.0.0.1:0", settings))

        def attach(who: str, route: str = "in_place") -> DuckDBClient:
            return stack.enter_context(DuckDBClient(server.location, route, token=who, timeout=60))

        yield attach


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def refused(
    call: Callable[[], Any], code: str = "PERMISSION_DENIED", match: str | None = None
) -> str:
    with pytest.raises(ServerError, match=match) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


NORTH = [(id, "north", "***") for id in (0, 2, 4, 6, 8)]


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_shows_what_may_be_seen(attach, place: Place, route: str) -> None:
    if route == "direct" and not place.is_read_directly:
        pytest.skip("the DuckDB of the tests reads no files from there")
    admin, part = attach("admin", route), attach("part", route)

    assert admin.scan(SCHEMA, "orders").num_rows == 10
    assert rows(part.scan(SCHEMA, "orders")) == NORTH
    assert rows(part.scan(SCHEMA, "orders", ["email"])) == [("***",)] * 5
    assert rows(part.scan(SCHEMA, "orders", where="id > 3 AND region <> 'west'")) == NORTH[2:]
    assert rows(part.scan(SCHEMA, "orders", where="email = 'e2'")) == []
    assert part.count(SCHEMA, "orders") == 5
    assert part.statistics(SCHEMA, "orders", "id") is None
    assert rows(part.scan(SCHEMA, "orders", at=("VERSION", "1"))) == NORTH
    assert part.scan(SCHEMA, "orders", at=("VERSION", "0")).num_rows == 0


def test_views_do_not_show_more(attach) -> None:
    assert rows(attach("reader").scan(SCHEMA, "totals")) == [("north", 5), ("south", 5)]
    refused(lambda: attach("part").scan(SCHEMA, "totals"), match="more of a table than you may see")


def test_spark_sql_reads_what_its_caller_may_read(attach) -> None:
    asker = attach("asker")

    def ask(text: str, who: DuckDBClient = asker) -> list[tuple[Any, ...]]:
        return rows(who.table_function(SCHEMA, "spark_sql", text))

    assert ask("SELECT count(*) AS n FROM orders") == [(10,)]
    assert ask("WITH o AS (SELECT id FROM orders) SELECT max(o.id) AS m FROM o, range(1) r") == [
        (9,)
    ]
    assert ask("SELECT 1 AS one") == [(1,)]
    for text in (
        "SELECT * FROM secrets",
        "SELECT (SELECT max(id) FROM secrets) AS m",
        "SELECT id FROM orders WHERE id IN (SELECT id FROM secrets)",
        "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM secrets s WHERE s.id = o.id)",
        "WITH s AS (SELECT * FROM secrets) SELECT count(*) AS n FROM s",
        "SELECT id FROM orders UNION SELECT id FROM secrets",
        "SELECT * FROM secrets.snapshots",
        "SELECT nonsense FROM secrets",
        "SELECT nonsense FROM absent",
        "SELECT id FROM revealing",
        "SELECT id FROM unseen",
        "SELECT 1 AS one FROM orders WHERE EXISTS (SELECT nonsense FROM secrets)",
        "WITH s AS (SELECT nonsense FROM secrets) SELECT * FROM s",
        "SELECT o.id FROM orders o LEFT ANTI JOIN secrets s ON o.id = s.id",
    ):
        message = refused(partial(ask, text), match="no permission to read")
        assert "987654321" not in message
        assert "[`id`]" not in message
        assert "secrets" not in message
    assert ask("SELECT n FROM totals") == [(5,), (5,)], "who may read a view and what it reads"
    refused(lambda: ask("SELECT nonsense FROM orders"), "NOT_FOUND", match="nonsense")
    assert ask("SELECT id FROM secrets", attach("admin")) == [(987654321,)]
    refused(lambda: ask("SELECT 1 AS one", attach("part")), match="only part of this catalog")


def test_spark_sql_is_not_there_for_those_who_have_not_been_granted_it(attach) -> None:
    reader = attach("reader")

    assert "spark_sql" not in {function.name for function in reader.functions(SCHEMA)}
    assert "snapshots" in {function.name for function in reader.functions(SCHEMA)}
    with pytest.raises(ClientSideError):
        reader.table_function(SCHEMA, "spark_sql", "SELECT 1 AS one")


@pytest.mark.parametrize("function", ["snapshots", "files", "history"])
def test_what_is_told_of_a_table_is_for_those_who_read_all_of_it(attach, function: str) -> None:
    assert attach("reader").table_function(SCHEMA, function, "orders").num_rows > 0
    refused(lambda: attach("part").table_function(SCHEMA, function, "orders"), match="only part of")
    names = {each.name for each in attach("lister").functions(SCHEMA)}
    assert function not in names


def test_changed_rows_are_for_those_who_see_all_of_them(attach) -> None:
    assert attach("reader").table_function(SCHEMA, "table_changes", "orders", 0, 1).num_rows == 10
    refused(
        lambda: attach("part").table_function(SCHEMA, "table_changes", "orders", 0, 1),
        match="only part of",
    )


def test_tables_that_one_may_not_see_are_not_there_for_functions(attach, lake: LakeCatalog) -> None:
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{lake.spark_catalog}`.vault")
    lake.spark.sql(
        f"CREATE TABLE IF NOT EXISTS `{lake.spark_catalog}`.vault.gold (id BIGINT) USING iceberg"
    )
    reader = attach("reader")

    hidden = refused(lambda: reader.table_function(SCHEMA, "snapshots", "vault.gold"), "NOT_FOUND")
    absent = refused(lambda: reader.table_function(SCHEMA, "snapshots", "vault.g0ld"), "NOT_FOUND")

    assert hidden.replace("gold", "g0ld") == absent


def test_upserts_need_write_and_care_needs_alter(attach, lake: LakeCatalog) -> None:
    name = f"`{lake.spark_catalog}`.{SCHEMA}.mine"
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' "
        "= '3')"
    )
    new = pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]})
    reader, writer, admin = attach("reader"), attach("writer"), attach("admin")

    refused(
        lambda: reader.in_out(SCHEMA, "upsert", "mine", "id", rows=new), match="no write permission"
    )
    assert rows(writer.in_out(SCHEMA, "upsert", "mine", "id", rows=new)) == [(1, 0)]
    refused(lambda: writer.table_function(SCHEMA, "optimize", "mine"), match="no alter permission")
    refused(
        lambda: writer.table_function(SCHEMA, "rollback_to", "mine", 0), match="no alter permission"
    )
    assert admin.table_function(SCHEMA, "rollback_to", "mine", 0).num_rows == 1
    refused(
        lambda: attach("part").in_out(SCHEMA, "upsert", "orders", "id", rows=new),
        match="only part of",
    )


def test_nobody_changes_what_it_does_not_see(attach) -> None:
    admin, part = attach("admin"), attach("part")
    before = admin.scan(SCHEMA, "orders", ["id", "region", "email", "rowid"]).sort_by("id")
    row_ids = {row["id"]: row["rowid"] for row in before.to_pylist()}

    south = pa.table({"id": [50], "region": ["south"], "email": ["e"]})
    refused(lambda: part.insert(SCHEMA, "orders", south), match="do not see")
    refused(
        lambda: part.delete_rows(SCHEMA, "orders", [row_ids[0], row_ids[1]]), match="do not see"
    )
    refused(lambda: part.delete_rows(SCHEMA, "orders", [987654]), match="do not see")
    moved = pa.table({"region": ["north"], "rowid": pa.array([row_ids[1]], pa.int64())})
    refused(lambda: part.update_rows(SCHEMA, "orders", moved), match="do not see")
    away = pa.table({"region": ["south"], "rowid": pa.array([row_ids[0]], pa.int64())})
    refused(lambda: part.update_rows(SCHEMA, "orders", away), match="do not see")
    assert (
        admin.scan(SCHEMA, "orders", ["id", "region", "email", "rowid"])
        .sort_by("id")
        .equals(before)
    )

    inserted = part.insert(
        SCHEMA,
        "orders",
        pa.table({"id": [100], "region": ["north"], "email": ["mail"]}),
        returning=True,
    )
    assert inserted.rows is not None
    assert rows(inserted.rows) == [(100, "north", "***")]
    assert part.update(SCHEMA, "orders", {"id": "id + 1"}, "id = 100").total == 1
    deleted = part.delete(SCHEMA, "orders", "id = 101", returning=True)
    assert deleted.rows is not None
    assert rows(deleted.rows) == [(101, "north", "***")]
    assert rows(admin.scan(SCHEMA, "orders")) == rows(before.select(["id", "region", "email"]))
