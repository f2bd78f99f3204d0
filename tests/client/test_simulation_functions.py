"""Function calls of the client simulation against an honest server: results and requests."""

import datetime
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import msgpack
import pyarrow as pa
import pytest
from tests.client.flight_double import CATALOG
from tests.client.function_double import Function, FunctionDouble, result

from sparkport.testing import ClientSideError, DuckDBClient, ProtocolViolation


@pytest.fixture
def server() -> Iterator[FunctionDouble]:
    with FunctionDouble() as double:
        yield double
        double.released.set()


@pytest.fixture
def client(server: FunctionDouble) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, CATALOG) as client:
        yield client


# -------------------------------------------------------------------------------- scalar functions


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 2048, 5000])
def test_a_scalar_function_has_a_result_for_every_row_in_order(client, rows, threads):
    called = client.call("sales", "twice", {"x": range(rows)}, threads=threads)

    assert called.type == pa.int64()
    assert called.to_pylist() == [2 * value for value in range(rows)]


def test_arguments_are_columns_in_any_form(client):
    for arguments in (
        {"any name": [1, None]},
        pa.table({"n": [1, None]}),
        pa.record_batch({"n": [1, None]}),
        [pa.array([1, None])],
        [pa.chunked_array([[1], [None]], pa.int16())],
    ):
        assert client.call("sales", "twice", arguments).to_pylist() == [2, None]


def test_names_of_functions_have_no_case(client):
    assert client.call("Sales", "TWICE", {"x": [1]}).to_pylist() == [2]


