"""Connecting as a client, for the commands that look at a running server."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.cli.connecting_flags import TOKEN_VARIABLE
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.testing import ClientFailure, DuckDBClient, ProtocolViolation, ServerError

__all__ = ["RemoteServer", "catalog_names", "remote_server", "plain_errors"]

_SECONDS = 60.0


class RemoteServer:
    """A server, and what a client needs to connect to it."""

    def __init__(
        self, location: str, token: str | None = None, certificates: bytes | None = None
    ) -> None:
        self.location = location
        self._token = token
        self._certificates = certificates

    def client(self, catalog: str) -> DuckDBClient:
        """A client of one catalog; the caller closes it."""
        return DuckDBClient(
            self.location,
            catalog,
            token=self._token,
            timeout=_SECONDS,
            tls_root_certs=self._certificates,
        )


def remote_server(options: argparse.Namespace, location: str) -> RemoteServer:
    """The server that the flags name. Raises: BadRequest."""
    if not location.startswith(("grpc://", "grpc+tls://")):
        raise BadRequest(
            f"the location {location!r} must be of the form grpc://host:port or "
            f"grpc+tls://host:port"
        )
    try:
        certificates = options.ca.read_bytes() if options.ca else None
    except OSError as error:
        raise BadRequest(f"the file {options.ca} cannot be read: {error.strerror}") from error
    return RemoteServer(location, options.token or os.environ.get(TOKEN_VARIABLE), certificates)


def catalog_names(server: RemoteServer) -> list[str]:
    """The names of the catalogs that can be attached (airport §11). Raises: ClientFailure."""
    with server.client("") as client:
        names: list[str] = client.take_flight(["__databases"])["name"].to_pylist()
    return names


@contextmanager
def plain_errors(server: RemoteServer) -> Iterator[None]:
    """Raises: PreconditionFailed, in one sentence, for any error of the server."""
    try:
        yield
    except ServerError as error:
        if error.code == "UNAVAILABLE":
            raise PreconditionFailed(
                f"no server answers at {server.location}, or not with that kind of encryption, or "
                f"not with a certificate "
                "that is trusted here (--ca names its authority): is it running?"
            ) from error
        if error.code == "UNAUTHENTICATED":
            raise PreconditionFailed(
                f"{error.message}; here: --token, or {TOKEN_VARIABLE}"
            ) from error
        raise PreconditionFailed(
            f"the server at {server.location} says: {error.message}"
        ) from error
    except ProtocolViolation as error:
        raise PreconditionFailed(
            f"the server at {server.location} breaks the protocol: {error}"
        ) from error
    except ClientFailure as error:
        raise PreconditionFailed(str(error)) from error
