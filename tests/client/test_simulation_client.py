"""The client simulation against an honest server: what it returns, and what it refuses to send."""

import base64
import hashlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from tests.client.flight_double import (
    CATALOG,
    NOTHING,
    FlightDouble,
    app_metadata,
    described,
    inline,
    orders,
)

from sparkport import testing
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

NAME = ("sales", "orders")


@pytest.fixture
def server() -> Iterator[FlightDouble]:
    with FlightDouble() as double:
        yield double


@pytest.fixture
def client(server: FlightDouble) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, CATALOG) as client:
        yield client


def actions(server: FlightDouble) -> list[str]:
    return [name for name, _ in server.bodies]


# ----------------------------------------------------------------------------------------- catalog


def test_v1_4_lists_at_attach_and_main_at_first_use(server):
    with DuckDBClient(server.location, CATALOG, line="main") as client:
        client.attach()
        assert actions(server) == []
        client.count(*NAME)
        assert actions(server) == [
            "create_transaction",
            "list_schemas",
            "catalog_version",
            "endpoints",
        ]
    server.bodies.clear()
    server.calls.clear()
    with DuckDBClient(server.location, CATALOG, line="v1.4") as client:
        client.attach()
        assert actions(server) == ["list_schemas"]
        client.count(*NAME)
        assert actions(server)[1:] == ["create_transaction", "catalog_version", "endpoints"]
    assert not any("airport-catalog" in headers for _, headers in server.calls)


def test_a_table_is_shown_as_duckdb_shows_it(client):
    table = client.tables("sales")["orders"]

    shown = [
        (column.name, column.type, column.nullable, column.default, column.comment)
        for column in table.columns
    ]
    assert shown == [
        ("id", "BIGINT", False, None, None),
        ("name", "VARCHAR", True, "'nobody'", "who"),
        ("amount", "DOUBLE", True, None, None),
    ]
    assert table.rowid is not None
    assert table.rowid.field.name == "row"
    assert table.checks == ("amount >= 0",)


def test_empty_and_duplicate_column_names_are_replaced(server, client):
    fields = [pa.field(name, pa.int64()) for name in ("", "a", "A", "a")]
    server.tables[NAME] = pa.schema(fields).empty_table()

    assert [column.name for column in client.table(*NAME).columns] == ["v0", "a", "A_1", "a_2"]


def test_the_catalog_is_cached_until_it_is_attached_again(server, client):
    assert list(client.tables("sales")) == ["orders"]
    server.tables["sales", "later"] = orders(1)

    assert list(client.tables("sales")) == ["orders"]
    client.detach()
    client.attach()
    assert list(client.tables("sales")) == ["orders", "later"]


def test_lookup_is_case_insensitive_and_unknown_names_are_duckdbs_own_errors(client):
    assert client.count("SALES", "Orders") == 5
    with pytest.raises(ClientSideError, match="does not exist"):
        client.scan("sales", "nothing")
    with pytest.raises(ClientSideError, match="does not exist"):
        client.scan("nowhere", "orders")
    with pytest.raises(ClientSideError, match="not found"):
        client.scan(*NAME, ["nothing"])


def test_contents_may_come_by_list_flights(server, client):
    server.spoil["contents"] = lambda honest: NOTHING

    assert list(client.tables("sales")) == ["orders"]
    headers = next(headers for method, headers in server.calls if method == "LIST_FLIGHTS")
    assert headers["airport-list-flights-filter-catalog"] == [CATALOG]
    assert headers["airport-list-flights-filter-schema"] == ["sales"]


def test_contents_may_come_in_a_bundle(server, client):
    contents = inline(server.infos("sales"))
    bundle = msgpack.packb([[contents["sha256"], contents["serialized"]]])
    outer = {"sha256": hashlib.sha256(bundle).hexdigest(), "url": None, "serialized": bundle}
    server.spoil["contents"] = lambda honest: {**honest, "serialized": None}
    server.spoil["root"] = lambda root: {**root, "contents": outer}

    assert list(client.tables("sales")) == ["orders"]


