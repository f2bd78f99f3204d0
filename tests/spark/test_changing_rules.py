"""Rules that change between the plan of a scan and its rows: every route obeys the new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.server.logs import REQUEST
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient, ServerError

ROUTES = {
    "in_place": LakeSettings(in_place_bytes=1 << 40),
    "tasks": LakeSettings(in_place_bytes=-1, endpoint_bytes=1, endpoints=2),
}
ALL = sp.Grant(("ada",), "*", (Privilege.READ, Privilege.SPARK_SQL))
GRANTED = sp.Policy([ALL])
TAKEN_AWAY = sp.Policy(
    [
        sp.Grant(("ada",), "*", (Privilege.LIST,)),
        sp.Grant(("ada",), "*.*.spark_sql", (Privilege.SPARK_SQL,)),
    ]
)
IN_PART = sp.Policy(
    [ALL], [sp.RowFilter("*.**.orders", "id > 3")], [sp.Mask("*.**.orders", "email", "'e1'")]
)

REFUSED = ("PERMISSION_DENIED", "NOT_FOUND")

Attach = Callable[[sp.Policy], DuckDBClient]


@pytest.fixture
def attach(lake: LakeCatalog, warehouse: Path, namespace: str, request: Any) -> Iterator[Attach]:
    """Attach a lake in which GRANTED holds, until rows are asked for."""
    name = f"`{lake.spark_catalog}`.{namespace}"
    lake.spark.sql(f"CREATE TABLE {name}.orders (id BIGINT, email STRING) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name}.orders SELECT id, concat('e', id) FROM range(6)")
    lake.spark.sql(f"CREATE VIEW {name}.seen AS SELECT email FROM {name}.orders")
    later = [GRANTED]

    def policy() -> sp.Policy:
        call = REQUEST.get()
        return later[0] if call is not None and call.rpc == "DoGet" else GRANTED

    with LakeCatalog(
        warehouse, name="lake", spark_catalog=lake.spark_catalog, settings=ROUTES[request.param]
    ) as made:
        settings = sp.ServerSettings(authenticate=lambda _token: "ada", policy=policy)
        with (
            sp.Server(made, "grpc://127.0.0.1:0", settings) as server,
            DuckDBClient(server.location, "lake", token="t", timeout=60) as client,
        ):

            def attach(then: sp.Policy) -> DuckDBClient:
                later[0] = then
                return client

            yield attach


ASKED: dict[str, Callable[[DuckDBClient, str], Any]] = {
    "scan": lambda client, schema: client.scan(schema, "orders"),
    "view": lambda client, schema: client.scan(schema, "seen"),
    "spark_sql": lambda client, schema: client.table_function(
        schema, "spark_sql", "SELECT email FROM orders"
    ),
    "files": lambda client, schema: client.table_function(schema, "files", "orders"),
}


@pytest.mark.parametrize("attach", ROUTES, indirect=True)
def test_what_was_planned_before_goes_by_the_rules_of_now(attach: Attach, namespace: str) -> None:
    for name, ask in ASKED.items():
        assert ask(attach(GRANTED), namespace).num_rows > 0, name
        with pytest.raises(ServerError) as caught:
            ask(attach(TAKEN_AWAY), namespace)
        assert caught.value.code in REFUSED, name
        if name == "scan":
            rows = ask(attach(IN_PART), namespace).to_pylist()
            assert sorted(row["id"] for row in rows) == [4, 5]
            assert {row["email"] for row in rows} == {"e1"}, (
                "the client has asked for the bounds before, and would notice what lies outside"
            )
        else:
            with pytest.raises(ServerError) as caught:
                ask(attach(IN_PART), namespace)
            assert caught.value.code in REFUSED, name
