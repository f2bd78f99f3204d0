"""What a server is made from: its catalogs, its location, and the options of gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from sparkport.builder import CatalogBuilder
from sparkport.catalog import Catalog
from sparkport.errors import BadRequest

__all__ = ["Catalogs", "built_catalog", "grpc_options", "named_catalogs", "parse_location"]

Catalogs: TypeAlias = (
    Catalog
    | CatalogBuilder
    | Iterable[Catalog | CatalogBuilder]
    | Mapping[str, Catalog | CatalogBuilder]
)
"""A catalog, several, or several by the name they are served under."""

_HEADER_LIMIT = 1024 * 1024
"""Bytes of a request's headers, of which the client copies a descriptor into one (airport §2.1).

Percent-encoded names of 500 emoji exceed gRPC's own limit of 8 KiB.
"""
_HANDSHAKE_SECONDS = 10.0
"""For a connection to be made, TLS included."""
_MOST_UNHEARD = 10_000
"""Calls that gRPC has received and the server has not heard of; beyond that gRPC drops some."""


def named_catalogs(catalogs: Catalogs) -> Iterable[tuple[str, Catalog]]:
    """Return the catalogs with the names that they are served under."""
    if isinstance(catalogs, Mapping):
        return [(name, built_catalog(each)) for name, each in catalogs.items()]
    several = [catalogs] if isinstance(catalogs, Catalog | CatalogBuilder) else catalogs
    return [(each.name, built_catalog(each)) for each in several]


def built_catalog(catalog: Catalog | CatalogBuilder) -> Catalog:
    return catalog.build() if isinstance(catalog, CatalogBuilder) else catalog


def parse_location(location: str) -> tuple[str, str, int]:
    """Return scheme, host and port. Raises: BadRequest."""
    problem = BadRequest(
        f"the location {location!r} must be of the form grpc://host:port or grpc+tls://host:port"
    )
    try:
        parts = urlsplit(location)
        scheme, host, port = parts.scheme.replace("grpc+tcp", "grpc"), parts.hostname, parts.port
    except ValueError:
        raise problem from None
    if scheme not in ("grpc", "grpc+tls") or not host or port is None or parts.path.strip("/"):
        raise problem
    return scheme, host, port


def _most_connections() -> int:
    """Return a limit that leaves file descriptors for files: each connection takes one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**31 - 1
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        2**31 - 1 if allowed == resource.RLIM_INFINITY else max(1, min(allowed // 4 * 3, 2**31 - 1))
    )


def grpc_options(keepalive_seconds: float, max_message_bytes: int) -> list[tuple[str, int]]:
    """Return the options of gRPC's server; 0 for `max_message_bytes` means no limit."""
    keepalive = int(keepalive_seconds * 1000)
    return [
        # The protocol has no limit on the size of messages (airport §1.2).
        ("grpc.max_receive_message_length", max_message_bytes or -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _HEADER_LIMIT),
        ("grpc.absolute_max_metadata_size", _HEADER_LIMIT),
        ("grpc.server.max_pending_requests", _MOST_UNHEARD),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_UNHEARD),
        ("grpc.server_handshake_timeout_ms", int(_HANDSHAKE_SECONDS * 1000)),
        ("grpc.max_allowed_incoming_connections", _most_connections()),
        # A second server on a busy port must fail, not share it.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", max(keepalive // 3, 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