@pytest.mark.parametrize(
    ("argument", "chosen"),
    [
        (pa.array([1]), "BIGINT"),
        (pa.array([1], pa.int32()), "BIGINT"),
        (pa.array([1], pa.uint64()), "DOUBLE"),
        (pa.array([1.5]), "DOUBLE"),
        (pa.array([Decimal("1.5")]), "DOUBLE"),
        (pa.array(["x"]), "VARCHAR"),
        (pa.array(["x"]).dictionary_encode(), "VARCHAR"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_the_types_of_the_arguments_choose_the_overload(client, argument, chosen):
    assert client.call("sales", "kind", [argument]).to_pylist() == [chosen]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (
            "twice",
            {"x": ["1"]},
            r"Binder Error: No function matches .*'shop.sales.twice\(VARCHAR\)'",
        ),
        (
            "twice",
            {"x": [1], "y": [1]},
            r"Binder Error: No function matches .*'shop.sales.twice\(BIGINT, BIGINT\)'",
        ),
        (
            "twice",
            {"x": [1.5]},
            r"Binder Error: No function matches .*Candidate "
            r"functions:\n\tshop.sales.twice\(BIGINT\)",
        ),
        ("kind", [pa.array([datetime.date(2020, 1, 1)])], "Binder Error: No function matches"),
        ("nosuch", {"x": [1]}, "Catalog Error: Scalar Function with name nosuch does not exist"),
        ("numbers", {"x": [1]}, "Catalog Error: Scalar Function with name numbers does not exist"),
    ],
)
def test_duckdb_refuses_what_no_overload_takes(client, function, arguments, message):
    with pytest.raises(ClientSideError, match=f"(?s){message}"):
        client.call("sales", function, arguments)


def test_duckdb_refuses_to_choose_between_overloads_of_the_same_cost():
    functions = [
        Function("f", "scalar_function", [("x", kind)], result(kind), None)
        for kind in (pa.int16(), pa.uint16())
    ]
    with FunctionDouble(*functions) as server, DuckDBClient(server.location, CATALOG) as client:
        with pytest.raises(ClientSideError, match="Binder Error: No function matches"):
            client.call("sales", "f", {"x": [1]})
        with pytest.raises(
            ClientSideError, match="Binder Error: Could not choose a best candidate function"
        ):
            client.call("sales", "f", [pa.array([1], pa.uint8())])


def test_a_parameter_of_any_type_gets_the_argument_as_duckdb_encodes_it(server, client):
    calls = {
        "int32: 1": pa.array([1], pa.int32()),
        "string: x": pa.array(["x"], pa.large_string()),
        "extension<arrow.bool8>: True": pa.array([True]),
        "list<l: int64>: [1]": pa.array([[1]]),
    }
    for shown, argument in calls.items():
        assert client.call("sales", "shown", [argument]).to_pylist() == [shown]
    with DuckDBClient(server.location, CATALOG, arrow_lossless=False) as lossy:
        assert lossy.call("sales", "shown", {"x": [True]}).to_pylist() == ["bool: True"]


def test_buffers_that_are_not_of_the_declared_type_are_noticed(server, client):
    ids = [uuid.UUID(int=5)]
    with pytest.raises(
        ProtocolViolation, match="parameter 'x': with its settings DuckDB sends"
    ) as caught:
        client.call("sales", "not", {"x": [True]})
    assert caught.value.trap == "T32"
    assert client.call("sales", "id_text", [pa.array(ids, pa.uuid())]).to_pylist() == [str(ids[0])]
    with DuckDBClient(server.location, CATALOG, arrow_lossless=False) as lossy:
        assert lossy.call("sales", "not", {"x": [True]}).to_pylist() == [False]
        with pytest.raises(ProtocolViolation) as caught:
            lossy.call("sales", "id_text", [pa.array(ids, pa.uuid())])
        assert caught.value.trap == "T32"


@pytest.mark.parametrize(
    ("declared", "argument"),
    [
        (
            pa.timestamp("us", "Europe/Berlin"),
            pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("us", "UTC")),
        ),
        (pa.list_(pa.field("item", pa.int64())), pa.array([[1, 2]])),
        (pa.struct([("a", pa.string())]), pa.array([{"a": "x"}])),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        ),
        (pa.list_(pa.int32(), 2), pa.array([[1, 2]], pa.list_(pa.int32(), 2))),
        (pa.decimal128(10, 2), pa.array([Decimal("1.5")])),
    ],
    ids=str,
)
def test_buffers_go_under_the_declared_schema(declared, argument):
    seen: list[pa.Array] = []

    def kept(array: pa.Array) -> list[int]:
        seen.append(array)
        return [1] * len(array)

    parameter = pa.field("x", declared, nullable=False, metadata={"note": "is sent, too"})
    function = Function("f", "scalar_function", [parameter], result(pa.int8()), kept)
    with FunctionDouble(function) as server, DuckDBClient(server.location, CATALOG) as client:
        client.call("sales", "f", [argument])

    assert seen[0].type == declared
    assert (
        str(seen[0].to_pylist()[0]).partition(" ")[0]
        == str(argument.cast(declared).to_pylist()[0]).partition(" ")[0]
    )


def test_a_function_without_parameters_is_told_how_many_rows(client):
    assert client.call("sales", "seven", [], rows=3000).to_pylist() == [7] * 3000
    with pytest.raises(ValueError, match="rows="):
        client.call("sales", "seven", [])
    with pytest.raises(ValueError, match="columns of"):
        client.call("sales", "twice", {"x": [1]}, rows=2)


def test_duckdb_knows_the_result_of_null_by_itself(server, client):
    assert client.call("sales", "twice", [pa.nulls(2)]).to_pylist() == [None, None]
    assert not [name for name, _ in server.calls if name == "DO_EXCHANGE"]


def test_two_threads_have_two_exchanges_open_at_once(server, client):
    begun = threading.Semaphore(0)

    def overlapping(honest: Callable[..., None]) -> Callable[..., None]:
        def run(reader: Any, writer: Any) -> None:
            assert reader.schema is not None
            writer.begin(result(pa.int64()))
            begun.release()
            # Only the other exchange can let this one go on.
            assert other(begun)
            for chunk in reader:
                writer.write_batch(chunk.data.rename_columns(["result"]))

        return run

    def other(semaphore: threading.Semaphore) -> bool:
        deadline = time.monotonic() + 60
        while semaphore._value < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        return semaphore._value == 2

    server.spoil["scalar"] = overlapping

    assert client.call("sales", "twice", {"x": range(10)}, threads=2).to_pylist() == list(range(10))


