"""Errors have the code of airport §14.4, and a message that says what is wrong."""

from __future__ import annotations

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import NUMBERS, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import BOTH_STREAMS, endpoints_body, path, ticket_message

from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    ConstraintViolation,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unauthenticated,
    Unsupported,
)

T = path("s", "t")


@pytest.fixture
def client(serve):
    return serve(catalog_of(ListedTable("t", numbers()), name="cat"))


@pytest.mark.parametrize("action", ["list_schemas", "catalog_version", "create_transaction"])
def test_an_unknown_catalog_is_not_found(client, action):
    failure = client.action_failure(action, {"catalog_name": "nope"})

    assert failure.code == "NOT_FOUND"
    assert "'nope'" in failure.message


@pytest.mark.parametrize(
    ("descriptor", "named"),
    [
        (path("nope", "t"), "schema nope"),
        (path("s", "nope"), "table s.nope"),
        (path("nope", "s", "t"), "catalog 'nope'"),
        (path("cat", "nope", "t"), "schema nope"),
        (path("cat", "s", "nope"), "table s.nope"),
        (path("S", "t"), "schema S"),
        (path("", "t"), "schema"),
        (path("s", ""), "table"),
    ],
)
def test_an_unknown_object_is_not_found_by_any_call(client, descriptor, named):
    failures = [
        client.action_failure("endpoints", endpoints_body(descriptor)),
        client.action_failure(
            "flight_info", {"descriptor": descriptor.serialize(), "at_unit": "", "at_value": ""}
        ),
        client.failure("GetFlightInfo", descriptor.serialize()),
        client.failure("GetSchema", descriptor.serialize()),
    ]

    assert {failure.code for failure in failures} == {"NOT_FOUND"}
    for failure in failures:
        assert named in failure.message


def test_the_contracts_form_of_endpoints_is_checked_too(client):
    assert client.action_failure("endpoints", {"schema": "s", "table": "nope"}).code == "NOT_FOUND"
    assert client.action_failure("endpoints", {"schema": "nope", "table": "t"}).code == "NOT_FOUND"
    assert (
        client.action_failure("endpoints", {"catalog": "x", "schema": "s", "table": "t"}).code
        == "NOT_FOUND"
    )
    assert client.action_failure("endpoints", {"schema": "s"}).code == "INVALID_ARGUMENT"
    assert len(client.action("endpoints", {"schema": "s", "table": "t"})) == 1


@pytest.mark.parametrize("name", ["nope", "", "LIST_SCHEMAS", "x" * 100_000, "🦆"])
def test_an_unknown_action_is_unimplemented(client, name):
    failure = client.action_failure(name, b"")

    assert failure.code == "UNIMPLEMENTED"
    assert "action" in failure.message
    assert len(failure.message) < 200


@pytest.mark.parametrize("method", ["PollFlightInfo", "CancelFlightInfo"])
def test_a_method_that_is_not_offered_is_unimplemented(client, method):
    messages = [b""] if method in BOTH_STREAMS else b""

    assert client.failure(method, messages).code == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    "descriptor",
    [path(), path("a", "b", "c", "d"), path(*"abcdefgh"), flight.FlightDescriptor.for_command(b"")],
    ids=["no elements", "four elements", "eight elements", "empty command"],
)
def test_a_descriptor_of_no_known_form_is_a_bad_request(client, descriptor):
    failure = client.failure("GetFlightInfo", descriptor.serialize())

    assert failure.code == "INVALID_ARGUMENT"
    assert "[schema, table]" in failure.message


def test_a_descriptor_that_is_empty_is_a_bad_request(client):
    assert client.failure("GetFlightInfo", b"").code == "INVALID_ARGUMENT"
    assert client.failure("GetSchema", b"").code == "INVALID_ARGUMENT"
    assert (
        client.action_failure("endpoints", {"descriptor": b"", "parameters": {}}).code
        == "INVALID_ARGUMENT"
    )


def test_a_command_that_nobody_knows_is_not_found_and_no_table(client):
    command = flight.FlightDescriptor.for_command(b"SELECT 1")

    assert client.failure("GetFlightInfo", command.serialize()).code == "NOT_FOUND"
    assert client.failure("GetSchema", command.serialize()).code == "NOT_FOUND"
    assert client.action_failure("endpoints", endpoints_body(command)).code == "INVALID_ARGUMENT"


def test_a_path_of_one_element_is_not_found(client):
    failure = client.failure("GetFlightInfo", path("x" * 5000).serialize())

    assert failure.code == "NOT_FOUND"
    assert len(failure.message) < 300


def test_a_path_that_is_no_text_is_a_bad_request(client):
    message = b"\x08\x01\x1a\x02\xff\xfe\x1a\x01t"  # protobuf: path [ff fe, t]

    assert client.failure("GetFlightInfo", message).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("column_ids", [[3], [0, 2**63 - 1], [2**31]])
def test_a_column_id_out_of_range_is_a_bad_request(client, column_ids):
    failure = client.action_failure("endpoints", endpoints_body(T, column_ids))

    assert failure.code == "INVALID_ARGUMENT"
    assert "s.t has 3 columns" in failure.message


