"""The client simulation catches every misbehaviour of functions, each by its name."""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.client.flight_double import CATALOG, described
from tests.client.function_double import NAMED, NUMBERS, Function, FunctionDouble, result
from tests.client.hanging import hangs

from sparkport.testing import ClientHang, DuckDBClient, ProtocolViolation, ServerError

Run = Callable[[Any, Any], None]
TEXTS = pa.schema([("label", pa.string()), ("i", pa.int64())])


@pytest.fixture
def server() -> Iterator[FunctionDouble]:
    with FunctionDouble() as double:
        yield double
        double.released.set()


@pytest.fixture
def client(server: FunctionDouble) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, CATALOG) as client:
        yield client


def refused(trap: str, act: Callable[[], Any]) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        act()
    assert caught.value.trap == trap, caught.value
    return caught.value


def honest_again(server: FunctionDouble, client: DuckDBClient) -> None:
    """Nothing of the failure stays behind: the next call goes well."""
    server.spoil.clear()
    assert client.call("sales", "twice", {"x": [1]}).to_pylist() == [2]


# -------------------------------------------------------------------------------- scalar functions


def results(count: int, schema: pa.Schema | None = None) -> pa.RecordBatch:
    schema = schema or result(pa.int64())
    return pa.RecordBatch.from_arrays([pa.array([5] * count, schema.field(0).type)], schema=schema)


def answering(*counts: int) -> Run:
    """A server that answers each batch with batches of so many rows."""

    def run(reader: Any, writer: Any) -> None:
        writer.begin(result(pa.int64()))
        for _ in reader:
            for count in counts:
                writer.write_batch(results(count))

    return run


def with_schema(schema: pa.Schema) -> Run:
    def run(reader: Any, writer: Any) -> None:
        writer.begin(schema)
        for chunk in reader:
            writer.write_batch(results(chunk.data.num_rows, schema))

    return run


def metadata_alone(reader: Any, writer: Any) -> None:
    writer.begin(result(pa.int64()))
    for _ in reader:
        writer.write_metadata(b"here")


def ending(reader: Any, writer: Any) -> None:
    writer.begin(result(pa.int64()))
    next(reader)


def failing_at_the_end(reader: Any, writer: Any) -> None:
    answering(1)(reader, writer)
    raise flight.FlightServerError("too late")


def invalid(reader: Any, writer: Any) -> None:
    writer.begin(result(pa.string()))
    for _ in reader:
        text = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        )
        writer.write_batch(pa.RecordBatch.from_arrays([text], schema=result(pa.string())))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(answering(2), "garbage at the end", id="fewer rows"),
        pytest.param(answering(0), "garbage at the end", id="no rows"),
        pytest.param(answering(4), "dropped", id="more rows"),
        pytest.param(answering(3, 3), "shifted", id="two batches"),
        pytest.param(ending, "the DuckDB process would crash", id="end of the stream"),
        pytest.param(metadata_alone, "the DuckDB process would crash", id="metadata alone"),
        pytest.param(failing_at_the_end, "nobody sees the error", id="error at the end"),
        pytest.param(
            with_schema(pa.schema([("other", pa.int64())])), "Schema equality", id="other name"
        ),
        pytest.param(with_schema(result(pa.int32())), "Schema equality", id="other type"),
        pytest.param(
            with_schema(pa.schema([pa.field("result", pa.int64(), nullable=False)])),
            "Schema equality",
            id="not nullable",
        ),
        pytest.param(
            with_schema(pa.schema([("result", pa.int64()), ("more", pa.int64())])),
            "Schema equality",
            id="two columns",
        ),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_wrong_results_are_noticed(server, client, run, message, threads):
    server.spoil["scalar"] = lambda honest: run

    violation = refused(
        "§9.1", lambda: client.call("sales", "twice", {"x": range(3 * threads)}, threads=threads)
    )

    assert message in str(violation)
    assert not isinstance(violation, ClientHang)
    honest_again(server, client)


def test_a_result_that_is_no_valid_array_is_noticed(server, client):
    server.spoil["scalar"] = lambda honest: invalid

    assert "not valid" in str(refused("§9.1", lambda: client.call("sales", "shown", {"x": [1]})))


def test_one_row_is_broadcast_as_by_the_real_client(server, client):
    server.spoil["scalar"] = lambda honest: answering(1)

    assert client.call("sales", "twice", {"x": range(3000)}).to_pylist() == [5] * 3000


