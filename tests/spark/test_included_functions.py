"""Python functions in the schemas of a lake: `LakeCatalog.include` and `--into`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.spark.cluster import ServerProcess

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.errors import AlreadyExists, BadRequest
from sparkport.spark import LakeCatalog
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

GRANTS = [
    sp.Grant(("admin",), "*", (Privilege.READ, Privilege.WRITE, Privilege.ALTER)),
    sp.Grant(("reader",), "included.sales", (Privilege.READ,)),
    sp.Grant(("clerk",), "included.sales.orders", (Privilege.READ,)),
    sp.Grant(("clerk",), "included.sales.counted", (Privilege.READ,)),
    sp.Grant(("lister",), "included", (Privilege.LIST,)),
]
POLICY = sp.Policy(
    GRANTS, [], [sp.Mask("included.sales.orders", "amount", "0", ("reader", "clerk"))]
)


def functions() -> sp.CatalogBuilder:
    builder = sp.CatalogBuilder("functions")
    sales = builder.schema("sales", comment="not the lake's")
    tools = builder.schema("tools", comment="What the server adds")

    @sales.scalar_function
    def gross(net: pa.float64(), rate: pa.float64() = 0.2) -> pa.float64():  # type: ignore[valid-type]
        return pc.multiply(net, pc.add(1.0, rate))

    @sales.table_function(returns=pa.schema([("n", pa.int64())]))
    def numbers(count: pa.int64()) -> pa.Table:  # type: ignore[valid-type]
        return pa.table({"n": pa.array(range(count), pa.int64())})

    @sales.table_function(returns=pa.schema([("total", pa.float64())]))
    def counted(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        total = sum(pc.sum(each["amount"]).as_py() or 0.0 for each in rows)
        yield pa.record_batch({"total": [float(total)]})

    @tools.scalar_function
    def twice(value: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
        return pc.multiply(value, 2)

    return builder


@pytest.fixture(scope="module")
def attach(lake: LakeCatalog, tmp_path_factory) -> Iterator[Callable[[str], DuckDBClient]]:
    """Attaches a lake with a schema `sales` and functions, as a given user."""
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY)
    with ExitStack() as stack:
        made = stack.enter_context(
            LakeCatalog(tmp_path_factory.mktemp("included"), name="included")
        )
        made.include(functions())
        server = stack.enter_context(sp.Server(made, "grpc://127.0.0.1:0", settings))

        def attach(who: str = "admin") -> DuckDBClient:
            client = DuckDBClient(server.location, "included", token=who, timeout=60)
            return stack.enter_context(client)

        admin = attach().attach()
        admin.create_schema("sales")
        admin.create_table("sales", "orders", {"id": "INTEGER", "amount": "DOUBLE"})
        admin.insert(
            "sales", "orders", pa.table({"id": pa.array([1], pa.int32()), "amount": [5.0]})
        )
        yield attach


def test_functions_appear_in_the_lakes_schema_beside_its_own(attach):
    client = attach().attach()

    orders = client.scan("sales", "orders", ["amount"])
    assert client.call("sales", "gross", [orders["amount"]]).to_pylist() == [6.0]
    assert client.table_function("sales", "numbers", 3)["n"].to_pylist() == [0, 1, 2]
    assert client.in_out("sales", "counted", rows=orders)["total"].to_pylist() == [5.0]
    assert client.table_function("sales", "history", "orders").num_rows > 0
    assert set(client.tables("sales")) == {"orders"}


def test_a_schema_that_the_lake_lacks_has_functions_only_until_it_is_made(attach):
    client = attach().attach()
    assert set(client.schemas()) == {"sales", "tools"}
    assert client.call("tools", "twice", [pa.array([4])]).to_pylist() == [8]
    assert list(client.tables("tools")) == []
    with pytest.raises(ServerError, match="CREATE SCHEMA tools makes it a schema of the lake"):
        client.create_table("tools", "t", {"a": "INTEGER"})
    with pytest.raises(ServerError, match="cannot be dropped"):
        client.drop_schema("tools")

    client.create_schema("tools")
    client.create_table("tools", "t", {"a": "INTEGER"})
    client = attach().attach()

    assert client.call("tools", "twice", [pa.array([4])]).to_pylist() == [8]
    assert list(client.tables("tools")) == ["t"]
    client.drop_table("tools", "t")
    client.drop_schema("tools")
    assert "tools" in attach().attach().schemas()


def test_grants_count_for_included_functions_as_for_others(attach):
    def called(who: str, call: Callable[[DuckDBClient], Any]) -> bool:
        try:
            call(attach(who).attach())
        except (ClientSideError, ServerError):
            return False
        return True

    calls: dict[str, Callable[[DuckDBClient], Any]] = {
        "gross": lambda client: client.call("sales", "gross", [pa.array([1.0])]),
        "numbers": lambda client: client.table_function("sales", "numbers", 1),
        "counted": lambda client: client.in_out(
            "sales", "counted", rows=pa.table({"amount": [1.0]})
        ),
        "twice": lambda client: client.call("tools", "twice", [pa.array([1])]),
    }
    allowed = {
        who: {name for name, call in calls.items() if called(who, call)}
        for who in ("admin", "reader", "clerk", "lister", "stranger")
    }

    assert allowed == {
        "admin": set(calls),
        "reader": {"gross", "numbers", "counted"},
        "clerk": {"counted"},
        "lister": set(),
        "stranger": set(),
    }


def test_functions_see_what_the_caller_may_see(attach):
    client = attach("clerk").attach()

    rows = client.scan("sales", "orders")
    assert client.in_out("sales", "counted", rows=rows)["total"].to_pylist() == [0.0]


def with_function(name: str, schema: str = "sales") -> sp.CatalogBuilder:
    builder = sp.CatalogBuilder("functions")

    @builder.schema(schema).scalar_function(name=name)
    def function(value: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
        return value

    return builder


@pytest.mark.parametrize("name", ["spark_sql", "Lake_Begin", "upsert", "history", "table_changes"])
def test_the_name_of_a_built_in_function_is_refused(lake, tmp_path, name):
    with (
        LakeCatalog(tmp_path, name="refusing") as made,
        pytest.raises(AlreadyExists, match=f"sales.{name}: every schema of a lake has a function"),
    ):
        made.include(with_function(name))


def test_a_name_is_included_once_and_a_refused_catalog_adds_nothing(lake, tmp_path):
    with LakeCatalog(tmp_path, name="refusing") as made:
        made.include(with_function("mine")).include(with_function("mine", "other"))
        both = with_function("new", "before")
        both.schema("Sales").scalar_function(name="MINE", returns=pa.int64())(lambda: None)

        with pytest.raises(AlreadyExists, match="was included already"):
            made.include(both)
        assert [each.name for each in made.schemas(sp.Context())] == ["sales", "other"]


def test_what_is_no_function_is_refused(lake, tmp_path):
    with_table, with_action, with_flight = (sp.CatalogBuilder("functions") for _ in range(3))
    with_table.schema("sales").table("orders", pa.table({"a": [1]}))
    with_action.action(lambda ctx, parameter: None, name="reload")
    with_flight.flight(["reports", "today"], pa.table({"a": [1]}))
    with LakeCatalog(tmp_path, name="refusing") as made:
        for builder, what in (
            (with_table, "table sales.orders"),
            (with_action, "action reload"),
            (with_flight, "flight reports/today"),
        ):
            with pytest.raises(BadRequest, match=f"has the {what}: only functions can be added"):
                made.include(builder)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(280)
def test_the_command_line_adds_functions_to_a_lake(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "functions.py"
    flags = ["--warehouse", f"{tmp_path}/lake", "--demo", f"{example}:catalog", "--into", "lake"]
    with (
        ServerProcess(flags, {}, tmp_path / "log") as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        client.attach()

        assert set(client.schemas()) == {"demo", "maths"}
        assert client.call("maths", "gross", {"net": [100.0]}).to_pylist() == [120.0]
        assert client.table_function("maths", "countdown", 3)["n"].to_pylist() == [3, 2, 1]