def test_contents_may_come_from_a_url(server, client):
    body = inline(server.infos("sales"))["serialized"]

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Files) as files:
        threading.Thread(target=files.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{files.server_port}/contents"
        server.spoil["contents"] = lambda honest: {**honest, "serialized": None, "url": url}

        assert list(client.tables("sales")) == ["orders"]


def test_functions_are_listed(server, client):
    parameters = pa.schema(
        [pa.field("x", pa.float64()), pa.field("y", pa.null(), metadata={"is_any_type": "1"})]
    )
    metadata = app_metadata(
        "tax",
        type="scalar_function",
        input_schema=parameters.serialize().to_pybytes(),
        extra_data=msgpack.packb({"stability": "consistent"}),
    )
    result = pa.schema([("result", pa.float64())])
    server.spoil["infos"] = lambda honest: [
        *honest,
        described(result, flight.FlightDescriptor.for_path("f"), metadata),
    ]

    (function,) = client.functions("sales")
    assert (function.name, function.stability, function.input_schema.names) == (
        "tax",
        "consistent",
        ["x", "y"],
    )


# ----------------------------------------------------------------------------------------- reading


def test_rows_of_several_endpoints_come_together(server, client):
    server.tables[NAME] = orders(5000)
    server.endpoint_count = 7

    assert client.scan(*NAME).column("id").to_pylist() == list(range(5000))
    assert sum(method == "DO_GET" for method, _ in server.calls) == 7
    traces = {
        headers["airport-trace-id"][0] for method, headers in server.calls if method == "DO_GET"
    }
    assert len(traces) == 1


def test_no_endpoints_are_no_rows(server, client):
    server.endpoint_count = 0

    assert client.scan(*NAME).num_rows == 0


def test_a_condition_is_pushed_down_and_applied_again(server, client):
    found = client.scan(*NAME, ["name"], where="id > 2 AND amount < 2")

    assert found.to_pydict() == {"name": ["n3"]}
    parameters = msgpack.unpackb(server.bodies[-1][1], raw=True)[b"parameters"]
    assert parameters[b"column_ids"] == [0, 2, 1]
    assert b'"column_binding_names_by_index":["id","amount"]' in parameters[b"json_filters"]
    assert b"COMPARE_GREATERTHAN" in parameters[b"json_filters"]


def test_a_filter_of_ones_own_is_sent_as_it_is(server, client):
    for text in ("", "not JSON", '{"filters":[],"column_binding_names_by_index":["amount"]}'):
        assert client.scan(*NAME, ["id"], filter=text).num_rows == 5
        assert (
            msgpack.unpackb(server.bodies[-1][1], raw=True)[b"parameters"][b"json_filters"]
            == text.encode()
        )


def test_a_function_as_condition_is_not_pushed_down(server, client):
    found = client.scan(
        *NAME, ["id"], where=lambda rows: [row > 2 for row in rows.column("id").to_pylist()]
    )

    assert found.column("id").to_pylist() == [3, 4]
    assert b'"filters":[]' in server.bodies[-1][1]


def test_a_limit_cancels_what_is_left(server, client):
    server.tables[NAME] = orders(50_000)

    assert client.scan(*NAME, limit=10).num_rows == 10


def test_an_endpoint_elsewhere_is_read_there(server, client):
    with FlightDouble(3) as other:
        server.spoil["locations"] = lambda honest: [other.location]

        assert client.count(*NAME) == 3
        assert [method for method, _ in other.calls] == ["DO_GET"]
        assert other.calls[0][1]["authority"] == [server.location]


def test_data_uris_are_read_by_duckdb_itself(server, client, tmp_path: Path):
    file = tmp_path / "orders.parquet"
    server.tables[NAME] = orders(5).drop_columns("row")
    pq.write_table(server.tables[NAME].drop_columns("amount"), file)
    body = msgpack.packb({"format": "parquet", "uri": str(file)})
    server.spoil["locations"] = lambda honest: ["data:application/msgpack;base64," + _base64(body)]

    assert client.scan(*NAME, ["id", "amount"]).to_pydict() == {
        "id": [0, 1, 2, 3, 4],
        "amount": [None] * 5,
    }

    arguments = pa.table({"arg_0": [str(file)], "file_row_number": [False]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arguments.schema) as writer:
        writer.write_table(arguments)
    call = msgpack.packb({"function_name": "read_parquet", "data": sink.getvalue().to_pybytes()})
    prefix = "data:application/x-msgpack-duckdb-function-call;base64,"
    server.spoil["locations"] = lambda honest: [prefix + _base64(call)]

    assert client.count(*NAME) == 5


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def test_statistics_are_read(server, client):
    assert client.statistics(*NAME, "id") is None
    client.detach()
    server.spoil["arrow_schema"] = lambda schema: schema.with_metadata(
        {"can_produce_statistics": "1"}
    )

    found = client.statistics(*NAME, "id")
    assert found is not None
    assert (found.minimum.as_py(), found.maximum.as_py(), found.contains_unicode) == (0, 4, False)
    assert client.scan(*NAME).num_rows == 5


# ---------------------------------------------------------------------------------------- changing


def test_insert_fills_defaults_and_sends_batches_of_2048(server, client):
    inserted = client.insert(*NAME, pa.table({"id": range(10, 5010)}), returning=True)

    assert inserted.total == 5000
    assert inserted.rows is not None
    assert inserted.rows.column("name").unique().to_pylist() == ["nobody"]
    assert server.tables[NAME].num_rows == 5005


def test_insert_takes_batches_as_they_come(server, client):
    batches = (pa.record_batch({"ID": [number]}) for number in range(10, 13))

    assert client.insert(*NAME, batches).total == 3
    assert server.tables[NAME].column("id").to_pylist()[5:] == [10, 11, 12]


def test_duckdb_refuses_what_it_can_check_itself(server, client):
    with pytest.raises(ClientSideError, match="NOT NULL constraint failed"):
        client.insert(*NAME, {"name": ["x"]})
    with pytest.raises(ClientSideError, match="CHECK constraint failed"):
        client.insert(*NAME, {"id": [1], "amount": [-1.0]})
    with pytest.raises(ClientSideError, match="does not have a column"):
        client.insert(*NAME, {"nothing": [1]})
    with pytest.raises(ClientSideError, match="Conversion Error"):
        client.insert(*NAME, {"id": ["x"]})
    assert server.tables[NAME].num_rows == 5


def test_a_statement_that_fails_in_the_client_looks_like_success_to_the_server(server, client):
    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [10]})
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        client.insert(*NAME, source())

    assert server.tables[NAME].num_rows == 6


