"""Typed exceptions: the calls that bring them, their form, and their readers (airport §14.3)."""

# mypy: disable-error-code="valid-type"

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.raw_client import Failure, RawClient, path, ticket_message

import sparkport as sp
from sparkport.catalog import ActionCatalog, Constraints, CustomAction, FlightCatalog, FlightName
from sparkport.errors import CatalogFault
from sparkport.testing import DuckDBClient, ServerError

LOCAL = "grpc://127.0.0.1:0"
DUCKDB = {"airport-user-agent": "airport/20250723"}
NUMBERS = pa.schema([("n", pa.int64())])
MESSAGE = "s.t: 5 ≠ 4; ask for 4\nor fewer"
EXCEPTIONS = {
    sp.BadRequest: ("INVALID_ARGUMENT", "InvalidInputException"),
    sp.NotFound: ("NOT_FOUND", "InvalidInputException"),
    sp.AlreadyExists: ("ALREADY_EXISTS", "InvalidInputException"),
    sp.PreconditionFailed: ("FAILED_PRECONDITION", "InvalidInputException"),
    sp.ConstraintViolation: ("FAILED_PRECONDITION", "ConstraintException"),
    sp.Unsupported: ("UNIMPLEMENTED", "InvalidInputException"),
    sp.PermissionDenied: ("PERMISSION_DENIED", "PermissionException"),
    sp.Unauthenticated: ("UNAUTHENTICATED", "PermissionException"),
    sp.LimitExceeded: ("RESOURCE_EXHAUSTED", "InvalidInputException"),
    CatalogFault: ("UNKNOWN", "InvalidInputException"),
    sp.Conflict: ("ABORTED", None),
}
SHOWN = {
    "InvalidInputException": "Invalid Input",
    "ConstraintException": "Constraint",
    "PermissionException": "Permission",
}


class Failing(FlightCatalog, ActionCatalog):
    """Raises whatever it is told, wherever it is asked."""

    name = "c"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._catalog = self._made()

    def fail(self) -> None:
        if self.error is not None:
            raise self.error

    def schemas(self, ctx: sp.Context) -> Any:
        return self._catalog.schemas(ctx)

    def flight(self, ctx: sp.Context, name: FlightName) -> sp.Table | None:
        if name == ("flight",):
            self.fail()
        return None

    def actions(self, ctx: sp.Context) -> list[CustomAction]:
        def run(ctx: sp.Context, body: bytes) -> list[bytes]:
            self.fail()
            return []

        return [CustomAction("act", run)]

    def _made(self) -> sp.Catalog:
        builder = sp.CatalogBuilder("c")
        schema = builder.schema("s")

        def scan(ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"n": [1]})
            self.fail()

        schema.table("t", scan, arrow_schema=NUMBERS)

        @schema.scalar_function
        def scalar(x: pa.int64()) -> pa.int64():
            self.fail()
            return x

        @schema.table_function(returns=NUMBERS, name="rows")
        def _rows(rows: pa.Table):
            for batch in rows:
                self.fail()
                yield batch

        def columns() -> pa.Schema:
            self.fail()
            return NUMBERS

        schema.table_function(returns=columns, name="bound")(lambda: None)
        return builder.build()


@pytest.fixture
def catalog() -> Failing:
    return Failing()


@pytest.fixture
def server(catalog) -> Iterator[sp.Server]:
    with sp.Server(catalog, LOCAL) as server:
        yield server


@pytest.fixture
def duckdb(server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "c", timeout=15) as client:
        yield client.attach()


@pytest.fixture
def raw(server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


READS: dict[str, Callable[[DuckDBClient], object]] = {
    "DoGet": lambda client: client.scan("s", "t"),
    "DoExchange of a scalar function": lambda client: client.call("s", "scalar", {"x": [1]}),
    "DoExchange of an in/out function": lambda client: client.in_out(
        "s", "rows", rows=pa.table({"n": [1]})
    ),
    "GetFlightInfo": lambda client: client.take_flight(["flight"]),
}
ACTIONS: dict[str, Callable[[DuckDBClient], object]] = {
    "table_function_flight_info": lambda client: client.table_function("s", "bound"),
    "an action of one's own": lambda client: client.action("act"),
}


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: error.__name__)
def test_duckdb_raises_the_exception_with_exactly_the_message(catalog, duckdb, call, error):
    duckdb.functions("s")
    catalog.error = error(MESSAGE)

    with pytest.raises(ServerError) as caught:
        READS[call](duckdb)

    code, exception = EXCEPTIONS[error]
    assert (caught.value.code, caught.value.duckdb_exception) == (code, exception)
    assert caught.value.message == MESSAGE
    if exception is not None:
        assert caught.value.shown == f"{SHOWN[exception]} Error: {MESSAGE}"


