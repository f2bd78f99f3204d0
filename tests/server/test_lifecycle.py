"""Starting, stopping, locations, TLS and limits of a server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import NUMBERS, ListedTable, ScriptedTable, Silent, catalog_of, numbers
from tests.server.ports import start_again
from tests.server.raw_client import (
    Failure,
    RawClient,
    decode_stream,
    failure_of,
    path,
    ticket_message,
)
from tests.server.test_threads import eventually

from sparkport.errors import BadRequest
from sparkport.server import Server, ServerSettings

SOON = 30.0
T = path("s", "t")
LOCAL = "grpc://127.0.0.1:0"


def small_catalog():
    return catalog_of(ListedTable("t", numbers()), name="cat")


def test_port_0_picks_a_free_port_and_the_location_says_which():
    server = Server(small_catalog(), LOCAL)
    assert server.location == LOCAL

    with server, Server(small_catalog(), LOCAL) as other:
        assert server.location != other.location
        for each in (server, other):
            assert each.location.startswith("grpc://127.0.0.1:")
            with RawClient(each.location) as client:
                assert client.scan(T).table.num_rows == 3


@pytest.mark.parametrize(
    "location",
    ["grpc://localhost:0", "grpc+tcp://127.0.0.1:0", "grpc://127.0.0.1:0/", "grpc://[::1]:0"],
)
def test_locations_of_many_forms_are_served(location):
    with Server(small_catalog(), location) as server, flight.connect(server.location) as client:
        info = client.get_flight_info(T, flight.FlightCallOptions(timeout=20))

        assert info.schema == NUMBERS


@pytest.mark.parametrize(
    "location",
    [
        "",
        "127.0.0.1:0",
        "http://127.0.0.1:0",
        "grpc://",
        "grpc://:0",
        "grpc://host",
        "grpc://host:port",
        "grpc://host:70000",
        "grpc://host:1/path",
        "grpc://[::1:0",
        "grpc+unix:///tmp/socket",
    ],
)
def test_a_location_that_cannot_be_served_is_refused_with_the_form_it_must_have(location):
    with pytest.raises(BadRequest, match=r"grpc://host:port or grpc\+tls://host:port"):
        Server(small_catalog(), location)


@pytest.mark.parametrize("location", ["grpc://192.0.2.1:0", "grpc://no-such-host.invalid:0"])
def test_an_address_of_another_machine_cannot_be_listened_on(location):
    with pytest.raises(OSError, match="cannot listen on"):
        Server(small_catalog(), location).start()


def test_a_port_in_use_is_an_error_of_one_sentence():
    with Server(small_catalog(), LOCAL) as server:
        with pytest.raises(OSError, match="the port is in use") as caught:
            Server(small_catalog(), server.location).start()

        assert "\n" not in str(caught.value)
        with RawClient(server.location) as client:
            assert client.scan(T).table.num_rows == 3


def test_a_server_that_has_stopped_frees_its_port_and_can_start_again():
    locations = []

    def stopped() -> Server:
        server = Server(small_catalog(), LOCAL).start()
        locations.append(server.location)
        server.stop()
        with pytest.raises(grpc.RpcError), RawClient(locations[-1]) as client:
            client.scan(T)
        return server

    server = start_again(stopped)

    try:
        assert server.location == locations[-1]
        with RawClient(server.location) as client:
            assert client.scan(T).table.num_rows == 3
    finally:
        server.stop()


def test_a_server_is_started_once():
    with Server(small_catalog(), LOCAL) as server, pytest.raises(RuntimeError, match="already"):
        server.start()


def test_stopping_is_harmless_before_the_start_and_when_repeated():
    server = Server(small_catalog(), LOCAL)
    server.stop()
    server.start()
    server.stop()
    server.stop()


def test_a_server_can_be_stopped_by_many_threads_at_once():
    for _ in range(5):
        server = Server(small_catalog(), LOCAL).start()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: server.stop(grace=0), range(8)))  # noqa: B023


def test_waiting_ends_when_the_server_stops():
    server = Server(small_catalog(), LOCAL).start()
    waiting = threading.Thread(target=server.wait)
    waiting.start()

    server.stop()

    waiting.join(SOON)
    assert not waiting.is_alive()


def test_stopping_lets_a_running_scan_finish_and_takes_no_new_calls():
    begun, go_on = threading.Event(), threading.Event()

    def scan(_ctx, _options):
        batch = numbers(10).to_batches()[0]
        yield batch
        begun.set()
        go_on.wait(SOON)
        yield batch

    server = Server(catalog_of(ScriptedTable("t", NUMBERS, scan)), LOCAL).start()
    with RawClient(server.location) as client, RawClient(server.location) as late:
        (endpoint,) = client.endpoints(T)
        call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
        assert begun.wait(SOON)
        stopping = threading.Thread(target=server.stop, args=(30.0,))
        stopping.start()

        assert first_refusal(late).code == "UNAVAILABLE"
        go_on.set()

        assert decode_stream(call).table.num_rows == 20
        stopping.join(SOON)
        assert not stopping.is_alive()


def first_refusal(client: RawClient) -> Failure:
    """Call until the server has noticed that it is being stopped."""
    while True:
        try:
            client.endpoints(T)
        except grpc.RpcError as error:
            return failure_of(error)


def test_stopping_cancels_what_is_not_finished_after_the_grace():
    scan = Silent()
    server = Server(catalog_of(ScriptedTable("t", NUMBERS, scan)), LOCAL).start()
    with RawClient(server.location) as client:
        (endpoint,) = client.endpoints(T)
        call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
        assert scan.started.wait(SOON)

        server.stop(grace=0.1)

        assert scan.ended.wait(SOON)
        with pytest.raises(grpc.RpcError):
            list(call)


def test_more_calls_than_allowed_are_refused_and_not_kept_waiting(start, connect):
    scan = Silent()
    tables = [ScriptedTable("t", NUMBERS, scan), ListedTable("good", numbers())]
    server = start(catalog_of(*tables), ServerSettings(max_calls=3))
    client = connect(server)
    (endpoint,) = client.endpoints(T)
    # gRPC counts a call a moment longer.
    assert eventually(lambda: server._grpc._state.active_rpc_count == 0)
    calls = [client.open("DoGet", ticket_message(endpoint.ticket.ticket)) for _ in range(3)]
    for call in calls:
        next(call)

    assert client.action_failure("list_schemas", {"catalog_name": ""}).code == "RESOURCE_EXHAUSTED"

    for call in calls:
        call.cancel()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(chain),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return chain.read_bytes(), key.read_bytes()


def test_tls_with_a_certificate_that_the_client_knows(certificate):
    chain, key = certificate
    settings = ServerSettings(tls_certificate=chain, tls_key=key)

    with Server(small_catalog(), "grpc+tls://localhost:0", settings) as server:
        assert server.location.startswith("grpc+tls://localhost:")
        with RawClient(server.location, grpc.ssl_channel_credentials(chain)) as client:
            assert client.scan(T).table.num_rows == 3
        with flight.connect(server.location, tls_root_certs=chain) as arrow_client:
            assert (
                arrow_client.get_schema(T, flight.FlightCallOptions(timeout=20)).schema == NUMBERS
            )
        with pytest.raises(grpc.RpcError), RawClient(server.location) as client:
            client.scan(T)


def test_tls_needs_certificate_and_key(certificate):
    chain, key = certificate
    for settings in (None, ServerSettings(tls_certificate=chain), ServerSettings(tls_key=key)):
        with pytest.raises(BadRequest, match="certificate"):
            Server(small_catalog(), "grpc+tls://localhost:0", settings)


def test_a_certificate_that_is_none_is_an_error_that_names_it(certificate):
    chain, key = certificate
    for pair in ((b"garbage", key), (chain, b"garbage")):
        settings = ServerSettings(tls_certificate=pair[0], tls_key=pair[1])
        with pytest.raises(OSError, match="certificate"):
            Server(small_catalog(), "grpc+tls://localhost:0", settings).start()


_SERVING = """
import pyarrow as pa
from sparkport import CatalogBuilder, serve
builder = CatalogBuilder("cat")
builder.schema("s").table("t", pa.table({"id": [1, 2, 3]}))
serve(builder, "grpc://127.0.0.1:0")
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_stops_gracefully_on_a_signal(number):
    with subprocess.Popen(
        [sys.executable, "-c", _SERVING], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            greeting = process.stdout.readline()  # printed when it is ready
            location = greeting.partition(" on ")[2].partition(" until ")[0]
            assert f"ATTACH 'cat' (TYPE airport, LOCATION '{location}');" in greeting
            with RawClient(location) as client:
                assert client.scan(T).table.num_rows == 3

            process.send_signal(number)

            assert process.wait(30) == 0
            # Not by `communicate`, which does not know what `readline` has read ahead.
            assert process.stdout.read() == "stopped\n"
        finally:
            process.kill()
