"""Every recorded request of the real client decodes to what the recording says it means."""

from __future__ import annotations

import base64
import datetime
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.wire.recordings import SCENARIOS, Call, Message, calls

from sparkport.catalog.ddl import OnConflict
from sparkport.catalog.scan import TimePoint
from sparkport.errors import BadRequest
from sparkport.wire import catalogs, ddl, scan, statistics, transactions
from sparkport.wire.flight import decode_action, decode_criteria, decode_descriptor, decode_ticket
from sparkport.wire.flight_data import BatchReader, decode_flight_data


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_request_of_the_scenario_decodes_to_its_recorded_meaning(scenario: str) -> None:
    checked = 0
    for call in calls(scenario):
        try:
            CHECKS[call.method](call)
        except AssertionError as error:
            raise AssertionError(f"{call.method} {call.action} of: {call.sql}") from error
        checked += len(call.messages)
    assert checked > 0


def test_the_recordings_cover_every_action_the_client_sends() -> None:
    seen = Counter(
        call.action for scenario in SCENARIOS for call in calls(scenario) if call.action in DECODERS
    )
    unreachable = {"add_constraint"}  # no SQL of DuckDB 1.4 or 1.5 leads to it (airport §4.14)
    assert set(seen) == set(DECODERS) - unreachable


# ----------------------------------------------------------------------------------- what it means


def described_field(field: pa.Field) -> dict[str, Any]:
    extension = isinstance(field.type, pa.BaseExtensionType)
    return {
        "name": field.name,
        "type": str(field.type),
        "nullable": field.nullable,
        **(
            {"extension": field.type.extension_name, "storage_type": str(field.type.storage_type)}
            if extension
            else {}
        ),
    }


def assert_schema(arrow_schema: pa.Schema | None, shown: Any) -> None:
    if shown == "":
        assert arrow_schema is None
        return
    recorded = [
        {key: value for key, value in field.items() if key != "metadata"}
        for field in shown["arrow_schema"]["fields"]
    ]
    assert arrow_schema is not None
    assert [described_field(field) for field in arrow_schema] == recorded


def assert_descriptor(descriptor: object, shown: dict[str, Any]) -> None:
    assert isinstance(descriptor, flight.FlightDescriptor)
    recorded = shown["flight_descriptor"]
    assert descriptor.descriptor_type.name == recorded["type"]
    if recorded["type"] == "PATH":
        assert [element.decode() for element in descriptor.path] == recorded["path"]
    else:
        assert descriptor.command.decode() == recorded["cmd"]


def assert_arguments(arguments: object, shown: Any) -> None:
    if shown == "":
        assert arguments is None
        return
    stream = shown["arrow_ipc_stream"]
    assert isinstance(arguments, pa.RecordBatch)
    assert [described_field(field) for field in arguments.schema] == stream["schema"]["fields"]
    assert len(stream["batches"]) == 1
    assert rows(arguments) == stream["batches"][0]["rows"]


def rows(batch: pa.RecordBatch) -> list[Any]:
    return [
        {key: in_json(value) for key, value in row.items()} for row in batch.slice(0, 6).to_pylist()
    ]


def in_json(value: Any) -> Any:
    """A value as the recordings write it."""
    match value:
        case dict():
            return {key: in_json(item) for key, item in value.items()}
        case list():
            return [in_json(item) for item in value]
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"b64": base64.b64encode(value).decode()}
        case datetime.datetime():
            return {"datetime": value.isoformat()}
        case datetime.date():
            return {"date": value.isoformat()}
        case _:
            return value


def time_point(unit: str, value: str) -> TimePoint | None:
    units = {"VERSION": "version", "TIMESTAMP": "timestamp"}
    return TimePoint(units[unit], value) if unit else None  # type: ignore[arg-type]


def check_table(request: ddl.AlterTable, body: dict[str, Any]) -> None:
    named = (request.catalog, request.schema, request.name, request.ignore_not_found)
    assert named == (body["catalog"], body["schema"], body["name"], body["ignore_not_found"])


def check_catalog(request: Any, body: dict[str, Any]) -> None:
    assert request.catalog == body["catalog_name"]


def check_endpoints(request: Any, body: dict[str, Any]) -> None:
    parameters = body["parameters"]
    assert_descriptor(request.target, body["descriptor"])
    assert request.json_filters == parameters["json_filters"]
    assert request.column_ids == tuple(parameters["column_ids"])
    assert_arguments(request.arguments, parameters["table_function_parameters"])
    assert_schema(request.input_schema, parameters["table_function_input_schema"])
    assert request.time_point == time_point(parameters["at_unit"], parameters["at_value"])