# --------------------------------------------------------------------------------- table functions


def test_a_table_function_is_scanned_like_a_table(client):
    assert client.table_function("sales", "numbers", 3).to_pylist() == [
        {"n": 0, "text": "0"},
        {"n": 1, "text": "1"},
        {"n": 2, "text": "2"},
    ]
    chosen = client.table_function(
        "sales", "numbers", 9, named={"STEP": 2}, columns=["text"], where="n > 12"
    )
    assert chosen.to_pylist() == [{"text": "14"}, {"text": "16"}]
    assert client.table_function("sales", "numbers", 5000, limit=7).num_rows == 7
    assert (
        client.table_function(
            "sales", "numbers", 5, where=lambda rows: [True, *[False] * 4]
        ).num_rows
        == 1
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.int32()),
        (2**40, pa.int64()),
        (1.5, pa.float64()),
        (Decimal("55.07"), pa.decimal128(4, 2)),
        ("x", pa.string()),
        (b"x", pa.binary()),
        (True, pa.bool8()),
        (None, pa.null()),
        (datetime.date(2020, 1, 1), pa.date32()),
        ([1, 2], pa.list_(pa.field("l", pa.int32()))),
        ({"a": 1, "b": "x"}, pa.struct([("a", pa.int32()), ("b", pa.string())])),
        (uuid.UUID(int=7), pa.uuid()),
        (pa.scalar(1), pa.int64()),
        (pa.scalar("x", pa.large_string()), pa.string()),
        (pa.scalar(uuid.UUID(int=7).bytes, pa.binary(16)), pa.binary()),
    ],
    ids=repr,
)
def test_an_argument_of_any_type_has_the_type_that_duckdb_gives_it(client, value, kind):
    if value is None and duckdb.__version__.startswith("1."):
        pytest.skip("DuckDB 1 makes an INTEGER of a column that is only NULL")
    echoed = client.table_function("sales", "echo", value)

    assert echoed.schema.field("value").type == kind
    assert echoed.column("value").to_pylist() == [
        value.as_py() if isinstance(value, pa.Scalar) else value
    ]


@pytest.mark.parametrize(
    ("function", "arguments", "named", "message"),
    [
        (
            "numbers",
            ["3"],
            {},
            r"Binder Error: No function matches .*'shop.sales.numbers\(VARCHAR\)'",
        ),
        ("numbers", [], {}, r"Binder Error: No function matches .*'shop.sales.numbers\(\)'"),
        (
            "numbers",
            [1],
            {"nosuch": 1},
            'Binder Error: Invalid named parameter "nosuch" for function numbers',
        ),
        (
            "tagged",
            ["x"],
            {},
            r"Binder Error: No function matches .*\n\tshop.sales.tagged\(VARCHAR, TABLE\)",
        ),
        ("twice", [1], {}, "Catalog Error: Table Function with name twice does not exist"),
        ("echo", [object()], {}, "object"),
    ],
)
def test_duckdb_refuses_calls_of_table_functions(client, function, arguments, named, message):
    with pytest.raises(ClientSideError, match=f"(?s){message}"):
        client.table_function("sales", function, *arguments, named=named)


# -------------------------------------------------------------------------------- in/out functions


@pytest.mark.parametrize("rows", [0, 1, 2047, 2048, 5000])
def test_rows_go_through_an_in_out_function(client, rows):
    out = client.in_out(
        "sales", "tagged", "x", rows=pa.table({"i": pa.array(range(rows), pa.int64())})
    )

    assert out.column("i").to_pylist() == [*range(rows), None]
    assert out.column("label").to_pylist() == ["x"] * rows + ["last"]


def test_an_in_out_function_may_have_many_rows_for_one(client):
    out = client.in_out(
        "sales",
        "repeated",
        5,
        rows=pa.record_batch({"i": range(2048)}),
        where="i % 2 = 1 AND i < 10",
    )

    assert out.column("i").to_pylist() == [1, 3, 5, 7, 9] * 5


