"""Certificates: as bytes, or as files that are read again when they change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc

from sparkport.auth.watched import WatchedFiles
from sparkport.errors import BadRequest

__all__ = ["Certificates", "PEM", "check_files", "server_credentials"]

_log = logging.getLogger(__name__)

PEM: TypeAlias = bytes | Path
"""What is in a PEM file, or where that is: then it may be replaced while the server runs."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a server shows, and what it wants to see."""

    certificate: PEM
    key: PEM
    client_ca: PEM | None = None
    """Authorities one of which must have signed the certificate that each client then needs."""


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """For gRPC. Connections that exist keep what they have begun with; new ones get what is in the
    files by then.

    Raises: BadRequest when a file cannot be read, or certificate and key in files are no pair.
    """
    wants_clients = certificates.client_ca is not None
    if not _files(certificates):
        found = _read(certificates)
        return grpc.ssl_server_credentials(
            [(found.key, found.certificate)], found.client_ca, wants_clients
        )
    reloading = _Reloading(certificates)
    fetcher = reloading.changed
    return grpc.dynamic_ssl_server_credentials(reloading.first, fetcher, wants_clients)  # type: ignore[arg-type]


def check_files(certificates: Certificates) -> None:
    """Raises: BadRequest when a file cannot be read, or certificate and key in files are no pair in
    PEM form.
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
                f"the TLS certificate {certificates.certificate} and the key {certificates.key} are no pair in PEM form"
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
    """Files that somebody replaces, usually one after the other: until they are a pair again, the
    old one is used.
    """

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._loaded = WatchedFiles(
            _files(certificates),
            self._load,
            _log,
            "the TLS certificate stays as it was",
            look_seconds=0.0,  # there is a handshake at a time, not a call
            settle_seconds=0.0,  # what is half written is no pair
        )
        self.first = self._loaded.value

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC before each handshake: what to use from now on, None for the same as
        before.
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
    raise ValueError("the key is encrypted")  # else OpenSSL would ask whoever sits at the terminal