def test_metadata_of_the_schema_and_of_results_is_ignored(server, client):
    def run(reader: Any, writer: Any) -> None:
        writer.begin(result(pa.int64()).with_metadata({"k": "v"}))
        for chunk in reader:
            writer.write_with_metadata(results(chunk.data.num_rows), b"whatever")

    server.spoil["scalar"] = lambda honest: run

    assert client.call("sales", "twice", {"x": [1, 2]}).to_pylist() == [5, 5]


def waiting_for_a_batch(reader: Any, writer: Any) -> None:
    next(reader)
    writer.begin(result(pa.int64()))


def silent(server: FunctionDouble) -> Run:
    def run(reader: Any, writer: Any) -> None:
        writer.begin(result(pa.int64()))
        next(reader)
        server.released.wait(60)

    return run


def test_a_server_that_waits_for_a_batch_before_its_schema_is_a_hang(server, client):
    server.spoil["scalar"] = lambda honest: waiting_for_a_batch

    hangs(client, "T15", lambda: client.call("sales", "twice", {"x": [1]}))
    honest_again(server, client)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_server_that_does_not_answer_is_a_hang(server, client, threads):
    server.spoil["scalar"] = lambda honest: silent(server)

    hangs(client, "§9.1", lambda: client.call("sales", "twice", {"x": [1, 2]}, threads=threads))


def test_a_dictionary_as_result_is_noticed():
    function = Function(
        "f", "scalar_function", [], result(pa.dictionary(pa.int8(), pa.string())), None
    )
    with FunctionDouble(function) as server, DuckDBClient(server.location, CATALOG) as client:
        refused("T33", lambda: client.call("sales", "f", [], rows=1))


# ------------------------------------------------------------------------------------------ errors

TYPED = {"exception_type": "InvalidInputException", "message": "not a number"}


def failing(before: int) -> Run:
    """A server that fails after so many batches."""

    def run(reader: Any, writer: Any) -> None:
        scalar = reader.schema.names == ["x"]
        writer.begin(result(pa.int64()) if scalar else TEXTS)
        for _ in range(before):
            writer.write_batch(results(next(reader).data.num_rows))
        next(reader)
        raise flight.FlightServerError("not a number", extra_info=msgpack.packb(TYPED))

    return run


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("before", [0, 1])
def test_an_error_of_a_scalar_function_is_typed(server, client, before, threads):
    server.spoil["scalar"] = lambda honest: failing(before)

    with pytest.raises(ServerError) as caught:
        client.call("sales", "twice", {"x": range(10000)}, threads=threads)

    assert (caught.value.duckdb_exception, caught.value.message) == (
        "InvalidInputException",
        "not a number",
    )
    honest_again(server, client)


def test_an_error_before_the_schema_may_be_noticed_in_writing_and_is_then_not_typed(server, client):
    def run(reader: Any, writer: Any) -> None:
        raise flight.FlightServerError("not a number", extra_info=msgpack.packb(TYPED))

    server.spoil["scalar"] = lambda honest: run

    with pytest.raises(ServerError) as caught:
        client.call("sales", "twice", {"x": [1]})
    assert caught.value.message == "not a number"
    honest_again(server, client)


def test_an_error_of_an_in_out_function_is_typed(server, client):
    def run(reader: Any, writer: Any) -> None:
        next(reader)
        failing(0)(reader, writer)

    server.spoil["in_out"] = lambda honest: run

    with pytest.raises(ServerError) as caught:
        client.in_out("sales", "tagged", "x", rows=pa.table({"i": range(10000)}))

    assert caught.value.shown == "Invalid Input Error: not a number"
    honest_again(server, client)


def test_an_error_of_binding_is_not_typed(server, client):
    def spoil(honest: bytes) -> bytes:
        raise flight.FlightServerError("not a number", extra_info=msgpack.packb(TYPED))

    server.spoil["bind"] = spoil

    with pytest.raises(ServerError) as caught:
        client.table_function("sales", "numbers", 1)
    assert caught.value.duckdb_exception is None
    assert caught.value.shown.startswith("IO Error: Airport @ ")


# ----------------------------------------------------------------------------------------- binding


def changed(**values: Any) -> Callable[[bytes], bytes]:
    def spoil(honest: bytes) -> bytes:
        info = flight.FlightInfo.deserialize(honest)
        return described(
            values.get("schema", info.schema), values.get("descriptor", info.descriptor), None
        )

    return spoil


ROWID = pa.field("row", pa.int64(), metadata={"is_rowid": "1"})


