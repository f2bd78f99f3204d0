"""Function calls of the simulation equal the recorded calls, headers, bodies and messages."""

import base64
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pytest
from tests.client.function_double import ANY, NAMED, TABLE, Function, FunctionDouble, result
from tests.client.raw_flight import action_of, batch_message, raw_flight, schema_message
from tests.client.raw_flight import result as action_result
from tests.client.replay.recording import Call, load

from sparkport.testing import DuckDBClient

TOKEN = "test-token"
VOLATILE = ("airport-client-session-id", "airport-trace-id", "airport-transaction-id", "authority")
WIDE = pa.schema([(f"result_{number}", pa.int32()) for number in range(20)])


def scalar(name: str, parameters: list[Any], kind: pa.DataType) -> Function:
    return Function(
        name, "scalar_function", parameters, result(kind), lambda *columns: [None] * len(columns[0])
    )


def table(name: str, parameters: list[Any], returns: Any) -> Function:
    return Function(
        name, "table_function", parameters, returns, lambda arguments, schema: schema.empty_table()
    )


FREE = pa.field("input", pa.null(), metadata=ANY)
FUNCTIONS = [
    scalar("test_uppercase", [("a", pa.string())], pa.string()),
    scalar("test_add", [("a", pa.int64()), ("b", pa.int64())], pa.int64()),
    scalar("test_any_type", [FREE.with_name("a")], pa.string()),
    scalar("test_time", [], pa.int64()),
    scalar("collatz_sequence", [("n", pa.int64())], pa.list_(pa.int64())),
    table("test_echo", [("input", pa.string())], result(pa.string())),
    table("test_repeat", [("input", pa.string()), ("count", pa.int32())], result(pa.string())),
    table("test_dynamic_schema", [FREE], lambda arguments, rows: arguments.schema),
    table(
        "test_dynamic_schema_named_parameters",
        [
            ("name", pa.string()),
            pa.field("location", pa.string(), metadata=NAMED),
            FREE,
            ("city", pa.string()),
        ],
        lambda arguments, rows: arguments.schema,
    ),
    table("test_wide", [("count", pa.int32())], WIDE),
    table(
        "test_long",
        [("input", pa.string())],
        pa.schema([("result", pa.string()), ("result2", pa.string())]),
    ),
    Function(
        "test_table_in_out_long",
        "table_function",
        [TABLE],
        lambda _, rows: rows,
        lambda *_: iter(()),
    ),
]


def call(name: str, *columns: pa.Array, **options: Any) -> Callable[[DuckDBClient], Any]:
    return lambda client: client.call("utils", name, list(columns), **options)


def select(name: str, *arguments: Any, **options: Any) -> Callable[[DuckDBClient], Any]:
    return lambda client: client.table_function("utils", name, *arguments, **options)