def test_update_sends_set_columns_and_the_row_id(server, client):
    assert (
        client.update(
            *NAME, {"amount": "amount * 2", "name": lambda rows: ["x"] * rows.num_rows}
        ).total
        == 5
    )
    assert server.tables[NAME].column("amount").to_pylist() == [0, 1, 2, 3, 4]
    assert client.update(*NAME, {"name": 7}, where="id = 1").total == 1
    assert server.tables[NAME].column("name").to_pylist() == ["x", "7", "x", "x", "x"]

    updated = client.update(*NAME, {"name": "upper(name)"}, where="id < 2", returning=True)
    assert updated.rows is not None
    assert updated.rows.to_pydict() == {"id": [0, 1], "name": ["X", "7"], "amount": [0.0, 1.0]}


def test_rows_of_ones_own_need_no_scan(server, client):
    assert client.update_rows(*NAME, pa.table({"rowid": [3], "amount": [9]})).total == 1
    assert client.delete_rows(*NAME, [0, 1], returning=True).total == 2
    assert server.tables[NAME].column("amount").to_pylist() == [1.0, 9.0, 2.0]
    assert "endpoints" not in actions(server)


def test_without_a_row_id_rows_cannot_be_changed(server, client):
    server.tables[NAME] = orders(5).drop_columns("row")

    for statement in (lambda: client.update(*NAME, {"name": "NULL"}), lambda: client.delete(*NAME)):
        with pytest.raises(ClientSideError, match="T39"):
            statement()