@pytest.mark.parametrize(
    ("trap", "spoil"),
    [
        pytest.param(
            "T42",
            changed(descriptor=flight.FlightDescriptor.for_command(b"x")),
            id="other descriptor",
        ),
        pytest.param(
            "T33",
            changed(schema=pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))])),
            id="a dictionary column",
        ),
        pytest.param(
            "§9.2",
            changed(schema=NUMBERS.with_metadata({"can_produce_statistics": "1"})),
            id="statistics",
        ),
        pytest.param("§9.2", changed(schema=NUMBERS.append(ROWID)), id="a row id"),
        pytest.param("§9.2", changed(schema=pa.schema([])), id="no columns"),
        pytest.param(
            "T9",
            changed(schema=pa.schema([("a", pa.float16())])),
            id="a type that DuckDB does not read",
        ),
        pytest.param("§1.5", lambda honest: b"\xff\xff", id="no FlightInfo"),
    ],
)
def test_wrong_answers_to_binding_are_noticed(server, client, trap, spoil):
    server.spoil["bind"] = spoil

    refused(trap, lambda: client.table_function("sales", "numbers", 1))
    refused(trap, lambda: client.in_out("sales", "tagged", "x", rows=pa.table({"i": [1]})))


def test_no_answer_to_binding_crashes_duckdb(server, client):
    server.spoil["table_function_flight_info"] = lambda honest: []

    refused("T2", lambda: client.table_function("sales", "numbers", 1))


def test_rows_of_a_table_function_are_read_by_the_rules_of_tables(server, client):
    server.spoil["rows"] = lambda honest: honest.select(["text"])
    refused("T4", lambda: client.table_function("sales", "numbers", 1, columns=["text"]))
    server.spoil["rows"] = lambda honest: honest.cast(
        pa.schema([("n", pa.int32()), ("text", pa.string())])
    )
    refused("T5", lambda: client.table_function("sales", "numbers", 1))


def test_named_parameters_that_the_client_takes_for_its_own_are_noticed():
    own = pa.field("secret", pa.string(), metadata=NAMED)
    function = Function("f", "table_function", [own], NUMBERS, None)
    with FunctionDouble(function) as server, DuckDBClient(server.location, CATALOG) as client:
        refused("§9.2", lambda: client.table_function("sales", "f", named={"secret": "x"}))


def test_a_named_parameter_of_any_type_takes_the_type_of_the_argument_before_it():
    free = pa.field("x", pa.null(), metadata={**NAMED, "is_any_type": "1"})
    functions = [
        Function(
            "after",
            "table_function",
            [("n", pa.int64()), free],
            lambda row, _: row.schema,
            lambda row, _: row,
        ),
        Function("first", "table_function", [free], NUMBERS, None),
    ]
    with FunctionDouble(*functions) as server, DuckDBClient(server.location, CATALOG) as client:
        server.spoil["rows"] = lambda honest: (
            pa.Table.from_batches([honest]) if isinstance(honest, pa.RecordBatch) else honest
        )
        echoed = client.table_function("sales", "after", 5, named={"x": 6})
        assert echoed.schema.field("x").type == pa.int32()  # of 5, not of n
        refused("§9.2", lambda: client.table_function("sales", "first", named={"x": 6}))


# -------------------------------------------------------------------------------- in/out functions

CONTINUES, FINISHED = b"chunk_continues", b"chunk_finished"


def texts(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(["x"] * count), pa.array(range(count), pa.int64())], schema=TEXTS
    )


def lockstep(
    answers: list[tuple[int | None, bytes | None]],
    last: list[tuple[int | None, bytes | None]],
    schema: pa.Schema = TEXTS,
) -> Run:
    """A server that answers each batch, and the end, with batches of these sizes and metadata."""

    def run(reader: Any, writer: Any) -> None:
        next(reader)
        writer.begin(schema)
        for _ in reader:
            send(writer, answers)
        send(writer, last)

    def send(writer: Any, answers: list[tuple[int | None, bytes | None]]) -> None:
        for count, metadata in answers:
            if count is None:
                writer.write_metadata(metadata)
            elif metadata is None:
                writer.write_batch(texts(count))
            else:
                writer.write_with_metadata(texts(count), metadata)

    return run


def in_out(client: DuckDBClient, rows: int = 3) -> pa.Table:
    return client.in_out(
        "sales", "tagged", "x", rows=pa.table({"i": pa.array(range(rows), pa.int64())})
    )


