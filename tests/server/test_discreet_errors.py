"""Errors for callers who may not read all of a table: the constraint's name, but no values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pytest
from tests.contracts.contract_client import (
    ContractClient,
    in_transaction,
    insert_command,
    update_command,
)
from tests.contracts.ddl_requests import alter_body
from tests.server.raw_client import failure_of

import sparkport as sp
from sparkport.catalog import (
    Constraints,
    Context,
    DMLOptions,
    Operation,
    Privilege,
    ScanOptions,
    StagedTable,
    rowid_field,
)
from sparkport.catalog.write import StagedWrite
from sparkport.errors import ConstraintViolation, PreconditionFailed
from sparkport.testing import DuckDBClient, ServerError

READ, WRITE, ALTER = Privilege.READ, Privilege.WRITE, Privilege.ALTER
PAY = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "region": ["north", "north", "south"],
        "bonus": pa.array([1, 2, 9], pa.int64()),
        "salary": pa.array([777, 777, 54321], pa.int64()),
        "note": ["secret-777", "secret-778", "secret-54321"],
    }
)
CHECK = "bonus < salary"
FAILING_CHECK = "CASE WHEN bonus = 500 THEN CAST(note AS INTEGER) > 0 ELSE true END"
CONSTRAINTS = Constraints(
    not_null=("bonus",),
    checks=(CHECK, FAILING_CHECK),
    unique=(("bonus", "salary"),),
    primary_key=("id",),
)
KEPT_BACK = ("777", "778", "54321", "secret")


class Talkative(StagedTable):
    """A foreign implementation of a table, whose errors tell everything."""

    name = "other"
    arrow_schema = pa.schema([*PAY.schema, rowid_field()])

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise PreconditionFailed("the value secret-777 cannot be read")

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        return TalkativeWrite()


class TalkativeWrite(StagedWrite):
    def apply(self, batch: pa.RecordBatch) -> None: ...

    def commit(self) -> int:
        raise ConstraintViolation("there is 54321 already")

    def abort(self) -> None: ...


@pytest.fixture
def server() -> Iterator[sp.Server]:
    lake = sp.MemoryCatalog("lake")
    shop = lake.add_schema("shop")
    shop.add_table(sp.MemoryTable("pay", PAY, constraints=CONSTRAINTS))
    shop.add_table(Talkative())
    grants = [
        sp.Grant(("admin",), "lake", (READ, WRITE, ALTER)),
        sp.Grant(("filtered", "masked"), "lake.shop", (READ, WRITE)),
        sp.Grant(("designer",), "lake.shop", (ALTER,)),
        sp.Grant(("writer",), "lake.shop", (WRITE,)),
    ]
    policy = sp.Policy(
        grants,
        [sp.RowFilter("lake.shop.*", "region = 'north'", ("filtered",))],
        [sp.Mask("lake.shop.*", column, "NULL", ("masked",)) for column in ("salary", "note")],
    )
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        yield server


@pytest.fixture(params=["filtered", "masked"])
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def duckdb(server: sp.Server, who: str) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "lake", token=who, timeout=60) as client:
        yield client


@pytest.fixture
def client(server: sp.Server) -> Iterator[ContractClient]:
    with ContractClient(server.location) as client:
        yield client


def headers(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}", "airport-catalog": "lake"}


def message_of(statement: Callable[[], Any]) -> str:
    with pytest.raises((ServerError, grpc.RpcError)) as caught:
        statement()
    error = caught.value
    message = (
        failure_of(error).message
        if isinstance(error, grpc.RpcError)
        else getattr(error, "message", "")
    )
    assert not any(value in message for value in KEPT_BACK), message
    return str(message)


BROKEN = {
    "check": (
        {"bonus": "1000"},
        "id = 1",
        f"CHECK constraint failed on table pay with expression CHECK({CHECK})",
    ),
    "failing check": (
        {"bonus": "500"},
        "id = 1",
        f"CHECK constraint failed on table pay with expression CHECK({FAILING_CHECK})",
    ),
    "unique": (
        {"bonus": "1"},
        "id = 2",
        "Duplicate key violates unique constraint (bonus, salary) of table pay",
    ),
    "primary key": (
        {"id": "3"},
        "id = 1",
        "Duplicate key violates primary key constraint (id) of table pay",
    ),
    "not null": ({"bonus": "NULL"}, "id = 1", "NOT NULL constraint failed: pay.bonus"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_violation_names_the_constraint_and_nothing_else(
    duckdb: DuckDBClient, broken: str
) -> None:
    assignments, where, expected = BROKEN[broken]

    assert message_of(lambda: duckdb.update("shop", "pay", assignments, where)) == expected


def test_the_same_for_the_contracts_updates(client: ContractClient, who: str) -> None:
    rows = pa.table({"bonus": pa.array([1], pa.int64())})
    statement = lambda: client.put(update_command("shop.pay", [1]), rows, headers(who))  # noqa: E731

    assert message_of(statement) == BROKEN["unique"][2]


@pytest.mark.parametrize("returning", [False, True])
def test_the_same_for_new_rows(duckdb: DuckDBClient, returning: bool) -> None:
    row = {"id": [3], "region": ["north"], "bonus": [5], "salary": [6], "note": ["n"]}

    message = message_of(lambda: duckdb.insert("shop", "pay", pa.table(row), returning=returning))
    assert message == BROKEN["primary key"][2]
    message = message_of(
        lambda: duckdb.insert("shop", "pay", pa.table({**row, "bonus": [777]}), returning=returning)
    )
    assert message == BROKEN["check"][2]


def test_the_same_when_a_transaction_is_committed(client: ContractClient, who: str) -> None:
    session = {"airport-client-session-id": "one"}
    mine = {**headers(who), **session}
    (answer,) = client.action("create_transaction", b"", mine)
    transaction = msgpack.unpackb(answer)["identifier"]
    rows = pa.table({"bonus": pa.array([3], pa.int64())})
    client.put(update_command("shop.pay", [1]), rows, {**mine, **in_transaction(transaction)})
    taken = pa.table({"id": [7], "region": ["south"], "bonus": [3], "salary": [777], "note": ["n"]})
    client.put(insert_command("shop.pay"), taken, headers("admin"))

    statement = lambda: client.action("commit_transaction", {"transaction_id": transaction}, mine)  # noqa: E731

    assert message_of(statement) == BROKEN["unique"][2]


def test_those_who_see_everything_are_told_the_values(server: sp.Server) -> None:
    with DuckDBClient(server.location, "lake", token="admin", timeout=60) as admin:
        for broken, shown in (
            ("check", "salary = 777"),
            ("failing check", "secret-777"),
            ("unique", "salary: 777"),
        ):
            assignments, where, _ = BROKEN[broken]
            with pytest.raises(ServerError, match=shown):
                admin.update("shop", "pay", assignments, where)


def test_those_who_may_not_read_are_told_none(client: ContractClient) -> None:
    """PostgreSQL does so too for users without SELECT."""
    row = pa.table({"id": [1], "region": ["north"], "bonus": [5], "salary": [6], "note": ["n"]})
    message = message_of(lambda: client.put(insert_command("shop.pay"), row, headers("writer")))
    assert message == BROKEN["primary key"][2]


@pytest.mark.parametrize(
    ("action", "further", "expected"),
    [
        ("add_constraint", {"constraint": "CHECK (salary < 0)"}, "expression CHECK((salary < 0))"),
        (
            "add_constraint",
            {"constraint": "CHECK (CAST(note AS INTEGER) < 0)"},
            "CHECK((CAST(note AS INTEGER) < 0))",
        ),
        (
            "add_constraint",
            {"constraint": "UNIQUE (salary)"},
            "violates unique constraint (salary) of table pay",
        ),
        (
            "change_column_type",
            {
                "column_schema": pa.schema([pa.field("note", pa.int32())]).serialize().to_pybytes(),
                "expression": "CAST(note AS INTEGER)",
            },
            "the values of column note cannot be computed",
        ),
    ],
)
def test_nor_are_those_who_may_alter_but_not_read(
    client: ContractClient, action: str, further: dict[str, Any], expected: str
) -> None:
    body = alter_body(schema="shop", name="pay", **further)
    message = message_of(lambda: client.action(action, body, headers("designer")))

    assert message.endswith(expected)
    with pytest.raises(grpc.RpcError) as caught:
        client.action(action, body, headers("admin"))
    assert any(value in failure_of(caught.value).message for value in KEPT_BACK), (
        "who may read is told why"
    )


def test_tables_of_others_are_not_trusted_to_be_discreet(
    client: ContractClient, duckdb: DuckDBClient, who: str
) -> None:
    row = PAY.slice(0, 1)
    message = message_of(lambda: client.put(insert_command("shop.other"), row, headers(who)))
    assert message == "the change would break a constraint of table shop.other"
    message = message_of(lambda: duckdb.scan("shop", "other"))
    assert message.startswith(
        "table other cannot be read, for a reason that may tell of what you do not see"
    )