def check_flight_info(request: Any, body: dict[str, Any]) -> None:
    assert_descriptor(request.descriptor, body["descriptor"])
    assert request.time_point == time_point(body["at_unit"], body["at_value"])
    assert request.time_point is not None


def check_table_function(request: Any, body: dict[str, Any]) -> None:
    assert_descriptor(request.target, body["descriptor"])
    assert_arguments(request.arguments, body["parameters"])
    assert_schema(request.input_schema, body["table_input_schema"])
    assert request.time_point is None


def check_statistics(request: Any, body: dict[str, Any]) -> None:
    assert_descriptor(request.descriptor, body["flight_descriptor"])
    assert (request.column, request.type) == (body["column_name"], body["type"])


def check_create_schema(request: Any, body: dict[str, Any]) -> None:
    assert request == ddl.CreateSchema(
        body["catalog_name"], body["schema"], body["comment"] or "", body["tags"], None
    )


def check_drop_schema(request: Any, body: dict[str, Any]) -> None:
    assert body["schema_name"] == ""
    assert request == ddl.DropSchema(
        body["catalog_name"], body["name"], body["ignore_not_found"], False
    )


def check_drop_table(request: Any, body: dict[str, Any]) -> None:
    assert request == ddl.DropTable(
        body["catalog_name"], body["schema_name"], body["name"], body["ignore_not_found"]
    )


def check_create_table(request: Any, body: dict[str, Any]) -> None:
    named = (request.catalog, request.schema, request.name)
    assert named == (body["catalog_name"], body["schema_name"], body["table_name"])
    assert request.on_conflict is OnConflict(body["on_conflict"])
    fields = body["arrow_schema"]["arrow_schema"]["fields"]
    names = [field["name"] for field in fields]
    not_null = {names[index] for index in body["not_null_constraints"]}
    shown = [{**field, "nullable": field["name"] not in not_null} for field in fields]
    assert_schema(request.arrow_schema, {"arrow_schema": {"fields": shown}})
    constraints = request.constraints
    assert constraints.not_null == tuple(name for name in names if name in not_null)
    assert constraints.checks == tuple(body["check_constraints"])
    keys = {*body["primary_key_columns"], *body["multi_key_primary_keys"]}
    assert constraints.primary_key == tuple(name for name in names if name in keys)
    composite = [tuple(text[len("UNIQUE(") : -1].split(", ")) for text in body["extra_constraints"]]
    assert constraints.unique == (*((name,) for name in body["unique_columns"]), *composite)


