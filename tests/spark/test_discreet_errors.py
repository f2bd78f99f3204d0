"""Errors for callers who see only part of a table: they name a constraint or column, no values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient, ServerError

SCHEMA = "discreet"
KEPT_BACK = ("777", "54321", "secret")
CHECK = "bonus < salary"
FAILING_CHECK = "CASE WHEN bonus = 500 THEN CAST(note AS INTEGER) > 0 ELSE true END"
PAY = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "region": ["north", "north", "south"],
        "bonus": pa.array([1, 2, 9], pa.int64()),
        "salary": pa.array([777, 777, 54321], pa.int64()),
        "note": ["secret-777", "secret-778", "secret-54321"],
    }
)
DECLARED = {
    "id": "BIGINT",
    "region": "VARCHAR",
    "bonus": "BIGINT",
    "salary": "BIGINT",
    "note": "VARCHAR",
}
ROUTES = {"in_place": LakeSettings(), "by_spark": LakeSettings(update_rows_in_place=0)}
UNIQUE = "Duplicate key violates unique constraint (bonus, salary) of table pay"
BROKEN = {
    "check": (
        {"bonus": "1000"},
        "id = 1",
        f"CHECK constraint failed on table pay with expression CHECK({CHECK})",
    ),
    "failing check": ({"bonus": "500"}, "id = 1", f"with expression CHECK({FAILING_CHECK})"),
    "unique": ({"bonus": "1"}, "id = 2", UNIQUE),
    "primary key": (
        {"id": "3"},
        "id = 1",
        "Duplicate key violates primary key constraint (id) of table pay",
    ),
    "not null": ({"bonus": "NULL"}, "id = 1", "NOT NULL constraint failed: pay.bonus"),
}


@pytest.fixture(scope="module")
def attach(lake: LakeCatalog, warehouse: Path) -> Iterator[Callable[..., DuckDBClient]]:
    """Attach a lake that takes one route, as a given principal."""
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.{SCHEMA}")
    everything = (Privilege.READ, Privilege.WRITE, Privilege.ALTER)
    policy = sp.Policy(
        [
            sp.Grant(("admin", "filtered", "masked"), "*", everything),
            sp.Grant(("designer",), "*", (Privilege.ALTER,)),
        ],
        [sp.RowFilter(f"*.{SCHEMA}.*", "region = 'north'", ("filtered",))],
        [sp.Mask(f"*.{SCHEMA}.*", column, "NULL", ("masked",)) for column in ("salary", "note")],
    )
    with ExitStack() as stack:
        catalogs = [
            stack.enter_context(
                LakeCatalog(
                    warehouse, name=name, spark_catalog=lake.spark_catalog, settings=settings
                )
            )
            for name, settings in ROUTES.items()
        ]
        settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
        server = stack.enter_context(sp.Server(catalogs, "grpc://127.0.0.1:0", settings))

        def attach(who: str, route: str = "in_place") -> DuckDBClient:
            return stack.enter_context(DuckDBClient(server.location, route, token=who, timeout=60))

        admin = attach("admin")
        for name in ("pay", "again"):
            admin.create_table(
                SCHEMA,
                name,
                DECLARED,
                not_null=["bonus"],
                checks=[CHECK, FAILING_CHECK],
                primary_key=["id"],
                unique=[("bonus", "salary")],
            )
            admin.insert(SCHEMA, name, PAY)
        yield attach


def message_of(statement: Callable[[], Any]) -> str:
    with pytest.raises(ServerError) as caught:
        statement()
    message = str(caught.value.message)
    assert not any(value in message for value in KEPT_BACK), message
    return message


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("who", ["filtered", "masked"])
def test_a_violation_names_the_constraint_and_nothing_else(attach, who: str, route: str) -> None:
    client = attach(who, route)
    for assignments, where, expected in BROKEN.values():
        message = message_of(lambda: client.update(SCHEMA, "pay", assignments, where))  # noqa: B023
        assert message.endswith(expected)
    row = pa.table({"id": [3], "region": ["north"], "bonus": [5], "salary": [6], "note": ["n"]})
    assert message_of(lambda: client.insert(SCHEMA, "pay", row)) == BROKEN["primary key"][2]


def test_those_who_see_everything_are_told_the_values(attach) -> None:
    for broken, shown in (
        ("check", "salary = 777"),
        ("failing check", "secret-777"),
        ("unique", "salary: 777"),
    ):
        assignments, where, _ = BROKEN[broken]
        with pytest.raises(ServerError, match=shown):
            attach("admin").update(SCHEMA, "pay", assignments, where)


@pytest.mark.parametrize("tables", [["again"], ["again", "pay"]])
def test_the_same_when_a_transaction_is_published(attach, tables: list[str]) -> None:
    client, admin = attach("masked"), attach("admin")
    number = 20 + len(tables)
    client.begin()
    client.call(SCHEMA, "lake_begin", {}, rows=1)
    for table in tables:
        client.update(SCHEMA, table, {"bonus": str(number)}, "id = 2")
    taken = {"id": [number], "region": ["south"], "bonus": [number], "salary": [777], "note": ["n"]}
    admin.insert(SCHEMA, tables[-1], pa.table(taken))

    message = message_of(lambda: client.call(SCHEMA, "lake_commit", {}, rows=1))

    assert message == UNIQUE.replace("pay", tables[-1])
    client.rollback()


def test_those_who_may_alter_but_not_read_are_told_none(attach) -> None:
    designer = attach("designer")

    message = message_of(lambda: designer.add_constraint(SCHEMA, "pay", "CHECK (salary < 0)"))
    assert message.endswith("CHECK((salary < 0))")
    message = message_of(lambda: designer.add_constraint(SCHEMA, "pay", "UNIQUE (salary)"))
    assert message.endswith("constraint (salary) of table pay")
    cast = "CAST(note AS INTEGER)"
    message = message_of(
        lambda: designer.change_column_type(SCHEMA, "pay", "note", pa.int32(), cast)
    )
    assert message == "the values of column note cannot be computed"


@pytest.mark.parametrize("in_place_bytes", [1 << 40, -1], ids=["in place", "in tasks"])
def test_a_value_that_cannot_be_read_is_not_shown(
    attach, lake: LakeCatalog, warehouse: Path, in_place_bytes: int
) -> None:
    """Another engine has stored a value that the column, masked for the caller, cannot hold."""
    admin = attach("admin")
    admin.create_table(
        SCHEMA,
        f"small{abs(in_place_bytes)}",
        {"region": "VARCHAR", "salary": "UTINYINT", "note": "VARCHAR"},
    )
    name = f"small{abs(in_place_bytes)}"
    lake.spark.sql(f"INSERT INTO `{lake.spark_catalog}`.{SCHEMA}.{name} VALUES ('south', 777, 'n')")
    policy = sp.Policy(masks=[sp.Mask(f"*.{SCHEMA}.*", "salary", "least(salary, 9)")])
    settings = sp.ServerSettings(policy=policy)
    route = LakeSettings(in_place_bytes=in_place_bytes)
    with (
        LakeCatalog(
            warehouse, name="lake", spark_catalog=lake.spark_catalog, settings=route
        ) as catalog,
        sp.Server(catalog, "grpc://127.0.0.1:0", settings) as server,
        DuckDBClient(server.location, "lake", timeout=60) as client,
    ):
        message_of(lambda: client.scan(SCHEMA, name))
        with pytest.raises(ServerError, match="cannot hold the value 777"):
            admin.scan(SCHEMA, name)
