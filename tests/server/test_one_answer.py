"""Calls with exactly one answer, which gRPC sends together with the status."""

from __future__ import annotations

import msgpack
import pyarrow as pa
import pytest
from tests.server.raw_client import RawClient, path

import sparkport as sp
from sparkport.service.actions import ACTIONS, ONE_RESULT

NAME = "airport-action-name"


@pytest.fixture
def server(start) -> sp.Server:
    builder = sp.CatalogBuilder("cat")
    builder.schema("s").table("t", pa.table({"a": [1, 2, 3]}))
    return start(builder, sp.ServerSettings(http="127.0.0.1:0"))


@pytest.fixture
def client(server, connect) -> RawClient:
    return connect(server)


def body_of(action: str) -> dict[str, object]:
    descriptor = path("s", "t").serialize()
    scan = {"json_filters": "", "column_ids": [0], "at_unit": "", "at_value": ""}
    return {
        "endpoints": {"descriptor": descriptor, "parameters": scan},
        "flight_info": {"descriptor": descriptor, "at_unit": "", "at_value": ""},
        "column_statistics": {
            "flight_descriptor": descriptor,
            "column_name": "a",
            "type": "BIGINT",
        },
    }.get(action, {"catalog_name": "cat"})


@pytest.mark.parametrize("action", sorted(ONE_RESULT - {"table_function_flight_info"}))
def test_the_answer_is_the_same_whether_the_header_names_the_action_or_not(client, action):
    (told,) = client.action(action, body_of(action), {NAME: action})
    (untold,) = client.action(action, body_of(action))
    if action == "create_transaction":  # each has an id of its own
        told, untold = (sorted(msgpack.unpackb(each)) for each in (told, untold))
    elif action == "endpoints":  # tickets are encoded and signed alike, and may be of any time
        told, untold = (len(msgpack.unpackb(each)) for each in (told, untold))
    assert told == untold


def test_they_are_known_actions():
    assert ACTIONS.keys() >= ONE_RESULT


@pytest.mark.parametrize("action", ["drop_table", "list_schemas", "no_such_action"])
def test_a_header_that_names_another_action_is_refused_before_anything_is_done(client, action):
    """Such an action could have more answers, or none."""
    table = {"type": "table", "catalog_name": "cat", "schema_name": "s", "name": "t"}
    body = {**table, "ignore_not_found": False}

    failure = client.action_failure(action, body, {NAME: "catalog_version"})

    assert (failure.code, "airport-action-name" in failure.message) == ("INVALID_ARGUMENT", True)
    assert client.action("endpoints", body_of("endpoints"))


def test_errors_have_the_same_code_and_trailers(client):
    missing = {"descriptor": path("s", "gone").serialize(), "parameters": {"column_ids": [0]}}

    told, untold = (
        client.action_failure("endpoints", missing, headers)
        for headers in ({NAME: "endpoints"}, None)
    )

    assert told.code == "NOT_FOUND"
    assert (told.code, told.message) == (untold.code, untold.message)
    assert told.trailers.keys() == untold.trailers.keys()


def test_a_call_without_a_message_is_refused(client):
    call = client.channel.stream_stream("/arrow.flight.protocol.FlightService/DoAction")
    with pytest.raises(Exception, match="the call has no message"):
        list(call(iter(()), timeout=30, metadata=((NAME, "catalog_version"),)))


def test_every_call_is_counted(server, client):
    for _ in range(3):
        client.action("catalog_version", {"catalog_name": "cat"}, {NAME: "catalog_version"})
    client.action_failure("endpoints", b"no map", {NAME: "endpoints"})

    counted = server._watching.metrics.exposition().decode()

    assert 'sparkport_actions_total{action="catalog_version",code="OK"} 3.0' in counted
    assert 'sparkport_rpcs_total{code="OK",method="DoAction"} 3.0' in counted
    assert 'sparkport_actions_total{action="endpoints",code="INVALID_ARGUMENT"} 1.0' in counted
    assert 'sparkport_errors_total{code="INVALID_ARGUMENT"} 1.0' in counted
    assert not server._watching.activity.running()