def numbers(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array(range(count), kind)


STATEMENTS: list[tuple[str, str, Callable[[DuckDBClient], Any]]] = [
    (
        "scalar_function",
        "SELECT utils.test_uppercase('constant')",
        call("test_uppercase", pa.array(["constant"])),
    ),
    (
        "scalar_function",
        "SELECT utils.test_add(i, 10) FROM range(5) r(i)",
        call("test_add", numbers(5, pa.int64()), pa.array([10] * 5, pa.int32())),
    ),
    (
        "scalar_function",
        "SELECT utils.test_any_type(true)",
        call("test_any_type", pa.array([True])),
    ),
    ("scalar_function", "SELECT utils.test_time()", call("test_time", rows=1)),
    (
        "scalar_function",
        "SELECT utils.collatz_sequence(6)",
        call("collatz_sequence", pa.array([6], pa.int32())),
    ),
    ("table_function", "SELECT * FROM utils.test_echo('hello')", select("test_echo", "hello")),
    ("table_function", "SELECT * FROM utils.test_echo(NULL)", select("test_echo", None)),
    ("table_function", "SELECT * FROM utils.test_repeat('x', 3)", select("test_repeat", "x", 3)),
    (
        "table_function",
        "SELECT * FROM utils.test_dynamic_schema(55.07)",
        select("test_dynamic_schema", Decimal("55.07")),
    ),
    (
        "table_function",
        "SELECT * FROM utils.test_dynamic_schema({'a': 1, 'b': [1,2]})",
        select("test_dynamic_schema", {"a": 1, "b": [1, 2]}),
    ),
    (
        "table_function",
        "SELECT * FROM utils.test_dynamic_schema_named_parameters('Elliott', 555.2222, "
        "'Princeton', location='Main Street')",
        select(
            "test_dynamic_schema_named_parameters",
            "Elliott",
            Decimal("555.2222"),
            "Princeton",
            named={"location": "Main Street"},
        ),
    ),
    (
        "table_function",
        "SELECT * FROM utils.test_dynamic_schema_named_parameters('Elliott', 1, 'Princeton')",
        select("test_dynamic_schema_named_parameters", "Elliott", 1, "Princeton"),
    ),
    (
        "table_function",
        "SELECT * FROM utils.test_long('x') LIMIT 1",
        select("test_long", "x", limit=1),
    ),
    (
        "table_in_out_function",
        "SELECT count(*) FROM utils.test_table_in_out_long((SELECT i FROM range(5000) r(i)))",
        lambda client: client.in_out(
            "utils", "test_table_in_out_long", rows=pa.table({"i": numbers(5000, pa.int64())})
        ),
    ),
]


def recorded(scenario: str, sql: str) -> list[Call]:
    (found,) = [step.calls for step in load(scenario).steps if step.sql == sql]
    return found


@pytest.fixture
def server() -> Iterator[FunctionDouble]:
    with FunctionDouble(*FUNCTIONS, catalog="cat", schema="utils", joined_path=True) as double:
        double.spoil["create_transaction"] = lambda honest: [msgpack.packb({"identifier": None})]
        yield double


@pytest.mark.parametrize(
    ("scenario", "sql", "act"), STATEMENTS, ids=[sql for _, sql, _ in STATEMENTS]
)
def test_a_call_sends_what_the_real_client_sends(scenario, sql, act, server):
    expected = recorded(scenario, sql)
    with DuckDBClient(server.location, "cat", token=TOKEN) as client:
        client.schemas()
        server.calls.clear()
        server.bodies.clear()
        act(client)

    assert [_method(name) for name, _ in server.calls] == [each.method for each in expected]
    for (_, sent), each in zip(server.calls, expected, strict=True):
        assert _comparable(sent) == _comparable(each.headers)
    sent = [body for action, body in server.bodies if action != "in_out"]
    assert sent == [each.body for each in expected if each.method == "DoAction"]


def test_filter_and_projection_of_a_table_function_are_those_of_the_real_client(server):
    expected = recorded(
        "table_function", "SELECT result_3, result_5 FROM utils.test_wide(4) WHERE result_6 > 5"
    )
    with DuckDBClient(server.location, "cat", token=TOKEN) as client:
        client.table_function(
            "utils", "test_wide", 4, columns=["result_3", "result_5"], where="result_6 > 5"
        )

    bodies = [body for action, body in server.bodies if action == "endpoints"]
    sent, due = (
        msgpack.unpackb(body, raw=True)[b"parameters"] for body in (bodies[0], expected[2].body)
    )
    assert {key: value for key, value in sent.items() if key != b"json_filters"} == {
        key: value for key, value in due.items() if key != b"json_filters"
    }
    # DuckDB 2 writes comparisons otherwise, and the simulation binds only the condition's columns.
    names = b'"column_binding_names_by_index":["result_6","result_3","result_5"]'
    assert names in due[b"json_filters"]
    assert b'"column_binding_names_by_index":["result_6"]' in sent[b"json_filters"]


def _method(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _comparable(headers: Any) -> dict[str, list[str]]:
    """Values by name; identifiers and addresses count only as being there."""
    listed = {
        name: value if isinstance(value, list) else [value] for name, value in headers.items()
    }
    return {
        name: ["…"] if name in VOLATILE else values
        for name, values in listed.items()
        if name != "user-agent"
    }


# ---------------------------------------------------------------------------------------- messages


EXCHANGES = [each for each in STATEMENTS if each[0] != "table_function"]


@pytest.mark.parametrize(
    ("scenario", "sql", "act"), EXCHANGES, ids=[sql for _, sql, _ in EXCHANGES]
)
def test_the_messages_of_an_exchange_are_those_of_the_real_client(scenario, sql, act, server):
    expected = recorded(scenario, sql)[-1]
    received: list[bytes] = []
    in_out = expected.operation == "table_function_in_out"

    def do_action(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        name = action_of(request)
        body = (
            msgpack.unpackb(recorded(scenario, sql)[1].body, raw=True)
            if name.startswith("table_function")
            else {}
        )
        answer = getattr(server, f"action_{name}")(
            {key.decode(): value for key, value in body.items()}
        )
        yield action_result(
            msgpack.packb({"identifier": None}) if name == "create_transaction" else answer[0]
        )

    def do_exchange(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        received.extend(next(requests) for _ in range(3 if in_out else 2))
        (function,) = [each for each in FUNCTIONS if f".{each.name}(" in sql]
        schema = expected.sent_schema if in_out else function.returns
        yield schema_message(schema)
        for request in requests:
            received.append(request)
            # A single row is broadcast; no row at all ends the answer of an in/out function.
            yield batch_message(
                pa.RecordBatch.from_pylist([] if in_out else [{}], schema=schema), b"chunk_finished"
            )

    with (
        raw_flight(DoAction=do_action, DoExchange=do_exchange) as location,
        DuckDBClient(location, "cat") as client,
    ):
        act(client)

    kept = [message for message in expected.messages if isinstance(message, bytes)]
    same = [message for message in received if message in kept]
    assert len(received) == len(expected.messages)
    assert [base64.b64encode(message) for message in same] == [
        base64.b64encode(message) for message in kept
    ]