@pytest.mark.parametrize("column_ids", [[-1], [1.5], ["0"], [None], "0", [2**64 - 1, True]])
def test_a_column_id_that_is_no_unsigned_integer_is_a_bad_request(client, column_ids):
    body = endpoints_body(T)
    body["parameters"]["column_ids"] = column_ids

    failure = client.action_failure("endpoints", body)

    assert failure.code == "INVALID_ARGUMENT"
    assert "column_ids" in failure.message


def test_virtual_column_ids_are_ignored_where_there_is_no_row_id(client):
    stream = client.scan(T, [2**64 - 1, 2**64 - 2, 2**63])

    assert stream.table.num_rows == 3
    assert {field.type for field in stream.arrow_schema} == {pa.null()}


@pytest.mark.parametrize("action", ["list_schemas", "catalog_version", "endpoints", "flight_info"])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81", b"\x93\x01\x02\x03", b"{}", b"\x81\xa1"])
def test_a_body_that_cannot_be_read_is_a_bad_request(client, action, body):
    failure = client.action_failure(action, body)

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message


def test_a_point_in_time_that_cannot_be_read_is_a_bad_request(client):
    assert (
        client.action_failure("endpoints", endpoints_body(T, at_unit="EPOCH", at_value="1")).code
        == "INVALID_ARGUMENT"
    )
    assert (
        client.action_failure("endpoints", endpoints_body(T, at_unit="VERSION")).code
        == "INVALID_ARGUMENT"
    )


def test_time_travel_on_a_table_without_history_is_unimplemented(client):
    failure = client.action_failure("endpoints", endpoints_body(T, at_unit="VERSION", at_value="1"))

    assert failure.code == "UNIMPLEMENTED"
    assert "history" in failure.message


@pytest.mark.parametrize(
    "operation", ["", "INSERT", "merge", "scalar_function", "table_function_in_out"]
)
def test_an_exchange_of_an_unknown_operation_is_refused(client, operation):
    headers = {"airport-operation": operation, "return-chunks": "0"}

    assert client.failure("DoExchange", [], headers).code in ("INVALID_ARGUMENT", "UNIMPLEMENTED")


@pytest.mark.parametrize("method", ["DoExchange", "DoPut"])
def test_a_stream_that_ends_before_its_schema_is_a_bad_request(client, method):
    failure = client.failure(method, [], {"airport-operation": "insert"})

    assert failure.code == "INVALID_ARGUMENT"
    assert "schema" in failure.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadRequest("why"), "INVALID_ARGUMENT"),
        (NotFound("why"), "NOT_FOUND"),
        (AlreadyExists("why"), "ALREADY_EXISTS"),
        (PreconditionFailed("why"), "FAILED_PRECONDITION"),
        (ConstraintViolation("why"), "FAILED_PRECONDITION"),
        (Conflict("why"), "ABORTED"),
        (Unsupported("why"), "UNIMPLEMENTED"),
        (Unauthenticated("why"), "UNAUTHENTICATED"),
        (PermissionDenied("why"), "PERMISSION_DENIED"),
        (LimitExceeded("why"), "RESOURCE_EXHAUSTED"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_a_table_keeps_its_code_and_message(serve, error, code):
    def scan(_ctx, _options):
        raise error

    failure = serve(catalog_of(ScriptedTable("t", NUMBERS, scan))).scan_failure(T)

    assert (failure.code, failure.message) == (code, "why")


def test_errors_that_duckdb_knows_by_name_are_typed(serve):
    def scan(_ctx, _options):
        raise PermissionDenied("not for you")

    trailers = serve(catalog_of(ScriptedTable("t", NUMBERS, scan))).scan_failure(T).trailers

    assert trailers["x-arrow-status"] == "5"
    typed = msgpack.unpackb(trailers["grpc-status-details-bin"])
    assert typed == {"exception_type": "PermissionException", "message": "not for you"}


def test_a_very_long_message_is_cut_so_that_clients_can_take_it(serve):
    def scan(_ctx, _options):
        raise ConstraintViolation("🦆" * 100_000)

    failure = serve(catalog_of(ScriptedTable("t", NUMBERS, scan))).scan_failure(T)

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.startswith("🦆🦆")


def test_names_cannot_put_control_characters_or_lines_into_messages_and_logs(client, caplog):
    descriptor = path("s", "x\x1b[31m\x00\rnot found\nERROR forged")

    with caplog.at_level("INFO"):
        failure = client.failure("GetSchema", descriptor.serialize())

    assert failure.code == "NOT_FOUND"
    assert failure.message == "table s.x�[31m��not found\nERROR forged not found"
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_a_ticket_of_a_catalog_that_is_gone_is_not_found(start, connect):
    server = start(catalog_of(ListedTable("t", numbers()), name="cat"))
    client = connect(server)
    (endpoint,) = client.endpoints(T)
    server.remove_catalog("cat")

    assert client.failure("DoGet", ticket_message(endpoint.ticket.ticket)).code == "NOT_FOUND"