def test_filters_of_an_in_out_function_are_bound_to_all_its_columns(server, client):
    client.in_out(
        "sales", "tagged", "x", rows=pa.table({"i": [1], "j": [2]}), where="j = 2 AND label = 'x'"
    )

    sent = msgpack.unpackb(dict(server.bodies)["in_out"], raw=True)
    pushed = json.loads(sent[b"json_filters"])
    assert pushed["column_binding_names_by_index"] == ["label", "i", "j"]
    assert sorted(_bound_columns(pushed["filters"])) == [0, 2]


def _bound_columns(value: Any) -> Iterator[int]:
    if isinstance(value, dict) and value.get("expression_class") == "BOUND_COLUMN_REF":
        yield value["binding"]["column_index"]
    for element in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _bound_columns(element)


def test_neither_input_nor_output_is_collected(client):
    taken = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield pa.record_batch({"i": [number] * 2048})

    batches = client.in_out_batches("sales", "tagged", "x", rows=source())
    read = [next(batches).num_rows for _ in range(5)]
    assert sum(read) <= 5 * 2048
    assert taken <= 6
    batches.close()  # as for LIMIT
    assert taken <= 6
    assert client.in_out("sales", "tagged", "x", rows=pa.table({"i": [1]})).num_rows == 2


def test_the_server_takes_a_failing_subquery_for_the_end_of_the_rows(server, client):
    ended = threading.Event()

    def watching(honest: Callable[..., None]) -> Callable[..., None]:
        def run(reader: Any, writer: Any) -> None:
            honest(reader, writer)
            ended.set()

        return run

    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"i": [1]})
        raise RuntimeError("boom")

    server.spoil["in_out"] = watching
    with pytest.raises(RuntimeError, match="boom"):
        client.in_out("sales", "tagged", "x", rows=source())
    assert ended.wait(60)


def test_an_input_without_batches_needs_a_schema(client):
    schema = pa.schema([("i", pa.int64())])
    with pytest.raises(ValueError, match="schema"):
        client.in_out("sales", "tagged", "x", rows=[])
    reader = pa.RecordBatchReader.from_batches(schema, [])
    assert client.in_out("sales", "tagged", "x", rows=reader).column("label").to_pylist() == [
        "last"
    ]


# ----------------------------------------------------------------------------------------- headers


def test_only_scalar_functions_carry_the_transaction(server, client):
    client.functions("sales")
    server.calls.clear()
    client.call("sales", "twice", {"x": [1]})
    client.table_function("sales", "numbers", 1)
    client.in_out("sales", "tagged", "x", rows=pa.table({"i": [1]}))

    def with_transaction(headers: dict[str, list[str]]) -> bool:
        return "airport-transaction-id" in headers

    operations = {
        headers["airport-operation"][0]: headers
        for _, headers in server.calls
        if "airport-operation" in headers
    }
    assert with_transaction(operations["scalar_function"])
    assert [
        operation for operation, headers in operations.items() if with_transaction(headers)
    ] == ["scalar_function"]
    others = [headers for name, headers in server.calls if name == "DO_GET"]
    others += [
        headers
        for _, headers in server.calls
        if headers.get("airport-action-name") == ["endpoints"]
    ]
    assert len(others) == 2
    assert not any(map(with_transaction, others))
    assert "catalog_version" not in [name for name, _ in server.bodies]


def test_a_scan_shares_its_trace_with_the_binding_and_an_exchange_has_its_own(server, client):
    client.table_function("sales", "numbers", 1)
    client.in_out("sales", "tagged", "x", rows=pa.table({"i": [1]}))

    traces = [
        headers["airport-trace-id"][0]
        for _, headers in server.calls
        if "airport-trace-id" in headers
    ]
    assert traces[0] == traces[1] == traces[2]
    assert len(set(traces[2:])) == 3