@pytest.mark.parametrize("call", ACTIONS)
@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: error.__name__)
def test_an_action_never_brings_one(catalog, duckdb, call, error):
    """The client would not look for it, but try again for three seconds (airport §4.1)."""
    duckdb.functions("s")
    catalog.error = error(MESSAGE)

    with pytest.raises(ServerError) as caught:
        ACTIONS[call](duckdb)

    assert (caught.value.code, caught.value.message) == (EXCEPTIONS[error][0], MESSAGE)
    assert caught.value.duckdb_exception is None
    assert caught.value.extra_info == b""


STALLING = {"UNAUTHENTICATED", "PERMISSION_DENIED", "ABORTED"}


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: error.__name__)
def test_an_action_that_fails_costs_duckdb_no_time_but_where_its_code_does(catalog, duckdb, error):
    catalog.error = error(MESSAGE)

    with pytest.raises(ServerError) as caught:
        duckdb.action("act")

    assert caught.value.stalls == (caught.value.code in STALLING)


def scan_failure(client: RawClient, headers: dict[str, str]) -> Failure:
    (endpoint,) = client.endpoints(path("c", "s", "t"), headers=headers)
    return client.failure("DoGet", ticket_message(endpoint.ticket.ticket), headers)


def test_the_exception_travels_in_two_trailers(catalog, raw):
    catalog.error = sp.BadRequest(MESSAGE)

    failure = scan_failure(raw, DUCKDB)

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.trailers["x-arrow-status"] == "5"  # without it the other trailer is ignored
    details = failure.trailers["grpc-status-details-bin"]
    assert isinstance(details, bytes)
    assert msgpack.unpackb(details) == {
        "exception_type": "InvalidInputException",
        "message": MESSAGE,
    }


def test_an_action_has_neither_trailer(catalog, raw):
    catalog.error = sp.ConstraintViolation(MESSAGE)

    for headers in (DUCKDB, {}):
        failure = raw.action_failure("act", b"", headers)
        assert failure.code == "FAILED_PRECONDITION"
        assert not {"x-arrow-status", "grpc-status-details-bin"} & set(failure.trailers)


@pytest.mark.parametrize(
    "error", [sp.BadRequest, sp.NotFound, sp.Unsupported, sp.LimitExceeded, sp.Conflict]
)
def test_other_clients_keep_the_code(catalog, raw, error):
    """Arrow's clients forget it when there is a status of Arrow's own."""
    catalog.error = error(MESSAGE)

    failure = scan_failure(raw, {})

    assert (failure.code, failure.message) == (error.code, MESSAGE)
    assert "x-arrow-status" not in failure.trailers


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (sp.BadRequest, pa.ArrowInvalid),
        (sp.NotFound, pa.ArrowKeyError),
        (sp.Unsupported, NotImplementedError),
    ],
)
def test_arrows_own_client_raises_what_the_code_means(catalog, server, error, raised):
    options = flight.FlightCallOptions(timeout=15)
    with flight.connect(server.location) as client:
        (endpoint,) = client.get_flight_info(path("c", "s", "t"), options).endpoints
        catalog.error = error("s.t: no")
        with pytest.raises(raised, match=r"s\.t: no"):
            client.do_get(endpoint.ticket, options).read_all()


def test_an_unexpected_error_is_not_typed(catalog, duckdb):
    catalog.error = ValueError("secret password")

    with pytest.raises(ServerError, match="trace id") as caught:
        duckdb.scan("s", "t")

    assert (caught.value.code, caught.value.duckdb_exception) == ("INTERNAL", None)
    assert "secret" not in caught.value.shown


def test_a_message_of_any_length_and_content_arrives_readable(catalog, duckdb):
    for text in ("x" * 100_000, "ä" * 5000, "a\x1b[31mb\0c", "\ud800", ""):
        catalog.error = sp.BadRequest(text)
        with pytest.raises(ServerError) as caught:
            duckdb.scan("s", "t")
        assert caught.value.duckdb_exception == "InvalidInputException"
        assert len(caught.value.message) <= 2000
        assert not set(caught.value.message) & {"\x1b", "\0"}


def test_a_write_that_breaks_a_constraint_is_typed():
    builder = sp.CatalogBuilder("c")
    table = pa.table({"n": [1]})
    builder.schema("s").table("t", table, constraints=Constraints(primary_key=("n",)))
    with (
        sp.Server(builder, LOCAL) as server,
        DuckDBClient(server.location, "c", timeout=15) as client,
    ):
        with pytest.raises(ServerError) as caught:
            client.insert("s", "t", table)
        assert caught.value.duckdb_exception == "ConstraintException"
        assert client.count("s", "t") == 1
