"""TLS: certificates in files that are replaced while the server runs, and client certificates."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from tests.server.certificates import Authority, Pair
from tests.server.raw_client import RawClient

from sparkport.builder import CatalogBuilder
from sparkport.errors import BadRequest
from sparkport.server import Server, ServerSettings
from sparkport.server.tls import Certificates, check_files

AUTHORITY = Authority()
LOCATION = "grpc+tls://127.0.0.1:0"
"""One address: `localhost` may be two, and another server can have the port of the second."""


def small() -> CatalogBuilder:
    builder = CatalogBuilder("cat")
    builder.schema("s").table("t", pa.table({"id": [1, 2, 3]}))
    return builder


def serving(certificate: Path, key: Path, client_ca: Path | None = None) -> Server:
    return Server(
        small(),
        LOCATION,
        ServerSettings(tls_certificate=certificate, tls_key=key, tls_client_ca=client_ca),
    )


def shown_by(server: Server) -> str:
    """The name in the certificate that a new connection gets."""
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    context.set_alpn_protocols(["h2"])
    port = int(server.location.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        found = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
    return str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def asks(server: Server, pair: Pair | None = None) -> list[str]:
    credentials = grpc.ssl_channel_credentials(
        AUTHORITY.certificate, pair.key if pair else None, pair.certificate if pair else None
    )
    with RawClient(server.location, credentials) as client:
        return list(client.list_schemas("cat"))


def test_a_certificate_in_a_file_is_replaced_without_a_restart(tmp_path):
    files = AUTHORITY.sign("first").write(tmp_path)
    with serving(*files) as server:
        assert shown_by(server) == "first"
        with flight.connect(server.location, tls_root_certs=AUTHORITY.certificate) as old:
            options = flight.FlightCallOptions(timeout=60)
            assert old.list_actions(options)
            AUTHORITY.sign("second").write(tmp_path)

            assert shown_by(server) == "second"
            assert shown_by(server) == "second"
            assert asks(server)
            assert old.list_actions(options)  # existing connections stay


def test_a_folder_that_is_swapped_as_kubernetes_does_it_is_noticed(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        AUTHORITY.sign(name).write(tmp_path / name)
    (tmp_path / "current").symlink_to("first")
    with serving(tmp_path / "current" / "tls.crt", tmp_path / "current" / "tls.key") as server:
        assert shown_by(server) == "first"
        (tmp_path / "new").symlink_to("second")
        os.replace(tmp_path / "new", tmp_path / "current")
        assert shown_by(server) == "second"


@pytest.mark.parametrize("broken", ["half replaced", "garbage", "missing"])
def test_what_is_no_pair_leaves_the_old_one_and_is_complained_about_once(tmp_path, caplog, broken):
    certificate, key = AUTHORITY.sign("first").write(tmp_path)
    second = AUTHORITY.sign("second")
    with serving(certificate, key) as server, caplog.at_level(logging.ERROR):
        if broken == "missing":
            key.unlink()
        else:
            certificate.write_bytes(second.certificate if broken == "half replaced" else b"garbage")
        for _ in range(3):
            assert shown_by(server) == "first"
        complaints = [each for each in caplog.records if each.name == "sparkport.server.tls"]
        assert len(complaints) == 1

        second.write(tmp_path)
        assert shown_by(server) == "second"


def test_clients_without_a_certificate_of_the_authority_are_refused(tmp_path):
    files = AUTHORITY.sign().write(tmp_path)
    clients, strangers = Authority("clients"), Authority("strangers")
    ca = tmp_path / "clients.crt"
    ca.write_bytes(clients.certificate)
    with serving(*files, ca) as server:
        assert asks(server, clients.sign("ada")) == ["s"]
        for pair in (None, strangers.sign("eve"), AUTHORITY.sign("eve")):
            with pytest.raises(grpc.RpcError) as caught:
                asks(server, pair)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

        ca.write_bytes(strangers.certificate)  # other authorities count at once, too
        assert asks(server, strangers.sign("eve")) == ["s"]


def test_certificates_of_clients_also_without_files(tmp_path):
    pair, clients = AUTHORITY.sign(), Authority("clients")
    settings = ServerSettings(
        tls_certificate=pair.certificate, tls_key=pair.key, tls_client_ca=clients.certificate
    )
    with Server(small(), LOCATION, settings) as server:
        assert asks(server, clients.sign("ada")) == ["s"]
        with pytest.raises(grpc.RpcError):
            asks(server)


def _encrypted(key: bytes) -> bytes:
    encryption = serialization.BestAvailableEncryption(b"password")
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def test_files_that_cannot_be_are_named_at_the_start(tmp_path):
    certificate, key = AUTHORITY.sign().write(tmp_path)
    other, _ = AUTHORITY.sign("other").write(tmp_path, "other")
    garbage, missing = tmp_path / "garbage", tmp_path / "missing"
    garbage.write_bytes(b"garbage")
    locked = tmp_path / "locked"
    locked.write_bytes(_encrypted(key.read_bytes()))
    for wrong, said in (
        (Certificates(other, key), "are no pair"),
        (Certificates(garbage, key), "are no pair"),
        (Certificates(certificate, garbage), "are no pair"),
        (Certificates(certificate, locked), "are no pair"),
        (Certificates(certificate, missing), "missing cannot be read"),
        (Certificates(certificate, key, garbage), "garbage holds no certificate"),
        (Certificates(certificate, key, missing), "missing cannot be read"),
    ):
        with pytest.raises(BadRequest, match=said):
            check_files(wrong)
    with pytest.raises(BadRequest, match="are no pair"):
        serving(other, key).start()
