"""Certificates: as bytes, or as files that are read again when they change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from sparkport.auth.watched import WatchedFiles
from sparkport.errors import BadRequest

__all__ = ["Certificates", "PEM", "check_files", "server_credentials"]

_log = logging.getLogger(__name__)

PEM: TypeAlias = bytes | Path
"""The content of a PEM file, or its path; a file may be replaced while the server runs."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates that a server shows, and those that it requires."""

    certificate: PEM
    key: PEM
    client_ca: PEM | None = None
    """Authorities, one of which must have signed the certificate that each client then needs."""


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Make credentials for gRPC. Files are read again for each new connection.

    Raises: BadRequest when a file cannot be read, or certificate and key in files are no pair.
    """
    wants_clients = certificates.client_ca is not None
    if not _files(certificates):
        found = _read(certificates)
        return grpc.ssl_server_credentials(
            [(found.key, found.certificate)], found.client_ca, wants_clients
        )
    reloading = _Reloading(certificates)
    changed: Any = reloading.changed  # the stubs do not allow None
    return grpc.dynamic_ssl_server_credentials(reloading.first, changed, wants_clients)


def check_files(certificates: Certificates) -> None:
    """Check that files are readable and certificate and key are a pair in PEM form.

    Raises: BadRequest.
    """
    _read(certificates)
    if isinstance(certificates.certificate, Path) and isinstance(certificates.key, Path):
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(
                certificates.certificate, certificates.key, password=_no_password
            )
        except (ssl.SSLError, ValueError) as error:
            raise BadRequest(
                f"the TLS certificate {certificates.certificate} and the key {certificates.key} "
                "are no pair in PEM form"
            ) from error
    if isinstance(certificates.client_ca, Path):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificates.client_ca)
        except ssl.SSLError as error:
            raise BadRequest(
                f"{certificates.client_ca} holds no certificate in PEM form"
            ) from error


@dataclass(frozen=True, slots=True)
class _Read:
    certificate: bytes
    key: bytes
    client_ca: bytes | None


class _Reloading:
    """Certificates in files, which may be replaced one after the other.

    Until they are a pair again, the old pair is used.
    """

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._loaded = WatchedFiles(
            _files(certificates),
            self._load,
            _log,
            "the TLS certificate stays as it was",
            look_seconds=0.0,  # it is called for each handshake, not for each call
            settle_seconds=0.0,  # a half-written file is no pair
        )
        self.first = self._loaded.value

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates to use from now on, or None if they have not changed.

        gRPC calls it before each handshake.
        """
        if not self._loaded.look():
            return None
        _log.info("the TLS certificate was read again")
        return self._loaded.value

    def _load(self) -> grpc.ServerCertificateConfiguration:
        check_files(self._certificates)
        found = _read(self._certificates)
        return grpc.ssl_server_certificate_configuration(
            [(found.key, found.certificate)], found.client_ca
        )


def _files(certificates: Certificates) -> list[Path]:
    given = (certificates.certificate, certificates.key, certificates.client_ca)
    return [each for each in given if isinstance(each, Path)]


def _read(certificates: Certificates) -> _Read:
    client_ca = None if certificates.client_ca is None else _content(certificates.client_ca)
    return _Read(_content(certificates.certificate), _content(certificates.key), client_ca)


def _content(pem: PEM) -> bytes:
    if isinstance(pem, bytes):
        return pem
    try:
        return pem.read_bytes()
    except OSError as error:
        raise BadRequest(f"the file {pem} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # otherwise OpenSSL would prompt on the terminal
