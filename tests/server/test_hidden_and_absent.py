"""A hidden object looks exactly like an absent one, on every route that names objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.contracts.contract_client import ContractClient, exchange_headers, flight_messages
from tests.server.naming_routes import (
    CATALOGS,
    CHANGING,
    DDL,
    DISCOVERY,
    FUNCTIONS,
    OWN,
    READING,
    ROWS,
    SCHEMAS,
    Headers,
    Named,
    Route,
)
from tests.server.raw_client import failure_of, ticket_message

import sparkport as sp
from sparkport.catalog import (
    Constraints,
    Context,
    DropSchemaOptions,
    DropTableOptions,
    Privilege,
    Table,
)
from sparkport.errors import PreconditionFailed
from sparkport.memory import MemorySchema
from sparkport.testing import DuckDBClient

EVERYTHING = tuple(Privilege)
PEOPLE = ("editor", "nobody")
AGENTS = {"DuckDB": {"airport-user-agent": "airport/20240820-03"}, "others": {}}
TABLES = {
    "table": (Named("lake", "shop", "salaries"), Named("lake", "shop", "nonesuch")),
    "table, in another case": (
        Named("lake", "shop", "SALARIES"),
        Named("lake", "shop", "NONESUCH"),
    ),
    "table that is broken": (Named("lake", "shop", "damaged"), Named("lake", "shop", "nothing")),
    "table of a schema": (Named("lake", "vault", "salaries"), Named("lake", "blank", "salaries")),
    "table of a schema, in another case": (
        Named("lake", "VAULT", "salaries"),
        Named("lake", "BLANK", "salaries"),
    ),
    "table of a schema that is broken": (
        Named("lake", "ruins", "salaries"),
        Named("lake", "blank", "salaries"),
    ),
    "table of a schema called main": (
        Named("lake", "main", "salaries"),
        Named("lake", "plan", "salaries"),
    ),
    "table of a schema that is shown as main_": (
        Named("lake", "main_", "salaries"),
        Named("lake", "plan_", "salaries"),
    ),
    "table of a catalog": (Named("sea", "shop", "salaries"), Named("sky", "shop", "salaries")),
}
FUNCTION = {
    "function": (Named("tools", "open", "secret"), Named("tools", "open", "absent")),
    "function of a schema": (Named("tools", "vault", "secret"), Named("tools", "blank", "secret")),
    "function of a catalog": (Named("sea", "shop", "secret"), Named("sky", "shop", "secret")),
}


class Fragile(MemorySchema):
    """One of whose tables cannot even be looked up."""

    def table(self, ctx: Context, name: str) -> Table | None:
        if name == "damaged" or self.name == "ruins":
            raise PreconditionFailed(
                f"table {self.name}.{name} cannot be read: one of its files is missing"
            )
        return super().table(ctx, name)


class FragileCatalog(sp.MemoryCatalog):
    def schema(self, ctx: Context, name: str) -> Any:
        if name == "ruins":
            raise PreconditionFailed("schema ruins is damaged")
        return super().schema(ctx, name)


def doubled(value: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
    return pc.multiply(value, 2)


def make_lake() -> sp.MemoryCatalog:
    lake = FragileCatalog("lake")
    constraints = Constraints(primary_key=("id",))
    shop = Fragile("shop")
    lake.add(shop)
    for name in ("orders", "salaries"):
        shop.add_table(sp.MemoryTable(name, ROWS, constraints=constraints))
    for schema in (lake.add_schema("vault"), lake.add_schema("main")):
        schema.add_table(sp.MemoryTable("salaries", ROWS, constraints=constraints))
    lake.add(Fragile("ruins"))
    for flight_name in (("secret",), ("secret", "x"), b"secret"):
        lake.add_flight(flight_name, sp.MemoryTable("secret", ROWS))
    return lake


def make_tools() -> sp.Catalog:
    tools = sp.CatalogBuilder("tools")
    visible = tools.schema("open")
    visible.scalar_function(doubled)
    for schema in (visible, tools.schema("vault")):

        @schema.table_function(returns=pa.schema([("n", pa.int64())]))
        def secret(value: pa.int64()) -> pa.Table:  # type: ignore[valid-type]
            return pa.table({"n": [value]})

    tools.action(lambda ctx, parameter: parameter, name="secret")
    return tools.build()


@pytest.fixture(scope="module")
def server() -> Iterator[sp.Server]:
    sea = sp.MemoryCatalog("sea")
    sea.add_schema("shop").add_table(sp.MemoryTable("salaries", ROWS))
    grants = [
        sp.Grant(("admin",), "*", EVERYTHING),
        sp.Grant(("editor",), "lake.shop.orders", EVERYTHING),
        sp.Grant(("editor",), "lake.shop.new*", EVERYTHING),
        sp.Grant(("editor",), "tools.open.doubled", (Privilege.READ,)),
    ]
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=sp.Policy(grants))
    catalogs = [make_lake(), sea, make_tools()]
    with sp.Server(catalogs, "grpc://127.0.0.1:0", settings) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: sp.Server) -> Iterator[ContractClient]:
    with ContractClient(server.location) as client:
        yield client


def token(who: str) -> Headers:
    return {"authorization": f"Bearer {who}"}


def outcome(route: Route, client: ContractClient, named: Named, headers: Headers) -> str:
    """All that a caller learns."""
    try:
        return repr(route(client, named, headers))
    except grpc.RpcError as error:
        return repr(failure_of(error))


def expect_alike(
    route: Route,
    client: ContractClient,
    pairs: dict[str, tuple[Named, Named]],
    people: Sequence[str] = PEOPLE,
) -> None:
    told = {}
    for kind, (hidden, absent) in pairs.items():
        for who in people:
            for agent, headers in AGENTS.items():
                found, missed = (
                    outcome(route, client, each, {**headers, **token(who)})
                    for each in (hidden, absent)
                )
                for name in ("catalog", "schema", "name"):
                    found = found.replace(getattr(hidden, name), getattr(absent, name))
                if found != missed:
                    told[kind, who, agent] = (found, missed)
    assert told == {}


@pytest.fixture(scope="module", autouse=True)
def unchanged(client: ContractClient) -> Iterator[None]:
    """After all of it everything is as it was."""
    titles = [
        f"lake.{schema}.{table}" for schema in ("shop", "vault", "main") for table in ("salaries",)
    ]
    yield
    for title in [*titles, "lake.shop.orders", "sea.shop.salaries"]:
        assert client.rows(title, token("admin")) == ROWS.to_pylist()


@pytest.mark.parametrize("route", [*READING, *CHANGING, *DDL])
def test_tables(client: ContractClient, route: str) -> None:
    expect_alike({**READING, **CHANGING, **DDL}[route], client, TABLES)


@pytest.mark.parametrize("route", SCHEMAS)
def test_schemas(client: ContractClient, route: str) -> None:
    expect_alike(
        SCHEMAS[route], client, {kind: pair for kind, pair in TABLES.items() if "of a" in kind}
    )


@pytest.mark.parametrize("route", CATALOGS)
def test_catalogs(client: ContractClient, route: str) -> None:
    expect_alike(CATALOGS[route], client, {"catalog": TABLES["table of a catalog"]})


@pytest.mark.parametrize("route", DISCOVERY)
def test_discovery(client: ContractClient, route: str) -> None:
    expect_alike(DISCOVERY[route], client, TABLES)


@pytest.mark.parametrize("route", FUNCTIONS)
def test_functions(client: ContractClient, route: str) -> None:
    expect_alike(FUNCTIONS[route], client, FUNCTION)


@pytest.mark.parametrize("route", OWN)
def test_flights_and_actions_of_a_catalogs_own(client: ContractClient, route: str) -> None:
    pair = {"of its own": (Named("lake", "", "secret"), Named("lake", "", "absent"))}
    expect_alike(OWN[route], client, pair)
    assert "Failure" not in outcome(OWN[route], client, pair["of its own"][0], token("admin")), (
        "it is there"
    )


@pytest.mark.parametrize(
    "route", ["GetSchema", "GetFlightInfo", "endpoints", "flight_info", "statistics"]
)
def test_what_is_hidden_is_there(client: ContractClient, route: str) -> None:
    """Else nothing would have been compared."""
    for kind in (
        "table",
        "table of a schema",
        "table of a schema called main",
        "table of a catalog",
    ):
        assert "Failure" not in outcome(READING[route], client, TABLES[kind][0], token("admin")), (
            kind
        )
    assert "missing" in outcome(
        READING[route], client, TABLES["table that is broken"][0], token("admin")
    )


# ---------------------------------------------------------------------- what was handed out before

GONE = {
    "table": (Named("lake", "shop", "salaries"), Named("lake", "shop", "nonesuch")),
    "schema": (Named("lake", "vault", "orders"), Named("lake", "blank", "orders")),
    "catalog": (Named("sea", "shop", "orders"), Named("sky", "shop", "orders")),
}


@pytest.mark.parametrize("kind", GONE)
def test_what_was_taken_away_is_like_what_was_dropped(kind: str) -> None:
    """Descriptors and tickets of both are good, by their signature."""
    catalogs = {name: sp.MemoryCatalog(name) for name in ("lake", "sea", "sky")}
    for names in GONE.values():
        for named in names:
            catalog = catalogs[named.catalog]
            schema: Any = catalog.schema(Context(), named.schema) or catalog.add_schema(
                named.schema
            )
            schema.add_table(sp.MemoryTable(named.name, ROWS))
    before = sp.Policy([sp.Grant(("ann",), "*", EVERYTHING)])
    after = sp.Policy([sp.Grant(("ann",), "lake.shop.orders", EVERYTHING)])
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=before)
    server = sp.Server(list(catalogs.values()), "grpc://127.0.0.1:0", settings)
    with server, ContractClient(server.location) as client:
        handles, tickets = {}, {}
        for named in GONE[kind]:
            with DuckDBClient(server.location, named.catalog, token="ann", timeout=60) as duckdb:
                handles[named] = duckdb.table(named.schema, named.name).descriptor
            (endpoint,) = client.endpoints(handles[named], [0], token("ann"))
            tickets[named] = ticket_message(endpoint.ticket.ticket)
        absent = GONE[kind][1]
        match kind:
            case "table":
                shop: Any = catalogs["lake"].schema(Context(), "shop")
                shop.drop_table(Context(), absent.name, DropTableOptions())
            case "schema":
                catalogs["lake"].drop_schema(
                    Context(), absent.schema, DropSchemaOptions(cascade=True)
                )
            case _:
                server.remove_catalog(absent.catalog)
        object.__setattr__(server._service.settings, "policy", after)

        def described(action: str, key: str = "descriptor", **further: Any) -> Route:
            return lambda c, n, h: c.action(action, {key: handles[n].serialize(), **further}, h)

        def exchanged(client: ContractClient, named: Named, headers: Headers) -> Any:
            sent = {**exchange_headers("insert"), **headers}
            return client.call("DoExchange", flight_messages(handles[named], ROWS), sent)

        routes: dict[str, Route] = {
            "endpoints": lambda c, n, h: c.endpoints(handles[n], [0], h),
            "flight_info": described("flight_info", at_unit="VERSION", at_value="0"),
            "statistics": described(
                "column_statistics", "flight_descriptor", column_name="id", type="BIGINT"
            ),
            "GetFlightInfo": lambda c, n, h: c.call("GetFlightInfo", handles[n].serialize(), h),
            "exchange": exchanged,
            "DoGet": lambda c, n, h: c.call("DoGet", tickets[n], h),
        }
        for route in routes.values():
            expect_alike(route, client, {kind: GONE[kind]}, ["ann"])
