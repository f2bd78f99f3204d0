"""gRPC's health and reflection, asked by the clients that others have written for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow.flight as flight
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import RawClient
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server import health
from sparkport.server.descriptors import FILES

FLIGHT = "arrow.flight.protocol.FlightService"
SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)
SOON = 30.0


@pytest.fixture
def server(start: Any) -> sp.Server:
    started: sp.Server = start(catalog_of(ListedTable("t", numbers()), name="cat"))
    return started


@pytest.fixture
def channel(server: sp.Server) -> Iterator[grpc.Channel]:
    with RawClient(server.location) as client:
        yield client.channel


# ------------------------------------------------------------------------------------------ health


@pytest.mark.parametrize("service", ["", FLIGHT])
def test_a_server_that_runs_is_serving(channel: grpc.Channel, service: str) -> None:
    answer = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service=service), timeout=SOON
    )

    assert answer.status == SERVING


def test_a_service_that_does_not_exist_is_not_found(channel: grpc.Channel) -> None:
    stub, request = (
        health_pb2_grpc.HealthStub(channel),
        health_pb2.HealthCheckRequest(service="other"),
    )

    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(request, timeout=SOON)
    watch = stub.Watch(request, timeout=SOON)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


@pytest.mark.parametrize("garbage", [b"\xff", b"\x0a\x02\xff\xff", b"\x08\x01"])
def test_garbage_is_no_reason_to_fail(channel: Any, garbage: bytes) -> None:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    if garbage == b"\x08\x01":  # of another type: not the field that is meant
        assert check(garbage, timeout=SOON)
        return
    with pytest.raises(grpc.RpcError) as caught:
        check(garbage, timeout=SOON)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_who_watches_is_told_at_once_when_the_server_begins_to_stop(
    server: sp.Server, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkport.server.listen._LAST_WORDS_SECONDS", 30.0)
    watch = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service=FLIGHT), timeout=30
    )
    assert next(watch).status == SERVING

    threading.Thread(target=server.stop, daemon=True).start()

    assert next(watch).status == NOT_SERVING
    assert list(watch) == []  # and then it ends, by itself


def test_health_needs_no_token_and_reflection_does(start: Any, connect: Any) -> None:
    settings = sp.ServiceSettings(authenticate=sp.TokenAuthenticator({"correct-horse": "ada"}))
    server = start(catalog_of(), sp.ServerSettings(service=settings))
    channel = connect(server).channel
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    info = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo

    answer = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=SOON
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(info(iter([request]), timeout=SOON))
    token = (("authorization", "Bearer correct-horse"),)
    (allowed,) = info(iter([request]), timeout=SOON, metadata=token)

    assert answer.status == SERVING
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "sparkport_logins_refused_total 1.0" in server._watching.metrics.exposition().decode()
    assert len(allowed.list_services_response.service) == 4


def test_no_more_than_so_many_can_watch(
    server: sp.Server, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_MOST_WATCHERS", 2)
    stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
    watches = [stub.Watch(request, timeout=30) for _ in range(2)]
    assert [next(watch).status for watch in watches] == [SERVING, SERVING]

    with pytest.raises(grpc.RpcError) as caught:
        next(stub.Watch(request, timeout=SOON))
    watches[0].cancel()

    def can_watch() -> bool:
        watch = stub.Watch(request, timeout=SOON)
        try:
            return bool(next(watch).status == SERVING)
        except grpc.RpcError:
            return False
        finally:
            watch.cancel()

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert eventually(can_watch)
    watches[1].cancel()


# -------------------------------------------------------------------------------------- reflection


def test_the_descriptors_load_in_a_pool_of_their_own() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in FILES:
        pool.AddSerializedFile(file.encode())

    for file in FILES:
        methods = {
            f"{file.package}.{name}.{method}"
            for name, each in file.services.items()
            for method in each
        }
        for symbol in file.symbols() - methods:  # this pool does not look for methods
            assert pool.FindFileContainingSymbol(symbol).name == file.name
        for method in methods:
            assert pool.FindMethodByName(method).full_name == method


@pytest.mark.parametrize("theirs", [health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR])
def test_what_others_define_is_described_as_they_do(theirs: Any) -> None:
    ours = descriptor_pb2.FileDescriptorProto.FromString(
        next(file for file in FILES if file.package == theirs.package).encode()
    )
    known = descriptor_pb2.FileDescriptorProto()
    theirs.CopyToProto(known)

    def fields(file: Any) -> dict[str, set[tuple[Any, ...]]]:
        return {
            message.name: {
                (f.name, f.number, f.type, f.label, f.type_name, f.HasField("oneof_index"))
                for f in message.field
            }
            for message in file.message_type
        }

    def methods(file: Any) -> set[tuple[Any, ...]]:
        return {
            (m.name, m.input_type, m.output_type, m.client_streaming, m.server_streaming)
            for service in file.service
            for m in service.method
        }

    for name, described in fields(ours).items():
        assert described <= fields(known)[name]
    assert methods(ours) <= methods(known)
    assert methods(ours)


def test_a_client_that_knows_nothing_can_call_flight_by_what_it_learns(channel: Any) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert set(database.get_services()) == {
        FLIGHT,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName(FLIGHT)

    def call(method: str, **fields: Any) -> list[Any]:
        described = service.FindMethodByName(method)
        request = message_factory.GetMessageClass(described.input_type)(**fields)
        answer = message_factory.GetMessageClass(described.output_type)
        open_call = channel.unary_stream if described.server_streaming else channel.unary_unary
        made = open_call(f"/{FLIGHT}/{method}")(request.SerializeToString(), timeout=SOON)
        return [
            answer.FromString(each) for each in (made if described.server_streaming else [made])
        ]

    (info,) = call("GetFlightInfo", type=1, path=["s", "t"])
    messages = call("DoGet", ticket=info.endpoint[0].ticket.ticket)
    actions = call("ListActions")

    assert [info.flight_descriptor.path[:], info.total_records] == [["s", "t"], -1]
    assert info.endpoint[0].location[0].uri == "arrow-flight-reuse-connection://?"
    assert [bool(message.data_header) for message in messages] == [True, True]
    assert "list_schemas" in {action.type for action in actions}


def test_both_versions_answer_all_questions(channel: Any) -> None:
    request = reflection_pb2.ServerReflectionRequest
    questions = [
        request(host="h", file_by_filename="sparkport/Flight.proto"),
        request(file_containing_symbol=f"{FLIGHT}.DoGet"),
        request(file_containing_symbol="nothing.Known"),
        request(file_by_filename="nothing.proto"),
        request(all_extension_numbers_of_type="arrow.flight.protocol.Ticket"),
        request(
            file_containing_extension=reflection_pb2.ExtensionRequest(
                containing_type="arrow.flight.protocol.Ticket", extension_number=1
            )
        ),
    ]
    for version in ("v1", "v1alpha"):
        method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        sent = iter([question.SerializeToString() for question in questions])
        answers = [
            reflection_pb2.ServerReflectionResponse.FromString(each)
            for each in channel.stream_stream(method)(sent, timeout=SOON)
        ]

        assert [answer.WhichOneof("message_response") for answer in answers] == [
            "file_descriptor_response",
            "file_descriptor_response",
            "error_response",
            "error_response",
            "all_extension_numbers_response",
            "error_response",
        ]
        assert [answer.original_request for answer in answers] == questions
        assert answers[0].valid_host == "h"
        assert answers[2].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_pyarrow_is_not_disturbed_by_any_of_it(server: sp.Server) -> None:
    with flight.connect(server.location) as client:
        info = client.get_flight_info(
            flight.FlightDescriptor.for_path("s", "t"), flight.FlightCallOptions(timeout=SOON)
        )
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 3
