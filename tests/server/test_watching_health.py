"""gRPC's health service, asked by the client that others have written for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import RawClient
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server import health

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


def test_health_needs_no_token_and_flight_does(start: Any, connect: Any) -> None:
    settings = sp.ServerSettings(authenticate=sp.TokenAuthenticator({"correct-horse": "ada"}))
    server = start(catalog_of(), settings)
    channel = connect(server).channel

    answer = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=SOON
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream(f"/{FLIGHT}/ListActions")(b"", timeout=SOON))

    assert answer.status == SERVING
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "sparkport_logins_refused_total 1.0" in server._watching.metrics.exposition().decode()


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
