"""Errors as the client sees them: codes, typed exceptions, stalls, replies of bare gRPC."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.client.flight_double import CATALOG, COLUMNS, FlightDouble, orders, with_rowid
from tests.client.raw_flight import (
    action_of,
    batch_message,
    endpoint,
    flight_data,
    raw_flight,
    result,
    schema_message,
)

from sparkport.testing import DuckDBClient, ProtocolViolation, ServerError

STALLING = {
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "INTERNAL",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "DATA_LOSS",
}
CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
TYPED = msgpack.packb({"exception_type": "ConstraintException", "message": "no such luck"})


def failing(
    code: grpc.StatusCode, message: str, *trailers: tuple[str, str | bytes]
) -> Callable[..., Iterator[bytes]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.set_trailing_metadata(trailers)
        context.set_code(code)
        context.set_details(message)
        yield from ()

    return handler


def select(client: DuckDBClient) -> pa.Table:
    return client.scan("sales", "orders")


def refused(location: str, act: Callable[[DuckDBClient], Any]) -> ServerError:
    with (
        DuckDBClient(location, CATALOG, timeout=20) as client,
        pytest.raises(ServerError) as caught,
    ):
        act(client)
    return caught.value


def violated(location: str, act: Callable[[DuckDBClient], Any]) -> str:
    with (
        DuckDBClient(location, CATALOG, timeout=20) as client,
        pytest.raises(ProtocolViolation) as caught,
    ):
        act(client)
    return caught.value.trap


@pytest.fixture
def server() -> Iterator[FlightDouble]:
    with FlightDouble() as double:
        yield double


@pytest.fixture
def client(server: FlightDouble) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, CATALOG) as client:
        yield client


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_code_is_recovered_and_its_stall_known(code):
    with raw_flight(DoAction=failing(code, "it went wrong")) as location:
        error = refused(location, DuckDBClient.schemas)

    assert (error.code, error.message) == (code.name, "it went wrong")
    assert error.stalls == (code.name in STALLING)
    assert error.duckdb_exception is None
    assert error.shown.startswith(f"IO Error: Airport @ {location}/: list_schemas: reading result ")


def test_the_code_survives_arrows_own_trailers():
    trailers = ("x-arrow-status", "5"), ("grpc-status-details-bin", TYPED)
    handler = failing(grpc.StatusCode.FAILED_PRECONDITION, "not now", *trailers)
    with raw_flight(DoAction=handler) as location:
        error = refused(location, DuckDBClient.schemas)

    assert error.code == "FAILED_PRECONDITION"
    assert error.message == "not now"
    # On an action the typed exception is not honoured, and Arrow's IOError class is retried.
    assert error.duckdb_exception is None
    assert error.stalls


def serving(do_get: Callable[..., Iterable[bytes]], **further: Any) -> Any:
    """Serve the table `orders` with the given DoGet."""
    double = FlightDouble()
    honest = {"list_schemas": double.list_schemas()[0]}
    double.shutdown()
    honest["create_transaction"] = msgpack.packb({"identifier": None})
    honest["catalog_version"] = msgpack.packb({"catalog_version": 1, "is_fixed": False})
    honest["endpoints"] = msgpack.packb([endpoint()])

    def do_action(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield result(honest[action_of(request)])

    return raw_flight(DoAction=do_action, DoGet=do_get, **further)


@pytest.mark.parametrize("typed", [True, False])
def test_typed_exceptions_need_both_trailers(typed):
    details = ("grpc-status-details-bin", TYPED)
    trailers = (("x-arrow-status", "5"), details) if typed else (details,)
    do_get = failing(grpc.StatusCode.ABORTED, "plain", *trailers)
    with serving(do_get) as location:
        error = refused(location, select)

    assert error.code == "ABORTED"
    assert error.duckdb_exception == ("ConstraintException" if typed else None)
    assert error.message == ("no such luck" if typed else "plain")
    assert not error.stalls


@pytest.mark.parametrize(
    "extra",
    [
        b"text",
        msgpack.packb({"exception_type": "KeyError", "message": ""}),
        msgpack.packb({"message": ""}),
    ],
)
def test_extra_info_that_the_client_cannot_use_is_caught(extra):
    trailers = ("x-arrow-status", "5"), ("grpc-status-details-bin", extra)
    with serving(failing(grpc.StatusCode.UNKNOWN, "", *trailers)) as location:
        assert violated(location, select) == "§14.3"


def test_an_error_halfway_is_the_servers(server, client):
    def spoil(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise flight.FlightServerError("lost it", extra_info=TYPED)

    server.spoil["chunks"] = spoil

    with pytest.raises(ServerError, match="no such luck") as caught:
        client.scan("sales", "orders")

    assert caught.value.duckdb_exception == "ConstraintException"


@pytest.mark.parametrize("returning", [True, False])
def test_an_error_of_an_exchange_is_typed_when_it_is_read(returning, server, client):
    def spoil(honest: Any) -> Any:
        def run(reader: Any, writer: Any) -> None:
            writer.begin(with_rowid(COLUMNS))
            for _ in reader:
                if returning:
                    break
            raise flight.FlightServerError("refused", extra_info=TYPED)

        return run

    server.spoil["exchange"] = spoil

    with pytest.raises(ServerError) as caught:
        client.insert("sales", "orders", {"id": [1]}, returning=returning)

    assert caught.value.duckdb_exception == "ConstraintException"


def test_python_tracebacks_are_a_violation(server, client):
    def spoil(honest: Any) -> Any:
        raise KeyError("orders")

    server.spoil["list_schemas"] = spoil

    with pytest.raises(ProtocolViolation) as caught:
        client.schemas()

    assert caught.value.trap == "T14"


def test_a_server_that_is_not_there_is_unavailable():
    with (
        DuckDBClient("grpc://127.0.0.1:1", CATALOG) as client,
        pytest.raises(ServerError) as caught,
    ):
        client.schemas()

    assert caught.value.code == "UNAVAILABLE"


# --------------------------------------------------------------------------------- replies by hand


def messages(*sent: bytes) -> Callable[..., Iterator[bytes]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from sent

    return handler


ROWS = orders(3).to_batches()[0]
SCHEMA = schema_message(ROWS.schema)


@pytest.mark.parametrize(
    ("sent", "trap"),
    [
        pytest.param(
            [SCHEMA, flight_data(app_metadata=msgpack.packb({"progress": 0.5}))],
            "T19",
            id="metadata alone",
        ),
        pytest.param([], "§1.4", id="no schema"),
        pytest.param([batch_message(ROWS)], "§1.4", id="batch before schema"),
        pytest.param([SCHEMA, flight_data(b"\x01\x02\x03\x04" * 8)], "§1.4", id="garbage"),
        pytest.param([schema_message(pa.schema([]))], "T4", id="empty schema"),
    ],
)
def test_streams_that_break_the_rules_are_caught(sent, trap):
    with serving(messages(*sent)) as location:
        assert violated(location, select) == trap


def test_a_stream_made_by_hand_is_read():
    progress = msgpack.packb({"progress": 1})
    served = serving(messages(SCHEMA, batch_message(ROWS), batch_message(ROWS, progress)))
    with served as location, DuckDBClient(location, CATALOG, timeout=20) as client:
        assert client.scan("sales", "orders", ["id"]).column("id").to_pylist() == [0, 1, 2, 0, 1, 2]


def test_arrow_sends_the_descriptor_of_an_exchange_in_a_message_of_its_own():
    received: list[int] = []

    def do_exchange(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        received.append(len(next(requests)))
        received.append(len(next(requests)))
        yield SCHEMA
        for request in requests:
            received.append(len(request))
        yield flight_data(app_metadata=msgpack.packb({"total_changed": 1}))

    with (
        serving(messages(), DoExchange=do_exchange) as location,
        DuckDBClient(location, CATALOG) as client,
    ):
        assert client.insert("sales", "orders", {"id": [1]}).total == 1

    path = 2 + sum(2 + len(element) for element in (CATALOG, "sales", "table", "orders"))
    assert received[0] == 2 + path
    assert len(received) == 3
