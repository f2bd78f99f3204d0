"""Hidden objects of the lake look, word for word, like absent ones.

Functions of tables and every other route are tested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from tests.contracts.contract_client import ContractClient
from tests.server.naming_routes import CHANGING, DDL, DISCOVERY, READING, ROWS, SCHEMAS, Named
from tests.server.raw_client import failure_of

import sparkport as sp
from sparkport.catalog import Context, DropTableOptions, Privilege
from sparkport.spark import LakeCatalog
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

SCHEMA, VAULT, OTHER = "half_open", "vaults", "opened"
OF_TABLES: dict[str, tuple[Any, ...]] = {
    "snapshots": (),
    "files": (),
    "history": (),
    "table_changes": (0,),
    "table_changes from to": (0, 1),
    "optimize": (),
    "expire_snapshots": (),
    "rollback_to": (0,),
    "tag": ("mine",),
}
MERGING = ("upsert", "merge_delete")
KEYS = ROWS.select(["id"])
PAIRS = {
    "table": ("secrets", "nothing"),
    "table of this schema": (f"{SCHEMA}.secrets", f"{SCHEMA}.nothing"),
    "table, in another case": ("SECRETS", "NOTHING"),
    "table of another schema": (f"{VAULT}.gold", f"{VAULT}.lead"),
    "schema": (f"{VAULT}.gold", "wallet.gold"),
    "table that is broken": ("damaged", "nothing"),
    "view": ("viewing", "nothing"),
}


@pytest.fixture(scope="module")
def server(lake: LakeCatalog, warehouse: Path) -> Iterator[sp.Server]:
    functions = {each.split()[0] for each in (*OF_TABLES, *MERGING)}
    grants = [
        sp.Grant(("admin",), "*", tuple(Privilege)),
        *(
            sp.Grant(("reader",), f"*.{SCHEMA}.{name}", tuple(Privilege))
            for name in ("orders", *functions)
        ),
        sp.Grant(("reader",), f"*.{OTHER}", tuple(Privilege)),
    ]
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=sp.Policy(grants))
    with LakeCatalog(warehouse, spark_catalog=lake.spark_catalog) as catalog:
        _fill(catalog)
    for path in _folder(catalog, "damaged").rglob("*.metadata.json"):
        path.unlink()
    with (
        LakeCatalog(
            warehouse, spark_catalog=lake.spark_catalog
        ) as catalog,  # it has cached nothing of the files that are gone
        sp.Server(catalog, "grpc://127.0.0.1:0", settings) as server,
        ContractClient(server.location) as client,
    ):
        damaged = Named("lake", SCHEMA, "damaged").bytes
        assert (
            "missing"
            in client.failure("GetSchema", damaged, {"authorization": "Bearer admin"}).message
        )
        yield server
        schema: Any = catalog.schema(Context(), SCHEMA)
        schema.drop_table(Context(), "damaged", DropTableOptions())


def _fill(catalog: LakeCatalog) -> None:
    with (
        sp.Server(catalog, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "lake", timeout=60) as admin,
    ):
        for schema, tables in (
            (SCHEMA, ("orders", "secrets", "damaged")),
            (VAULT, ("gold",)),
            (OTHER, ("shown",)),
        ):
            admin.create_schema(schema)
            for table in tables:
                admin.create_table(
                    schema, table, {"id": "BIGINT", "st": "STRUCT(a BIGINT)"}, primary_key=["id"]
                )
                admin.insert(schema, table, ROWS)
        admin.create_table(SCHEMA, f"{OTHER}.shown", {"id": "BIGINT"})
    name = f"`{catalog.spark_catalog}`.{SCHEMA}"
    catalog.spark.sql(f"CREATE VIEW {name}.viewing AS SELECT * FROM {name}.secrets")


def _folder(catalog: LakeCatalog, table: str) -> Path:
    schema: Any = catalog.schema(Context(), SCHEMA)
    location = schema.table(Context(), table).state.metadata_location
    return Path(re.sub("^file:/+", "/", location)).parent


@pytest.fixture(scope="module")
def reader(server: sp.Server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "lake", token="reader", timeout=60) as client:
        yield client


def failed(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        answer = call()
    except ServerError as error:
        return error.code, error.message
    except ClientSideError as error:
        return "the client", str(error)
    return "nothing failed", str(answer)


def called(
    client: DuckDBClient, function: str, table: str, arguments: tuple[Any, ...] = ()
) -> tuple[str, str]:
    if function in MERGING:
        return failed(lambda: client.in_out(SCHEMA, function, table, "id", rows=KEYS))
    return failed(
        lambda: client.table_function(SCHEMA, function.partition(" ")[0], table, *arguments)
    )


@pytest.mark.parametrize("function", [*OF_TABLES, *MERGING])
def test_functions_that_take_the_name_of_a_table(reader: DuckDBClient, function: str) -> None:
    for kind, (hidden, absent) in PAIRS.items():
        found = called(reader, function, hidden, OF_TABLES.get(function, ()))
        code, message = called(reader, function, absent, OF_TABLES.get(function, ()))
        assert (found[0], found[1].replace(hidden, absent)) == (code, message), kind
        assert (code, message) == ("NOT_FOUND", f"table {absent} does not exist")


def test_what_is_hidden_is_not_in_the_way_of_what_is_not(
    server: sp.Server, reader: DuckDBClient
) -> None:
    """For callers who may see it, a table of this schema with a dot in its name comes first."""
    assert reader.table_function(SCHEMA, "snapshots", f"{OTHER}.shown").num_rows == 1
    with DuckDBClient(server.location, "lake", token="admin", timeout=60) as admin:
        assert admin.table_function(SCHEMA, "snapshots", f"{OTHER}.shown").num_rows == 0


@pytest.mark.parametrize("function", ["snapshots", "optimize"])
def test_the_same_by_the_contracts_requests(server: sp.Server, function: str) -> None:
    with ContractClient(server.location) as client:

        def ask(table: str, schema: str = SCHEMA) -> tuple[str, str]:
            body = {"catalog": "lake", "schema": schema, "name": function, "parameters": [table]}
            failure = client.action_failure(
                "table_function_flight_info", body, {"authorization": "Bearer reader"}
            )
            return failure.code, failure.message

        for kind, (hidden, absent) in PAIRS.items():
            code, message = ask(hidden)
            assert (code, message.replace(hidden, absent)) == ask(absent), kind
        code, message = ask("gold", VAULT)
        assert (code, message.replace(VAULT, "wallet")) == ask("gold", "wallet")


ROUTES = {**READING, **CHANGING, **DDL, **SCHEMAS, **DISCOVERY}
NAMED = {
    "table": ("secrets", "nothing"),
    "table, in another case": ("SECRETS", "NOTHING"),
    "table that is broken": ("damaged", "nothing"),
    "view": ("viewing", "nothing"),
}


@pytest.mark.parametrize("agent", ["airport/20240820-03", "another"])
def test_every_other_route(server: sp.Server, agent: str) -> None:
    pairs = [
        (Named("lake", SCHEMA, hidden), Named("lake", SCHEMA, absent))
        for hidden, absent in NAMED.values()
    ]
    pairs.append((Named("lake", VAULT, "gold"), Named("lake", "wallet", "gold")))
    told = {}
    with ContractClient(server.location) as client:

        def outcome(route: str, named: Named) -> str:
            try:
                headers = {"authorization": "Bearer reader", "airport-user-agent": agent}
                return repr(ROUTES[route](client, named, headers))
            except grpc.RpcError as error:
                return repr(failure_of(error))

        for route in ROUTES:
            for hidden, absent in pairs if route not in SCHEMAS else pairs[-1:]:
                found, missed = outcome(route, hidden), outcome(route, absent)
                if (
                    found.replace(hidden.name, absent.name).replace(hidden.schema, absent.schema)
                    != missed
                ):
                    told[route, hidden] = found, missed
    assert told == {}


def test_nothing_has_changed(server: sp.Server) -> None:
    with DuckDBClient(server.location, "lake", token="admin", timeout=60) as admin:
        for schema, table in (
            (SCHEMA, "orders"),
            (SCHEMA, "secrets"),
            (VAULT, "gold"),
            (OTHER, "shown"),
        ):
            assert admin.scan(schema, table).equals(
                pa.table(ROWS).cast(admin.scan(schema, table).schema)
            )