def check_add_column(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert_schema(request.column_schema, body["column_schema"])
    assert request.if_column_not_exists == body["if_column_not_exists"]


def check_remove_column(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert request.column == body["removed_column"]
    assert (request.if_column_exists, request.cascade) == (
        body["if_column_exists"],
        body["cascade"],
    )


def check_rename_column(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert (request.old_name, request.new_name) == (body["old_name"], body["new_name"])


def check_rename_table(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert request.new_name == body["new_table_name"]


def check_set_default(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert (request.column, request.expression) == (body["column_name"], body["expression"])


def check_column(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert request.column == body["column_name"]


def check_change_type(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert_schema(request.column_schema, body["column_schema"])
    assert request.expression == body["expression"]


def check_add_field(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert request.path == tuple(body["column_path"])
    assert_schema(request.column_schema, body["column_schema"])
    assert request.if_field_not_exists == body["if_field_not_exists"]
    assert request.lost_its_name


def check_remove_field(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert request.path == tuple(body["column_path"])
    assert (request.if_field_exists, request.cascade) == (body["if_column_exists"], body["cascade"])


def check_rename_field(request: Any, body: dict[str, Any]) -> None:
    check_table(request, body)
    assert (request.path, request.new_name) == (tuple(body["column_path"]), body["new_name"])


DECODERS: dict[str, tuple[Any, Any]] = {
    "list_schemas": (catalogs.decode_list_schemas, check_catalog),
    "catalog_version": (catalogs.decode_catalog_version, check_catalog),
    "create_transaction": (transactions.decode_create_transaction, check_catalog),
    "endpoints": (scan.decode_endpoints, check_endpoints),
    "flight_info": (scan.decode_flight_info, check_flight_info),
    "table_function_flight_info": (scan.decode_table_function_flight_info, check_table_function),
    "column_statistics": (statistics.decode_column_statistics, check_statistics),
    "create_schema": (ddl.decode_create_schema, check_create_schema),
    "drop_schema": (ddl.decode_drop_schema, check_drop_schema),
    "create_table": (ddl.decode_create_table, check_create_table),
    "drop_table": (ddl.decode_drop_table, check_drop_table),
    "add_column": (ddl.decode_add_column, check_add_column),
    "remove_column": (ddl.decode_remove_column, check_remove_column),
    "rename_column": (ddl.decode_rename_column, check_rename_column),
    "rename_table": (ddl.decode_rename_table, check_rename_table),
    "set_default": (ddl.decode_set_default, check_set_default),
    "set_not_null": (ddl.decode_set_not_null, check_column),
    "drop_not_null": (ddl.decode_drop_not_null, check_column),
    "change_column_type": (ddl.decode_change_column_type, check_change_type),
    "add_field": (ddl.decode_add_field, check_add_field),
    "remove_field": (ddl.decode_remove_field, check_remove_field),
    "rename_field": (ddl.decode_rename_field, check_rename_field),
    "add_constraint": (ddl.decode_add_constraint, None),
}


# --------------------------------------------------------------------------------------- the calls


def check_action(call: Call) -> None:
    [message] = call.messages
    action = decode_action(message.data)
    assert action.type == call.action == message.decoded["action_type"]
    assert len(action.body) == message.decoded["body_len"]
    if call.action in DECODERS and "body_msgpack" in message.decoded:
        decode, check = DECODERS[call.action]
        check(decode(action.body), message.decoded["body_msgpack"])
    elif "body_raw" in message.decoded:  # airport_action('…') sends what the user typed
        assert action.body.decode() == message.decoded["body_raw"]
        with pytest.raises(BadRequest):
            catalogs.decode_list_schemas(action.body)
    else:
        assert action.body == b""


def check_ticket(call: Call) -> None:
    [message] = call.messages
    ticket = decode_ticket(message.data)
    assert len(ticket) == message.decoded["ticket_len"]
    # The ticket is that of the recording's server; its content shows that the bytes are right.
    shown = message.decoded.get("ticket_msgpack")
    if shown is not None:
        assert set(msgpack.unpackb(ticket)) == set(shown)


def check_descriptor(call: Call) -> None:
    [message] = call.messages
    assert_descriptor(decode_descriptor(message.data), message.decoded)


def check_criteria(call: Call) -> None:
    [message] = call.messages
    assert decode_criteria(message.data).decode() == message.decoded["criteria"]


def check_exchange(call: Call) -> None:
    reader: BatchReader | None = None
    for message in call.messages:
        data = decode_flight_data(message.data)
        if "flight_descriptor" in message.decoded:
            assert_descriptor(data.descriptor, message.decoded)
        else:
            assert data.descriptor is None
        check_metadata(data.app_metadata, message)
        match message.decoded["ipc"]:
            case None:
                assert len(data.header) == 0
            case "schema":
                reader = BatchReader(data)
                shown = message.decoded["schema"]["fields"]
                assert [described_field(field) for field in reader.arrow_schema] == [
                    {key: value for key, value in field.items() if key != "metadata"}
                    for field in shown
                ]
            case "record_batch":
                assert reader is not None
                batch = reader.read(data)
                assert batch is not None
                assert batch.num_rows == message.decoded["num_rows"]
                assert len(data.body) == message.decoded["body_len"]
                assert rows(batch) == message.decoded["rows"]
            case other:
                pytest.fail(f"a request with {other}")


def check_metadata(app_metadata: bytes, message: Message) -> None:
    shown = message.decoded.get("app_metadata")
    if shown is None:
        assert app_metadata == b""
        return
    parameters = scan.decode_in_out_parameters(app_metadata)
    assert parameters.json_filters == shown["msgpack"]["json_filters"]
    assert parameters.column_ids == tuple(shown["msgpack"]["column_ids"])
    assert_arguments(parameters.arguments, shown["msgpack"]["parameters"])
    assert parameters.time_point is None


CHECKS = {
    "DoAction": check_action,
    "DoGet": check_ticket,
    "GetFlightInfo": check_descriptor,
    "ListFlights": check_criteria,
    "DoExchange": check_exchange,
}
