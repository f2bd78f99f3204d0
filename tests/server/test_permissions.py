"""Who may do what, over the wire: principals × objects × operations, allowed as granted.

A hidden object looks exactly like an absent one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import grpc
import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import pytest
from tests.contracts.contract_client import (
    ContractClient,
    as_json,
    delete_body,
    insert_command,
    update_command,
)
from tests.contracts.ddl_requests import add_column_body, create_table_body, drop_table_body
from tests.server.raw_client import Failure, failure_of, path, ticket_message

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.testing import DuckDBClient, ServerError

LIST, READ, WRITE, ALTER = Privilege.LIST, Privilege.READ, Privilege.WRITE, Privilege.ALTER
ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "region": ["north", "north", "south", None],
        "email": ["ann@x.org", "bob@y.org", "eve@z.org", "joe@w.org"],
    }
)
GRANTED = {
    "everything": {"lake": {READ, WRITE, ALTER}},
    "lister": {"lake.shop": {LIST}},
    "reader": {"lake.shop": {READ}},
    "writer": {"lake.shop.orders": {WRITE}},
    "editor": {"lake.shop.orders": {READ, WRITE}},
    "designer": {"lake.shop": {ALTER}},
    "nobody": {},
    "stranger": {"sea": {READ, WRITE, ALTER}},
}
TABLES = ["shop.orders", "shop.notes", "vault.salaries"]


def privileges(who: str, table: str) -> set[Privilege]:
    held: set[Privilege] = set()
    for on, granted in GRANTED[who].items():
        if f"lake.{table}.".startswith(f"{on}."):
            held |= granted
    return held


def token(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer token-of-{who}"}


@pytest.fixture
def server() -> Iterator[sp.Server]:
    lake = sp.MemoryCatalog("lake", settings=sp.MemorySettings(statistics_rows=0))
    shop, vault = lake.add_schema("shop"), lake.add_schema("vault")
    shop.add_table(sp.MemoryTable("orders", ORDERS))
    shop.add_table(sp.MemoryTable("notes", ORDERS))
    vault.add_table(sp.MemoryTable("salaries", ORDERS))
    sea = sp.MemoryCatalog("sea")
    sea.add_schema("shop").add_table(sp.MemoryTable("ships", ORDERS))
    tools = sp.CatalogBuilder("tools")
    tools.schema("s").scalar_function(double)
    grants = [
        sp.Grant((who,), on, tuple(may))
        for who, each in GRANTED.items()
        for on, may in each.items()
    ]
    grants += [
        sp.Grant(("part",), "lake.shop", (READ, WRITE, ALTER)),
        sp.Grant(("reader",), "tools.s.double", (READ,)),
    ]
    policy = sp.Policy(
        grants,
        [sp.RowFilter("lake.shop.orders", "region = $region", ("part",))],
        [sp.Mask("lake.shop.orders", "email", "regexp_replace(email, '.*@', '***@')", ("part",))],
    )

    def authenticate(shown: str) -> sp.Identity | None:
        who = shown.removeprefix("token-of-")
        known = who in {*GRANTED, "part"} and who != shown
        return sp.Identity(who, attributes={"region": "north"}) if known else None

    settings = sp.ServerSettings(authenticate=authenticate, policy=policy)
    with sp.Server([lake, sea, tools.build()], "grpc://127.0.0.1:0", settings) as server:
        yield server


def double(value: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
    return pc.multiply(value, 2)


@pytest.fixture
def client(server: sp.Server) -> Iterator[ContractClient]:
    with ContractClient(server.location) as client:
        yield client


# -------------------------------------------------------------------------------------- the matrix

Operation: TypeAlias = Callable[[ContractClient, str, dict[str, str]], Any]
ROW = ORDERS.slice(0, 1)


def _described(action: str, **further: Any) -> Operation:
    def run(client: ContractClient, table: str, headers: dict[str, str]) -> Any:
        name = path("lake", *table.split(".")).serialize()
        return client.action(
            action, {"descriptor": name, "flight_descriptor": name, **further}, headers
        )

    return run


def _ddl(action: str, body: Callable[[str, str], Any]) -> Operation:
    return lambda client, table, headers: client.action(action, body(*table.split(".")), headers)


_AT = {"parameters": {"at_unit": "VERSION", "at_value": "0", "json_filters": "", "column_ids": [0]}}
_FILTERED = {"parameters": {"at_unit": "", "at_value": "", "json_filters": "", "column_ids": []}}
OPERATIONS: dict[str, tuple[set[Privilege], Operation]] = {
    "GetSchema": (
        {LIST},
        lambda c, t, h: c.call("GetSchema", path("lake", *t.split(".")).serialize(), h),
    ),
    "flight_info": ({LIST}, _described("flight_info", at_unit="VERSION", at_value="0")),
    "GetFlightInfo": (
        {READ},
        lambda c, t, h: c.call("GetFlightInfo", path("lake", *t.split(".")).serialize(), h),
    ),
    "endpoints": ({READ}, _described("endpoints", **_FILTERED)),
    "endpoints AT": ({READ}, _described("endpoints", **_AT)),
    "statistics": ({READ}, _described("column_statistics", column_name="id", type="BIGINT")),
    "DoPut insert": (
        {WRITE},
        lambda c, t, h: c.put({**insert_command(t), "catalog": "lake"}, ROW, h),
    ),
    "DoPut insert returning": (
        {WRITE, READ},
        lambda c, t, h: c.put(insert_command(t, returning=True), ROW, h),
    ),
    "DoPut update": ({WRITE, READ}, lambda c, t, h: c.put(update_command(t, [0]), ROW, h)),
    "action delete": (
        {WRITE, READ},
        lambda c, t, h: c.action("delete", as_json(delete_body(t, [1])), h),
    ),
    "exchange insert": ({WRITE}, lambda c, t, h: c.exchange("insert", t, ROW, h)),
    "exchange returning": (
        {WRITE, READ},
        lambda c, t, h: c.exchange("insert", t, ROW, h, returning=True),
    ),
    "add_column": ({ALTER}, _ddl("add_column", lambda s, t: add_column_body(schema=s, name=t))),
    "create or replace": (
        {ALTER},
        _ddl(
            "create_table",
            lambda s, t: create_table_body(
                ORDERS.schema, schema_name=s, table_name=t, on_conflict="replace"
            ),
        ),
    ),
    "drop_table": (
        {ALTER},
        _ddl("drop_table", lambda s, t: drop_table_body(schema_name=s, name=t)),
    ),
}


def outcome(operation: Operation, client: ContractClient, table: str, who: str) -> Failure | None:
    headers = {**token(who), "airport-catalog": "lake"}
    try:
        operation(client, table, headers)
    except grpc.RpcError as error:
        return failure_of(error)
    return None


@pytest.mark.parametrize("who", GRANTED)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_allowed_or_refused_as_granted(
    client: ContractClient, who: str, name: str
) -> None:
    needed, operation = OPERATIONS[name]
    for table in TABLES:
        held = privileges(who, table)
        failure = outcome(operation, client, table, who)
        if needed - {LIST} <= held and held:
            assert failure is None, (table, failure)
            continue
        assert failure is not None, table
        # An object that can be created need not exist; any other must not reveal that it does.
        hidden = not held and name != "create or replace"
        expected = {"NOT_FOUND"} if hidden else {"PERMISSION_DENIED", "NOT_FOUND"}
        assert failure.code in expected, (table, failure)
        if hidden:
            schema = table.split(".")[0]
            sees_schema = any(privileges(who, each) for each in TABLES if each.startswith(schema))
            absent = outcome(
                operation, client, f"{schema}.absent" if sees_schema else "absent.absent", who
            )
            assert absent is not None
            assert _without_names(absent.message) == _without_names(failure.message)


def _without_names(message: str) -> str:
    return " ".join(
        "…" if "." in word or "'" in word else word
        for word in message.split()
        if word not in _NAMES
    )


_NAMES = {"lake", "shop", "vault", "absent"}


@pytest.mark.parametrize("who", GRANTED)
def test_only_what_may_be_seen_is_listed(
    server: sp.Server, client: ContractClient, who: str
) -> None:
    visible = {table for table in TABLES if privileges(who, table)}
    headers = {**token(who), "airport-catalog": "lake"}
    if not visible:
        failure = client.failure(
            "DoAction",
            flight.Action("list_schemas", b"\x81\xaccatalog_name\xa4lake").serialize(),
            headers,
        )
        assert failure.code == "NOT_FOUND"
        with DuckDBClient(server.location, "lake", token=f"token-of-{who}", timeout=60) as duckdb:
            assert [info for info in duckdb.list_flights() if b"lake" in info.app_metadata] == []
        return
    with DuckDBClient(server.location, "lake", token=f"token-of-{who}", timeout=60) as duckdb:
        listed = {
            f"{schema}.{table}" for schema in duckdb.schemas() for table in duckdb.tables(schema)
        }
        flights = {
            "/".join(part.decode() for part in info.descriptor.path[1:5])
            for info in duckdb.list_flights()
        }
    assert listed == visible
    assert {
        each.split("/")[1] + "." + each.split("/")[3]
        for each in flights
        if each.startswith("lake/")
    } == visible
    discovered = client.action("GetTables", b"{}", token(who))
    assert not any(b"salaries" in each for each in discovered if "vault.salaries" not in visible)


def test_the_list_of_catalogs_has_those_in_which_something_is_granted(
    client: ContractClient,
) -> None:
    def catalogs(who: str) -> list[str]:
        (answer,) = client.call("GetFlightInfo", path("__databases").serialize(), token(who))
        info = flight.FlightInfo.deserialize(answer)
        return [row["name"] for row in client.read(info, token(who))]

    assert catalogs("everything") == ["lake"]
    assert catalogs("reader") == ["lake", "tools"]
    assert catalogs("stranger") == ["sea"]
    assert catalogs("nobody") == []


def test_functions_are_there_for_those_who_may_call_them(server: sp.Server) -> None:
    with DuckDBClient(server.location, "tools", token="token-of-reader", timeout=60) as duckdb:
        assert duckdb.call("s", "double", {"value": pa.array([1, 2], pa.int64())}).to_pylist() == [
            2,
            4,
        ]
    with DuckDBClient(server.location, "tools", token="token-of-lister", timeout=60) as duckdb:
        with pytest.raises(ServerError, match="not found") as caught:
            duckdb.schemas()
        assert caught.value.code == "NOT_FOUND"


# ---------------------------------------------------------------------- what was handed out before


def test_what_was_handed_out_stands_for_the_token(server: sp.Server) -> None:
    """ATTACH … (auth_token …): DuckDB sends no token with scans and writes (airport §2.3)."""
    with DuckDBClient(
        server.location, "lake", attach_token="token-of-editor", timeout=60
    ) as duckdb:
        assert duckdb.scan("shop", "orders").num_rows == 4
        assert duckdb.insert("shop", "orders", ROW).total == 1
        assert duckdb.update("shop", "orders", {"email": "'x'"}, "id = 2").total == 1
        assert duckdb.delete("shop", "orders", "id = 3").total == 1
        assert duckdb.count("shop", "orders") == 4
        assert duckdb.scan("shop", "orders", at=("VERSION", "0")).num_rows == 4
        assert duckdb.statistics("shop", "orders", "id") is not None
        duckdb.begin()
        assert duckdb.scan("shop", "orders").num_rows == 4
        duckdb.commit()
    with DuckDBClient(
        server.location, "tools", attach_token="token-of-reader", timeout=60
    ) as duckdb:
        assert duckdb.call("s", "double", {"value": pa.array([4], pa.int64())}).to_pylist() == [8]


def test_it_is_of_no_use_to_others(server: sp.Server, client: ContractClient) -> None:
    info = client.flight_info("lake.shop.orders", token("reader"))
    (endpoint,) = info.endpoints
    ticket = ticket_message(endpoint.ticket.ticket)
    with DuckDBClient(server.location, "lake", token="token-of-reader", timeout=60) as duckdb:
        handle = duckdb.table("shop", "orders").descriptor

    assert client.call("DoGet", ticket, token("reader"))
    assert client.call("DoGet", ticket, {}), "it stands for the token"
    for who in ("everything", "nobody"):
        assert client.failure("DoGet", ticket, token(who)).code == "PERMISSION_DENIED"
        body = {"descriptor": handle.serialize(), **_FILTERED}
        assert client.action_failure("endpoints", body, token(who)).code == "PERMISSION_DENIED"
    assert (
        client.failure("DoGet", ticket, {"authorization": "Bearer wrong"}).code == "UNAUTHENTICATED"
    )
    for position in (0, 20, len(endpoint.ticket.ticket) - 1):
        altered = bytearray(endpoint.ticket.ticket)
        altered[position] ^= 1
        assert client.failure("DoGet", ticket_message(bytes(altered)), {}).code == "UNAUTHENTICATED"


def test_transactions_are_of_those_who_began_them(client: ContractClient) -> None:
    session = {"airport-client-session-id": "one", "airport-catalog": "lake"}
    (answer,) = client.action("create_transaction", b"", {**token("editor"), **session})
    identifier = msgpack.unpackb(answer)["identifier"]
    mine, theirs = ({**token(who), **session} for who in ("editor", "everything"))
    assert client.transaction("get_transaction_status", identifier, mine)["exists"]
    assert not client.transaction("get_transaction_status", identifier, theirs)["exists"]
    body = {"transaction_id": identifier}
    assert client.action_failure("commit_transaction", body, theirs).code == "FAILED_PRECONDITION"


def test_what_was_handed_out_expires_and_is_revoked_with_its_token() -> None:
    class Tokens:
        good = True

        def __call__(self, shown: str) -> sp.Identity | None:
            return sp.Identity("ann", credential="t1") if self.good and shown == "right" else None

        def recognises(self, identity: sp.Identity) -> bool:
            return self.good and identity.credential == "t1"

    tokens = Tokens()
    lake = sp.MemoryCatalog("lake")
    lake.add_schema("shop").add_table(sp.MemoryTable("orders", ORDERS))
    for lifetime, revoked in ((3600.0, True), (0.001, False)):
        settings = sp.ServerSettings(authenticate=tokens, handle_seconds=lifetime)
        with (
            sp.Server(lake, "grpc://127.0.0.1:0", settings) as server,
            DuckDBClient(server.location, "lake", attach_token="right", timeout=60) as duckdb,
        ):
            duckdb.attach()
            if revoked:
                assert duckdb.scan("shop", "orders").num_rows == 4
            body = {
                "descriptor": duckdb.table("shop", "orders").descriptor.serialize(),
                **_FILTERED,
            }
            tokens.good = not revoked
            with ContractClient(server.location) as client:
                failure = client.action_failure("endpoints", body, {})
            assert failure.code == "UNAUTHENTICATED"
            assert "no longer valid" in failure.message
            tokens.good = True


def test_servers_that_share_a_key_take_what_the_others_hand_out() -> None:
    """Behind a balancer: nothing else is shared."""

    def start(secret: bytes) -> sp.Server:
        lake = sp.MemoryCatalog("lake")
        lake.add_schema("shop").add_table(sp.MemoryTable("orders", ORDERS))
        tokens = sp.TokenAuthenticator({"right": "ann"})
        settings = sp.ServerSettings(authenticate=tokens, secret=secret)
        return sp.Server(lake, "grpc://127.0.0.1:0", settings)

    with start(b"shared") as first, start(b"shared") as second, start(b"another") as third:
        with DuckDBClient(first.location, "lake", token="right", timeout=60) as duckdb:
            body = {
                "descriptor": duckdb.table("shop", "orders").descriptor.serialize(),
                **_FILTERED,
            }
        with ContractClient(second.location) as client:
            assert client.action("endpoints", body, {})
        with ContractClient(third.location) as client:
            assert client.action_failure("endpoints", body, {}).code == "UNAUTHENTICATED"


def test_grants_count_at_the_moment_of_reading(server: sp.Server, client: ContractClient) -> None:
    """A ticket says who asked, not what that caller may do."""
    (endpoint,) = client.flight_info("lake.shop.orders", token("reader")).endpoints
    service = server._service
    object.__setattr__(
        service.settings, "policy", sp.Policy([sp.Grant(("reader",), "lake.shop", (LIST,))])
    )

    failure = client.failure("DoGet", ticket_message(endpoint.ticket.ticket), token("reader"))

    assert failure.code == "PERMISSION_DENIED"


# --------------------------------------------------------------------------- row filters and masks


@pytest.fixture
def part(server: sp.Server) -> Iterator[DuckDBClient]:
    """Sees the north, and no names in e-mail addresses."""
    with DuckDBClient(server.location, "lake", token="token-of-part", timeout=60) as client:
        yield client


SEEN = [(1, "north", "***@x.org"), (2, "north", "***@y.org")]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (None, [1, 2]),
        ("id > 1", [2]),
        ("region = 'south'", []),
        ("region IS NULL", []),
        ("email = 'bob@y.org'", []),
        ("email = '***@y.org'", [2]),
        ("email LIKE 'bob%' OR id = 1", [1]),
        ("id = 3", []),
        ("1 / (id - 3) > 0 OR true", [1, 2]),
        ("email NOT IN ('eve@z.org') AND id < 10", [1, 2]),
    ],
)
def test_a_filter_is_about_what_the_caller_sees(
    part: DuckDBClient, where: str | None, ids: list[int]
) -> None:
    assert [row[0] for row in rows(part.scan("shop", "orders", where=where))] == ids
    # As the server sends them, without the client's own filter: only rows that may be seen.
    assert {row[0] for row in rows(part.scan("shop", "orders", filter=None))} <= {1, 2}


def test_what_is_hidden_is_in_no_route(part: DuckDBClient, client: ContractClient) -> None:
    assert rows(part.scan("shop", "orders")) == SEEN
    assert rows(part.scan("shop", "orders", ["email"])) == [("***@x.org",), ("***@y.org",)]
    assert rows(part.scan("shop", "orders", ["id"])) == [(1,), (2,)]
    assert part.count("shop", "orders") == 2
    assert part.statistics("shop", "orders", "id") is None
    assert rows(part.scan("shop", "orders", at=("VERSION", "0"))) == SEEN
    info = client.flight_info("lake.shop.orders", token("part"))
    assert info.total_records == -1
    assert sorted(row["id"] for row in client.read(info, token("part"))) == [1, 2]
    assert part.scan("shop", "notes").num_rows == 4, "there is no rule about these"


def test_a_version_without_the_columns_of_a_rule_shows_nothing(
    server: sp.Server, client: ContractClient
) -> None:
    with DuckDBClient(server.location, "lake", token="token-of-everything", timeout=60) as admin:
        admin.rename_column("shop", "orders", "email", "address")
    with DuckDBClient(server.location, "lake", token="token-of-part", timeout=60) as part:
        assert list(part.tables("shop")) == ["notes"]
    for at in ({"at_unit": "", "at_value": ""}, {"at_unit": "VERSION", "at_value": "1"}):
        parameters = {**at, "json_filters": "", "column_ids": [0]}
        body = {"descriptor": path("lake", "shop", "orders").serialize(), "parameters": parameters}
        failure = client.action_failure("endpoints", body, token("part"))
        assert failure.code == "PERMISSION_DENIED"
        assert "ask its administrator" in failure.message
        assert "address" not in failure.message


def test_rows_come_back_as_the_caller_sees_them(part: DuckDBClient) -> None:
    new = pa.table({"id": [9], "region": ["north"], "email": ["new@n.org"]})

    inserted = part.insert("shop", "orders", new, returning=True)
    assert part.update("shop", "orders", {"id": "id + 100"}, "id = 1").total == 1
    deleted = part.delete("shop", "orders", "id = 2", returning=True)

    assert rows(inserted.rows) == [(9, "north", "***@n.org")]
    with pytest.raises(
        ServerError, match="masked for you: UPDATE cannot set it, nor have RETURNING"
    ):
        part.update("shop", "orders", {"id": "id + 100"}, "id = 9", returning=True)
    assert rows(deleted.rows) == [(2, "north", "***@y.org")]
    assert [row[0] for row in rows(part.scan("shop", "orders"))] == [9, 101]


@pytest.mark.parametrize("returning", [False, True])
def test_nobody_changes_what_it_does_not_see(
    server: sp.Server, part: DuckDBClient, returning: bool
) -> None:
    with DuckDBClient(server.location, "lake", token="token-of-everything", timeout=60) as admin:
        before = admin.scan("shop", "orders", ["id", "region", "email", "rowid"])
        row_ids = {row["id"]: row["rowid"] for row in before.to_pylist()}
        hidden, seen = row_ids[3], row_ids[1]

        def refused(statement: Callable[[], Any], match: str = "do not see") -> None:
            with pytest.raises(ServerError, match=match) as caught:
                statement()
            assert caught.value.code == "PERMISSION_DENIED"
            assert admin.scan("shop", "orders", ["id", "region", "email", "rowid"]).equals(before)

        south = pa.table({"id": [5], "region": ["south"], "email": ["e"]})
        refused(lambda: part.insert("shop", "orders", south, returning=returning))
        nowhere = pa.table({"id": [5], "region": pa.array([None], pa.string()), "email": ["e"]})
        refused(lambda: part.insert("shop", "orders", nowhere, returning=returning))
        refused(lambda: part.delete_rows("shop", "orders", [hidden], returning=returning))
        refused(lambda: part.delete_rows("shop", "orders", [12345], returning=returning))
        refused(lambda: part.delete_rows("shop", "orders", [seen, hidden], returning=returning))
        change = pa.table({"id": [7], "rowid": pa.array([hidden], pa.int64())})
        refused(lambda: part.update_rows("shop", "orders", change, returning=returning))
        take = pa.table({"region": ["north"], "rowid": pa.array([hidden], pa.int64())})
        refused(lambda: part.update_rows("shop", "orders", take, returning=returning))
        give = pa.table({"region": ["south"], "rowid": pa.array([seen], pa.int64())})
        refused(lambda: part.update_rows("shop", "orders", give, returning=returning))
        mask = pa.table({"email": ["***@x.org"], "rowid": pa.array([seen], pa.int64())})
        refused(
            lambda: part.update_rows("shop", "orders", mask, returning=returning),
            match="masked for you",
        )


def test_nobody_gets_rid_of_the_rules_about_itself(part: DuckDBClient) -> None:
    for statement in (
        lambda: part.rename_table("shop", "orders", "mine"),
        lambda: part.rename_column("shop", "orders", "email", "mine"),
        lambda: part.remove_column("shop", "orders", "email"),
        lambda: part.drop_table("shop", "orders"),
        lambda: part.change_column_type("shop", "orders", "email", pa.binary(), "email::BLOB"),
    ):
        with pytest.raises(ServerError, match="only part of") as caught:
            statement()
        assert caught.value.code == "PERMISSION_DENIED"
    assert rows(part.scan("shop", "orders")) == SEEN


def test_nobody_replaces_what_it_does_not_see(client: ContractClient) -> None:
    body = create_table_body(
        ORDERS.schema, schema_name="shop", table_name="orders", on_conflict="replace"
    )
    failure = client.action_failure("create_table", body, token("part"))

    assert failure.code == "PERMISSION_DENIED"
    assert client.rows("lake.shop.orders", token("everything")) == ORDERS.to_pylist()


def test_a_caller_without_the_attribute_sees_no_rows() -> None:
    lake = sp.MemoryCatalog("lake")
    lake.add_schema("shop").add_table(sp.MemoryTable("orders", ORDERS))
    rule = sp.RowFilter("lake.shop.orders", "region = $region OR list_contains($regions, region)")

    def authenticate(shown: str) -> sp.Identity:
        attributes: dict[str, dict[str, str | tuple[str, ...]]] = {
            "many": {"regions": ("north", "south")}
        }
        return sp.Identity(shown, attributes=attributes.get(shown, {}))

    settings = sp.ServerSettings(authenticate=authenticate, policy=sp.Policy(row_filters=[rule]))
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        for who, count in (("none", 0), ("many", 3)):
            with DuckDBClient(server.location, "lake", token=who, timeout=60) as client:
                assert client.count("shop", "orders") == count


@pytest.mark.parametrize(
    "rule",
    [
        "nonsense = 1",
        "id = $region",
        "1",
        "id",
        "(SELECT true)",
        "count(*) > 0",
        "CAST(email AS INTEGER) = 1",
        "id =",
    ],
)
def test_a_rule_that_cannot_be_applied_shows_nothing(rule: str) -> None:
    lake = sp.MemoryCatalog("lake")
    lake.add_schema("shop").add_table(sp.MemoryTable("orders", ORDERS))
    policy = sp.Policy(row_filters=[sp.RowFilter("lake.shop.orders", rule)])
    settings = sp.ServerSettings(
        authenticate=lambda _: sp.Identity("a", attributes={"region": "x"}), policy=policy
    )
    with (
        sp.Server(lake, "grpc://127.0.0.1:0", settings) as server,
        ContractClient(server.location) as client,
    ):
        if rule in ("1", "id"):  # DuckDB takes numbers for conditions
            assert (
                len(client.read(client.flight_info("lake.shop.orders", token("a")), token("a")))
                == 4
            )
            return
        with pytest.raises(grpc.RpcError) as caught:
            client.read(client.flight_info("lake.shop.orders", token("a")), token("a"))
        failure = failure_of(caught.value)
        assert failure.code == "PERMISSION_DENIED"
        assert "nonsense" not in failure.message


def test_masks_are_computed_for_every_type() -> None:
    everything = pa.table(
        {
            "text": ["a"],
            "number": pa.array([1], pa.uint8()),
            "day": pa.array([1], pa.date32()),
            "items": pa.array([[1, 2]], pa.list_(pa.int32())),
            "inner": pa.array([{"a": 1}], pa.struct([("a", pa.int64())])),
            "price": pa.array(["1.50"], pa.string()).cast(pa.decimal128(5, 2)),
        }
    ).cast(pa.schema([pa.field("text", pa.string(), nullable=False), *_rest()]))
    lake = sp.MemoryCatalog("lake")
    lake.add_schema("s").add_table(sp.MemoryTable("t", everything))
    masks = {
        "text": "NULL",
        "number": "7",
        "day": "DATE '2000-01-01'",
        "items": "[3]",
        "inner": "{'a': 9}",
        "price": "0",
    }
    policy = sp.Policy(
        masks=[sp.Mask("lake.s.t", column, value) for column, value in masks.items()]
    )
    settings = sp.ServerSettings(authenticate=lambda _: "a", policy=policy)
    with (
        sp.Server(lake, "grpc://127.0.0.1:0", settings) as server,
        DuckDBClient(server.location, "lake", token="a", timeout=60) as client,
    ):
        (row,) = client.scan("s", "t").to_pylist()
    assert (row["text"], row["number"], str(row["day"]), row["items"]) == (
        None,
        7,
        "2000-01-01",
        [3],
    )
    assert (row["inner"], str(row["price"])) == ({"a": 9}, "0.00")


def _rest() -> list[pa.Field]:
    return [
        pa.field("number", pa.uint8()),
        pa.field("day", pa.date32()),
        pa.field("items", pa.list_(pa.int32())),
        pa.field("inner", pa.struct([("a", pa.int64())])),
        pa.field("price", pa.decimal128(5, 2)),
    ]