@pytest.mark.parametrize(
    ("answers", "last", "rows"),
    [
        pytest.param([(3, FINISHED)], [], 3, id="nothing at the end"),
        pytest.param([(3, None)], [(2, None)], 5, id="no metadata"),
        pytest.param([(3, b"Chunk_continues")], [(2, b"")], 5, id="other metadata"),
        pytest.param(
            [(3, CONTINUES), (0, CONTINUES), (1, FINISHED)],
            [(1, CONTINUES), (0, FINISHED)],
            5,
            id="several",
        ),
        pytest.param([(5000, FINISHED)], [(5000, FINISHED)], 10000, id="large"),
        pytest.param([(2048, CONTINUES), (0, FINISHED)], [], 2048, id="a full vector that goes on"),
        pytest.param(
            [(2048, FINISHED), (0, FINISHED)], [], 2048, id="a full vector that ends, and goes on"
        ),
        pytest.param(
            [(0, FINISHED)],
            [(2048, FINISHED)],
            2048,
            id="a full vector before the end of the stream",
        ),
        pytest.param(
            [(0, FINISHED)],
            [(4096, CONTINUES), (1, FINISHED)],
            4097,
            id="full vectors after the end",
        ),
        pytest.param([(0, FINISHED)], [(None, FINISHED)], 0, id="metadata alone at the end"),
        pytest.param(
            [(0, FINISHED)], [(None, CONTINUES), (1, FINISHED)], 1, id="metadata alone that goes on"
        ),
    ],
)
def test_output_is_read_as_by_the_real_client(server, client, answers, last, rows):
    server.spoil["in_out"] = lambda honest: lockstep(answers, last)

    assert in_out(client).num_rows == rows


@pytest.mark.parametrize("rows", [2048, 4096])
def test_full_vectors_as_last_answer_to_a_batch_are_a_hang(server, client, rows):
    server.spoil["in_out"] = lambda honest: lockstep([(rows, FINISHED)], [])

    hangs(client, "T18", lambda: in_out(client))
    honest_again(server, client)


def test_a_batch_that_goes_on_without_more_is_a_hang(server, client):
    server.spoil["in_out"] = lambda honest: lockstep([(3, CONTINUES)], [])

    hangs(client, "§9.3", lambda: in_out(client))


def test_a_server_that_keeps_its_schema_until_rows_come_is_a_hang(server, client):
    def run(reader: Any, writer: Any) -> None:
        next(reader)
        next(reader)
        writer.begin(TEXTS)

    server.spoil["in_out"] = lambda honest: run

    hangs(client, "T15", lambda: in_out(client))


def ending_early(reader: Any, writer: Any) -> None:
    next(reader)
    writer.begin(TEXTS)
    next(reader)


def failing_after_the_last(reader: Any, writer: Any) -> None:
    lockstep([(3, FINISHED)], [(0, FINISHED)])(reader, writer)
    raise flight.FlightServerError("too late")


SWAPPED = pa.schema([("i", pa.string()), ("label", pa.int64())])


def only_schema(schema: pa.Schema) -> Run:
    def run(reader: Any, writer: Any) -> None:
        next(reader)
        writer.begin(schema)
        list(reader)

    return run


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(ending_early, "the DuckDB process would crash", id="end of the stream"),
        pytest.param(
            lockstep([(None, FINISHED)], []), "the DuckDB process would crash", id="metadata alone"
        ),
        pytest.param(
            lockstep([(3, FINISHED), (3, FINISHED)], [(0, FINISHED)]),
            "rows are lost",
            id="two answers",
        ),
        pytest.param(
            lockstep([(3, FINISHED)], [(1, FINISHED), (1, FINISHED)]),
            "rows are lost",
            id="two last batches",
        ),
        pytest.param(
            lockstep([(3, FINISHED)], [(1, None), (0, None)]),
            "rows are lost",
            id="not marked as going on",
        ),
        pytest.param(
            failing_after_the_last, "nobody sees the error", id="error after the last batch"
        ),
        pytest.param(
            only_schema(TEXTS.remove(1)), "1 columns come back instead of the 2", id="fewer columns"
        ),
        pytest.param(
            only_schema(TEXTS.append(ROWID)),
            "3 columns come back instead of the 2",
            id="more columns",
        ),
        pytest.param(only_schema(SWAPPED), "not at position", id="columns in another order"),
        pytest.param(
            only_schema(pa.schema([("label", pa.string()), ("i", pa.int32())])),
            "int32 instead of int64",
            id="other type",
        ),
    ],
)
def test_wrong_output_is_noticed(server, client, run, message):
    server.spoil["in_out"] = lambda honest: run

    violation = refused("§9.3", lambda: in_out(client))

    assert message in str(violation)
    assert not isinstance(violation, ClientHang)
    honest_again(server, client)