def test_the_exchange_opens_before_the_scan(server, client):
    client.delete(*NAME, where="id = 1")

    methods = [method for method, _ in server.calls if method != "DO_ACTION"]
    assert methods == ["DO_EXCHANGE", "DO_GET"]
    exchange = next(headers for method, headers in server.calls if method == "DO_EXCHANGE")
    assert (exchange["airport-operation"], exchange["return-chunks"]) == (["delete"], ["0"])


def test_a_block_has_one_transaction_and_its_end_sends_nothing(server, client):
    client.schemas()
    server.bodies.clear()
    server.calls.clear()

    client.begin()
    client.count(*NAME)
    client.insert(*NAME, {"id": [10]})
    client.commit()
    client.count(*NAME)

    assert actions(server).count("create_transaction") == 2
    sent = [
        headers["airport-transaction-id"][0]
        for _, headers in server.calls
        if "airport-transaction-id" in headers
    ]
    assert sent[0] == sent[1] == sent[2] != sent[-1]


def test_the_token_of_attach_is_not_sent_with_scans_and_writes(server):
    with DuckDBClient(server.location, CATALOG, attach_token="secret") as client:
        client.count(*NAME)
        client.insert(*NAME, {"id": [10]})

    with_token = {
        headers.get("airport-action-name", [method])[0]
        for method, headers in server.calls
        if "authorization" in headers
    }
    assert with_token == {"create_transaction", "list_schemas", "catalog_version"}


def test_dropping_what_the_client_does_not_know_sends_nothing(server, client):
    client.drop_table("sales", "nothing", if_exists=True)

    assert "drop_table" not in actions(server)
    with pytest.raises(ClientSideError, match="does not exist"):
        client.drop_table("sales", "nothing")


def test_user_headers_go_with_take_flight_alone(server):
    with DuckDBClient(server.location, CATALOG, user_headers={"x-team": "a"}) as client:
        assert client.take_flight([CATALOG, "sales", "table", "orders"]).column_names == [
            "id",
            "name",
            "amount",
        ]
        client.count(*NAME)

    assert [method for method, headers in server.calls if "x-team" in headers] == [
        "GET_FLIGHT_INFO",
        "DO_ACTION",
        "DO_GET",
    ]


def test_errors_of_concurrent_calls_are_not_mixed_up(server):
    def spoil(honest: Any) -> Any:
        raise flight.FlightUnauthorizedError("not you")

    server.spoil["rows"] = spoil

    def run(number: int) -> str:
        with DuckDBClient(server.location, CATALOG) as client:
            if number % 2:
                return str(list(client.schemas()))
            with pytest.raises(ServerError) as caught:
                client.count(*NAME)
            return caught.value.code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(run, range(40))) == {"PERMISSION_DENIED", "['sales']"}


# ------------------------------------------------------------------------------------- the package


def test_the_simulation_shares_no_code_with_the_server_it_judges():
    sources = sorted(Path(testing.__file__).parent.rglob("*.py"))
    imported = {
        name
        for source in sources
        for name in re.findall(
            r"^\s*(?:from|import) (sparkport[\w.]*)", source.read_text("utf-8"), re.MULTILINE
        )
    }

    assert sources
    imported.remove("sparkport.engine.validation")  # looks at Arrow's buffers, and decodes nothing
    assert {".".join(name.split(".")[:2]) for name in imported} == {
        "sparkport.catalog",
        "sparkport.errors",
        "sparkport.testing",
    }


def test_the_client_works_without_pytest():
    program = (
        "import sys; sys.modules['pytest'] = None; "
        "from sparkport.testing import DuckDBClient; print('fine')"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout.strip(), done.returncode) == ("fine", 0), done.stderr


@pytest.mark.parametrize("name", testing.__all__)
def test_every_public_name_has_a_docstring(name):
    assert (getattr(testing, name).__doc__ or "").strip()
